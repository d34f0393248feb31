package paths

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"net"
	"text/template"
	"time"

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
	Failures         []string
}

// rollingPaths are measured at the same time, over the same Pods.
func rollingPaths() []Path { return []Path{Cluster, Local, NPL} }

// rolling replaces 20 Pods again and again, while clients ask them over all paths at once, until each path had its requests. The Pods have the
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
	loads := map[Path]*load.Load{}
	for _, p := range rollingPaths() {
		target, err := s.vip(ctx, "rolling-"+p, plain)
		if err != nil {
			return nil, 0, err
		}
		options := load.Options{Targets: []string{target}, Clients: 4, Timeout: patience, Dial: s.DialFrom("client")}
		err = view.Poll(ctx, func() error {
			if r := load.Run(ctx, 100, options); r.Failed > 0 || len(r.ByPod) < rolled {
				return fmt.Errorf("%s: %d Pods of %d answer, %v", p, len(r.ByPod), rolled, r.Failures)
			}
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
		loads[p] = load.Start(ctx, options)
	}
	rollouts := 0
	for enough := false; !enough; rollouts++ {
		if _, err := s.Lab.Kubectl(ctx, "-n", namespace, "rollout", "restart", "deployment", "rolling"); err != nil {
			return nil, 0, err
		}
		if err := s.rolledOut(ctx); err != nil {
			return nil, 0, err
		}
		enough = true
		for _, p := range rollingPaths() {
			enough = enough && loads[p].Result().Requests >= o.RollRequests
		}
		s.say("%d rollouts, %d requests through %s", rollouts+1, loads[NPL].Result().Requests, NPL)
	}
	var out []Rolled
	for _, p := range rollingPaths() {
		r := loads[p].Stop()
		out = append(out, Rolled{p, r.Requests, r.Failed, r.Failures})
	}
	return out, rollouts, nil
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
