package avisim

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"sync"
)

// Call is one call as it was answered.
type Call struct {
	Method, Path, Query string
	Endpoint            string // the path without UUIDs, "/api/pool/*"
	Tenant, Version     string // as the request's headers say
	Status              int    // 0: the connection was dropped
	Sent, Answered      int    // length of the bodies
}

// Count is how often something happened.
type Count struct {
	Method, Endpoint string
	Status           int
}

// calls counts calls; the zero value has counted none.
type calls struct {
	mu             sync.Mutex
	counts         map[Count]int
	inFlight, most int
}

func (c *calls) begin(r *http.Request, endpoint string) Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight++
	c.most = max(c.most, c.inFlight)
	return Call{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Endpoint: endpoint,
		Tenant: r.Header.Get("X-Avi-Tenant"), Version: r.Header.Get("X-Avi-Version"),
	}
}

// end completes call with its answer; nil is a connection that was dropped.
func (c *calls) end(call Call, answer *reply) Call {
	if answer != nil {
		call.Status, call.Answered = answer.status, len(answer.body)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	if c.counts == nil {
		c.counts = map[Count]int{}
	}
	c.counts[Count{call.Method, call.Endpoint, call.Status}]++
	return call
}

// Counts returns how many calls there were of each method, endpoint and status since the last ResetCounts.
func (s *Server) Counts() map[Count]int {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	return maps.Clone(s.calls.counts)
}

// CountCalls adds the counts of a method ("" is any) and endpoint, as "/api/pool/*", whatever the status.
func (s *Server) CountCalls(method, endpoint string) int {
	total := 0
	for c, n := range s.Counts() {
		if (method == "" || c.Method == method) && c.Endpoint == endpoint {
			total += n
		}
	}
	return total
}

// MostInFlight returns the largest number of calls that were answered at the same time since the last ResetCounts.
func (s *Server) MostInFlight() int {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	return s.calls.most
}

// ResetCounts begins the counts anew.
func (s *Server) ResetCounts() {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	clear(s.calls.counts)
	s.calls.most = s.calls.inFlight
}

// endpoint is a path with UUIDs replaced.
func endpoint(path []string) string {
	if len(path) > 2 && path[0] == "api" && path[1] != "cluster" {
		path = append([]string{path[0], path[1], "*"}, path[3:]...)
	}
	return "/" + joined(path)
}

func joined(path []string) string { return strings.Join(path, "/") }

func wholeNumber(value any) (int64, bool) {
	n, ok := value.(json.Number)
	i, err := n.Int64()
	return i, ok && err == nil
}
