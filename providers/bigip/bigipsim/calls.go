package bigipsim

import (
	"net/http"
	"slices"
	"strings"
	"sync"
)

// maxCalls is how many calls are remembered; of more, the latest.
const maxCalls = 100_000

// Call is one call as it was answered.
type Call struct {
	Method string
	Path   string // as it was sent, with its escapes
	Query  string
	// Body as it was sent; empty for what holds secrets, which a login does.
	Body string
	// Transaction is the X-F5-REST-Coordination-Id; empty without.
	Transaction string
	// Status is 0 when there was no answer.
	Status int
}

// Writes reports whether the call asked for a change below /mgmt/tm: logins and tokens are none, saving and synchronising are.
func (c Call) Writes() bool {
	return c.Method != http.MethodGet && strings.HasPrefix(c.Path, "/mgmt/tm/")
}

type calls struct {
	mu             sync.Mutex
	list           []Call
	inFlight, most int
}

func (c *calls) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight++
	c.most = max(c.most, c.inFlight)
}

func (c *calls) end(call Call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	if len(c.list) >= maxCalls {
		c.list = slices.Delete(c.list, 0, maxCalls/2)
	}
	c.list = append(c.list, call)
}

// Calls returns every call since the last ResetCounters, in the order in which they ended.
func (s *Sim) Calls() []Call {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	return slices.Clone(s.calls.list)
}

// Count returns how many calls there were of a method ("" is any) whose path begins so.
func (s *Sim) Count(method, path string) int {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	n := 0
	for _, c := range s.calls.list {
		if (method == "" || c.Method == method) && strings.HasPrefix(c.Path, path) {
			n++
		}
	}
	return n
}

// Writes returns how many calls asked for a change, see Call.Writes.
func (s *Sim) Writes() int {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	n := 0
	for _, c := range s.calls.list {
		if c.Writes() {
			n++
		}
	}
	return n
}

// MostInFlight returns the largest number of calls that were under way at the same time since the last ResetCounters.
func (s *Sim) MostInFlight() int {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	return s.calls.most
}

// Writing reports whether a write is under way; there is one at most.
func (s *Sim) Writing() bool { return len(s.writing) > 0 }

// ResetCounters forgets the calls.
func (s *Sim) ResetCounters() {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	s.calls.list, s.calls.most = nil, s.calls.inFlight
}
