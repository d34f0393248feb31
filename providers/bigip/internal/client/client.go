// Package client speaks iControl REST to one BIG-IP: one token for all callers, typed errors, transactions. It knows nothing of
// Services; which object is whose is the caller's business.
//
// Sources: F5's iControl REST guide and knowledge base, and recorded answers in the test data of F5's own tools.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/internal/rest"
)

var errEOF, errUnexpectedEOF = io.EOF, io.ErrUnexpectedEOF

// Config says where the device is and who we are there.
type Config struct {
	REST         rest.Config
	Username     string
	PasswordFile string // read again when it changes
	Basic        bool   // send the password with each request instead of a token
	Clock        clock.Clock
}

// Client is one login on one device, shared by all callers. All methods may be called by several goroutines.
type Client struct {
	cfg     Config
	rest    *rest.Client
	secret  *rest.File
	session session
}

// New returns a client. It opens nothing and reads nothing.
func New(cfg Config) (*Client, error) {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	r, err := rest.New(cfg.REST)
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, rest: r, secret: rest.NewFile(cfg.PasswordFile)}
	c.session.turn = make(chan struct{}, 1)
	return c, nil
}

// Close gives the token back, of which an account has 100, and closes connections. It waits two seconds at most.
func (c *Client) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c.session.mu.Lock()
	t := c.session.current
	c.session.current = nil
	if t != nil {
		c.session.last = t.value
	}
	c.session.mu.Unlock()
	if t != nil {
		c.revoke(ctx, t)
	}
	c.rest.Close()
}

// URL is where the device is.
func (c *Client) URL() string { return c.cfg.REST.BaseURL }

// Get reads a path below the host, which may hold a query.
func (c *Client) Get(ctx context.Context, path string) (json.RawMessage, error) {
	return c.call(ctx, rest.Request{Method: http.MethodGet, Path: path})
}

// Post creates an object, or runs a command.
func (c *Client) Post(ctx context.Context, path string, body any) (json.RawMessage, error) {
	return c.call(ctx, rest.Request{Method: http.MethodPost, Path: path, Body: body})
}

// Patch changes the properties that it names and leaves the others. A list that it names is replaced.
func (c *Client) Patch(ctx context.Context, path string, body any) (json.RawMessage, error) {
	return c.call(ctx, rest.Request{Method: http.MethodPatch, Path: path, Body: body})
}

// Delete removes an object; one that is not there is no error.
func (c *Client) Delete(ctx context.Context, path string) error {
	_, err := c.call(ctx, rest.Request{Method: http.MethodDelete, Path: path})
	if NotFound(err) {
		return nil
	}
	return err
}

// ListOptions say what a list has.
type ListOptions struct {
	Partition string   // only objects in this partition and its folders; empty is all that the account can see
	Expand    bool     // with what is below each object, such as a pool's members
	Select    []string // only these properties; empty is all
}

// pageSize is how many objects are asked for at once.
const pageSize = 200

// List returns all objects of a collection, following the pages. Pages overlap by one object, which shows when objects went meanwhile;
// then it begins again.
func (c *Client) List(ctx context.Context, collection Collection, o ListOptions) ([]json.RawMessage, error) {
	const tries = 4
	for range tries {
		items, whole, err := c.listOnce(ctx, collection, o)
		if err != nil || whole {
			return items, err
		}
	}
	return nil, &providers.Error{Kind: providers.Conflict, What: "GET " + string(collection), Err: fmt.Errorf("the list changed while it was read, %d times", tries)}
}

