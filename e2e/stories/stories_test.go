// Package stories holds the end-to-end tests: each file in testdata is a story, run in a namespace of its own of one
// lab that they all share.
package stories

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// theLab is set by TestMain before any test runs: starting a cluster per test would take most of the time.
var theLab *lab.Lab

func TestMain(m *testing.M) {
	lab.Contain(func() int {
		ctx := context.Background()
		began := time.Now()
		l, err := start(ctx)
		if err != nil {
			fmt.Fprintln(os.Stderr, "starting the lab of the stories:", err)
			return 1
		}
		defer l.Close()
		fmt.Printf("lab ready, chart installed, load balancer up after %.1f s\n", time.Since(began).Seconds())
		theLab = l
		return m.Run()
	})
}

// chartValues are those that all stories share. The administrator may write node ports, so that a story can write junk.
var chartValues = []string{"agent.config.withdrawGrace=1s", "admissionPolicies.annotationWriters={nplbridge-lab-admin}"}

func start(ctx context.Context) (*lab.Lab, error) {
	l, err := lab.Start(ctx, lab.Options{Nodes: 3, Progress: os.Stdout, PodNetwork: podNetwork()})
	if err != nil {
		return nil, err
	}
	if err := l.InstallChart(ctx, chartValues...); err != nil {
		l.Close()
		return nil, err
	}
	if err := l.StartLoadBalancer(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// podNetwork lets the same stories run over another kind of Pod network.
func podNetwork() lab.PodNetwork { return lab.PodNetwork(os.Getenv("STORIES_POD_NETWORK")) }

func TestStories(t *testing.T) {
	testscript.RunT(serial{t}, testscript.Params{
		Dir:  "testdata",
		Cmds: commands,
		Condition: func(cond string) (bool, error) {
			if cond != "bridge" {
				return false, fmt.Errorf("there is no condition %q; \"bridge\" holds where the Pods of a Node are on a bridge", cond)
			}
			return podNetwork() == lab.Bridged || podNetwork() == lab.Overlay, nil
		},
		Setup: func(env *testscript.Env) error {
			s := newStory(env)
			env.Defer(func() { s.end(env.T().(serial).Failed()) })
			env.Values[storyKey{}] = s
			chart, err := filepath.Abs("../../charts/nplbridge")
			if err != nil {
				return err
			}
			env.Setenv("CHART", chart)
			env.Setenv("NAMESPACE", s.Namespace)
			return s.create()
		},
	})
}

// serial runs the stories one after the other: some of them break what all share.
type serial struct{ *testing.T }

func (s serial) Parallel() {}

func (s serial) Verbose() bool { return testing.Verbose() }

func (s serial) Run(name string, f func(testscript.T)) {
	s.T.Run(name, func(t *testing.T) { f(serial{t}) })
}

// storyKey finds the story in a script's environment.
type storyKey struct{}

// story is what a running script knows.
type story struct {
	view.View

	ctx  context.Context
	loud func(format string, args ...any)
	fail func(format string, args ...any)
	load *churn
	// lossy is what "outage start" began and "outage end" has not ended.
	lossy *outage
	// keeping is what "keep" began and "kept" has not ended.
	keeping *keeping
	// talking is what "talk open" began and "talk end" has not ended.
	talking *talk
	down    map[string]death // what was killed and not yet waited for
	last    []func() error   // what "finally" is to do
	// occupied are the listeners of "occupy".
	occupied map[string]net.Listener
}

func newStory(env *testscript.Env) *story {
	name := strings.ReplaceAll(strings.TrimPrefix(filepath.Base(env.WorkDir), "script-"), "_", "-")
	return &story{
		View: view.View{Lab: theLab, Namespace: "story-" + name},
		ctx:  context.Background(),
		loud: func(format string, args ...any) { env.T().Log(fmt.Sprintf(format, args...)) },
		fail: func(format string, args ...any) { env.T().(serial).Errorf(format, args...) },
		down: map[string]death{}, occupied: map[string]net.Listener{},
	}
}

func (s *story) create() error {
	err := s.Lab.Apply(s.ctx, fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: privileged}}`, s.Namespace))
	if err != nil {
		return err
	}
	return view.Poll(s.ctx, func() error { // without it a Pod is refused
		_, err := s.Lab.Client().CoreV1().ServiceAccounts(s.Namespace).Get(s.ctx, "default", metav1.GetOptions{})
		return err
	})
}

// end stops what the story left running and lets its namespace go; the next story does not wait for it.
func (s *story) end(failed bool) {
	if s.load != nil {
		s.load.stop()
	}
	if s.lossy != nil {
		s.lossy.stop()
	}
	if s.keeping != nil {
		if _, err := s.kept(nil, nil); err != nil {
			s.loud("%v", err)
		}
	}
	if s.talking != nil {
		s.talking.conn.Close()
	}
	if failed {
		s.dump()
	}
	for _, listener := range s.occupied {
		listener.Close()
	}
	for _, do := range slices.Backward(s.last) {
		if err := do(); err != nil {
			s.fail("%v", err)
		}
	}
	if _, err := s.Lab.Kubectl(s.ctx, "delete", "namespace", s.Namespace, "--wait=false"); err != nil {
		s.loud("deleting the namespace of the story: %v", err)
	}
}

// dump prints what a person would look at first after a failure.
func (s *story) dump() {
	for _, args := range [][]string{
		{"-n", s.Namespace, "get", "services,pods", "-o", "wide"},
		{"-n", s.Namespace, "get", "pods", "-o", `jsonpath={range .items[*]}{.metadata.name}{" "}{.metadata.annotations.nodeportlocal\.antrea\.io}{"\n"}{end}`},
		{"-n", s.Namespace, "get", "events"},
		{"-n", "nplbridge-system", "get", "pods", "-o", "wide"},
		{"-n", "nplbridge-system", "logs", "-l", "app.kubernetes.io/component=agent", "--tail=15", "--prefix"},
	} {
		out, err := s.Lab.Kubectl(s.ctx, args...)
		s.loud("kubectl %s\n%s%v", strings.Join(args, " "), out, err)
	}
	for _, b := range s.Lab.LoadBalancers() {
		lines := strings.Split(b.LBSyncLog(), "\n")
		s.loud("the end of the log of lbsync on %s:\n%s", b.Place(), strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
}
