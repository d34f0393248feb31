package dataplane

import (
	"maps"
	"slices"
	"time"
)

// wanted is what one family's table shall hold, by set.
type wanted map[string]map[string]element

// difference is what separates a state from what is wanted, and becomes one transaction.
type difference struct {
	create  bool // the table itself
	rebuild bool // chains, rules and set types; elements of intact sets stay
	del     map[string][]string
	add     map[string]map[string]element
}

func (d difference) empty() bool {
	return !d.create && !d.rebuild && len(d.del) == 0 && len(d.add) == 0
}

// keys returns the keys of a set that the difference touches, sorted.
func (d difference) keys(set string) []string {
	keys := slices.Collect(maps.Keys(d.add[set]))
	keys = append(keys, d.del[set]...)
	slices.Sort(keys)
	return slices.Compact(keys)
}

// compare finds the difference at the time now. The cooling set is special: its elements vanish by themselves, so those
// that nobody asked for are left to do so, unless their port is in use again.
func compare(s *state, want wanted, now time.Time) difference {
	d := difference{
		create: !s.exists, rebuild: len(s.wrong) > 0,
		del: map[string][]string{}, add: map[string]map[string]element{},
	}
	for name, elements := range want {
		have := s.elements[name]
		for _, key := range slices.Sorted(maps.Keys(have)) {
			w, wanted := elements[key]
			_, mapped := want[setPorts][key]
			cools := name == setCooling && !have[key].expires.IsZero()
			switch {
			case cools && !wanted && !mapped:
			case cools && !have[key].expires.After(now): // the kernel has dropped it
			case !wanted || !same(w, have[key]):
				d.del[name] = append(d.del[name], key)
			}
		}
		for key, w := range elements {
			if h, ok := have[key]; ok && same(w, h) {
				continue
			}
			if d.add[name] == nil {
				d.add[name] = map[string]element{}
			}
			d.add[name][key] = w
		}
	}
	return d
}

// same allows for the kernel's clock tick and for the time a read takes.
func same(a, b element) bool {
	return a.data == b.data && a.expires.IsZero() == b.expires.IsZero() && a.expires.Sub(b.expires).Abs() < deadlineTolerance
}

const deadlineTolerance = 500 * time.Millisecond

// elementsPerMessage keeps a message below 64 KiB, the limit of a netlink attribute.
const elementsPerMessage = 400

// write applies d to f's table in one transaction.
func (n *NFT) write(f *family, s *state, d difference) error {
	t := &transaction{f: f}
	switch {
	case d.create:
		t.createTable(n.cfg.mark())
	case d.rebuild:
		t.clearFlags()
		t.deleteAllRules()
		for _, name := range s.badChains {
			t.deleteChain(name)
		}
		for _, name := range s.badSets {
			t.deleteSet(name)
		}
	}
	for _, set := range n.layouts[f].sets {
		if _, exists := s.elements[set.name]; !exists {
			t.addSet(set)
		}
		n.writeElements(t, set, d.del[set.name], d.add[set.name])
	}
	if d.rebuild {
		for _, c := range n.layouts[f].chains {
			t.addChain(c)
		}
		for _, c := range n.layouts[f].chains {
			for _, r := range c.rules {
				t.addRule(c, r)
			}
		}
	}
	return n.kernel.commit(t)
}

func (n *NFT) writeElements(t *transaction, s set, del []string, add map[string]element) {
	gone := make([]field, len(del))
	for i, key := range del {
		gone[i] = elementField(key, "", 0)
	}
	now, fresh := n.now(), make([]field, 0, len(add))
	for _, key := range slices.Sorted(maps.Keys(add)) {
		var millis int64
		if deadline := add[key].expires; !deadline.IsZero() {
			if millis = deadline.Sub(now).Milliseconds(); millis <= 0 {
				continue
			}
		}
		fresh = append(fresh, elementField(key, add[key].data, uint64(millis)))
	}
	for chunk := range slices.Chunk(gone, elementsPerMessage) {
		t.deleteElements(s, chunk)
	}
	for chunk := range slices.Chunk(fresh, elementsPerMessage) {
		t.addElements(s, chunk)
	}
}
