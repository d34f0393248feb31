package agent

import (
	"testing"

	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/nodecheck"
)

// nothing is a Node where no other agent is at work.
func nothing(nodecheck.Subject) nodecheck.Facts { return nodecheck.Facts{} }

// An agent that goes, comes back and goes again: with the tables still there its Pods have their ports again.
func TestCleanupAndComeBack(t *testing.T) {
	c, k := start(t), newKernel()
	c.addService("web", 8080)
	c.addPod("node-1", "p", "u", "10.0.0.1")
	_, _, stop := c.agentOn(k, config())
	eventually(t, "annotation", func() bool { return c.annotation("p") != "" })
	first := c.annotation("p")
	stop()
	k.Before = func(op string) error {
		if op == "cleanup" && c.annotation("p") != "" {
			t.Error("the tables go before the annotation")
		}
		return nil
	}
	cfg := config()
	cfg.WithdrawGrace = 0
	open := func(dataplane.Config) (kernel, error) { return k, nil }
	for range 2 { // again, with nothing left
		if err := cleanup(t.Context(), cfg, c, zaptest.NewLogger(t), open, nothing); err != nil {
			t.Fatal(err)
		}
	}
	if s, _ := k.Load(); !s.Fresh || c.annotation("p") != "" {
		t.Fatalf("left: fresh %v, annotation %q", s.Fresh, c.annotation("p"))
	}
	k.Before = nil
	_, _, stop = c.agentOn(k, config())
	defer stop()
	eventually(t, "an annotation again", func() bool { return c.annotation("p") != "" })
	t.Logf("before %s, after %s", first, c.annotation("p"))
}

// Where Antrea's agent serves the Node, ours never did, and the annotations are not ours.
func TestCleanupLeavesAntreasAnnotations(t *testing.T) {
	c, k := start(t), newKernel()
	const theirs = `[{"podPort":8080,"nodeIP":"192.0.2.1","nodePort":61000,"protocol":"tcp","protocols":["tcp"]}]`
	c.must(c.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u", Annotations: map[string]string{"nodeportlocal.antrea.io": theirs}},
		Spec:       corev1.PodSpec{NodeName: "node-1"},
	}, metav1.CreateOptions{}))
	chain := func(nodecheck.Subject) (f nodecheck.Facts) { antreaAtWork(&f); return f }
	if err := cleanup(t.Context(), config(), c, zaptest.NewLogger(t), func(dataplane.Config) (kernel, error) { return k, nil }, chain); err != nil {
		t.Fatal(err)
	}
	if got := c.annotation("p"); got != theirs {
		t.Errorf("Antrea's annotation is %q now", got)
	}
}
