// Package rest is the HTTP under the providers that speak to a load balancer's REST API: one connection pool, deadlines, a limit of
// requests in flight and per second, certificates from a file, and errors that say whether a request may have been applied. It knows
// no load balancer, keeps no session and never repeats a request.
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// maxBody is the longest answer that is read.
const maxBody = 64 << 20

// Client talks to one server. All methods may be called by several goroutines.
type Client struct {
	cfg     Config
	base    string // scheme and host, without a slash at the end
	http    *http.Client
	trust   *trust
	slots   chan struct{}
	limiter *rate.Limiter
}

// New checks cfg and returns a client. It opens nothing.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	base, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	limit := rate.Inf
	if cfg.Rate > 0 {
		limit = rate.Limit(cfg.Rate)
	}
	t := newTrust(cfg, base.Hostname())
	return &Client{
		cfg:   cfg,
		base:  "https://" + base.Host,
		trust: t,
		http: &http.Client{
			Transport: &http.Transport{
				DialTLSContext:      t.dial,
				MaxIdleConns:        cfg.MaxInFlight,
				MaxIdleConnsPerHost: cfg.MaxInFlight,
				IdleConnTimeout:     time.Minute,
			},
			// A redirect would carry the session to another place; the caller gets the 3xx.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		slots:   make(chan struct{}, cfg.MaxInFlight),
		limiter: rate.NewLimiter(limit, cfg.Burst),
	}, nil
}

// Request is one call.
type Request struct {
	Method string
	Path   string // begins with "/", already escaped, may hold a query
	Header http.Header
	Body   any // sent as JSON; nil sends none
	// Endpoint is a name for metrics out of a small set, such as "pool"; it must hold no name of an object.
	Endpoint string
}

// Response is an answer, whatever its status.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Error says that there was no answer.
type Error struct {
	// Sent is true when the server may have got the whole request and so may have done what it asks for.
	Sent bool
	Err  error
}

// Error returns the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Do sends a request when it is its turn and reads the answer. The error, if any, is an *Error: there was no answer. Any status is
// an answer, a redirect too. What ctx bounds is waiting and request together: past its deadline nothing is sent, also if the process was
// frozen or the computer suspended in between.
func (c *Client) Do(ctx context.Context, r Request) (Response, error) {
	fail := func(sent bool, err error) (Response, error) {
		if cause := (*url.Error)(nil); errors.As(err, &cause) {
			err = cause.Err // without the URL, which the caller knows better
		}
		return Response{}, &Error{Sent: sent, Err: err}
	}
	if !strings.HasPrefix(r.Path, "/") {
		return fail(false, fmt.Errorf("path %q does not begin with a slash", r.Path))
	}
	var body io.Reader
	if r.Body != nil {
		text, err := json.Marshal(r.Body)
		if err != nil {
			return fail(false, err)
		}
		body = bytes.NewReader(text)
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return fail(false, fmt.Errorf("waiting for a free slot: %w", context.Cause(ctx)))
	}
	if err := c.limiter.Wait(ctx); err != nil {
		return fail(false, fmt.Errorf("waiting for the rate limit: %w", err))
	}
	deadline, fenced := ctx.Deadline()
	if fenced && over(deadline) {
		return fail(false, errOver)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, fmt.Errorf("no answer within %s", c.cfg.Timeout))
	defer cancel()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(got httptrace.GotConnInfo) { writeUntil(got.Conn, deadline) },
		// Without its last header line no server can act on a request.
		WroteHeaders: func() { sent.Store(true) },
	})
	request, err := http.NewRequestWithContext(ctx, r.Method, c.base+r.Path, body)
	if err != nil {
		return fail(false, err)
	}
	for name, values := range r.Header {
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	setDefault(request.Header, "Accept", "application/json")
	setDefault(request.Header, "User-Agent", c.cfg.UserAgent)
	if r.Body != nil {
		setDefault(request.Header, "Content-Type", "application/json")
	}
	answer, err := c.exchange(request, r.Endpoint)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fail(sent.Load(), err)
	}
	return answer, nil
}

// exchange makes the call and tells Observe of it, whose duration includes the body.
func (c *Client) exchange(request *http.Request, endpoint string) (answer Response, err error) {
	if c.cfg.Observe != nil {
		began := time.Now()
		defer func() { c.cfg.Observe(request.Method, endpoint, answer.Status, time.Since(began)) }()
	}
	response, err := c.http.Do(request)
	if err != nil {
		return Response{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return Response{}, fmt.Errorf("the answer (status %d) broke off: %w", response.StatusCode, err)
	}
	if len(text) > maxBody {
		return Response{}, fmt.Errorf("the answer (status %d) is longer than %d MiB", response.StatusCode, maxBody>>20)
	}
	return Response{Status: response.StatusCode, Header: response.Header, Body: text}, nil
}

func setDefault(h http.Header, name, value string) {
	if h.Get(name) == "" && value != "" {
		h.Set(name, value)
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
