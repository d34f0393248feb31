package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/internal/rest"
)

// How long rejected credentials, and a refusal because there are too many tokens, are not tried again: twice as long after each time.
const (
	firstPause = time.Minute
	lastPause  = 15 * time.Minute
)

// What the device does with tokens (K43725273 and the recorded answers).
const (
	tokenLife = 1200 * time.Second  // of a new token, unless the answer says otherwise
	lifeLimit = 36000 * time.Second // the longest a token can be made to live
)

// session is the state that all callers share.
type session struct {
	turn chan struct{} // holds one element while somebody logs in or renews

	mu      sync.Mutex
	current *token
	last    string // the token that was current last; still no business of a log
	// attempts counts logins that ended, and outcome is how the last one did: who waited for it while it was on its way takes it over.
	attempts int
	outcome  error

	refused   string // the credentials that were rejected last
	refusal   error
	pause     time.Duration
	notBefore time.Time
}

// token is one login.
type token struct {
	value        string // empty with basic authentication
	header       http.Header
	began        time.Time
	life         time.Duration // since it began or was renewed
	renewed      time.Time
	neverExpires bool
}

// fresh reports whether the token need not be renewed yet: more than half of its life is left.
func (t *token) fresh(now time.Time) bool {
	return t.neverExpires || now.Before(t.renewed.Add(t.life/2))
}

// login returns the present token, making or renewing one if there is none, it ends soon, or it is expired, which the device has just
// refused. However many callers ask, one request goes out.
func (c *Client) login(ctx context.Context, expired *token) (*token, error) {
	s := &c.session
	s.mu.Lock()
	before, t := s.attempts, s.current
	s.mu.Unlock()
	if t != nil && t != expired && t.fresh(c.cfg.Clock.Now()) {
		return t, nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, &providers.Error{Kind: providers.Unavailable, What: "waiting for the login", Err: context.Cause(ctx)}
	}
	s.mu.Lock()
	t, outcome, passed := s.current, s.outcome, s.attempts > before
	s.mu.Unlock()
	now := c.cfg.Clock.Now()
	switch {
	case t != nil && t != expired && t.fresh(now):
		return t, nil
	case passed && outcome != nil:
		return nil, outcome
	case t != nil && t != expired:
		if extended := c.extend(ctx, t, now); extended != nil {
			s.mu.Lock()
			s.current = extended
			s.mu.Unlock()
			return extended, nil
		}
	}
	fresh, err := c.authenticate(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, err // this caller's own haste says nothing to the others
	}
	if err == nil && t != nil && t != expired {
		c.revoke(ctx, t) // a second token counts against the limit of 100
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts++
	if s.current != nil {
		s.last = s.current.value
	}
	s.current, s.outcome = fresh, err
	return fresh, err
}

// extend makes a token live longer, and returns nil where that cannot be or is refused, and it takes another login.
func (c *Client) extend(ctx context.Context, t *token, now time.Time) *token {
	age := now.Sub(t.began)
	if now.After(t.renewed.Add(t.life)) || age+tokenLife > lifeLimit {
		return nil
	}
	// The device counts from when the token began.
	answer, err := c.rest.Do(ctx, rest.Request{
		Method: http.MethodPatch, Path: tokenPath(t.value), Header: t.header, Endpoint: "token",
		Body: map[string]int64{"timeout": int64((age + tokenLife) / time.Second)},
	})
	if err != nil || answer.Status/100 != 2 {
		return nil
	}
	if item, err := decodeToken(answer.Body); err != nil || item.Token != t.value {
		return nil
	}
	longer := *t
	longer.renewed, longer.life = now, tokenLife
	return &longer
}

// authenticate logs in, unless these credentials were rejected a short while ago. The caller has the turn.
func (c *Client) authenticate(ctx context.Context) (*token, error) {
	secret, err := c.secret.Read()
	if err != nil {
		return nil, &providers.Error{Kind: providers.Misconfigured, What: c.setting() + ": give a file with it", Err: err}
	}
	credentials := c.cfg.Username + "\x00" + secret
	s, now := &c.session, c.cfg.Clock.Now()
	if s.refused == credentials && now.Before(s.notBefore) {
		return nil, s.refusal
	}
	request := rest.Request{
		Method: http.MethodPost, Path: "/mgmt/shared/authn/login", Endpoint: "login",
		Body: map[string]string{"username": c.cfg.Username, "password": secret, "loginProviderName": "tmos"},
	}
	if c.cfg.Basic { // one call finds out whether the password is right, before many are made
		h := http.Header{}
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.cfg.Username+":"+secret)))
		request = rest.Request{Method: http.MethodGet, Path: "/mgmt/tm/sys/version", Endpoint: "login", Header: h}
	}
	var answer rest.Response
	err = c.patiently(ctx, attempts, func() (*StatusError, error) {
		var err error
		answer, err = c.rest.Do(ctx, request)
		if err != nil || answer.Status/100 == 2 {
			return nil, err
		}
		return decodeError("log in", answer.Status, answer.Body, append(c.Secrets(), secret)...), nil
	})
	refusal, _ := errors.AsType[*StatusError](err)
	switch {
	case err == nil:
	case refusal == nil:
		return nil, c.noAnswer("log in", err)
	case refusal.Status == http.StatusUnauthorized, refusal.Status == http.StatusForbidden:
		return nil, c.pause(credentials, fmt.Sprintf("log in as bigip.username %q with %s, tried again when the file changes and every %s", c.cfg.Username, c.setting(), lastPause), refusal)
	case strings.Contains(refusal.Message, "maximum active login tokens"):
		return nil, c.pause(credentials, fmt.Sprintf("log in as bigip.username %q, whose 100 tokens are in use; give lbsync an account of its own or set bigip.basicAuth; tried again every %s",
			c.cfg.Username, lastPause), refusal)
	default:
		return nil, &providers.Error{Kind: refusal.kind(), What: "log in at " + c.cfg.REST.BaseURL, Err: refusal}
	}
	if c.cfg.Basic {
		s.refused, s.refusal, s.pause = "", nil, 0
		return &token{header: request.Header, began: now, neverExpires: true}, nil
	}
	item, err := decodeToken(answer.Body)
	if err != nil {
		return nil, unreadable(fmt.Sprintf("log in (is bigip.urls %s a BIG-IP?)", c.cfg.REST.BaseURL), err)
	}
	s.refused, s.refusal, s.pause = "", nil, 0
	h := http.Header{}
	h.Set("X-F5-Auth-Token", item.Token)
	life := time.Duration(item.Timeout) * time.Second
	if life <= 0 || life > lifeLimit {
		life = tokenLife
	}
	return &token{value: item.Token, header: h, began: now, renewed: now, life: life}, nil
}

