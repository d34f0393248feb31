package ports

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

var (
	epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	any5  = Range{61000, 61004}
	all   = Probe{Try: func(model.Key) bool { return true }, Undo: func(model.Key) {}}
)

const cool = 5 * time.Minute

func id(pod string) model.ID {
	return model.ID{PodUID: pod, PodPort: 80, Protocol: npl.TCP, Family: npl.IPv4}
}

func key(port uint16) model.Key {
	return model.Key{Protocol: npl.TCP, Family: npl.IPv4, NodePort: port}
}

func mustAllocate(t *testing.T, a *Allocator, pod string) uint16 {
	t.Helper()
	if !a.Allocate([]model.ID{id(pod)}, all) {
		t.Fatalf("no port for %s", pod)
	}
	k, _ := a.Current(id(pod))
	return k.NodePort
}

func TestStartsAtTheCursorAndGoesRound(t *testing.T) {
	a := New(any5, 3, false)
	var got []uint16
	for i := range 5 {
		got = append(got, mustAllocate(t, a, fmt.Sprint(i)))
	}
	if want := []uint16{61003, 61004, 61000, 61001, 61002}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if a.Allocate([]model.ID{id("6")}, all) {
		t.Error("a sixth port out of five")
	}
}

func TestLongestFreeFirst(t *testing.T) {
	a := New(any5, 0, false)
	for i := range 5 {
		mustAllocate(t, a, fmt.Sprint(i))
	}
	for i, port := range []uint16{61003, 61001, 61002} { // freed in this order
		a.Release(key(port), epoch.Add(time.Duration(i)*time.Second))
	}
	a.Expire(epoch.Add(time.Minute), always)
	var got []uint16
	for _, pod := range []string{"x", "y", "z"} {
		got = append(got, mustAllocate(t, a, pod))
	}
	if want := []uint16{61003, 61001, 61002}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNeverUsedBeforeUsed(t *testing.T) {
	a := New(any5, 0, false)
	mustAllocate(t, a, "a")
	a.Release(key(61000), epoch)
	a.Expire(epoch, always)
	if got := mustAllocate(t, a, "b"); got != 61001 {
		t.Errorf("got %d, want 61001, which has been free for longer", got)
	}
}

func TestFormerOwnerGetsItsCoolingPortBack(t *testing.T) {
	a := New(any5, 0, false)
	mustAllocate(t, a, "a")
	a.Release(key(61000), epoch.Add(cool))
	if got := mustAllocate(t, a, "b"); got == 61000 {
		t.Error("another Pod got a cooling port")
	}
	if got := mustAllocate(t, a, "a"); got != 61000 {
		t.Errorf("the former owner got %d", got)
	}
	a.Expire(epoch.Add(time.Hour), always)
	if _, ok := a.Owner(key(61000)); !ok || len(a.Cooling()) != 0 {
		t.Error("the port that was taken back still cools")
	}
}

func TestAllOrNone(t *testing.T) {
	a := New(Range{61000, 61001}, 0, false)
	held := map[model.Key]bool{}
	probe := Probe{Try: func(k model.Key) bool { held[k] = true; return true }, Undo: func(k model.Key) { delete(held, k) }}
	ids := []model.ID{id("a"), {PodUID: "a", PodPort: 81, Protocol: npl.TCP, Family: npl.IPv4}, {PodUID: "a", PodPort: 82, Protocol: npl.TCP, Family: npl.IPv4}}
	if a.Allocate(ids, probe) || len(held) != 0 || len(a.Owners()) != 0 {
		t.Errorf("held %v, owners %v", held, a.Owners())
	}
	if !a.Allocate(ids[:2], probe) || len(held) != 2 {
		t.Errorf("held %v", held)
	}
}

func TestExcludedAndRefusedPortsArePassedOver(t *testing.T) {
	a := New(any5, 0, false)
	a.Exclude([]model.Key{key(61000)}, epoch)
	busy := Probe{Try: func(k model.Key) bool { return k.NodePort != 61001 }, Undo: func(model.Key) {}}
	if !a.Allocate([]model.ID{id("a")}, busy) {
		t.Fatal("no port")
	}
	if k, _ := a.Current(id("a")); k.NodePort != 61002 {
		t.Errorf("got %d, want 61002", k.NodePort)
	}
	if got := mustAllocate(t, a, "b"); got != 61001 {
		t.Errorf("got %d, want 61001, which is no longer busy", got)
	}
}

func TestProtocolsAndFamiliesAreIndependent(t *testing.T) {
	a := New(Range{61000, 61000}, 0, false)
	for _, p := range []npl.Protocol{npl.TCP, npl.UDP} {
		for _, f := range []npl.Family{npl.IPv4, npl.IPv6} {
			if !a.Allocate([]model.ID{{PodUID: "a", PodPort: 80, Protocol: p, Family: f}}, all) {
				t.Errorf("no port for %s over %s", p, f)
			}
		}
	}
}

func TestMoveKeepsTheOldPortOwned(t *testing.T) {
	a := New(any5, 0, false)
	mustAllocate(t, a, "a")
	a.Exclude([]model.Key{key(61000)}, epoch)
	if !a.Move(id("a"), all) {
		t.Fatal("no move")
	}
	if k, _ := a.Current(id("a")); k != key(61001) {
		t.Errorf("moved to %v", k)
	}
	if owner, _ := a.Owner(key(61000)); owner != id("a") {
		t.Error("the old port was let go")
	}
	a.Release(key(61000), epoch)
	if k, ok := a.Current(id("a")); !ok || k != key(61001) {
		t.Error("releasing the old port took the new one")
	}
	none := Probe{Try: func(model.Key) bool { return false }}
	if a.Move(id("a"), none) {
		t.Error("moved to nowhere")
	}
	if k, _ := a.Current(id("a")); k != key(61001) {
		t.Error("a failed move changed something")
	}
}

func TestAdoptRefusesASecondOwner(t *testing.T) {
	a := New(any5, 0, false)
	if err := a.Adopt(key(99), id("a")); err != nil { // outside the range: it is in use all the same
		t.Fatal(err)
	}
	if err := a.Adopt(key(99), id("b")); err == nil {
		t.Error("two owners")
	}
}

// I2, whatever is asked in whatever order: one owner for each port; an owner keeps its port; a freed port is given to another mapping
// only after its deadline; ports come from the range and are not excluded; and the same calls give the same ports.
func TestAllocatorKeepsI2(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 6).Draw(t, "size")
		cursor := rapid.Uint16().Draw(t, "cursor")
		r := Range{61000, 61000 + uint16(size) - 1}
		a, twin := New(r, cursor, false), New(r, cursor, false)
		now := epoch
		owner := map[uint16]string{} // our own account of who has which port
		last := map[uint16]string{}  // who had it before
		until := map[uint16]time.Time{}
		excluded := map[uint16]bool{}
		pods := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h"})
		t.Repeat(map[string]func(*rapid.T){
			"allocate": func(t *rapid.T) {
				pod := pods.Draw(t, "pod")
				had, sticky := a.Current(id(pod))
				ok := a.Allocate([]model.ID{id(pod)}, all)
				if twin.Allocate([]model.ID{id(pod)}, all) != ok {
					t.Fatal("not deterministic")
				}
				got, _ := a.Current(id(pod))
				if other, _ := twin.Current(id(pod)); other != got {
					t.Fatalf("not deterministic: %v and %v", got, other)
				}
				switch {
				case sticky && got != had:
					t.Fatalf("%s moved from %v to %v", pod, had, got)
				case sticky:
				case ok:
					p := got.NodePort
					if who, taken := owner[p]; taken {
						t.Fatalf("%d has owners %s and %s", p, who, pod)
					}
					if now.Before(until[p]) && last[p] != pod {
						t.Fatalf("%d goes from %s to %s before it has cooled", p, last[p], pod)
					}
					if !r.Contains(p) || excluded[p] {
						t.Fatalf("%d is not allowed", p)
					}
					owner[p] = pod
					delete(until, p)
				default:
					for p := r.First; p <= r.Last; p++ {
						if _, taken := owner[p]; !taken && !excluded[p] && !now.Before(until[p]) {
							t.Fatalf("%d is free, and %s gets none", p, pod)
						}
					}
				}
			},
			"release": func(t *rapid.T) {
				if len(owner) == 0 {
					t.Skip("nobody has a port")
				}
				p := rapid.SampledFrom(slices.Sorted(maps.Keys(owner))).Draw(t, "port")
				last[p], until[p] = owner[p], now.Add(cool)
				delete(owner, p)
				a.Release(key(p), until[p])
				twin.Release(key(p), until[p])
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
				freed := a.Expire(now, always)
				if !slices.Equal(freed, twin.Expire(now, always)) {
					t.Fatal("not deterministic")
				}
				for _, k := range freed {
					if now.Before(until[k.NodePort]) {
						t.Fatalf("%v is free too early", k)
					}
				}
			},
			"exclude": func(t *rapid.T) {
				var keys []model.Key
				for p := r.First; p <= r.Last; p++ {
					was := excluded[p]
					if excluded[p] = rapid.Bool().Draw(t, "excluded"); excluded[p] {
						keys = append(keys, key(p))
					} else if _, owned := owner[p]; was && !owned {
						delete(last, p)
						if until[p].Before(now.Add(cool)) {
							until[p] = now.Add(cool)
						}
					}
				}
				a.Exclude(keys, now.Add(cool))
				twin.Exclude(keys, now.Add(cool))
			},
		})
	})
}

func always(model.Key) bool { return true }
