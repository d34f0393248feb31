package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

// Nothing is begun, and nothing lasts, until another can hold the Lease, which is duration after the last renewal was written: however
// long the API server took to answer that one.
func TestFenceClosesBeforeTheLeaseCanBeAnothers(t *testing.T) {
	for name, slow := range map[string]time.Duration{"the API server goes away": 0, "its last answer was slow": 9 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				var away, last atomic.Bool
				var written atomic.Pointer[time.Time]
				client.PrependReactor("update", "leases", func(ktesting.Action) (bool, runtime.Object, error) {
					if last.Load() {
						return true, nil, apierrors.NewInternalError(errors.New("away"))
					}
					now := time.Now()
					written.Store(&now)
					if away.Load() {
						last.Store(true)
						time.Sleep(slow) // it is written, and the answer takes its time
					}
					return false, nil, nil
				})
				l := candidate("one", client)
				ctx, cancel := context.WithCancel(t.Context())
				started := make(chan struct{})
				done := make(chan error, 1)
				go func() { done <- l.Run(ctx, func(term context.Context) { close(started); <-term.Done() }) }()
				<-started
				time.Sleep(time.Minute)
				if until, err := l.Fence(); err != nil || time.Until(until) > stop || time.Until(until) < stop-2*retry {
					t.Errorf("while it is renewed: until %v from now, %v", time.Until(until), err)
				}
				away.Store(true)
				open := true
				for range 400 {
					time.Sleep(50 * time.Millisecond)
					until, err := l.Fence()
					if open && err != nil {
						open = false
					}
					if err != nil {
						continue
					}
					age, expires := time.Since(*written.Load()), written.Load().Add(duration)
					if last.Load() && (!until.Before(expires) || age > renew) {
						t.Fatalf("%s after the Lease was written: open, until %s before it can be another's", age, expires.Sub(until))
					}
				}
				if open {
					t.Error("the fence never closed")
				}
				cancel()
				<-done
			})
		})
	}
}
