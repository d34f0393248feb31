package paths

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"net"
	"text/template"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nplbridge/nplbridge/e2e/load"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// rolled are the Pods that are replaced under load.
const rolled = 20

//go:embed rolling.yaml.tmpl
var rollingText string

var rollingManifest = template.Must(template.New("rolling").Parse(rollingText))

// Rolled is what one path lost while Pods were replaced.
type Rolled struct {
	Path             Path
	Requests, Failed int
	Error            string // the first failure
}

// rollingPaths are measured at the same time, over the same Pods.
func rollingPaths() []Path { return []Path{Cluster, Local, NPL} }

// rolling replaces 20 Pods again and again, while clients ask them over all paths at once, until each path has had its requests. The Pods have the
// same preStop for all, HAProxy sends a connection that fails to another member for all, and the readiness gate, which knows no path, holds back for all.
func (s *site) rolling(ctx context.Context, o Options) ([]Rolled, int, error) {
	var text bytes.Buffer
	if err := rollingManifest.Execute(&text, map[string]any{
		"Namespace": namespace, "Class": s.Lab.LoadBalancer().Class(), "Paths": rollingPaths(), "Replicas": rolled,
	}); err != nil {
		return nil, 0, err
	}
	if err := s.Lab.Apply(ctx, text.String()); err != nil {
		return nil, 0, err
	}
	if err := s.rolledOut(ctx); err != nil {
		return nil, 0, err
	}
	var group errgroup.Group
	results := make([]Rolled, len(rollingPaths()))
	for i, p := range rollingPaths() {
		target, err := s.vip(ctx, "rolling-"+p, plain)
		if err != nil {
			return nil, 0, err
		}
		err = view.Poll(ctx, func() error {
			out, err := s.drive(ctx, "client", Task{Target: target, Kind: Connect, Clients: 2, Requests: 20 * rolled})
			if err == nil && (out.Failed > 0 || len(out.ByPod) < rolled) {
				err = fmt.Errorf("%s: %d Pods of %d answer, %d failed: %s", p, len(out.ByPod), rolled, out.Failed, out.Error)
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		group.Go(func() error {
			out, err := s.drive(ctx, "client", Task{Target: target, Kind: Connect, Clients: 2, Requests: o.RollRequests})
			results[i] = Rolled{p, out.Requests, out.Failed, out.Error}
			return err
		})
	}
	done := make(chan error, 1)
	go func() { done <- group.Wait() }()
	for rollouts := 0; ; {
		select {
		case err := <-done:
			return results, rollouts, err
		default:
		}
		if _, err := s.Lab.Kubectl(ctx, "-n", namespace, "rollout", "restart", "deployment", "rolling"); err != nil {
			return nil, 0, err
		}
		if err := s.rolledOut(ctx); err != nil {
			return nil, 0, err
		}
		rollouts++
		s.say("%d rollouts", rollouts)
	}
}

func (s *site) rolledOut(ctx context.Context) error {
	_, err := s.Lab.Kubectl(ctx, "-n", namespace, "rollout", "status", "deployment", "rolling", "--timeout=5m")
	return err
}

// askHTTP returns the address of the client that the Pod learned of.
func askHTTP(ctx context.Context, target string, dial load.DialFunc) (string, error) {
	var peer string
	err := view.Poll(ctx, func() error {
		r := load.Run(ctx, 1, load.Options{Targets: []string{target}, Timeout: 5 * time.Second, Dial: dial,
			OnAnswer: func(_ string, a load.Answer, _ time.Time) { peer, _, _ = net.SplitHostPort(a.Peer) }})
		if r.Failed > 0 {
			return fmt.Errorf("%v", r.Failures)
		}
		return nil
	})
	return peer, err
}
