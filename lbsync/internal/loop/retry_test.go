package loop

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
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

// What may have gone without a word is asked for again soon, however long it has been there; one reading serves all that wait so.
func TestRetriedWithin(t *testing.T) {
	r := newRig(t)
	for n, app := range []string{"a", "b", "c", "d"} {
		r.lb.FailKey(keyOf(app), &providers.Error{Kind: providers.Rejected, What: "listen", Err: errors.New("in use"), RetryWithin: 30 * time.Second})
		r.service(app)
		r.pod(app, n+1)
		r.pass(7 * time.Second)
	}
	r.pass(20 * time.Minute)
	observed := r.lb.Observations()
	r.pass(10 * time.Minute)
	if n := r.lb.Observations() - observed; n < 20 || n > 24 { // some are to read all, as always
		t.Errorf("%d readings in ten minutes for four Services, want one for all each 30 s", n)
	}
	r.lb.FailKey(keyOf("a"), nil)
	r.pass(30 * time.Second)
	r.has("a", "1")
	r.has("b", "none")
}

// Pods come and go while a load balancer refuses what their Service asks for: nothing is asked of it again for that, and it is told once.
func TestRefusedDespiteNewMembers(t *testing.T) {
	r := newRig(t)
	core, logs := observer.New(zap.WarnLevel)
	r.loop.log = zap.New(core)
	r.service("a")
	r.lb.FailKey(keyOf("a"), &providers.Error{Kind: providers.Rejected, What: "change", Err: errors.New("no such monitor")})
	r.pod("a", 0)
	r.cycle()
	applied, observed := r.lb.Applications(), r.lb.Observations()
	for n := range 5 {
		r.pod("a", n+1)
		r.pass(10 * time.Millisecond)
	}
	if more := r.lb.Applications() - applied; more != 0 {
		t.Errorf("applied %d times for new members", more)
	}
	if more := r.lb.Observations() - observed; more > 1 { // one after the failure itself
		t.Errorf("observed %d times for new members", more)
	}
	r.pass(time.Minute)
	if r.lb.Applications() == applied {
		t.Error("never tried again")
	}
	if n := logs.FilterMessage("the load balancer did not take a change").Len(); n != 1 {
		t.Errorf("told %d times of the same refusal", n)
	}

	applied = r.lb.Applications()
	r.lb.FailKey(keyOf("a"), &providers.Error{Kind: providers.Rejected, What: "change", Err: errors.New("no such profile")})
	r.service("a", func(s *model.Service) { s.Wishes.Pool.Algorithm = providers.LeastConnections })
	r.pass(10 * time.Millisecond)
	if r.lb.Applications() == applied {
		t.Error("another setting is not tried at once")
	}
	if n := logs.FilterMessage("the load balancer did not take a change").Len(); n != 2 {
		t.Errorf("told %d times of two refusals", n)
	}
}
