package avisim

import (
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	sessionCookie    = "avi-sessionid"
	oldSessionCookie = "sessionid" // same value, for older clients
	csrfCookie       = "csrftoken"
	maxTokenHours    = 87600
)

// session is one login.
type session struct {
	id, csrf    string
	since, used time.Time
}

// token is one of /api/user-token.
type token struct {
	UUID      string `json:"uuid"`
	Token     string `json:"token"`
	Username  string `json:"username"`
	Hours     int64  `json:"hours"`
	ExpiresAt string `json:"expires_at"`
	once      bool
	expires   time.Time
}

// accounts is the one user's account: password, sessions, tokens, lock.
type accounts struct {
	cfg Config

	mu          sync.Mutex
	password    string
	sessions    map[string]*session
	tokens      map[string]*token // by UUID
	failures    int
	lockedUntil time.Time
	logins      int // that succeeded
	rejected    int // that did not
}

func newAccounts(cfg Config) *accounts {
	return &accounts{cfg: cfg, password: cfg.Password, sessions: map[string]*session{}, tokens: map[string]*token{}}
}

type credentials struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Token    string `json:"token"`
}

// readCredentials understands JSON and forms.
func readCredentials(contentType string, body []byte) (credentials, bool) {
	var c credentials
	if strings.HasPrefix(contentType, "application/x-www-form-urlencoded") {
		values, err := url.ParseQuery(string(body))
		return credentials{values.Get("username"), values.Get("password"), values.Get("token")}, err == nil
	}
	err := json.Unmarshal(body, &c)
	return c, err == nil
}

// login returns a new session, or nil and whether the account is locked.
func (a *accounts) login(c credentials) (*session, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.cfg.Now()
	if now.Before(a.lockedUntil) {
		a.rejected++
		return nil, true
	}
	if !a.accepts(c, now) {
		a.rejected++
		if a.failures++; a.failures >= a.cfg.MaxLoginFailures {
			a.failures, a.lockedUntil = 0, now.Add(a.cfg.LockTime)
		}
		return nil, false
	}
	a.failures = 0
	a.logins++
	s := &session{id: strings.ToLower(rand.Text()), csrf: rand.Text() + rand.Text()[:6], since: now, used: now}
	a.sessions[s.id] = s
	if a.cfg.MaxSessions > 0 && len(a.sessions) > a.cfg.MaxSessions {
		oldest := slices.MinFunc(slices.Collect(maps.Values(a.sessions)), func(x, y *session) int { return x.since.Compare(y.since) })
		delete(a.sessions, oldest.id)
	}
	return s, false
}

func (a *accounts) accepts(c credentials, now time.Time) bool {
	if c.Username != a.cfg.Username {
		return false
	}
	if c.Token == "" {
		return c.Password == a.password
	}
	for _, t := range a.tokens {
		if t.Token == c.Token && now.Before(t.expires) {
			if t.once {
				delete(a.tokens, t.UUID)
			}
			return true
		}
	}
	return false
}

// touch returns a copy of the session of this ID if it is alive, and counts the request as use of it.
func (a *accounts) touch(id string) (session, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[id]
	if s == nil {
		return session{}, false
	}
	now := a.cfg.Now()
	if now.Sub(s.used) >= a.cfg.IdleTimeout || now.Sub(s.since) >= a.cfg.ForceTimeout {
		delete(a.sessions, id)
		return session{}, false
	}
	s.used = now
	return *s, true
}

// refresh gives a session another ID and CSRF token; false if there is none.
func (a *accounts) refresh(id string) (session, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[id]
	if s == nil {
		return session{}, false
	}
	delete(a.sessions, id)
	s.id, s.csrf = strings.ToLower(rand.Text()), rand.Text()+rand.Text()[:6]
	a.sessions[s.id] = s
	return *s, true
}

func (a *accounts) end(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sessions, id)
}

func (a *accounts) endAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.sessions)
}

func (a *accounts) basic(r *http.Request) bool {
	username, password, ok := r.BasicAuth()
	a.mu.Lock()
	defer a.mu.Unlock()
	return ok && a.cfg.BasicAuth && username == a.cfg.Username && password == a.password
}

// addToken makes a token that is good for so many hours; 0 makes one for a single login.
func (a *accounts) addToken(hours int64) token {
	a.mu.Lock()
	defer a.mu.Unlock()
	life := time.Duration(hours) * time.Hour
	if hours == 0 {
		life = time.Hour // for the one login
	}
	expires := a.cfg.Now().Add(life)
	t := &token{
		UUID: "authtoken-" + newUUID(), Token: rand.Text() + rand.Text(), Username: a.cfg.Username, Hours: hours,
		ExpiresAt: expires.UTC().Format("2006-01-02T15:04:05.000000+00:00"), once: hours == 0, expires: expires,
	}
	a.tokens[t.UUID] = t
	return *t
}

// listTokens returns the tokens that are good, without the secret itself.
func (a *accounts) listTokens() []token {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []token
	for _, t := range a.tokens {
		if a.cfg.Now().Before(t.expires) {
			shown := *t
			shown.Token = ""
			out = append(out, shown)
		}
	}
	slices.SortFunc(out, func(x, y token) int { return strings.Compare(x.UUID, y.UUID) })
	return out
}

func (a *accounts) dropToken(uuid string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.tokens[uuid]
	delete(a.tokens, uuid)
	return ok
}

// setCookies adds the three cookies of a session to an answer.
func (s session) setCookies(header http.Header) {
	for _, c := range []*http.Cookie{
		{Name: csrfCookie, Value: s.csrf, Path: "/", MaxAge: 365 * 24 * 3600, Secure: true},
		{Name: sessionCookie, Value: s.id, Path: "/", MaxAge: 24 * 3600, HttpOnly: true, Secure: true},
		{Name: oldSessionCookie, Value: s.id, Path: "/", MaxAge: 24 * 3600, HttpOnly: true, Secure: true},
	} {
		header.Add("Set-Cookie", c.String())
	}
}
