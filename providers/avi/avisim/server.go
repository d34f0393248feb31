package avisim

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/schema"
	"github.com/nplbridge/nplbridge/providers/internal/simserver"
)

// maxBody is the longest request body that is read.
const maxBody = 32 << 20

// Server is the simulated Controller. All methods may be called by several goroutines.
type Server struct {
	cfg      Config
	version  schema.Version
	accounts *accounts
	faults   faults
	calls    calls

	mu     sync.RWMutex
	store  *store
	health map[string]map[string]Health // by pool's UUID and the server's address and port
	mode   Mode
	delay  time.Duration
	watch  chan struct{} // closed at the next change

	serving *simserver.Server
}

// New returns a Controller with what cfg says. It listens nowhere yet.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("avisim: %w", err)
	}
	version, err := schema.ParseVersion(cfg.Version)
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, version: version, accounts: newAccounts(cfg), store: newStore(), delay: cfg.Delay,
		health: map[string]map[string]Health{}, watch: make(chan struct{}),
	}
	if s.serving, err = simserver.New("avisim", s); err != nil {
		return nil, fmt.Errorf("avisim: %w", err)
	}
	if err := s.seed(); err != nil {
		return nil, fmt.Errorf("avisim: %w", err)
	}
	return s, nil
}

// Start listens on Config.Address with TLS and returns the URL, such as https://127.0.0.1:40123. CAPEM is what a client has to trust.
func (s *Server) Start() (string, error) {
	url, err := s.serving.Start(s.cfg.Address)
	if err != nil {
		return "", fmt.Errorf("avisim: %w", err)
	}
	return url, nil
}

// Handler serves the same without a listener of its own.
func (s *Server) Handler() http.Handler { return s }

// Close stops listening and drops every connection; what is stored stays.
func (s *Server) Close() error { return s.serving.Close() }

// CAPEM returns the certificate of the authority that signed the server's.
func (s *Server) CAPEM() []byte { return s.serving.CAPEM() }

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := split(r.URL.Path)
	if len(path) == 0 {
		s.page(w, r)
		return
	}
	call := s.calls.begin(r, endpoint(path))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	call.Sent = len(body)
	answer, fault := s.answer(r, path, body, err)
	if answer == nil {
		s.finish(call, nil)
		panic(http.ErrAbortHandler)
	}
	s.finish(call, answer)
	answer.send(w, fault == Cut)
}

func (s *Server) finish(call Call, answer *reply) {
	call = s.calls.end(call, answer)
	if s.cfg.Observe != nil {
		s.cfg.Observe(call)
	}
}

// answer is nil when the connection is to be dropped.
func (s *Server) answer(r *http.Request, path []string, body []byte, bodyErr error) (*reply, FaultKind) {
	s.mu.RLock()
	delay, mode := s.delay, s.mode
	s.mu.RUnlock()
	fault := s.faults.take(r.Method, "/"+joined(path))
	if !wait(r.Context(), delay+fault.Delay) {
		return nil, Drop
	}
	switch {
	case bodyErr != nil:
		return refuseDetail(http.StatusRequestEntityTooLarge, "Request body is too large or was cut off").reply, None
	case fault.Kind == Drop:
		return nil, Drop
	case fault.Kind == Answer:
		return fault.reply(), None
	case fault.Kind == EndSession:
		s.endSessionOf(r)
	case fault.Kind == RefreshSession:
		return s.refreshed(r), None
	}
	if mode == Starting {
		return htmlReply(http.StatusServiceUnavailable, "Service Temporarily Unavailable"), None
	}
	answer := s.route(r, path, body, mode)
	answer.header.Set("AVI_API_VERSION", s.version.String())
	answer.header.Set("Cache-Control", "no-cache, no-store, must-revalidate")
	answer.header.Set("Vary", "Accept, Cookie, Origin")
	answer.header.Set("Strict-Transport-Security", "max-age=31536000; includeSubdomains")
	answer.header.Set("X-Content-Type-Options", "nosniff")
	if fault.Kind == DropAfter {
		return nil, DropAfter
	}
	return answer, fault.Kind
}

// route answers what is below /login, /logout and /api.
func (s *Server) route(r *http.Request, path []string, body []byte, mode Mode) *reply {
	switch {
	case path[0] == "login" && len(path) == 1:
		return s.login(r, body)
	case path[0] == "logout" && len(path) == 1:
		return s.logout(r)
	case path[0] != "api" || len(path) < 2:
		return htmlReply(http.StatusNotFound, "Not Found")
	case path[1] == "initial-data" && len(path) == 2:
		return s.initialData(r)
	}
	in, err := s.admit(r, body)
	if err != nil {
		return err.reply
	}
	in.path = path[1:]
	var answer *reply
	if mode == Upgrading && writes(r.Method) {
		answer = refuse(http.StatusForbidden, "Configuration is disallowed during upgrade").reply
	} else if answer, err = s.api(in); err != nil {
		answer = err.reply
	}
	if in.session.id != "" {
		in.session.setCookies(answer.header)
	}
	return answer
}

func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
