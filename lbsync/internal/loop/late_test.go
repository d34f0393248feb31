package loop

import (
	"errors"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/watermark"
)

// newLate returns a rig whose load balancer says of itself that it may carry a request out a minute after it was given up, and is read
// every second because a member of c drains. A call that was to add a-7 was not answered, and a-7 is gone.
func newLate(t *testing.T) (*rig, *unreliable) {
	r, _ := newGated(t, "a", "c")
	r.loop.can.Late, r.loop.cfg.Late = time.Minute, 4*time.Second
	slow := &unreliable{Provider: r.lb.Open(owner)}
	r.loop.provider = slow
	r.pod("c", 11)
	r.cycle()
	r.lb.SetConnections(keyOf("c"), id("c", 10), 1)
	r.pod("c", 10, r.terminating)
	r.cycle()
	slow.delay = true
	r.pod("a", 7)
	r.cycle()
	slow.delay = false
	r.version = 101
	r.x.DeletePod("shop", "a-7", true, r.clock.Now())
	r.cycle()
	return r, slow
}

const heldWhileLate = "seen 101 node-1:61007"

// A load balancer that takes as long as it may still adds what nobody waits for any more: its node port is held until then.
func TestHeldAsLongAsTheLoadBalancerMayTake(t *testing.T) {
	t.Run("and it adds it", func(t *testing.T) {
		r, slow := newLate(t)
		observations := r.lb.Observations()
		r.pass(55 * time.Second)
		if r.lb.Observations() < observations+50 {
			t.Fatalf("read %d times", r.lb.Observations()-observations)
		}
		if got := r.held(); got != heldWhileLate {
			t.Fatalf("before it is added: %s", got)
		}
		slow.late[0]()
		r.has("a", "0, 7")
		r.lb.FailKey(keyOf("a"), errors.New("no")) // so that it stays
		r.pass(10 * time.Second)
		if got := r.held(); got != heldWhileLate {
			t.Errorf("while it is listed: %s", got)
		}
		r.lb.FailKey(keyOf("a"), nil)
		r.pass(time.Minute)
		r.has("a", "0")
		if got := r.held(); got != "seen 101" {
			t.Errorf("after it was removed: %s", got)
		}
	})
	t.Run("and it never adds it", func(t *testing.T) {
		r, _ := newLate(t)
		r.pass(62 * time.Second)
		if got := r.held(); got != "seen 101" {
			t.Errorf("after it must have been added: %s", got)
		}
	})
}

// Whoever takes over does not know what was sent before: it writes at once, looks again when most would have arrived, and tells
// npl-agents nothing until a reading began when everything must have.
func TestTakesOverFromWhoeverSentSomethingLate(t *testing.T) {
	r, slow := newLate(t)
	r.marks = &fixedMarks{last: watermark.Watermark{Seen: "101"}}
	r.restart()
	r.loop.source = versionedFeed{r.x, &r.version}
	r.loop.can.Late, r.loop.cfg.Late, r.loop.cfg.Settle = time.Minute, 4*time.Second, 5*time.Second
	r.pod("c", 12)
	r.cycle()
	r.has("c", "10 draining, 11, 12")
	r.lb.SetConnections(keyOf("c"), id("c", 10), 0) // so that nothing drains
	r.pass(4 * time.Second)
	slow.late[0]()
	r.has("a", "0, 7")
	observations := r.lb.Observations()
	r.pass(2 * time.Second)
	r.has("a", "0") // 7 was seen, and has left
	if got := r.lb.Observations() - observations; got != 1 {
		t.Errorf("read %d times, want once when most would have arrived", got)
	}
	r.pass(53 * time.Second)
	if got := r.held(); got != "nothing can be said" {
		t.Errorf("a minute has not passed: %s", got)
	}
	if got := r.lb.Observations() - observations; got != 1 {
		t.Errorf("read %d times, want once", got)
	}
	r.pass(2 * time.Second)
	if got := r.held(); got != "seen 101" {
		t.Errorf("a minute has passed: %s", got)
	}
	if got := r.lb.Observations() - observations; got != 2 {
		t.Errorf("read %d times, want once more", got)
	}
}