// pause remembers that credentials were refused.
func (c *Client) pause(credentials, what string, refusal error) error {
	s := &c.session
	if s.refused != credentials {
		s.pause = firstPause / 2
	}
	s.refused, s.pause = credentials, min(2*s.pause, lastPause)
	s.notBefore = c.cfg.Clock.Now().Add(s.pause)
	s.refusal = &providers.Error{Kind: providers.Misconfigured, What: what, Err: refusal}
	return s.refusal
}

// rejectBasic is what a 401 means without tokens: the password is wrong, and trying again would lock the account.
func (c *Client) rejectBasic(t *token, refusal *StatusError) error {
	s := &c.session
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	secret, err := c.secret.Read()
	if err != nil {
		return refusal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != t {
		return &providers.Error{Kind: providers.Misconfigured, What: "bigip", Err: refusal}
	}
	s.current = nil
	s.attempts++
	s.outcome = c.pause(c.cfg.Username+"\x00"+secret, fmt.Sprintf("basic authentication as bigip.username %q with %s, tried again when the file changes and every %s",
		c.cfg.Username, c.setting(), lastPause), refusal)
	return s.outcome
}

// revoke deletes a token; if that fails it ends by itself.
func (c *Client) revoke(ctx context.Context, t *token) {
	if t.value == "" {
		return
	}
	_, _ = c.rest.Do(ctx, rest.Request{Method: http.MethodDelete, Path: tokenPath(t.value), Header: t.header, Endpoint: "token"})
}

func tokenPath(value string) string { return "/mgmt/shared/authz/tokens/" + url.PathEscape(value) }

// tokenItem is what of a token is used.
type tokenItem struct {
	Token   string `json:"token"`
	Timeout int64  `json:"timeout"` // seconds
}

// decodeToken reads a token as a login answers it, nested, or as PATCH and GET do, flat.
func decodeToken(body []byte) (tokenItem, error) {
	var nested struct {
		Token json.RawMessage `json:"token"`
	}
	if err := json.Unmarshal(body, &nested); err != nil {
		return tokenItem{}, err
	}
	var item tokenItem
	if json.Unmarshal(nested.Token, &item) != nil { // a text, so it is flat
		item = tokenItem{}
		if err := json.Unmarshal(body, &item); err != nil {
			return tokenItem{}, err
		}
	}
	if item.Token == "" {
		return tokenItem{}, errors.New("no token")
	}
	return item, nil
}

func (c *Client) setting() string { return "bigip.passwordFile " + c.cfg.PasswordFile }

// Secrets returns the values that must not stand in an error: the password and the tokens.
func (c *Client) Secrets() []string {
	var out []string
	if secret, err := c.secret.Read(); err == nil {
		out = append(out, secret, base64.StdEncoding.EncodeToString([]byte(c.cfg.Username+":"+secret)))
	}
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	if t := c.session.current; t != nil && t.value != "" {
		out = append(out, t.value)
	}
	if c.session.last != "" {
		out = append(out, c.session.last)
	}
	return out
}
