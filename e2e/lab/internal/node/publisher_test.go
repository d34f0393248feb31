package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/lifecycle"
)

// publishing starts a publisher of a Pod that a fake API server has.
func publishing(t *testing.T) (*publisher, *fake.Clientset) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1", ResourceVersion: "1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	}
	client := fake.NewClientset(pod)
	p := newPublisher(client, zap.NewNop(), pod)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.run(ctx, ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return p, client
}

func someFacts(t *testing.T) lifecycle.Facts {
	t.Helper()
	return lifecycle.Facts{StartTime: time.Unix(1e9, 0), ImageID: func(string) string { return "" }}
}

func wait(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s: not within %s", what, patience)
	}
}

func TestPublisherRetriesThenRemoves(t *testing.T) {
	p, client := publishing(t)
	var failures atomic.Int32
	failures.Store(3)
	client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if failures.Add(-1) >= 0 {
			return true, nil, errors.New("unreachable")
		}
		return false, nil, nil
	})
	p.want(someFacts(t))
	p.drop()
	wait(t, "removed", p.done)
	var verbs []string
	for _, a := range client.Actions() {
		verbs = append(verbs, a.GetVerb())
	}
	if n := len(verbs); n < 5 || verbs[n-2] != "patch" || verbs[n-1] != "delete" {
		t.Errorf("got %v, want patches until one succeeds and then the deletion", verbs)
	}
	last := client.Actions()[len(verbs)-1].(clienttesting.DeleteActionImpl)
	if o := last.DeleteOptions; *o.GracePeriodSeconds != 0 || *o.Preconditions.UID != "u1" {
		t.Errorf("removed with %+v", o)
	}
}

// A Pod of the same name that came after ours is not ours to touch.
func TestPublisherStopsAtAReplacedPod(t *testing.T) {
	for name, refuse := range map[string]struct {
		verb string
		err  error
	}{
		"patch":  {"patch", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil)},
		"delete": {"delete", apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "web", errors.New("precondition failed"))},
	} {
		t.Run(name, func(t *testing.T) {
			p, client := publishing(t)
			client.PrependReactor(refuse.verb, "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refuse.err })
			client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u2"}}, nil
			})
			p.want(someFacts(t))
			p.drop()
			wait(t, "over", p.done)
		})
	}
}

func TestPublisherWritesNothingTwice(t *testing.T) {
	p, client := publishing(t)
	for range 3 {
		p.want(someFacts(t))
	}
	p.drop()
	wait(t, "removed", p.done)
	patches := 0
	for _, a := range client.Actions() {
		if a.GetVerb() == "patch" {
			patches++
		}
	}
	if patches != 1 {
		t.Errorf("%d patches for one status", patches)
	}
}
