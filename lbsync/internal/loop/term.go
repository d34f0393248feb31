package loop

import (
	"context"
	"errors"
	"sync"
	"time"
)

// termLook is how often it is looked up whether writing still is ours while a reading is under way.
const termLook = time.Second

// errTerm is why a reading is not used.
var errTerm = errors.New("writing has not been ours all the time")

// term is the time for which writing is ours without a gap, as it is renewed.
type term struct {
	fence func() (until time.Time, err error)

	mu    sync.Mutex
	until time.Time // zero is for ever
	ended bool
}

// held reports whether writing has been ours since the term began. Once it was not, or nobody looked for so long that another may have written,
// it is over: that it is ours again does not tell what happened in between.
func (t *term) held() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.until.IsZero() || t.ended {
		return !t.ended
	}
	until, err := t.fence()
	switch {
	case passed(t.until): // looked at last, so that a process that was frozen in between does not believe what it asked before
		t.ended = true
	case err == nil && (until.IsZero() || until.After(t.until)):
		t.until = until
	}
	return !t.ended
}

// passed compares by both of the computer's clocks: one stands still while a virtual machine is suspended, the other can be set.
func passed(t time.Time) bool {
	now := time.Now()
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}

// during calls f, which only reads: it may last longer than writing is certain to be ours when it begins, as long as that is renewed. It ends
// after timeout and with the term; an answer from beyond the term is an error.
func (t *term) during(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end(nil)
	watching.Go(func() {
		tick := time.NewTicker(termLook)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if !t.held() {
				end(errTerm)
				return
			}
		}
	})
	if err := f(ctx); err != nil {
		return err
	}
	if !t.held() {
		return errTerm
	}
	return nil
}
