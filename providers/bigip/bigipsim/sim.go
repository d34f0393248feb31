package bigipsim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/mcp"
	"github.com/nplbridge/nplbridge/providers/internal/simserver"
)

// maxBody is the longest request body that is read.
const maxBody = 32 << 20

// Sim is the simulated device, an http.Handler. All methods may be called by several goroutines.
type Sim struct {
	cfg    Config
	tokens *tokens
	faults faults
	calls  calls
	// writing is held by the one call that writes.
	writing chan struct{}
	cluster *cluster

	mu           sync.RWMutex
	config       *mcp.Configuration
	saved        mcp.Snapshot
	savedAt      int64                  // generation of what was saved
	runtime      map[string]poolRuntime // by full path
	transactions *transactions
	tasks        *tasks
	mode         Mode
	delay        time.Duration
	watch        chan struct{} // closed at the next change

	serving *simserver.Server
}

// New returns a device with what cfg says, saved. It listens nowhere yet.
func New(cfg Config) (*Sim, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("bigipsim: %w", err)
	}
	s := &Sim{
		cfg: cfg, tokens: newTokens(cfg), writing: make(chan struct{}, 1), delay: cfg.Delay, watch: make(chan struct{}),
		config: mcp.New(cfg.Rules.configuration()), runtime: map[string]poolRuntime{}, transactions: newTransactions(), tasks: newTasks(),
	}
	s.cluster = newCluster(s)
	if err := s.seed(); err != nil {
		return nil, fmt.Errorf("bigipsim: %w", err)
	}
	s.keep()
	var err error
	if s.serving, err = simserver.New("bigipsim", s); err != nil {
		return nil, fmt.Errorf("bigipsim: %w", err)
	}
	return s, nil
}

func (r Rules) configuration() mcp.Rules {
	return mcp.Rules{
		UnknownProperties: r.UnknownProperties, BracesInMonitors: r.BracesInMonitors, ShowDefaultRouteDomain: r.ShowDefaultRouteDomain,
		ReplaceKeepsOmitted: r.ReplaceKeepsOmitted, MemberWithoutPartition: r.MemberWithoutPartition, MonitorInTransaction: r.MonitorInTransaction,
	}
}

// seed makes what Config lists.
func (s *Sim) seed() error {
	create := func(kind string, body map[string]any) error {
		if _, err := s.config.Create(mcp.Lookup(kind), body, mcp.User{}); err != nil {
			return fmt.Errorf("%s %v: %w", kind, body["name"], err)
		}
		return nil
	}
	for _, id := range s.cfg.RouteDomains {
		if err := create("net/route-domain", map[string]any{"name": fmt.Sprint(id), "id": fmt.Sprint(id)}); err != nil {
			return err
		}
	}
	for _, name := range s.cfg.TrafficGroups {
		if err := create("cm/traffic-group", map[string]any{"name": name}); err != nil {
			return err
		}
	}
	for _, name := range s.cfg.VLANs {
		if err := create("net/vlan", map[string]any{"name": name}); err != nil {
			return err
		}
	}
	for _, p := range s.cfg.Partitions {
		if err := create("auth/partition", map[string]any{"name": p.Name, "defaultRouteDomain": fmt.Sprint(p.DefaultRouteDomain)}); err != nil {
			return err
		}
		if p.TrafficGroup != "" {
			group := p.TrafficGroup
			if group != "none" {
				group = "/Common/" + group
			}
			if _, err := s.config.Modify(mcp.Lookup("sys/folder"), "/"+p.Name, map[string]any{"trafficGroup": group}, false, mcp.User{}); err != nil {
				return fmt.Errorf("partition %s: %w", p.Name, err)
			}
		}
		if p.AS3 {
			if err := create("sys/folder", map[string]any{"name": "Shared", "partition": p.Name}); err != nil {
				return err
			}
		}
	}
	return nil
}

// request is a call after its path, query and body were read.
type request struct {
	*http.Request
	path  []string // below /mgmt, decoded
	query url.Values
	body  []byte
	user  mcp.User
}

func (r *request) writes() bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && len(r.path) > 0 && r.path[0] == "tm"
}

