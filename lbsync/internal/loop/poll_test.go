package loop

import (
	"context"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// slowReader takes a while to be read.
type slowReader struct {
	providers.Provider
	rig   *rig
	took  time.Duration
	reads int
}

func (s *slowReader) Observe(ctx context.Context, scope providers.Scope) (providers.Observed, error) {
	s.reads++
	s.rig.clock.Step(s.took)
	return s.Provider.Observe(ctx, scope)
}

// In a rolling update one Pod after the other drains, and nothing in between. Each is read for anew, and a slow load balancer is still not
// read more than half of the time.
func TestPolledHalfOfTheTime(t *testing.T) {
	r := newRig(t)
	slow := &slowReader{Provider: r.lb.Open(owner), rig: r, took: time.Minute}
	r.loop.provider, r.loop.cfg.DrainPoll, r.loop.cfg.Resync = slow, 5*time.Second, time.Hour
	r.service("a")
	for n := range 9 {
		r.pod("a", n)
	}
	r.cycle()
	r.clock.Step(2 * time.Minute)
	for n := range 8 {
		r.lb.SetConnections(keyOf("a"), id("a", n), 1)
		r.pod("a", n, r.terminating)
		r.cycle()
		r.lb.SetConnections(keyOf("a"), id("a", n), 0)
		want := time.Minute // since the reading before
		if n == 0 {
			want = 5 * time.Second // that was long ago
		}
		if r.next != want {
			t.Errorf("Pod %d drains, and the next reading is in %s, want %s", n, r.next, want)
		}
		reads := slow.reads
		r.clock.Step(r.next)
		r.cycle() // it is read, and the member leaves
		r.x.DeletePod("shop", aPod("a", n).Name, true, r.clock.Now())
		r.cycle()
		if slow.reads != reads+1 || len(r.loop.polled) > 0 {
			t.Fatalf("Pod %d: %d readings, still polled %v", n, slow.reads-reads, r.loop.polled)
		}
	}
	r.has("a", "8")
}
