package bigipsim

import (
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/mcp"
)

const (
	tokenHeader = "X-F5-Auth-Token"
	// tokenLife and longestLife are in seconds.
	tokenLife   = 1200
	longestLife = 36000
	// exempt may have any number of tokens.
	exempt = "admin"
)

type token struct {
	id            string
	start, expiry time.Time
	timeout       int64
}

// tokens is the one user's account: password, tokens, lock.
type tokens struct {
	cfg Config

	mu          sync.Mutex
	password    string
	byID        map[string]*token
	failures    int
	lockedUntil time.Time
	logins      int // that succeeded
	rejected    int // wrong passwords, of logins and of basic authentication
}

func newTokens(cfg Config) *tokens {
	return &tokens{cfg: cfg, password: cfg.Password, byID: map[string]*token{}}
}

// check compares a name and a password, and counts failures. The caller holds the lock.
func (t *tokens) check(username, password string) bool {
	now := t.cfg.Clock.Now()
	if now.Before(t.lockedUntil) || username != t.cfg.Username || password != t.password {
		t.rejected++
		if t.failures++; t.cfg.Rules.MaxLoginFailures > 0 && t.failures >= t.cfg.Rules.MaxLoginFailures {
			t.failures, t.lockedUntil = 0, now.Add(t.cfg.Rules.LockTime)
		}
		return false
	}
	t.failures = 0
	return true
}

// login answers /mgmt/shared/authn/login.
func (s *Sim) login(r *request) *reply {
	if r.Method != http.MethodPost {
		return restjavad(http.StatusMethodNotAllowed, "Method not allowed: %s", r.Method)
	}
	body, bad := r.object()
	if bad != nil {
		return bad
	}
	username, _ := body["username"].(string)
	password, _ := body["password"].(string)
	provider, given := body["loginProviderName"].(string)
	if given && provider != "tmos" && provider != "local" {
		return restjavad(http.StatusUnauthorized, "Authentication failed: no login provider %s", provider)
	}
	t := s.tokens
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.check(username, password) {
		return restjavad(http.StatusUnauthorized, "Authentication failed.")
	}
	t.sweep()
	if username != exempt && len(t.byID) >= t.cfg.Rules.MaxTokens {
		return restjavad(http.StatusBadRequest, "user %s has reached maximum active login tokens", username)
	}
	t.logins++
	now := t.cfg.Clock.Now()
	made := &token{id: rand.Text(), start: now, expiry: now.Add(tokenLife * time.Second), timeout: tokenLife}
	t.byID[made.id] = made
	return ok(map[string]any{
		"username": username, "loginReference": link("/mgmt/cm/system/authn/providers/tmos/1f44a60e-11a7-3c51-a49f-82983026b41b/login"), "loginProviderName": "tmos",
		"token": t.show(made), "generation": 0, "lastUpdateMicros": 0,
	})
}

// sweep forgets tokens that have expired. The caller holds the lock.
func (t *tokens) sweep() {
	for id, one := range t.byID {
		if !t.cfg.Clock.Now().Before(one.expiry) {
			delete(t.byID, id)
		}
	}
}

// show is a token as login, GET, PATCH and DELETE show it.
func (t *tokens) show(one *token) map[string]any {
	return map[string]any{
		"token": one.id, "name": one.id, "userName": t.cfg.Username, "authProviderName": "tmos", "user": link("/mgmt/shared/authz/users/" + t.cfg.Username),
		"groupReferences": []any{}, "timeout": one.timeout, "startTime": one.start.UTC().Format("2006-01-02T15:04:05.000-0700"), "address": "127.0.0.1", "partition": "[All]",
		"generation": 1, "lastUpdateMicros": one.start.UnixMicro(), "expirationMicros": one.expiry.UnixMicro(),
		"kind": "shared:authz:tokens:authtokenitemstate", "selfLink": "https://localhost/mgmt/shared/authz/tokens/" + one.id,
	}
}

func link(path string) map[string]any { return map[string]any{"link": "https://localhost" + path} }

// authenticate finds out who calls; nil is good.
func (s *Sim) authenticate(r *request) *reply {
	t := s.tokens
	t.mu.Lock()
	defer t.mu.Unlock()
	r.user = mcp.User{Name: t.cfg.Username, Partition: t.cfg.UserPartition}
	if id := r.Header.Get(tokenHeader); id != "" {
		one := t.byID[id]
		switch {
		case one == nil:
			return restjavad(http.StatusUnauthorized, "X-F5-Auth-Token does not exist.")
		case !t.cfg.Clock.Now().Before(one.expiry):
			return restjavad(http.StatusUnauthorized, "X-F5-Auth-Token has expired.")
		}
		return nil
	}
	username, password, basic := r.BasicAuth()
	switch {
	case !basic:
		return restjavad(http.StatusUnauthorized, "Authorization failed: no user authentication header or token detected. Uri:http://localhost:8100%s Referrer:127.0.0.1 Sender:127.0.0.1", r.URL.Path)
	case !t.check(username, password):
		answer := htmlReply(http.StatusUnauthorized, "Unauthorized", "This server could not verify that you are authorized to access the document requested.")
		answer.header.Set("WWW-Authenticate", `Basic realm="Enterprise Manager"`)
		return answer
	}
	return nil
}

