package ledger

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// Request is one that a client made, and what came of it.
type Request struct {
	Kind    string // of client
	Service string
	Target  string // where it was sent; for a client that goes straight to a node port, the Pod's UID
	Opened  time.Time
	Sent    time.Time
	Ended   time.Time
	UID     string // of the Pod that answered
	Err     string // empty when it was answered
}

// Tally holds the requests of a run until they are judged, and counts them by client kind. It may be used by several goroutines.
type Tally struct {
	mutex    sync.Mutex
	answered map[string]int
	pending  []Request
}

// NewTally returns an empty one.
func NewTally() *Tally { return &Tally{answered: map[string]int{}} }

// Add notes a request that has ended.
func (t *Tally) Add(r Request) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if r.Err == "" {
		t.answered[r.Kind]++
	}
	t.pending = append(t.pending, r)
}

// Take returns what was sent before a time, and not taken before.
func (t *Tally) Take(before time.Time) (taken []Request) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	var rest []Request
	for _, r := range t.pending {
		if r.Sent.Before(before) {
			taken = append(taken, r)
		} else {
			rest = append(rest, r)
		}
	}
	t.pending = rest
	return taken
}

// Answered returns the number of answers by client kind.
func (t *Tally) Answered() map[string]int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return maps.Clone(t.answered)
}

// Losses is what failed in some time.
type Losses struct {
	Requests int
	Failed   int
	// Window is from the first failed request's sending to the last one's end, the longest of any client kind and Service.
	Window  time.Duration
	Kinds   []string // of clients that failed, with their Services
	Samples []Request
}

// maxSamples bounds what is shown of failures.
const maxSamples = 4

// Lost sums up requests.
func Lost(requests []Request) Losses {
	type span struct{ from, to time.Time }
	spans := map[string]span{}
	l := Losses{Requests: len(requests)}
	for _, r := range requests {
		if r.Err == "" {
			continue
		}
		l.Failed++
		if len(l.Samples) < maxSamples {
			l.Samples = append(l.Samples, r)
		}
		of := r.Kind + " " + r.Service
		s, known := spans[of]
		if !known || r.Sent.Before(s.from) {
			s.from = r.Sent
		}
		if r.Ended.After(s.to) {
			s.to = r.Ended
		}
		spans[of] = s
	}
	for of, s := range spans {
		l.Kinds = append(l.Kinds, of)
		l.Window = max(l.Window, s.to.Sub(s.from))
	}
	slices.SortFunc(l.Kinds, cmp.Compare[string])
	return l
}
