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

// The times of the Lease. Whoever loses touch with the API server begins nothing after renew, and whatever he has begun is over after
// stop; another takes over after duration.
const (
	duration = 15 * time.Second
	stop     = 14 * time.Second
	renew    = 10 * time.Second
	retry    = 2 * time.Second
	look     = time.Second // how often the holder asks itself whether it still is
)

// Lease is one candidate's view of the Lease.
type Lease struct {
	Namespace, Name, Identity string
	Client                    kubernetes.Interface
	Log                       *zap.Logger
	Leading                   func(bool) // told of every change; may be nil

	mu      sync.Mutex
	elector *leaderelection.LeaderElector
	renewed time.Time // when the request was sent that renewed the Lease last
}

// Run calls work with a context that ends when the Lease is lost, the Fence is closed or ctx ends, as often as the Lease is won. It returns
// when ctx has ended, work has returned, and the Lease is given up.
func (l *Lease) Run(ctx context.Context, work func(context.Context)) error {
	lock := timed{lease: l, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name},
		Client:     l.Client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: l.Identity},
	}}
	var working sync.Mutex
	for ctx.Err() == nil {
		electing, end := context.WithCancel(ctx)
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
						go l.guard(term, end)
						work(term)
					}
				},
			},
		})
		if err != nil {
			end()
			return fmt.Errorf("set up leader election by Lease %s/%s: %w", l.Namespace, l.Name, err)
		}
		l.mu.Lock()
		l.elector = elector
		l.mu.Unlock()
		elector.Run(electing)
		end()
	}
	working.Lock() // nobody works, and with ctx ended nobody will
	defer working.Unlock()
	l.release(ctx, lock)
	return nil
}

// guard ends a term as soon as the fence is closed. The elector would try to renew the Lease for another renew after it finds it gone:
// it does not know how long the process was frozen before.
func (l *Lease) guard(term context.Context, end func()) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-term.Done():
			return
		case <-tick.C:
		}
		if _, err := l.Fence(); err != nil {
			if term.Err() == nil {
				l.Log.Warn("no longer leading", zap.Error(err))
			}
			end()
			return
		}
	}
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

// timed notes when each renewal was sent. For others the Lease runs from when it was written, which is not before that and may be long
// before the answer.
type timed struct {
	resourcelock.Interface
	lease *Lease
}

func (t timed) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.note(record, func() error { return t.Interface.Create(ctx, record) })
}

func (t timed) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.note(record, func() error { return t.Interface.Update(ctx, record) })
}

func (t timed) note(record resourcelock.LeaderElectionRecord, write func() error) error {
	sent := time.Now()
	if err := write(); err != nil {
		return err
	}
	t.lease.mu.Lock()
	defer t.lease.mu.Unlock()
	t.lease.renewed = time.Time{}
	if record.HolderIdentity == t.lease.Identity {
		t.lease.renewed = sent
	}
	return nil
}

// Fence returns until when what is begun now must be over, which is before the Lease can be another's. It returns an error when the Lease
// is not ours, or was not renewed for so long that nothing may be begun any more: a process that was frozen must not go on as if
// nothing had happened.
func (l *Lease) Fence() (until time.Time, err error) {
	l.mu.Lock()
	elector, renewed := l.elector, l.renewed
	l.mu.Unlock()
	if elector == nil || !elector.IsLeader() || renewed.IsZero() {
		return time.Time{}, fmt.Errorf("the Lease %s/%s is not ours", l.Namespace, l.Name)
	}
	if now := time.Now(); passed(now, renewed.Add(renew)) {
		return time.Time{}, fmt.Errorf("the Lease %s/%s was not renewed for %s", l.Namespace, l.Name, renew)
	}
	return renewed.Add(stop), nil
}

// passed compares by both of the computer's clocks: one stands still while a virtual machine is suspended, the other can be set.
func passed(now, t time.Time) bool { return !now.Before(t) || !now.Round(0).Before(t.Round(0)) }