// shared answers /mgmt/shared/authz/tokens and what Application Services 3 has.
func (s *Sim) shared(r *request) *reply {
	if r.path[1] == "appsvcs" {
		return s.as3(r)
	}
	if len(r.path) < 3 || r.path[2] != "tokens" {
		return unregistered(r)
	}
	t := s.tokens
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(r.path) == 3 && r.Method == http.MethodGet {
		t.sweep()
		items := []any{}
		for _, one := range t.byID {
			items = append(items, t.show(one))
		}
		return ok(map[string]any{"items": items, "generation": 1, "kind": "shared:authz:tokens:authtokencollectionstate", "lastUpdateMicros": 0, "selfLink": "https://localhost/mgmt/shared/authz/tokens"})
	}
	if len(r.path) != 4 {
		return unregistered(r)
	}
	one := t.byID[r.path[3]]
	if one == nil {
		return restjavad(http.StatusNotFound, "http://localhost:8100/mgmt/shared/authz/tokens/ not found")
	}
	switch r.Method {
	case http.MethodGet:
	case http.MethodDelete:
		delete(t.byID, one.id)
	case http.MethodPatch:
		return t.patch(r, one)
	default:
		return restjavad(http.StatusMethodNotAllowed, "Method not allowed: %s", r.Method)
	}
	return ok(t.show(one))
}

// patch changes a token's timeout. The answer is the flat token, not what a login answers. The caller holds the lock.
func (t *tokens) patch(r *request, one *token) *reply {
	body, bad := r.object()
	if bad != nil {
		return bad
	}
	seconds, isNumber := wholeNumber(body["timeout"])
	if !isNumber || seconds < 1 {
		return restjavad(http.StatusBadRequest, "timeout must be a positive number of seconds")
	}
	if seconds > longestLife {
		return restjavad(http.StatusNotAcceptable, "Auth-token absolute timeout (%d seconds) exceeded", longestLife)
	}
	from := t.cfg.Clock.Now()
	if t.cfg.Rules.TokenFromStart {
		from = one.start
	}
	one.timeout, one.expiry = seconds, from.Add(time.Duration(seconds)*time.Second)
	if last := one.start.Add(longestLife * time.Second); one.expiry.After(last) {
		one.expiry = last
	}
	return ok(t.show(one))
}

func wholeNumber(value any) (int64, bool) {
	n, isNumber := value.(interface{ Int64() (int64, error) })
	if !isNumber {
		return 0, false
	}
	i, err := n.Int64()
	return i, err == nil
}

// EndTokens ends every token, as a restart of restjavad may.
func (s *Sim) EndTokens() {
	s.tokens.mu.Lock()
	defer s.tokens.mu.Unlock()
	clear(s.tokens.byID)
}

// Logins returns how many logins succeeded, how many passwords were wrong, and how many tokens are alive.
func (s *Sim) Logins() (succeeded, rejected, tokens int) {
	s.tokens.mu.Lock()
	defer s.tokens.mu.Unlock()
	s.tokens.sweep()
	return s.tokens.logins, s.tokens.rejected, len(s.tokens.byID)
}

// SetPassword changes the user's password; tokens go on.
func (s *Sim) SetPassword(password string) {
	s.tokens.mu.Lock()
	defer s.tokens.mu.Unlock()
	s.tokens.password = password
}

// as3 answers what Application Services 3 does, as far as it tells which partitions it owns. Without such a partition it is not installed.
func (s *Sim) as3(r *request) *reply {
	declaration := map[string]any{"class": "ADC", "schemaVersion": "3.50.0"}
	for _, p := range s.cfg.Partitions {
		if p.AS3 {
			declaration[p.Name] = map[string]any{"class": "Tenant", "Shared": map[string]any{"class": "Application", "template": "shared"}}
		}
	}
	what := strings.Join(r.path[2:], "/")
	switch {
	case len(declaration) == 2:
	case what == "info" && r.Method == http.MethodGet:
		return ok(map[string]any{"version": "3.50.0", "release": "5", "schemaCurrent": "3.50.0", "schemaMinimum": "3.0.0"})
	case what == "declare" && r.Method == http.MethodGet:
		return ok(declaration)
	case len(r.path) == 4 && r.path[2] == "declare" && r.Method == http.MethodGet:
		tenant, declared := declaration[r.path[3]].(map[string]any)
		if !declared {
			return restjavad(http.StatusNotFound, "specified Tenant(s) %q not found in declaration", r.path[3])
		}
		return ok(map[string]any{"class": "ADC", "schemaVersion": declaration["schemaVersion"], r.path[3]: tenant})
	}
	return unregistered(r)
}
