package loop

import (
	"container/heap"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// queue holds the Services to look at, each once: the urgent ones first, else in the order in which they came.
type queue struct {
	in    map[model.ServiceKey]bool // true: urgent
	lanes [2][]model.ServiceKey     // urgent, others; an entry that in does not know so is a leftover
}

func newQueue() *queue { return &queue{in: map[model.ServiceKey]bool{}} }

func (q *queue) push(key model.ServiceKey, urgent bool) {
	was, is := q.in[key]
	if is && (was || !urgent) {
		return
	}
	q.in[key] = urgent
	lane := 1
	if urgent {
		lane = 0
	}
	q.lanes[lane] = append(q.lanes[lane], key)
}

func (q *queue) pop() (key model.ServiceKey, ok bool) {
	for lane := range q.lanes {
		for len(q.lanes[lane]) > 0 {
			key = q.lanes[lane][0]
			q.lanes[lane] = q.lanes[lane][1:]
			if urgent, is := q.in[key]; is && urgent == (lane == 0) {
				delete(q.in, key)
				return key, true
			}
		}
	}
	return model.ServiceKey{}, false
}

func (q *queue) len() int { return len(q.in) }

// agenda says when Services are due; each has at most one time. What is not due costs nothing.
type agenda struct {
	at   map[model.ServiceKey]time.Time
	heap appointments // also holds leftovers, which are not in at
}

func newAgenda() *agenda { return &agenda{at: map[model.ServiceKey]time.Time{}} }

// set enters the time of a Service; the zero time takes it out.
func (a *agenda) set(key model.ServiceKey, at time.Time) {
	was, is := a.at[key]
	switch {
	case at.IsZero():
		delete(a.at, key)
	case !is || !was.Equal(at):
		a.at[key] = at
		heap.Push(&a.heap, appointment{at, key})
	}
	if len(a.heap) > 2*len(a.at)+64 {
		a.heap = slices.DeleteFunc(a.heap, a.leftover)
		heap.Init(&a.heap)
	}
}

func (a *agenda) leftover(e appointment) bool { return !a.at[e.key].Equal(e.at) }

// next returns the earliest time; zero when there is none.
func (a *agenda) next() time.Time {
	for len(a.heap) > 0 && a.leftover(a.heap[0]) {
		heap.Pop(&a.heap)
	}
	if len(a.heap) == 0 {
		return time.Time{}
	}
	return a.heap[0].at
}

// due takes out and returns the Services whose time has come, sorted.
func (a *agenda) due(now time.Time) []model.ServiceKey {
	var out []model.ServiceKey
	for at := a.next(); !at.IsZero() && !now.Before(at); at = a.next() {
		e := heap.Pop(&a.heap).(appointment)
		delete(a.at, e.key)
		out = append(out, e.key)
	}
	slices.SortFunc(out, compareServices)
	return out
}

type appointment struct {
	at  time.Time
	key model.ServiceKey
}

// appointments is a heap.
type appointments []appointment

func (h appointments) Len() int           { return len(h) }
func (h appointments) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h appointments) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *appointments) Push(e any)        { *h = append(*h, e.(appointment)) }
func (h *appointments) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	*h = (*h)[:last]
	return e
}