func (c *Client) listOnce(ctx context.Context, collection Collection, o ListOptions) (all []json.RawMessage, whole bool, err error) {
	q := url.Values{}
	if o.Partition != "" {
		q.Set("$filter", "partition eq "+o.Partition)
	}
	if o.Expand {
		q.Set("expandSubcollections", "true")
	}
	if len(o.Select) > 0 {
		q.Set("$select", strings.Join(o.Select, ","))
	}
	last := ""
	for {
		skip := max(len(all)-1, 0)
		q.Set("$top", strconv.Itoa(pageSize))
		q.Del("$skip")
		if skip > 0 {
			q.Set("$skip", strconv.Itoa(skip))
		}
		body, err := c.Get(ctx, collection.Path()+"?"+strings.ReplaceAll(q.Encode(), "+", "%20"))
		if err != nil {
			return nil, false, err
		}
		var page struct {
			Items []json.RawMessage `json:"items"` // absent when there are none
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, false, unreadable("GET "+string(collection), err)
		}
		if len(all) > 0 {
			if len(page.Items) == 0 || identity(page.Items[0]) != last {
				return nil, false, nil
			}
			if len(page.Items) > pageSize { // the query is not understood, and this is all of it
				return page.Items, true, nil
			}
			page.Items = page.Items[1:]
		}
		all = append(all, page.Items...)
		if full := len(page.Items) >= pageSize-min(skip, 1); !full || len(page.Items) > pageSize {
			return all, true, nil
		}
		last = identity(all[len(all)-1])
	}
}

// identity is what tells an object from others of its kind.
func identity(raw json.RawMessage) string {
	var o struct {
		FullPath string `json:"fullPath"`
		Name     string `json:"name"`
	}
	if json.Unmarshal(raw, &o) != nil {
		return string(raw)
	}
	if o.FullPath != "" {
		return o.FullPath
	}
	return o.Name
}

// call makes one request with the token: it logs in when there is none, and once more when the token has ended.
func (c *Client) call(ctx context.Context, r rest.Request) (json.RawMessage, error) {
	return c.exchange(ctx, r, attempts)
}

// exchange is call with so many attempts; a single one takes 401 for an answer as well.
func (c *Client) exchange(ctx context.Context, r rest.Request, tries int) (json.RawMessage, error) {
	what := r.Method + " " + strings.TrimPrefix(r.Path, "/mgmt/")
	if r.Endpoint == "" {
		r.Endpoint = endpoint(r.Path)
	}
	extra := r.Header
	var expired *token
	for {
		t, err := c.login(ctx, expired)
		if err != nil {
			return nil, err
		}
		r.Header = t.header.Clone()
		maps.Copy(r.Header, extra)
		var answer rest.Response
		cut := 0
		err = c.patiently(ctx, tries, func() (*StatusError, error) {
			for {
				var err error
				answer, err = c.rest.Do(ctx, r)
				if err != nil && reset(err) && cut == 0 && r.Method != http.MethodPost && ctx.Err() == nil {
					cut++
					continue
				}
				if err != nil || answer.Status/100 == 2 {
					return nil, err
				}
				return decodeError(what, answer.Status, answer.Body, c.Secrets()...), nil
			}
		})
		refusal, _ := errors.AsType[*StatusError](err)
		switch {
		case err == nil:
			return answer.Body, nil
		case refusal == nil:
			return nil, c.noAnswer(what, err)
		case refusal.Status == http.StatusUnauthorized && c.cfg.Basic:
			return nil, c.rejectBasic(t, refusal)
		case refusal.Status == http.StatusUnauthorized && expired == nil && refusal.ofToken() && tries > 1:
			expired = t // refused before anything was done, so also a POST may be repeated
		default:
			return nil, c.refused(what, answer)
		}
	}
}

// The waits while a device is busy or starting, which grow by half and vary by half. All of them together take some seconds; who wants to
// wait longer calls again.
const (
	firstWait = 250 * time.Millisecond
	lastWait  = 4 * time.Second
	attempts  = 5
)

// patiently makes attempts until one gets an answer that is not temporary. It returns the last refusal as an error.
func (c *Client) patiently(ctx context.Context, tries int, attempt func() (*StatusError, error)) error {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = firstWait, lastWait
	for n := 1; ; n++ {
		refusal, err := attempt()
		switch {
		case err != nil:
			return err
		case refusal == nil:
			return nil
		case !refusal.temporary() || n >= tries:
			return refusal
		}
		timer := c.cfg.Clock.NewTimer(waits.NextBackOff())
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return &rest.Error{Err: fmt.Errorf("%w, while the device answers: %w", context.Cause(ctx), refusal)}
		}
	}
}
