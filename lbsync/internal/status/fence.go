package status

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errFenced is in the error of everything that was not sent because the Fence is closed.
var errFenced = errors.New("nothing may be written")

// Fence returns until when a call that begins now must be over, or why nothing may be written; the zero time is no limit. A nil Fence is
// always open.
type Fence func() (until time.Time, err error)

// Enter returns the context of one call. IsFenced recognizes the error, with which the call must not be made.
func (f Fence) Enter(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if f == nil {
		return ctx, func() {}, nil
	}
	until, err := f()
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %w", errFenced, err)
	case until.IsZero():
		return ctx, func() {}, nil
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	return ctx, cancel, nil
}

// IsFenced reports whether something was not sent because a Fence is closed. It is no failure of what was asked, and of no news: whoever
// watches the Lease tells of it.
func IsFenced(err error) bool { return errors.Is(err, errFenced) }
