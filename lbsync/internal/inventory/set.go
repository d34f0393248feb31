package inventory

import "iter"

// set is a set.
type set[T comparable] map[T]struct{}

func (s set[T]) add(v T) { s[v] = struct{}{} }

// is adds v, or removes it.
func (s set[T]) is(v T, in bool) {
	if in {
		s.add(v)
	} else {
		delete(s, v)
	}
}

// put adds to the set under k.
func put[K, T comparable](m map[K]set[T], k K, v T) {
	if m[k] == nil {
		m[k] = set[T]{}
	}
	m[k].add(v)
}

// drop removes from the set under k.
func drop[K, T comparable](m map[K]set[T], k K, v T) {
	delete(m[k], v)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}

// multimap maps keys to sets that nearly always have one element.
type multimap[K, V comparable] struct {
	one  map[K]V
	more map[K]set[V]
}

func newMultimap[K, V comparable]() multimap[K, V] {
	return multimap[K, V]{one: map[K]V{}, more: map[K]set[V]{}}
}

func (m multimap[K, V]) add(k K, v V) {
	switch first, some := m.one[k]; {
	case !some:
		m.one[k] = v
	case first != v:
		put(m.more, k, v)
	}
}

func (m multimap[K, V]) remove(k K, v V) {
	if m.one[k] != v {
		drop(m.more, k, v)
		return
	}
	delete(m.one, k)
	for next := range m.more[k] {
		m.one[k] = next
		drop(m.more, k, next)
		return
	}
}

// of yields what is under k.
func (m multimap[K, V]) of(k K) iter.Seq[V] {
	return func(yield func(V) bool) {
		first, some := m.one[k]
		if !some || !yield(first) {
			return
		}
		for v := range m.more[k] {
			if !yield(v) {
				return
			}
		}
	}
}
