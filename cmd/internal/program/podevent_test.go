package program

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nplbridge/nplbridge/cmd/internal/serve"
)

// What keeps a Pod from being ready is told once, when it lasts, and again after ten minutes.
func TestComplain(t *testing.T) {
	t.Setenv("POD_NAME", "lbsync-1")
	t.Setenv("POD_NAMESPACE", "nplbridge-system")
	t.Setenv("POD_UID", "u")
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var problem atomic.Pointer[error]
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			checks := []serve.Check{{Name: "caches", Check: func() error { return nil }}, {Name: "load-balancer", Check: func() error {
				if p := problem.Load(); p != nil {
					return *p
				}
				return nil
			}}}
			complain(ctx, "lbsync", client, checks, zaptest.NewLogger(t))
		}()
		notes := func() (out []string) {
			list, err := client.EventsV1().Events("nplbridge-system").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list.Items {
				if e.Reason != "NotReady" || e.Regarding.Name != "lbsync-1" || e.ReportingController != "nplbridge.io/lbsync" {
					t.Errorf("%+v", e)
				}
				out = append(out, e.Note)
			}
			return out
		}
		set := func(text string) { problem.Store(new(errors.New(text))) }
		set("starting")
		time.Sleep(complainLook + time.Second)
		problem.Store(nil)
		time.Sleep(time.Minute)
		if got := notes(); len(got) != 0 {
			t.Errorf("it tells what did not last: %q", got)
		}
		set("no password")
		time.Sleep(5 * time.Minute)
		if got := notes(); len(got) != 1 || got[0] != "load-balancer: no password" {
			t.Errorf("told %q", got)
		}
		time.Sleep(6 * time.Minute)
		if got := notes(); len(got) != 2 {
			t.Errorf("told %q", got)
		}
		cancel()
		<-done
	})
}
