package providers

import (
	"errors"
	"fmt"
	"time"
)

// Kind classifies a provider's error; each kind has its own retry rule in lbsync.
type Kind string

// The kinds.
const (
	Unavailable   Kind = "Unavailable"   // not reachable or not answering: retry with back-off, keep everything
	Throttled     Kind = "Throttled"     // asked to slow down: retry later
	Conflict      Kind = "Conflict"      // the load balancer's state is not what we thought: observe, plan again
	Rejected      Kind = "Rejected"      // this one change was refused: retry when the object changes, or slowly
	Misconfigured Kind = "Misconfigured" // credentials, paths, versions: a person must act; retry slowly
)

// Error is a classified error. What says what was attempted on which object.
type Error struct {
	Kind Kind
	What string
	Err  error
	// RetryAfter, if positive, is how long the change has to wait by plan, for example for the next reload: it was not
	// attempted, nothing is wrong, and it is tried again exactly then.
	RetryAfter time.Duration
	// RetryWithin, if positive, is how long this change waits at most until it is tried again, whatever the rule of its Kind: what
	// is in the way goes without anybody being told, and an attempt costs little.
	RetryWithin time.Duration
}

// Error returns "<what>: <err>".
func (e *Error) Error() string {
	if e.Err == nil {
		return e.What
	}
	return fmt.Sprintf("%s: %v", e.What, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of err, or Unavailable for an error that nobody classified.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Unavailable
}

// RetryAfter returns how long the change behind err has to wait by plan; 0 when that is not what err says.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// RetryWithin returns how long the change behind err waits at most; 0 when that is up to its Kind.
func RetryWithin(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryWithin
	}
	return 0
}
