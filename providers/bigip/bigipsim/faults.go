package bigipsim

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// FaultKind is what goes wrong with a call.
type FaultKind int

// The kinds. Slow only waits for Delay. Reset ends the connection before anything is done, Unanswered when everything is done, and Cut in the middle of
// the answer. The others answer without doing anything: Busy with the 503 of an active asynchronous task, ExpiredToken with the 401 of one, HTMLPage
// with the 503 of a restarting httpd, Unregistered with the 404 of a restjavad that starts, LostMCPD with a 500, EmptyBody with a 503 that says
// nothing, Answer with Status and Body.
const (
	Slow FaultKind = iota
	Reset
	Unanswered
	Cut
	Busy
	ExpiredToken
	HTMLPage
	Unregistered
	LostMCPD
	EmptyBody
	Answer
)

// Fault is something that goes wrong with calls, the first that match.
type Fault struct {
	Kind   FaultKind
	Method string // empty: any
	Path   string // the path contains it, as "/ltm/pool"; empty: any
	Times  int    // how often; 0 is once, below 0 always
	Delay  time.Duration
	Status int    // of Answer; 0 is 500
	Body   string // of Answer
	Type   string // of Answer: the Content-Type; empty is application/json
}

type faults struct {
	mu   sync.Mutex
	list []*Fault
}

// Inject lets calls go wrong. Of several faults that match a call the first that was given is taken.
func (s *Sim) Inject(f Fault) {
	if f.Times == 0 {
		f.Times = 1
	}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = append(s.faults.list, &f)
}

// Mend takes every fault back.
func (s *Sim) Mend() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = nil
}

func (f *faults) take(method, path string) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range f.list {
		if fault.Times != 0 && (fault.Method == "" || fault.Method == method) && strings.Contains(path, fault.Path) {
			if fault.Times > 0 {
				fault.Times--
			}
			return *fault
		}
	}
	return Fault{}
}

// answer is what a fault answers in place of the device; nil if it is not of that kind.
func (f Fault) answer() *reply {
	switch f.Kind {
	case Busy:
		return icrd(http.StatusServiceUnavailable, 32964609, "There is an active asynchronous task executing.")
	case ExpiredToken:
		return restjavad(http.StatusUnauthorized, "X-F5-Auth-Token has expired.")
	case HTMLPage:
		return restarting()
	case Unregistered:
		return restjavad(http.StatusNotFound, "URI path /mgmt/tm not registered.  Please verify URI is supported and wait for /available suffix to be responsive.")
	case LostMCPD:
		return icrd(http.StatusInternalServerError, 32768001, "The connection to mcpd has been lost, try again.")
	case EmptyBody:
		return &reply{http.StatusServiceUnavailable, http.Header{}, nil}
	case Answer:
		out := &reply{f.Status, http.Header{"Content-Type": {"application/json; charset=UTF-8"}}, []byte(f.Body)}
		if f.Status == 0 {
			out.status = http.StatusInternalServerError
		}
		if f.Type != "" {
			out.header.Set("Content-Type", f.Type)
		}
		return out
	default:
		return nil
	}
}

// Mode is the state of the device as a whole.
type Mode int

// The modes: Up; Restarting, in which everything is a 503 in HTML; Registering, in which restjavad answers but nothing below /mgmt/tm is there yet.
const (
	Up Mode = iota
	Restarting
	Registering
)

// SetMode changes the mode.
func (s *Sim) SetMode(m Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = m
}

// SetDelay changes Config.Delay.
func (s *Sim) SetDelay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// reset ends a connection with a TCP reset.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	inner := conn
	if secure, ok := conn.(*tls.Conn); ok {
		inner = secure.NetConn()
	}
	if tcp, ok := inner.(*net.TCPConn); ok {
		tcp.SetLinger(0) //nolint:errcheck // only the way it ends
	}
	inner.Close() //nolint:errcheck // as above
}
