// Package lease holds leader election: work runs while the Lease is held, and the Lease is given up only when it has
// stopped.
package lease

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The times of the Lease. Whoever loses touch with the API server stops working after renew; another takes over after
// duration, so between the two nobody writes.
const (
	duration = 15 * time.Second
	renew    = 10 * time.Second
	retry    = 2 * time.Second
)

// Lease is one candidate's view of the Lease.
type Lease struct {
	Namespace, Name, Identity string
	Client                    kubernetes.Interface
	Log                       *zap.Logger
	Leading                   func(bool) // told of every change; may be nil

	mu      sync.Mutex
	elector *leaderelection.LeaderElector
}

// Run calls work with a context that ends when the Lease is lost or ctx ends, as often as the Lease is won. It returns
// when ctx has ended, work has returned, and the Lease is given up.
func (l *Lease) Run(ctx context.Context, work func(context.Context)) error {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name},
		Client:     l.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: l.Identity},
	}
	var working sync.Mutex
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: duration, RenewDeadline: renew, RetryPeriod: retry, Name: l.Name,
			// ReleaseOnCancel stays off: it would give the Lease up while work still writes. See release.
			Callbacks: leaderelection.LeaderCallbacks{
				OnStoppedLeading: func() {},
				OnStartedLeading: func(term context.Context) {
					working.Lock()
					defer working.Unlock()
					if term.Err() == nil {
						l.lead(true)
						defer l.lead(false)
						work(term)
					}
				},
			},
		})
		if err != nil {
			return fmt.Errorf("set up leader election by Lease %s/%s: %w", l.Namespace, l.Name, err)
		}
		l.mu.Lock()
		l.elector = elector
		l.mu.Unlock()
		elector.Run(ctx)
	}
	working.Lock() // nobody works, and with ctx ended nobody will
	defer working.Unlock()
	l.release(ctx, lock)
	return nil
}

// release lets another candidate take over at once.
func (l *Lease) release(ctx context.Context, lock resourcelock.Interface) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retry)
	defer cancel()
	record, _, err := lock.Get(ctx)
	if err == nil && record.HolderIdentity == l.Identity {
		now := metav1.Now()
		err = lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
		})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		l.Log.Warn("cannot give up the Lease; another candidate takes over when it expires",
			zap.String("lease", l.Namespace+"/"+l.Name), zap.Error(err))
	}
}

func (l *Lease) lead(is bool) {
	l.Log.Info("leader election", zap.String("lease", l.Namespace+"/"+l.Name), zap.Bool("leading", is))
	if l.Leading != nil {
		l.Leading(is)
	}
}

// Fence returns an error when the Lease was not renewed for so long that writing is no longer safe: a process that was
// frozen must not go on as if nothing had happened.
func (l *Lease) Fence() error {
	l.mu.Lock()
	elector := l.elector
	l.mu.Unlock()
	if elector == nil || !elector.IsLeader() {
		return fmt.Errorf("the Lease %s/%s is not ours", l.Namespace, l.Name)
	}
	if err := elector.Check(renew - duration); err != nil {
		return fmt.Errorf("the Lease %s/%s was not renewed for %s", l.Namespace, l.Name, renew)
	}
	return nil
}
