package ports

import "iter"

// order is a queue of free ports, given as offsets into the range: who has been free for longest stands first. Joining and leaving it,
// from any place, takes constant time.
type order struct {
	// next and prev link the offsets in a ring that begins and ends at end, the first number that is no offset. One that is not in the
	// queue is its own neighbour.
	next, prev []uint16
	end        uint16
}

// newOrder returns a queue of all offsets below size, from start on and round.
func newOrder(size int, start uint16) *order {
	o := &order{next: make([]uint16, size+1), prev: make([]uint16, size+1), end: uint16(size)}
	for i := range o.next {
		o.next[i], o.prev[i] = uint16(i), uint16(i)
	}
	for i := range size {
		o.push(uint16((int(start) + i) % size))
	}
	return o
}

func (o *order) contains(i uint16) bool { return o.next[i] != i }

// push puts i at the end, wherever it was before.
func (o *order) push(i uint16) {
	o.remove(i)
	last := o.prev[o.end]
	o.next[last], o.prev[i] = i, last
	o.next[i], o.prev[o.end] = o.end, i
}

// remove takes i out; one that is not in the queue is ignored.
func (o *order) remove(i uint16) {
	o.next[o.prev[i]], o.prev[o.next[i]] = o.next[i], o.prev[i]
	o.next[i], o.prev[i] = i, i
}

// all yields the offsets from the first on. The queue must not change meanwhile.
func (o *order) all() iter.Seq[uint16] {
	return func(yield func(uint16) bool) {
		for i := o.next[o.end]; i != o.end; i = o.next[i] {
			if !yield(i) {
				return
			}
		}
	}
}
