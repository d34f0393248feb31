package loop

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// A Service that was refused because the load balancer still has another one at its address is tried again as soon as that one has left it,
// however long it has been refused. One that waits for another address is not.
func TestFreedAddress(t *testing.T) {
	taken, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	at := func(vip netip.Addr) func(*model.Service) {
		return func(s *model.Service) { s.VIPs = map[string][]netip.Addr{"lb": {vip}} }
	}
	remove := func(r *rig, name string) {
		r.x.DeleteService(model.ServiceKey{Namespace: "shop", Name: name}, true, r.clock.Now())
	}
	move := func(r *rig, name string) { r.service(name, at(other)) }
	// stuck has Service b refused, for a minute and more to come, because the load balancer cannot let a leave.
	stuck := func(t *testing.T, leave func(*rig, string)) *rig {
		r := newRig(t)
		r.service("a", at(taken))
		r.pod("a", 1)
		r.cycle()
		r.lb.FailKey(keyOf("a"), unavailable("cut"))
		leave(r, "a")
		r.service("b", at(taken))
		r.pod("b", 2)
		for r.cycle(); ; r.pass(10 * time.Second) {
			f := r.loop.failures.of(keyOf("b"))
			if f == nil || f.kind != providers.Rejected {
				t.Fatalf("not refused: %+v", r.report("b").Ports)
			}
			if f.until.Sub(r.clock.Now()) > time.Minute {
				return r
			}
		}
	}
	const soon = 8 * time.Second // the longest until a is tried again
	for _, test := range []struct {
		name  string
		leave func(*rig, string)
		end   func(*rig)
	}{
		{"deleted", remove, func(r *rig) { r.lb.FailKey(keyOf("a"), nil) }},
		{"it has another address", move, func(r *rig) { r.lb.FailKey(keyOf("a"), nil) }},
		{"found to be gone", remove, func(r *rig) { r.lb.Tamper(owner, keyOf("a"), nil, nil) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := stuck(t, test.leave)
			test.end(r)
			r.pass(soon)
			if p := r.report("b").Ports[0]; !p.Programmed || len(p.VIPs) != 1 || p.VIPs[0] != taken {
				t.Errorf("report %+v", p)
			}
		})
	}
	t.Run("another one's address", func(t *testing.T) {
		r := stuck(t, remove)
		r.service("d", at(other))
		r.pod("d", 3)
		r.cycle()
		until := r.loop.failures.of(keyOf("b")).until
		remove(r, "d")
		r.cycle()
		r.has("d", "none")
		if f := r.loop.failures.of(keyOf("b")); f == nil || !f.until.Equal(until) {
			t.Errorf("tried again for an address that it does not want: %+v", f)
		}
	})
}
