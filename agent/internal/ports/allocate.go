package ports

import (
	"slices"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// protocols are all that a node port can have.
var protocols = []npl.Protocol{npl.TCP, npl.UDP, npl.SCTP}

// Probe takes a port from the operating system. Try reports whether it can be had and then holds it; Undo lets it go.
type Probe struct {
	Try  func(model.Key) bool
	Undo func(model.Key)
}

// Allocate gives every id that has no port one, or changes nothing and returns false when they do not all get one.
func (a *Allocator) Allocate(ids []model.ID, probe Probe) bool {
	s := search{Allocator: a, probe: probe, taken: map[model.Key]bool{}}
	for _, lacking := range a.bundles(ids) {
		if !s.find(lacking) {
			for _, g := range s.given {
				probe.Undo(g.key)
			}
			return false
		}
	}
	s.give()
	return true
}

// Move gives id another port and keeps the present one owned until it is released. It returns false, and changes nothing, when
// there is none. With joint the other mappings of its bundle may have to follow; see Settled.
func (a *Allocator) Move(id model.ID, probe Probe) bool {
	s := search{Allocator: a, probe: probe, taken: map[model.Key]bool{}}
	if !s.find([]model.ID{id}) {
		return false
	}
	delete(a.current, id)
	s.give()
	return true
}

// bundle names the mappings that should have one number: with joint all that differ in protocol only, else each by itself.
func (a *Allocator) bundle(id model.ID) model.ID {
	if a.joint {
		id.Protocol = ""
	}
	return id
}

// members are all the mappings that a bundle may have.
func (a *Allocator) members(bundle model.ID) []model.ID {
	if !a.joint {
		return []model.ID{bundle}
	}
	ids := make([]model.ID, 0, len(protocols))
	for _, p := range protocols {
		bundle.Protocol = p
		ids = append(ids, bundle)
	}
	return ids
}

// bundles sorts those of ids that have no port by bundle, in the order in which the bundles first appear.
func (a *Allocator) bundles(ids []model.ID) [][]model.ID {
	var out [][]model.ID
	place := map[model.ID]int{}
	for _, id := range ids {
		if a.has(id) {
			continue
		}
		b := a.bundle(id)
		i, known := place[b]
		if !known {
			i = len(out)
			place[b], out = i, append(out, nil)
		}
		out[i] = append(out[i], id)
	}
	return out
}

// search looks for ports. It gives none before all are found.
type search struct {
	*Allocator
	probe Probe
	given []grant
	taken map[model.Key]bool // the keys of given
}

type grant struct {
	key model.Key
	id  model.ID
}

func (s *search) give() {
	for _, g := range s.given {
		s.own(g.key, g.id)
		s.numbers[s.bundle(g.id)] = g.key.NodePort
	}
}

// find chooses a number for ids, which are of one bundle: the one that the rest of the bundle has, else one that cools and was theirs,
// else the one that has been free for longest. Only the ports that it chooses stay held in the operating system.
func (s *search) find(ids []model.ID) bool {
	b, family := s.bundle(ids[0]), ids[0].Family
	if n, ok := s.numbers[b]; ok && s.choose(n, ids) {
		return true
	}
	for _, id := range ids {
		if k, ok := s.former[id]; ok && s.whole(k.NodePort, b) && s.choose(k.NodePort, ids) {
			return true
		}
	}
	for i := range s.order(ids[0].Protocol, family).all() {
		if n := s.ports.First + i; !s.gave(n, family) && s.whole(n, b) && s.choose(n, ids) {
			return true
		}
	}
	for _, g := range s.given { // to another protocol: as in own, such a number comes last
		if n := g.key.NodePort; g.key.Family == family && s.whole(n, b) && s.choose(n, ids) {
			return true
		}
	}
	return false
}

// gave reports whether this search has chosen number n for some protocol.
func (s *search) gave(n uint16, f npl.Family) bool {
	return slices.ContainsFunc(protocols, func(p npl.Protocol) bool { return s.taken[model.Key{Protocol: p, Family: f, NodePort: n}] })
}

// choose takes number n for all of ids, or for none.
func (s *search) choose(n uint16, ids []model.ID) bool {
	if !s.hold(n, ids) {
		return false
	}
	for _, id := range ids {
		g := grant{keyOf(id, n), id}
		s.given, s.taken[g.key] = append(s.given, g), true
	}
	return true
}

// whole reports whether a whole bundle could have number n: with joint also its mappings that have another number now, and those
// that may come.
func (s *search) whole(n uint16, bundle model.ID) bool {
	if !s.joint {
		return true
	}
	var others []model.ID
	for _, id := range s.members(bundle) {
		k := keyOf(id, n)
		if s.owners[k] == id {
			continue
		}
		if !s.open(k, id) {
			return false
		}
		if s.has(id) {
			others = append(others, id)
		}
	}
	if !s.hold(n, others) {
		return false
	}
	for _, id := range others {
		s.probe.Undo(keyOf(id, n))
	}
	return true
}

// hold takes number n from the operating system for all of ids, or for none.
func (s *search) hold(n uint16, ids []model.ID) bool {
	for i, id := range ids {
		if k := keyOf(id, n); s.open(k, id) && s.probe.Try(k) {
			continue
		}
		for _, id := range ids[:i] {
			s.probe.Undo(keyOf(id, n))
		}
		return false
	}
	return true
}

// open reports whether k may be given to id.
func (s *search) open(k model.Key, id model.ID) bool {
	_, owned := s.owners[k]
	c, cools := s.cooling[k]
	return s.Allowed(k) && !owned && !s.taken[k] && (!cools || c.last == id)
}

func keyOf(id model.ID, n uint16) model.Key {
	return model.Key{Protocol: id.Protocol, Family: id.Family, NodePort: n}
}
