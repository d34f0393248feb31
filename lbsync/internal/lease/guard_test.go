package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

// Whoever was frozen while another took the Lease, or cannot renew it, stops working as soon as he can know: not when the elector has
// tried long enough to get it back.
func TestTermEndsWithTheFence(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for name, test := range map[string]struct {
		update func() error  // what becomes of a renewal
		holder string        // who has the Lease then
		within time.Duration // after it began
	}{
		"another has it": {
			func() error { return apierrors.NewConflict(leases, "lbsync", errors.New("it was modified")) }, "two", retry + 2*look,
		},
		"a renewal without an answer": {
			func() error { time.Sleep(time.Hour); return errors.New("no answer") }, "one", renew + look,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				var frozen atomic.Bool
				client.PrependReactor("update", "leases", func(ktesting.Action) (bool, runtime.Object, error) {
					if !frozen.Load() {
						return false, nil, nil
					}
					return true, nil, test.update()
				})
				client.PrependReactor("get", "leases", func(ktesting.Action) (bool, runtime.Object, error) {
					if !frozen.Load() || test.holder == "one" {
						return false, nil, nil
					}
					return true, &coordinationv1.Lease{
						ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lbsync"},
						Spec: coordinationv1.LeaseSpec{
							HolderIdentity: new(test.holder), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NowMicro()), AcquireTime: new(metav1.NowMicro()),
						},
					}, nil
				})
				l := candidate("one", client)
				var leading atomic.Bool
				l.Leading = func(is bool) { leading.Store(is) }
				ctx, cancel := context.WithCancel(t.Context())
				started, done := make(chan struct{}, 1), make(chan error, 1)
				go func() {
					done <- l.Run(ctx, func(term context.Context) {
						started <- struct{}{}
						<-term.Done()
					})
				}()
				<-started
				time.Sleep(time.Minute)
				synctest.Wait()
				if !leading.Load() {
					t.Fatal("a term has ended while the Lease was renewed")
				}
				frozen.Store(true)
				time.Sleep(test.within)
				synctest.Wait()
				if leading.Load() {
					t.Errorf("still leading %s later", test.within)
				}
				if _, err := l.Fence(); err == nil {
					t.Error("the fence is open")
				}
				frozen.Store(false)
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
