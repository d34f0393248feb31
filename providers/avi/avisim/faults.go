package avisim

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// FaultKind is what goes wrong with a call.
type FaultKind int

// The kinds. None only waits for Delay. Drop ends the connection before anything is done, DropAfter when everything is done, and Cut in the middle of the
// answer. Answer answers Status and Body and does nothing. EndSession ends the session before the call, which then answers 401. RefreshSession answers
// 419 with fresh cookies.
const (
	None FaultKind = iota
	Drop
	DropAfter
	Cut
	Answer
	EndSession
	RefreshSession
)

// Fault is something that goes wrong with calls, the first that match.
type Fault struct {
	Kind   FaultKind
	Method string // empty: any
	Path   string // the path begins so, as "/api/pool"; empty: any
	Times  int    // how often; 0 is once, below 0 always
	Delay  time.Duration
	Status int    // of Answer; 0 is 500
	Body   string // of Answer; empty is an HTML page of that status
	Type   string // of Answer: the Content-Type of Body; empty is application/json
	Header http.Header
}

type faults struct {
	mu   sync.Mutex
	list []*Fault
}

// Fail lets calls go wrong. Of several faults that match a call the first that was given is taken.
func (s *Server) Fail(f Fault) {
	if f.Times == 0 {
		f.Times = 1
	}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = append(s.faults.list, &f)
}

// Mend takes every fault back.
func (s *Server) Mend() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = nil
}

func (f *faults) take(method, path string) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range f.list {
		if fault.Times != 0 && (fault.Method == "" || fault.Method == method) && strings.HasPrefix(path, fault.Path) {
			if fault.Times > 0 {
				fault.Times--
			}
			return *fault
		}
	}
	return Fault{}
}

func (f Fault) reply() *reply {
	if f.Status == 0 {
		f.Status = http.StatusInternalServerError
	}
	out := htmlReply(f.Status, http.StatusText(f.Status))
	if f.Body != "" {
		out = textReply(f.Status, f.Body)
		out.header.Set("Content-Type", "application/json")
	}
	if f.Type != "" {
		out.header.Set("Content-Type", f.Type)
	}
	for name, values := range f.Header {
		out.header[http.CanonicalHeaderKey(name)] = values
	}
	return out
}

func (s *Server) endSessionOf(r *http.Request) {
	if session, err := s.sessionOf(r); err == nil {
		s.accounts.end(session.id)
	}
}

// refreshed answers 419 with other cookies for the same session.
func (s *Server) refreshed(r *http.Request) *reply {
	session, err := s.sessionOf(r)
	if err != nil {
		return err.reply
	}
	session, _ = s.accounts.refresh(session.id)
	out := textReply(419, "")
	session.setCookies(out.header)
	return out
}
