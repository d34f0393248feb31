package gate

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/nplbridge/nplbridge/lbsync/internal/status"
)

// Behind a closed Fence no gate is opened, nobody is alarmed, and it is made up for afterwards.
func TestNoGateIsOpenedBehindTheFence(t *testing.T) {
	closed := errors.New("the Lease was not renewed")
	w := newPorch(t, "a").pod()
	core, logs := observer.New(zap.InfoLevel)
	w.Log = zap.New(core)
	w.Fence = func() (time.Time, error) { return time.Time{}, closed }
	w.OnPod(podKey)
	w.next(t.Context())
	if len(w.patches) > 0 || w.gate() != "" {
		t.Errorf("written: %q", w.patches)
	}
	if n := w.queue.NumRequeues(podKey); n != 1 {
		t.Errorf("put back %d times", n)
	}
	if logs.Len() > 0 {
		t.Errorf("said %v", logs.All())
	}
	if _, err := w.sync(t.Context(), podKey); !status.IsFenced(err) || !errors.Is(err, closed) {
		t.Error(err)
	}
	w.Fence = func() (time.Time, error) { return time.Now().Add(time.Hour), nil }
	if _, err := w.sync(t.Context(), podKey); err != nil || w.gate() == "" {
		t.Errorf("open again: %v, %q", err, w.gate())
	}
}
