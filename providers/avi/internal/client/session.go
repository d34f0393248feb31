package client

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/internal/rest"
)

// How long a rejected password is not tried again: twice as long after each time. At most six attempts fall into half an hour, and a
// Controller locks an account after twenty in that time, which other clients may need, too.
const (
	firstPause = time.Minute
	lastPause  = 15 * time.Minute
)

// session is the state that all callers share.
type session struct {
	turn chan struct{} // holds one element while somebody logs in

	mu      sync.Mutex
	current *ticket
	last    *ticket // the one that was current last; its cookies are still no business of a log
	// attempts counts logins that ended, and outcome is how the last one did: who waited for it while it was on its way takes it over.
	attempts int
	outcome  error

	refused   string // the credentials that were rejected last
	refusal   error
	pause     time.Duration
	notBefore time.Time
}

// ticket is one login. Its cookies may be renewed while it lasts.
type ticket struct {
	mu  sync.Mutex
	jar map[string]string
}

func (t *ticket) cookies() (header, csrf string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(t.jar)) {
		pairs = append(pairs, name+"="+t.jar[name])
	}
	return strings.Join(pairs, "; "), t.jar["csrftoken"]
}

// values are the cookies' values.
func (t *ticket) values() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Values(t.jar))
}

func (t *ticket) absorb(h http.Header) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, cookie := range (&http.Response{Header: h}).Cookies() {
		if cookie.MaxAge < 0 || cookie.Value == "" {
			delete(t.jar, cookie.Name)
		} else {
			t.jar[cookie.Name] = cookie.Value
		}
	}
}

// absorb takes over the cookies of an answer.
func (s *session) absorb(t *ticket, h http.Header) {
	if len(h["Set-Cookie"]) > 0 {
		t.absorb(h)
	}
}

// end forgets the session and returns it.
func (s *session) end() *ticket {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.current
	s.current = nil
	return t
}

// login returns the session, and makes one if there is none or the present one is expired, which the Controller has just refused.
// However many callers ask, one request goes out.
func (c *Client) login(ctx context.Context, expired *ticket) (*ticket, error) {
	s := &c.session
	s.mu.Lock()
	before := s.attempts
	if t := s.current; t != nil && t != expired {
		s.mu.Unlock()
		return t, nil
	}
	s.mu.Unlock()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, &providers.Error{Kind: providers.Unavailable, What: "waiting for the login", Err: context.Cause(ctx)}
	}
	s.mu.Lock()
	t, outcome, passed := s.current, s.outcome, s.attempts > before
	s.mu.Unlock()
	switch {
	case t != nil && t != expired:
		return t, nil
	case passed && outcome != nil:
		return nil, outcome
	}
	t, err := c.authenticate(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, err // this caller's own haste says nothing to the others
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	if s.current != nil {
		s.last = s.current
	}
	s.current, s.outcome = t, err
	return t, err
}

// authenticate logs in, unless these credentials were rejected a short while ago. The caller has the turn.
func (c *Client) authenticate(ctx context.Context) (*ticket, error) {
	secret, err := c.secret.Read()
	if err != nil {
		return nil, &providers.Error{Kind: providers.Misconfigured, What: c.setting() + ": give a file with it", Err: err}
	}
	credentials := c.cfg.Username + "\x00" + secret
	s, now := &c.session, c.cfg.Clock.Now()
	if s.refused == credentials && now.Before(s.notBefore) {
		return nil, s.refusal
	}
	body := map[string]string{"username": c.cfg.Username, "password": secret}
	if c.cfg.TokenFile != "" {
		body = map[string]string{"username": c.cfg.Username, "token": secret}
	}
	h := http.Header{}
	h.Set("X-Avi-Version", c.cfg.Version)
	h.Set("Referer", c.cfg.REST.BaseURL+"/")
	answer, err := c.send(ctx, rest.Request{Method: http.MethodPost, Path: "/login", Header: h, Body: body, Endpoint: "login"})
	switch {
	case err != nil:
		return nil, c.noAnswer("log in", err)
	case answer.Status == http.StatusUnauthorized, answer.Status == http.StatusForbidden:
		if s.refused != credentials {
			s.pause = firstPause / 2
		}
		s.refused, s.pause = credentials, min(2*s.pause, lastPause)
		s.notBefore = now.Add(s.pause)
		s.refusal = &providers.Error{
			Kind: providers.Misconfigured,
			What: fmt.Sprintf("log in as avi.username %q with %s, tried again when the file changes and every %s", c.cfg.Username, c.setting(), lastPause),
			Err:  &StatusError{Status: answer.Status, What: "POST login", Message: rest.Redact(answer.Body, append(c.Secrets(), secret)...)},
		}
		return nil, s.refusal
	case answer.Status/100 != 2:
		return nil, c.refused("POST login", "login", answer)
	}
	s.refused, s.refusal, s.pause = "", nil, 0
	if err := checkVersion(c.cfg.Version, answer.Body); err != nil {
		return nil, err
	}
	t := &ticket{jar: map[string]string{}}
	t.absorb(answer.Header)
	if len(t.jar) == 0 {
		return nil, unreadable("log in", fmt.Errorf("no cookie; is avi.url %s the Controller?", c.cfg.REST.BaseURL))
	}
	return t, nil
}

// setting names the one that holds the secret.
func (c *Client) setting() string {
	if c.cfg.TokenFile != "" {
		return "avi.tokenFile " + c.cfg.TokenFile
	}
	return "avi.passwordFile " + c.cfg.PasswordFile
}

// Secrets returns the values that must not stand in an error: the password or token, and the cookies.
func (c *Client) Secrets() []string {
	var out []string
	if secret, err := c.secret.Read(); err == nil {
		out = append(out, secret)
	}
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	for _, t := range []*ticket{c.session.current, c.session.last} {
		if t != nil {
			out = append(out, t.values()...)
		}
	}
	return out
}

// checkVersion compares the API version with those that the Controller speaks, as far as its answer to the login tells.
func checkVersion(version string, body []byte) error {
	var answer struct {
		Version struct {
			Version string          `json:"Version"`
			Min     json.RawMessage `json:"min_version"` // a number, 18.2
		} `json:"version"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil //nolint:nilerr // an answer that says nothing of versions is none that refuses ours
	}
	oldest, newest := strings.Trim(string(answer.Version.Min), `"`), answer.Version.Version
	if (oldest != "" && CompareVersions(version, oldest) < 0) || (newest != "" && CompareVersions(version, newest) > 0) {
		return &providers.Error{
			Kind: providers.Misconfigured, What: fmt.Sprintf("avi.apiVersion %s: this Controller speaks %s to %s; set it to one of these", version, oldest, newest),
		}
	}
	return nil
}

// CompareVersions orders versions such as "22.1.3" number by number; a missing number is 0, and what is no number counts as 0.
func CompareVersions(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		if d := part(as, i) - part(bs, i); d != 0 {
			return d
		}
	}
	return 0
}

func part(parts []string, i int) int {
	if i >= len(parts) {
		return 0
	}
	digits := strings.FieldsFunc(parts[i], func(r rune) bool { return r < '0' || r > '9' })
	if len(digits) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(digits[0]) // too long counts as the largest
	return n
}
