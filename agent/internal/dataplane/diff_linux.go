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
	discard bool // the table that is there, of another layout, in the same transaction
	rebuild bool // chains, rules and set types; elements of intact sets stay
	del     map[string][]string
	add     map[string]map[string]element
}

func (d difference) empty() bool {
	return !d.create && !d.rebuild && len(d.del) == 0 && len(d.add) == 0
}

// step is compare for a change to a table that is known to be as it was last written. Its cost grows with the change, not
// with the table.
func (s *state) step(f *family, c Change, now time.Time) difference {
	d := difference{del: map[string][]string{}, add: map[string]map[string]element{}}
	after := map[string]element{} // what the keys of the change lead to; nothing: no data
	cool := map[string]element{}
	for _, k := range c.Delete {
		if k.Family == f.ip {
			after[encodeKey(k)] = element{}
		}
	}
	for k, rest := range c.Cool {
		if k.Family == f.ip {
			cool[encodeKey(k)] = element{expires: now.Add(rest)}
		}
	}
	for k, target := range c.Set {
		if k.Family == f.ip {
			after[encodeKey(k)] = element{data: encodeTarget(target)}
		}
	}
	change := func(set, key string, wanted bool, w element, mapped bool) {
		if have, ok := s.elements[set][key]; ok {
			d.replace(set, key, have, wanted, w, mapped, now)
		} else if wanted {
			d.put(set, key, w)
		}
	}
	pods := map[string]int{} // how many mappings more or less lead to an address
	for _, key := range slices.Sorted(maps.Keys(after)) {
		w := after[key]
		mapped := w.data != ""
		change(setPorts, key, mapped, w, mapped)
		if set, port, known := portSet(key); known {
			change(set, port, mapped, element{}, mapped)
		}
		if had := s.elements[setPorts][key].data; had != "" {
			pods[f.podOf(had)]--
		}
		if mapped {
			pods[f.podOf(w.data)]++
			change(setCooling, key, false, element{}, true)
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(pods)) {
		change(setHairpin, encodePair(pod), s.pods[pod]+pods[pod] > 0, element{}, false)
	}
	for _, key := range slices.Sorted(maps.Keys(cool)) {
		w, touched := after[key]
		if _, mapped := s.elements[setPorts][key]; touched && w.data == "" || !touched && !mapped {
			change(setCooling, key, true, cool[key], false)
		}
	}
	return d
}

// advance makes the state what it is after d was written.
func (s *state) advance(f *family, d difference) {
	for set, keys := range d.del {
		for _, key := range keys {
			if set == setPorts {
				s.count(f, s.elements[set][key], -1)
			}
			delete(s.elements[set], key)
		}
	}
	for set, elements := range d.add {
		for key, e := range elements {
			if set == setPorts {
				s.count(f, e, +1)
			}
			s.elements[set][key] = e
		}
	}
}

// count keeps account of how many mappings lead to an address.
func (s *state) count(f *family, e element, by int) {
	pod := f.podOf(e.data)
	if s.pods[pod] += by; s.pods[pod] == 0 {
		delete(s.pods, pod)
	}
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
		create: !s.exists || s.otherLayout, discard: s.otherLayout, rebuild: len(s.wrong) > 0,
		del: map[string][]string{}, add: map[string]map[string]element{},
	}
	for name, elements := range want {
		have := s.elements[name]
		if d.discard { // nothing of it stays but what is wanted
			have = nil
		}
		for _, key := range slices.Sorted(maps.Keys(have)) {
			w, wanted := elements[key]
			_, mapped := want[setPorts][key]
			d.replace(name, key, have[key], wanted, w, mapped, now)
		}
		for key, w := range elements {
			if _, ok := have[key]; !ok {
				d.put(name, key, w)
			}
		}
	}
	return d
}

// replace decides about an element that is there: mapped says whether its port is in use.
func (d *difference) replace(set, key string, have element, wanted bool, w element, mapped bool, now time.Time) {
	cools := set == setCooling && !have.expires.IsZero()
	switch {
	case wanted && same(w, have):
		return
	case cools && !wanted && !mapped:
	case cools && !have.expires.After(now): // the kernel has dropped it
	default:
		d.del[set] = append(d.del[set], key)
	}
	if wanted {
		d.put(set, key, w)
	}
}

func (d *difference) put(set, key string, e element) {
	if d.add[set] == nil {
		d.add[set] = map[string]element{}
	}
	d.add[set][key] = e
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
		if d.discard {
			t.deleteTable()
		}
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
		if _, exists := s.elements[set.name]; !exists || d.discard {
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
