// Package ports decides which node port a mapping gets. It is pure: time is an argument, randomness is a cursor given from
// outside, and whether a port can be had from the operating system is a function it calls.
//
// A port is free, owned by one mapping, or cooling after it was owned. An owner keeps its port for as long as it is not
// released; a freed port cools, is given back at once to the mapping that had it, and to another only after its deadline; and
// among free ports the one that has been free longest is taken first.
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
	owners   map[model.Key]model.ID
	current  map[model.ID]model.Key // the port a mapping should use; owners may hold more while they move
	cooling  map[model.Key]cooling
	excluded map[model.Key]bool
	// freed numbers ports in the order in which they became free again. One without a number was never used.
	freed map[model.Key]uint64
	count uint64
}

type cooling struct {
	until time.Time
	last  model.ID // who had it; the zero ID if that is not known
}

// New returns an allocator in which every port is free. The first port given is the range's number start, modulo its size,
// counted from zero.
func New(r Range, start uint16) *Allocator {
	return &Allocator{
		ports:    r,
		start:    uint16(int(start) % r.Size()),
		owners:   map[model.Key]model.ID{},
		current:  map[model.ID]model.Key{},
		cooling:  map[model.Key]cooling{},
		excluded: map[model.Key]bool{},
		freed:    map[model.Key]uint64{},
	}
}

// Exclude names the ports that must not be given, such as host ports of Pods. It replaces what was excluded before.
func (a *Allocator) Exclude(keys []model.Key) {
	clear(a.excluded)
	for _, k := range keys {
		a.excluded[k] = true
	}
}

// Allowed reports whether k may be in use: inside the range and not excluded.
func (a *Allocator) Allowed(k model.Key) bool {
	return a.ports.Contains(k.NodePort) && !a.excluded[k]
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
	return nil
}

func (a *Allocator) own(k model.Key, id model.ID) {
	a.owners[k] = id
	delete(a.cooling, k)
	delete(a.freed, k)
	if _, ok := a.current[id]; !ok {
		a.current[id] = k
	}
}

// Probe takes a port from the operating system. Try reports whether it can be had and then holds it; Undo lets it go.
type Probe struct {
	Try  func(model.Key) bool
	Undo func(model.Key)
}

// Allocate gives every id that has no port one, or changes nothing and returns false when they do not all get one.
func (a *Allocator) Allocate(ids []model.ID, probe Probe) bool {
	var taken []model.Key
	for _, id := range ids {
		if _, ok := a.current[id]; ok {
			continue
		}
		k, ok := a.find(id, taken, probe)
		if !ok {
			for _, k := range taken {
				probe.Undo(k)
			}
			return false
		}
		taken = append(taken, k)
	}
	next := 0
	for _, id := range ids {
		if _, ok := a.current[id]; !ok {
			a.own(taken[next], id)
			next++
		}
	}
	return true
}

// Move gives id another port and keeps the present one owned until it is released. It returns false, and changes nothing, when
// there is none.
func (a *Allocator) Move(id model.ID, probe Probe) bool {
	k, ok := a.find(id, nil, probe)
	if ok {
		delete(a.current, id)
		a.own(k, id)
	}
	return ok
}

// find returns the port for id: the one it had, if that still cools, else the one free for longest, else none. Ports in taken
// are passed over. Only the port returned is held in the operating system.
func (a *Allocator) find(id model.ID, taken []model.Key, probe Probe) (model.Key, bool) {
	usable := func(k model.Key) bool {
		return a.Allowed(k) && !slices.Contains(taken, k) && probe.Try(k)
	}
	for _, k := range a.coolingOf(id) {
		if usable(k) {
			return k, true
		}
	}
	for _, k := range a.free(id.Protocol, id.Family) {
		if usable(k) {
			return k, true
		}
	}
	return model.Key{}, false
}

func (a *Allocator) coolingOf(id model.ID) []model.Key {
	var keys []model.Key
	for k, c := range a.cooling {
		if c.last == id {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, model.Key.Compare)
	return keys
}

// free returns the free ports of a protocol and family: the never used ones from the start cursor on, then the others in the
// order in which they became free.
func (a *Allocator) free(p npl.Protocol, f npl.Family) []model.Key {
	var unused, used []model.Key
	for i := range a.ports.Size() {
		k := model.Key{Protocol: p, Family: f, NodePort: a.ports.First + uint16((int(a.start)+i)%a.ports.Size())}
		if _, owned := a.owners[k]; owned {
			continue
		}
		if _, cools := a.cooling[k]; cools {
			continue
		}
		if _, ok := a.freed[k]; ok {
			used = append(used, k)
		} else {
			unused = append(unused, k)
		}
	}
	slices.SortFunc(used, func(x, y model.Key) int { return cmp.Compare(a.freed[x], a.freed[y]) })
	return append(unused, used...)
}

// Release ends the ownership of k, which then cools until the deadline.
func (a *Allocator) Release(k model.Key, until time.Time) {
	id := a.owners[k]
	delete(a.owners, k)
	if a.current[id] == k {
		delete(a.current, id)
	}
	a.cooling[k] = cooling{until: until, last: id}
}

// Cool makes a port that nobody owns cool until the deadline, if it does not already cool for longer.
func (a *Allocator) Cool(k model.Key, until time.Time) {
	if _, owned := a.owners[k]; owned || a.cooling[k].until.After(until) {
		return
	}
	a.cooling[k] = cooling{until: until, last: a.cooling[k].last}
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
		delete(a.cooling, k)
		a.count++
		a.freed[k] = a.count
	}
	return out
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
