package remote

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/nplbridge/nplbridge/cmd/internal/remote/remotetest"
	"github.com/nplbridge/nplbridge/cmd/internal/serve"
)

func TestChoose(t *testing.T) {
	pod := func(name string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: name, Labels: map[string]string{"component": "lbsync"}},
			Status:     corev1.PodStatus{Phase: phase},
		}
	}
	lease := func(holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "l"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	}
	target := Target{Namespace: "sys", Selector: "component=lbsync", Lease: "l"}
	named := target
	named.Process = "b"
	missing := target
	missing.Process = "z"
	for name, test := range map[string]struct {
		client    *fake.Clientset
		target    Target
		want, err string
	}{
		"the leader":         {client: fake.NewClientset(pod("a", corev1.PodRunning), pod("b", corev1.PodRunning), lease("b")), target: target, want: "b"},
		"any, with no Lease": {client: fake.NewClientset(pod("b", corev1.PodRunning), pod("a", corev1.PodRunning)), target: target, want: "a"},
		"the leader is gone": {client: fake.NewClientset(pod("a", corev1.PodRunning), pod("b", corev1.PodFailed), lease("b")), target: target, want: "a"},
		"the one named":      {client: fake.NewClientset(pod("a", corev1.PodRunning), pod("b", corev1.PodRunning), lease("a")), target: named, want: "b"},
		"none of that name":  {client: fake.NewClientset(pod("a", corev1.PodRunning)), target: missing, err: "there are: a"},
		"on a host":          {client: fake.NewClientset(lease("lb-1")), target: target, err: "lb-1 holds the Lease sys/l and is no Pod there: run this command where it runs"},
		"nobody":             {client: fake.NewClientset(), target: target, err: "set instance to namespace/name of the Helm release"},
	} {
		got, err := Choose(t.Context(), test.client, test.target)
		if got != test.want || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestStatus(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serve.Serve(ctx, listener, serve.StatusHandler(func() any { return map[string]string{"identity": "a", "long": strings.Repeat("x", 1<<20)} }))
	}()
	api := remotetest.Server(t, "sys", "a", nil)
	target := Target{Namespace: "sys", Port: uint16(listener.Addr().(*net.TCPAddr).Port)}
	document, err := Status(t.Context(), &rest.Config{Host: api.URL}, target, "a")
	if err != nil || !strings.HasPrefix(string(document), `{"identity":"a"`) || len(document) < 1<<20 {
		t.Errorf("%.80s, %v", document, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}

	_, err = Status(t.Context(), &rest.Config{Host: api.URL}, target, "a") // nobody listens any more
	if err == nil || !strings.Contains(err.Error(), "connection refused; set statusAddress there") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	_, err = Status(t.Context(), &rest.Config{Host: api.URL}, target, "b")
	if err == nil || !strings.Contains(err.Error(), "ask the process in Pod sys/b on port") {
		t.Errorf("got %v", err)
	}
}

// An API server that never answers does not hold up whoever has given up.
func TestStatusEndsWithItsContext(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := listener.Accept() // the request for the status, which is never answered
		cancel()
		if err == nil {
			defer func() { _ = conn.Close() }()
			_, _ = io.Copy(io.Discard, conn)
		}
	}()
	done := make(chan error, 1)
	api := remotetest.Server(t, "sys", "a", nil)
	go func() {
		_, err := Status(ctx, &rest.Config{Host: api.URL}, Target{Namespace: "sys", Port: uint16(listener.Addr().(*net.TCPAddr).Port)}, "a")
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(time.Minute):
		t.Error("it still waits")
	}
}
