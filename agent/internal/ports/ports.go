// Package ports decides which node port a mapping gets. It is pure: time is an argument, randomness is a cursor given from
// outside, and whether a port can be had from the operating system is a function it calls.
//
// A port is free, owned by one mapping, or cooling after it was in use. An owner keeps its port for as long as it is not
// released; a freed port cools, is given back at once to the mapping that had it, and to another only after its deadline and when
// that is confirmed; and among free ports the one that has been free longest is taken first.
package ports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// Range is where ports come from, both ends included; 1 <= First <= Last.
type Range struct{ First, Last uint16 }

// Size is the number of ports in the range.
func (r Range) Size() int { return int(r.Last) - int(r.First) + 1 }

// Contains reports whether p is in the range.
func (r Range) Contains(p uint16) bool { return r.First <= p && p <= r.Last }

// Allocator holds who has which port. It is not safe for concurrent use.
type Allocator struct {
	ports    Range
	start    uint16 // offset in ports where never used ones are first taken
	joint    bool
	owners   map[model.Key]model.ID
	current  map[model.ID]model.Key // the port a mapping should use; owners may hold more while they move
	numbers  map[model.ID]uint16    // by bundle: the number that its mappings should have
	cooling  map[model.Key]cooling
	former   map[model.ID]model.Key // of the ports that cool, the one that a mapping had last
	excluded map[model.Key]bool
	free     map[pool]*order // what neither has an owner nor cools, of the pools asked for so far
}

// pool is where ports are given independently of other pools.
type pool struct {
	protocol npl.Protocol
	family   npl.Family
}

type cooling struct {
	until time.Time
	last  model.ID // who had it; the zero ID if that is not known
}

// New returns an allocator in which every port is free. The first port given is the range's number start, modulo its size,
// counted from zero. With joint, the mappings of a Pod port that differ in protocol only get one number, which no other Pod port of
// their family gets, whatever its protocol.
func New(r Range, start uint16, joint bool) *Allocator {
	return &Allocator{
		ports:    r,
		start:    uint16(int(start) % r.Size()),
		joint:    joint,
		owners:   map[model.Key]model.ID{},
		current:  map[model.ID]model.Key{},
		numbers:  map[model.ID]uint16{},
		cooling:  map[model.Key]cooling{},
		former:   map[model.ID]model.Key{},
		excluded: map[model.Key]bool{},
		free:     map[pool]*order{},
	}
}

// Exclude names the ports that must not be given, such as host ports of Pods. It replaces what was excluded before, and returns,
// sorted, the ports that may be given again but cool until the deadline first: whoever had them may have been published there.
func (a *Allocator) Exclude(keys []model.Key, until time.Time) []model.Key {
	before := a.excluded
	a.excluded = make(map[model.Key]bool, len(keys))
	for _, k := range keys {
		a.excluded[k] = true
	}
	var cooled []model.Key
	for _, k := range slices.SortedFunc(maps.Keys(before), model.Key.Compare) {
		if _, owned := a.owners[k]; owned || !a.Allowed(k) {
			continue
		}
		a.Cool(k, until)
		a.forget(k)
		cooled = append(cooled, k)
	}
	return cooled
}

// Allowed reports whether k may be in use: inside the range and not excluded.
func (a *Allocator) Allowed(k model.Key) bool {
	return a.ports.Contains(k.NodePort) && !a.excluded[k]
}

// Settled reports whether id has a port and need not Move: the port is allowed and has the number that the mapping should have.
func (a *Allocator) Settled(id model.ID) bool {
	k, ok := a.current[id]
	return ok && a.Allowed(k) && a.numbers[a.bundle(id)] == k.NodePort
}

// Current returns the port that id should use.
func (a *Allocator) Current(id model.ID) (model.Key, bool) {
	k, ok := a.current[id]
	return k, ok
}

// Owner returns the mapping that holds k.
func (a *Allocator) Owner(k model.Key) (model.ID, bool) {
	id, ok := a.owners[k]
	return id, ok
}

