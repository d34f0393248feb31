package status

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// Behind a closed Fence no Service is written, nobody is alarmed, and it is made up for afterwards.
func TestNothingIsWrittenBehindTheFence(t *testing.T) {
	closed := errors.New("the Lease was not renewed")
	d := newDesk(t, nil, balanced())
	core, logs := observer.New(zap.InfoLevel)
	d.Log = zap.New(core)
	d.Fence = func() (time.Time, error) { return time.Time{}, closed }
	d.Enqueue(webKey)
	d.next(t.Context())
	if len(d.patches) > 0 || len(d.web().Finalizers) > 0 {
		t.Errorf("written: %q", d.patches)
	}
	if n := d.queue.NumRequeues(webKey); n != 1 {
		t.Errorf("put back %d times", n)
	}
	if logs.Len() > 0 {
		t.Errorf("said %v", logs.All())
	}
	if _, err := d.sync(t.Context(), webKey); !IsFenced(err) || !errors.Is(err, closed) {
		t.Error(err)
	}
	d.Fence = func() (time.Time, error) { return time.Now().Add(time.Hour), nil }
	for len(d.web().Finalizers) == 0 {
		for !d.clock.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		d.clock.Step(time.Second)
		d.next(t.Context())
	}
	if n := d.queue.NumRequeues(webKey); n != 0 {
		t.Errorf("still put back %d times", n)
	}
}

func TestFenceLimitsACall(t *testing.T) {
	until := time.Now().Add(time.Hour)
	ctx, cancel, err := Fence(func() (time.Time, error) { return until, nil }).Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if deadline, limited := ctx.Deadline(); !limited || !deadline.Equal(until) {
		t.Errorf("deadline %v, %t", deadline, limited)
	}
	if cancel(); ctx.Err() == nil {
		t.Error("not cancelled")
	}
	for name, open := range map[string]Fence{"none": nil, "no limit": func() (time.Time, error) { return time.Time{}, nil }} {
		ctx, cancel, err := open.Enter(t.Context())
		if err != nil {
			t.Fatal(name, err)
		}
		if _, limited := ctx.Deadline(); limited || ctx.Err() != nil {
			t.Errorf("%s: limited %t, %v", name, limited, ctx.Err())
		}
		cancel()
	}
}
