package ports

import (
	"testing"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

func over(pod string, p npl.Protocol) model.ID {
	return model.ID{PodUID: pod, PodPort: 80, Protocol: p, Family: npl.IPv4}
}

func at(p npl.Protocol, port uint16) model.Key {
	return model.Key{Protocol: p, Family: npl.IPv4, NodePort: port}
}

func wantPort(t *testing.T, a *Allocator, id model.ID, port uint16) {
	t.Helper()
	if k, _ := a.Current(id); k != at(id.Protocol, port) {
		t.Errorf("%s/%s has %v, want %d", id.PodUID, id.Protocol, k, port)
	}
}

func TestNumbersDifferBetweenProtocolsWhileThereAreEnough(t *testing.T) {
	a := New(Range{61000, 61001}, 0, false)
	if !a.Allocate([]model.ID{over("a", npl.TCP), over("a", npl.UDP), over("a", npl.SCTP)}, all) {
		t.Fatal("no ports")
	}
	wantPort(t, a, over("a", npl.TCP), 61000)
	wantPort(t, a, over("a", npl.UDP), 61001)
	if k, _ := a.Current(over("a", npl.SCTP)); k.NodePort == 0 {
		t.Error("a number that other protocols use is not given at all")
	}
	if !a.Allocate([]model.ID{over("b", npl.UDP)}, all) {
		t.Fatal("no port")
	}
	wantPort(t, a, over("b", npl.UDP), 61000)
}

func TestJointGivesOneNumberForAllProtocols(t *testing.T) {
	a := New(any5, 0, true)
	a.Exclude([]model.Key{at(npl.SCTP, 61000)}, epoch) // no number for a Pod port, if not for all its protocols
	busy := Probe{Try: func(k model.Key) bool { return k != at(npl.UDP, 61001) }, Undo: func(model.Key) {}}
	if !a.Allocate([]model.ID{over("a", npl.TCP), over("a", npl.UDP)}, busy) {
		t.Fatal("no ports")
	}
	wantPort(t, a, over("a", npl.TCP), 61002)
	wantPort(t, a, over("a", npl.UDP), 61002)
	if !a.Allocate([]model.ID{over("b", npl.SCTP)}, busy) || !a.Allocate([]model.ID{over("a", npl.SCTP)}, busy) {
		t.Fatal("no ports")
	}
	wantPort(t, a, over("b", npl.SCTP), 61001)
	wantPort(t, a, over("a", npl.SCTP), 61002)
	six := over("a", npl.TCP)
	six.Family = npl.IPv6
	if !a.Allocate([]model.ID{six}, busy) { // families are apart, as always
		t.Fatal("no port")
	}
	if k, _ := a.Current(six); k.NodePort != 61000 {
		t.Errorf("over IPv6 %v", k)
	}
}

// The number of a Pod port has become another Pod's host port under a second protocol that is wanted now: both get a new one, the second
// at once, the first by moving.
func TestJointMovesToANumberForAllProtocols(t *testing.T) {
	a := New(any5, 0, true)
	a.Allocate([]model.ID{over("a", npl.TCP)}, all)
	a.Exclude([]model.Key{at(npl.UDP, 61000)}, epoch)
	if !a.Settled(over("a", npl.TCP)) {
		t.Error("a host port of a protocol that nobody wants moves the Pod")
	}
	a.Allocate([]model.ID{over("a", npl.UDP)}, all)
	wantPort(t, a, over("a", npl.UDP), 61001)
	if a.Settled(over("a", npl.TCP)) || !a.Settled(over("a", npl.UDP)) {
		t.Error("it is not the first that has to follow")
	}
	if !a.Move(over("a", npl.TCP), all) {
		t.Fatal("no move")
	}
	wantPort(t, a, over("a", npl.TCP), 61001)
	if owner, _ := a.Owner(at(npl.TCP, 61000)); owner != over("a", npl.TCP) {
		t.Error("the old port was let go before it was withdrawn")
	}
}

// The number that a new protocol gets must be one that the rest of the Pod port can follow to. Trying that holds nothing.
func TestJointChoosesWhereTheRestCanFollow(t *testing.T) {
	a := New(any5, 0, true)
	a.Allocate([]model.ID{over("a", npl.TCP)}, all)
	a.Exclude([]model.Key{at(npl.UDP, 61000)}, epoch)
	held := map[model.Key]bool{}
	probe := Probe{Try: func(k model.Key) bool { held[k] = true; return k != at(npl.TCP, 61001) }, Undo: func(k model.Key) { delete(held, k) }}
	a.Allocate([]model.ID{over("a", npl.UDP)}, probe)
	wantPort(t, a, over("a", npl.UDP), 61002)
	if delete(held, at(npl.TCP, 61001)); len(held) != 1 || !held[at(npl.UDP, 61002)] { // that one was refused
		t.Errorf("held %v", held)
	}
}

// Switched on over numbers that differ: they are kept, and then move together, to the least that is allowed, in whatever order they were
// adopted.
func TestJointAdoptsNumbersThatDiffer(t *testing.T) {
	for _, first := range []npl.Protocol{npl.TCP, npl.UDP} {
		a := New(any5, 0, true)
		where := map[npl.Protocol]uint16{npl.TCP: 61003, npl.UDP: 61001, npl.SCTP: 4000}
		second := map[npl.Protocol]npl.Protocol{npl.TCP: npl.UDP, npl.UDP: npl.TCP}[first]
		for _, p := range []npl.Protocol{npl.SCTP, first, second} {
			if err := a.Adopt(at(p, where[p]), over("a", p)); err != nil {
				t.Fatal(err)
			}
		}
		for p, n := range where {
			wantPort(t, a, over("a", p), n)
			if settled := a.Settled(over("a", p)); settled != (p == npl.UDP) {
				t.Errorf("%s settled: %v", p, settled)
			}
			if p != npl.UDP && !a.Move(over("a", p), all) {
				t.Errorf("%s does not move", p)
			}
			wantPort(t, a, over("a", p), 61001)
		}
	}
}
