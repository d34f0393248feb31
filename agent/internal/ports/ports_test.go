package ports

import (
	"fmt"
	"slices"
	"testing"
	"time"

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

func always(model.Key) bool { return true }