// object reads the body as a JSON object.
func (r *request) object() (map[string]any, *reply) {
	decoder := json.NewDecoder(bytes.NewReader(r.body))
	decoder.UseNumber()
	var out map[string]any
	if err := decoder.Decode(&out); err != nil || out == nil || decoder.More() {
		return nil, icrd(http.StatusBadRequest, mcp.APINotFound, "Found invalid JSON body in the request.")
	}
	return out, nil
}

// ServeHTTP answers one call.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/" {
		s.page(w, r)
		return
	}
	s.calls.begin()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	answer, fault := s.answer(r, body, err)
	call := Call{Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Transaction: r.Header.Get(coordination)}
	if !strings.HasPrefix(call.Path, "/mgmt/shared/authn/") {
		call.Body = string(body)
	}
	if answer != nil {
		call.Status = answer.status
	}
	s.calls.end(call)
	if s.cfg.Observe != nil {
		s.cfg.Observe(call)
	}
	if answer == nil {
		reset(w)
		return
	}
	answer.send(w, fault == Cut)
}

// answer is nil when the connection is to be reset.
func (s *Sim) answer(r *http.Request, body []byte, bodyErr error) (*reply, FaultKind) {
	if bodyErr != nil {
		return htmlReply(http.StatusRequestEntityTooLarge, "Request Entity Too Large", "The body is too large or was cut off."), Slow
	}
	in := &request{Request: r, path: elements(r.URL), query: r.URL.Query(), body: body}
	fault := s.faults.take(r.Method, r.URL.EscapedPath())
	s.mu.RLock()
	delay, mode := s.delay, s.mode
	s.mu.RUnlock()
	if in.writes() {
		select {
		case s.writing <- struct{}{}:
			defer func() { <-s.writing }()
		case <-r.Context().Done():
			return nil, Reset
		}
	}
	if !wait(r.Context(), delay+fault.Delay) || fault.Kind == Reset {
		return nil, Reset
	}
	if answer := fault.answer(); answer != nil {
		return answer, fault.Kind
	}
	answer := s.route(in, mode)
	if fault.Kind == Unanswered {
		return nil, Unanswered
	}
	return answer, fault.Kind
}

// elements are those of the path below /mgmt, decoded; nil elsewhere.
func elements(u *url.URL) []string {
	rest, ok := strings.CutPrefix(u.EscapedPath(), "/mgmt/")
	if !ok {
		return nil
	}
	var out []string
	for part := range strings.SplitSeq(strings.TrimSuffix(rest, "/"), "/") {
		decoded, err := url.PathUnescape(part)
		if err != nil {
			return nil
		}
		out = append(out, decoded)
	}
	return out
}

// tagLike is what the REST layer takes for an attempt to inject markup.
var tagLike = regexp.MustCompile(`<[A-Za-z/!]`)

// route answers what is below /mgmt.
func (s *Sim) route(r *request, mode Mode) *reply {
	switch {
	case mode == Restarting:
		return restarting()
	case len(r.path) == 0:
		return htmlReply(http.StatusNotFound, "Not Found", "The requested URL was not found on this server.")
	case strings.Join(r.path, "/") == "shared/authn/login":
		return s.login(r)
	}
	if answer := s.authenticate(r); answer != nil {
		return answer
	}
	if mode == Registering && r.path[0] == "tm" {
		return restjavad(http.StatusNotFound, "URI path %s not registered.  Please verify URI is supported and wait for /available suffix to be responsive.", r.URL.Path)
	}
	switch {
	case len(r.path) > 1 && r.path[0] == "shared" && slices.Contains([]string{"authz", "appsvcs"}, r.path[1]):
		return s.shared(r)
	case r.path[0] == "tm" && len(r.path) > 1:
		if isRule := strings.Join(r.path[1:min(3, len(r.path))], "/") == "ltm/rule"; tagLike.MatchString(r.URL.Path) || (!isRule && tagLike.Match(r.body)) {
			return icrd(http.StatusBadRequest, mcp.APIInvalid, "HTML Tag-like Content in the Request URL/Body")
		}
		return s.tm(r)
	}
	return unregistered(r)
}

func unregistered(r *request) *reply {
	return restjavad(http.StatusNotFound, "Public URI path not registered: %s", strings.TrimPrefix(r.URL.Path, "/mgmt"))
}

func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
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

// changed wakes who watches. The caller holds the lock.
func (s *Sim) changed() {
	close(s.watch)
	s.watch = make(chan struct{})
}
