package kube

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

func client(t *testing.T, host string) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(&rest.Config{Host: host})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWaitUntilTheServerAnswers(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	told := 0
	if err := Wait(t.Context(), client(t, server.URL), 0, func(error) { told++ }); err != nil {
		t.Fatal(err)
	}
	if told != 1 {
		t.Errorf("told %d times, want once", told)
	}
}

func TestWaitGivesUp(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	err := Wait(t.Context(), client(t, server.URL), time.Millisecond, func(error) {})
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = Wait(ctx, client(t, server.URL), 0, func(error) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got %v", err)
	}
}

func TestConfigErrors(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := Config("", "test"); err == nil || !strings.Contains(err.Error(), "does not run in a Pod") {
		t.Errorf("got %v", err)
	}
	bad := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(bad, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{bad, "/nonexistent/kubeconfig"} {
		if _, err := Config(file, "test"); err == nil {
			t.Errorf("%s accepted", file)
		}
	}
}

func TestDenied(t *testing.T) {
	c := fake.NewClientset()
	c.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		review.Status.Allowed = review.Spec.ResourceAttributes.Verb == "get"
		return true, review, nil
	})
	denied, err := Denied(t.Context(), c, []Permission{
		{Resource: "pods", Subresource: "status", Verbs: []string{"get", "patch"}},
		{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"update"}, Namespace: "ns", Name: "lbsync"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"patch pods/status", "update leases.coordination.k8s.io lbsync in ns"}
	if !slices.Equal(denied, want) {
		t.Errorf("got %q, want %q", denied, want)
	}
}
