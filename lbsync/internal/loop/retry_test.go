package loop

import (
	"errors"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// A provider that reloads at most every two seconds makes everything wait to the same moment, so that one reload serves
// all; backing off instead would let one Service starve behind the others.
func TestPlannedWaitsDoNotGrow(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var f *failure
	for range 10 {
		wait := 700 * time.Millisecond
		f = nextFailure(f, &providers.Error{Kind: providers.Throttled, What: "reload", RetryAfter: wait, Err: errors.New("not yet")}, now)
		if want := now.Add(wait); !f.until.Equal(want) || !f.waits {
			t.Fatalf("until %v, waits %v; want %v by plan", f.until, f.waits, want)
		}
		now = f.until
	}
	f = nextFailure(f, &providers.Error{Kind: providers.Throttled, What: "reload", Err: errors.New("too many requests")}, now)
	if f.waits || !f.until.After(now) {
		t.Errorf("a load balancer's own refusal: waits %v until %v, want a back-off after %v", f.waits, f.until, now)
	}
}
