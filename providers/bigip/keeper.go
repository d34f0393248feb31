package bigip

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

// job is something to do once for all changes within a while.
type job struct {
	what  string
	delay time.Duration // since the first change; 0 never does it
	run   func(context.Context) error

	due time.Time // zero while nothing is to do
}

// keeper does jobs after changes. It works for whoever made the changes: once the deadline under which the last call came has passed, it
// waits for another call, so a process that was stopped and goes on does nothing on behalf of a lease it has lost.
type keeper struct {
	clock clock.Clock
	log   *zap.Logger
	jobs  []*job

	mu     sync.Mutex
	until  time.Time // zero is for ever
	wake   chan struct{}
	stop   context.CancelFunc // nil before the first change
	ended  chan struct{}
	closed bool
}

// Limits of the jobs' own requests.
const (
	jobTimeout = time.Minute
	exitLimit  = 5 * time.Second
)

func newKeeper(c clock.Clock, log *zap.Logger, jobs ...*job) *keeper {
	return &keeper{clock: c, log: log, jobs: jobs, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// here notes until when a call says that jobs may be done; the zero time is for ever.
func (k *keeper) here(until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.note(until)
}

// deadlineOf is until when a call that writes says that jobs may be done.
func deadlineOf(ctx context.Context) time.Time {
	deadline, _ := ctx.Deadline()
	return deadline
}

func (k *keeper) note(until time.Time) {
	if until.IsZero() || until.After(k.until) {
		k.until = until
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// changed says that something was written.
func (k *keeper) changed(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	for _, j := range k.jobs {
		if j.delay > 0 && j.due.IsZero() {
			j.due = k.clock.Now().Add(j.delay)
		}
	}
	k.note(deadlineOf(ctx))
	if k.stop == nil {
		work, stop := context.WithCancel(context.Background())
		k.stop = stop
		go k.loop(work)
	}
}

func (k *keeper) loop(ctx context.Context) {
	defer close(k.ended)
	for {
		wait := k.work(ctx)
		var due <-chan time.Time
		var timer clock.Timer
		if wait > 0 {
			timer = k.clock.NewTimer(wait)
			due = timer.C()
		}
		select {
		case <-due:
		case <-k.wake:
		case <-ctx.Done():
		}
		if timer != nil {
			timer.Stop()
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// work does what is due and returns in what time there is more; 0 is when somebody calls.
func (k *keeper) work(ctx context.Context) time.Duration {
	for _, j := range k.jobs {
		k.mu.Lock()
		now := k.clock.Now()
		late := !k.until.IsZero() && !time.Now().Before(k.until)
		if j.due.IsZero() || now.Before(j.due) || late {
			k.mu.Unlock()
			continue
		}
		deadline := time.Now().Add(jobTimeout)
		if !k.until.IsZero() && k.until.Before(deadline) {
			deadline = k.until
		}
		j.due = time.Time{}
		k.mu.Unlock()
		k.do(ctx, j, deadline)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.until.IsZero() && !time.Now().Before(k.until) {
		return 0
	}
	var wait time.Duration
	for _, j := range k.jobs {
		if left := j.due.Sub(k.clock.Now()); !j.due.IsZero() && (wait == 0 || left < wait) {
			wait = max(left, 1)
		}
	}
	return wait
}

// do makes one attempt. After a failure there is another one when the delay has passed again.
func (k *keeper) do(ctx context.Context, j *job, deadline time.Time) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	err := j.run(ctx)
	if err == nil {
		return
	}
	k.log.Warn("could not "+j.what+"; it is tried again", zap.Error(err), zap.Duration("in", j.delay))
	k.mu.Lock()
	defer k.mu.Unlock()
	if j.due.IsZero() {
		j.due = k.clock.Now().Add(j.delay)
	}
}

// close does at once what is left to do.
func (k *keeper) close() {
	k.mu.Lock()
	stop, closed := k.stop, k.closed
	k.closed = true
	k.mu.Unlock()
	if stop == nil || closed {
		return
	}
	stop()
	<-k.ended
	deadline := time.Now().Add(exitLimit)
	for _, j := range k.jobs {
		if !j.due.IsZero() {
			k.do(context.Background(), j, deadline)
		}
	}
}