// Adopt makes id the owner of k, even where k is outside the range, excluded or cooling: it is in use already. If id has no
// port yet, k becomes its current one. It is an error if another mapping owns k.
func (a *Allocator) Adopt(k model.Key, id model.ID) error {
	if owner, ok := a.owners[k]; ok && owner != id {
		return fmt.Errorf("node port %d/%s over %s belongs to Pod %s, not to Pod %s", k.NodePort, k.Protocol, k.Family, owner.PodUID, id.PodUID)
	}
	a.own(k, id)
	if b := a.bundle(id); a.current[id] == k { // of several numbers the least that is allowed, in whatever order they are adopted
		n, known := a.numbers[b]
		if !known || a.Allowed(k) && (k.NodePort < n || !a.Allowed(model.Key{Protocol: k.Protocol, Family: k.Family, NodePort: n})) {
			a.numbers[b] = k.NodePort
		}
	}
	return nil
}

func (a *Allocator) own(k model.Key, id model.ID) {
	a.owners[k] = id
	a.forget(k)
	delete(a.cooling, k)
	if _, ok := a.current[id]; !ok {
		a.current[id] = k
	}
	if !a.ports.Contains(k.NodePort) {
		return
	}
	for _, p := range protocols { // numbers differ between protocols for as long as that is possible
		if o, i := a.order(p, k.Family), a.offset(k); p == k.Protocol {
			o.remove(i)
		} else if o.contains(i) {
			o.push(i)
		}
	}
}

// Release ends the ownership of k, which then cools until the deadline.
func (a *Allocator) Release(k model.Key, until time.Time) {
	id := a.owners[k]
	delete(a.owners, k)
	if a.current[id] == k {
		delete(a.current, id)
		if b := a.bundle(id); !slices.ContainsFunc(a.members(b), a.has) {
			delete(a.numbers, b)
		}
	}
	a.cooling[k] = cooling{until: until, last: id}
	a.former[id] = k
}

// Cool makes a port that nobody owns cool until the deadline, if it does not already cool for longer.
func (a *Allocator) Cool(k model.Key, until time.Time) {
	if _, owned := a.owners[k]; owned || a.cooling[k].until.After(until) {
		return
	}
	a.cooling[k] = cooling{until: until, last: a.cooling[k].last}
	if a.ports.Contains(k.NodePort) {
		a.order(k.Protocol, k.Family).remove(a.offset(k))
	}
}

// Expire frees the ports whose deadline has been reached and that are confirmed, and returns them in the order of their deadlines.
func (a *Allocator) Expire(now time.Time, confirmed func(model.Key) bool) []model.Key {
	var out []model.Key
	for k, c := range a.cooling {
		if !now.Before(c.until) && confirmed(k) {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(x, y model.Key) int {
		return cmp.Or(a.cooling[x].until.Compare(a.cooling[y].until), x.Compare(y))
	})
	for _, k := range out {
		a.forget(k)
		delete(a.cooling, k)
		if a.ports.Contains(k.NodePort) {
			a.order(k.Protocol, k.Family).push(a.offset(k))
		}
	}
	return out
}

// forget lets a cooling port be nobody's: its former owner must wait for it like everybody else.
func (a *Allocator) forget(k model.Key) {
	c, cools := a.cooling[k]
	if !cools {
		return
	}
	if a.former[c.last] == k {
		delete(a.former, c.last)
	}
	a.cooling[k] = cooling{until: c.until}
}

// Cooling returns the cooling ports and their deadlines.
func (a *Allocator) Cooling() map[model.Key]time.Time {
	out := make(map[model.Key]time.Time, len(a.cooling))
	for k, c := range a.cooling {
		out[k] = c.until
	}
	return out
}

// Owners returns a copy of who owns which port.
func (a *Allocator) Owners() map[model.Key]model.ID { return maps.Clone(a.owners) }

func (a *Allocator) has(id model.ID) bool { _, ok := a.current[id]; return ok }

func (a *Allocator) offset(k model.Key) uint16 { return k.NodePort - a.ports.First }

// order returns the free ports of a pool. What is not free leaves it at the same time as it stops being free, so a pool that nobody asked
// for yet is all free.
func (a *Allocator) order(p npl.Protocol, f npl.Family) *order {
	o := a.free[pool{p, f}]
	if o == nil {
		o = newOrder(a.ports.Size(), a.start)
		a.free[pool{p, f}] = o
	}
	return o
}
