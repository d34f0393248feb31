// Package client speaks the REST API of an Avi (NSX Advanced Load Balancer) Controller: one session for all callers, typed errors, and
// objects as the Controller returned them. It knows nothing of Services; which object is whose is the caller's business.
//
// Sources: Avi's knowledge base on sessions, PATCH and object references, and the behaviour of the published SDKs and recordings.
package client

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/providers/internal/rest"
)

// Config says where the Controller is and who we are there.
type Config struct {
	REST     rest.Config
	Username string
	// PasswordFile or TokenFile holds the password or a user token; exactly one is given. They are read again when they change.
	PasswordFile, TokenFile string
	Tenant                  string // name of the tenant that every request is about
	Version                 string // of the API, X-Avi-Version, such as "22.1.3": which fields objects have
	Clock                   clock.Clock
}

// Client is one session with a Controller, shared by all callers. All methods may be called by several goroutines.
type Client struct {
	cfg     Config
	rest    *rest.Client
	secret  *rest.File
	session session
	gate    gate
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
	file := cfg.PasswordFile
	if file == "" {
		file = cfg.TokenFile
	}
	c := &Client{cfg: cfg, rest: r, secret: rest.NewFile(file)}
	c.session.turn = make(chan struct{}, 1)
	c.gate.clock = cfg.Clock
	return c, nil
}

// Close ends the session on the Controller, which limits how many there are, and closes connections. It waits two seconds at most.
func (c *Client) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if t := c.session.end(); t != nil {
		_, _ = c.rest.Do(ctx, rest.Request{ // the session ends by itself if this fails
			Method: http.MethodPost, Path: "/logout", Header: c.headers(t), Body: struct{}{}, Endpoint: "logout",
		})
	}
	c.rest.Close()
}

// Get reads one object with all its fields.
func (c *Client) Get(ctx context.Context, typ, uuid string) (Object, error) {
	body, err := c.call(ctx, http.MethodGet, objectPath(typ, uuid)+"?include_name=true", typ, nil)
	if err != nil {
		return Object{}, err
	}
	return parseObject(typ, body)
}

// GetRaw reads a path below /api/ that is not an object, such as "pool/<uuid>/runtime/server".
func (c *Client) GetRaw(ctx context.Context, path, endpoint string) (json.RawMessage, error) {
	return c.call(ctx, http.MethodGet, "/api/"+path, endpoint, nil)
}

// Post creates an object. The caller deals with a lost answer and with 409, see Create.
func (c *Client) Post(ctx context.Context, typ string, body any) (Object, error) {
	answer, err := c.call(ctx, http.MethodPost, "/api/"+typ+"?include_name=true", typ, body)
	if err != nil {
		return Object{}, err
	}
	return parseObject(typ, answer)
}

// PatchOp is what a PATCH does with the lists it is given: of a pool's servers, add brings in entries and changes those with the same
// address and port, delete takes entries out.
type PatchOp string

// The operations.
const (
	PatchAdd    PatchOp = "add"
	PatchDelete PatchOp = "delete"
)

// Patch changes some fields of an object and returns it whole. Fields it does not name stay, whoever wrote them.
func (c *Client) Patch(ctx context.Context, o Object, op PatchOp, fields any) (Object, error) {
	answer, err := c.call(ctx, http.MethodPatch, objectPath(o.Type, o.UUID)+"?include_name=true", o.Type, map[PatchOp]any{op: fields})
	if err != nil {
		return Object{}, err
	}
	return parseObject(o.Type, answer)
}

// maxRereads bounds how often Update starts again because somebody else wrote in between.
const maxRereads = 5

// Update replaces an object under its _last_modified: change is given the object as it is now and returns the fields to set. A
// concurrent write makes it read again and call change again, so what others wrote to other fields stays. change returning nil writes
// nothing.
func (c *Client) Update(ctx context.Context, o Object, change func(Object) (map[string]any, error)) (Object, error) {
	for attempt := 0; ; attempt++ {
		if !o.Full || attempt > 0 {
			var err error
			if o, err = c.Get(ctx, o.Type, o.UUID); err != nil {
				return Object{}, err
			}
		}
		fields, err := change(o)
		if err != nil || fields == nil {
			return o, err
		}
		body, err := o.overlay(fields)
		if err != nil {
			return Object{}, err
		}
		answer, err := c.call(ctx, http.MethodPut, objectPath(o.Type, o.UUID)+"?include_name=true", o.Type, body)
		if Status(err) == http.StatusPreconditionFailed && attempt < maxRereads {
			continue
		}
		if err != nil {
			return Object{}, err
		}
		return parseObject(o.Type, answer)
	}
}

// Delete removes an object; one that is not there is no error.
func (c *Client) Delete(ctx context.Context, typ, uuid string) error {
	_, err := c.call(ctx, http.MethodDelete, objectPath(typ, uuid), typ, nil)
	if Status(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// Create makes an object that has a name, or finds the one that an earlier attempt of ours made: after an answer that got lost and after
// 409 it looks the name up. owned says whether what it found is ours; a stranger's is a Conflict and is left alone. adopted tells
// that the object was there already, possibly with other fields.
func (c *Client) Create(ctx context.Context, typ, name string, body any, owned func(Object) bool) (o Object, adopted bool, err error) {
	for attempt := 0; ; attempt++ {
		o, err = c.Post(ctx, typ, body)
		if err == nil || (!mayHaveHappened(err) && Status(err) != http.StatusConflict) {
			return o, false, err
		}
		found, lookErr := c.ByName(ctx, typ, name)
		switch {
		case lookErr != nil:
			return Object{}, false, lookErr // observing again finds out whether it was made
		case len(found) > 0 && owned(found[0]):
			return found[0], true, nil
		case len(found) > 0:
			return Object{}, false, &ForeignError{Type: typ, Name: name}
		case Status(err) == http.StatusConflict:
			return Object{}, false, &ReservedError{Type: typ, Name: name}
		case attempt > 0:
			return Object{}, false, err
		}
	}
}

// ByName returns the objects with exactly this name, whole. In one tenant that is one at most, or one in each cloud.
func (c *Client) ByName(ctx context.Context, typ, name string) ([]Object, error) {
	found, err := c.List(ctx, typ, url.Values{"name": {name}})
	if err != nil {
		return nil, err
	}
	var out []Object
	for _, o := range found {
		if o.Name == name { // a Controller that ignores the filter must not make us adopt something else
			out = append(out, o)
		}
	}
	return out, nil
}

func objectPath(typ, uuid string) string { return "/api/" + typ + "/" + url.PathEscape(uuid) }

// call makes one request within the session: it logs in when there is none, and once more when the session has ended.
func (c *Client) call(ctx context.Context, method, path, endpoint string, body any) (json.RawMessage, error) {
	what := method + " " + strings.TrimPrefix(path, "/api/")
	var expired *ticket
	renewed := false
	for {
		t, err := c.login(ctx, expired)
		if err != nil {
			return nil, err
		}
		answer, err := c.send(ctx, rest.Request{Method: method, Path: path, Header: c.headers(t), Body: body, Endpoint: endpoint})
		if err != nil {
			return nil, c.noAnswer(what, err)
		}
		switch {
		case answer.Status/100 == 2:
			c.session.absorb(t, answer.Header)
			return answer.Body, nil
		case answer.Status == statusExpiredCookies && !renewed:
			c.session.absorb(t, answer.Header) // the fresh cookies come with it
			renewed = true
		case answer.Status == http.StatusUnauthorized && expired == nil:
			expired = t // refused before anything was done, so also a POST may be repeated
		default:
			return nil, c.refused(what, endpoint, answer)
		}
	}
}

// send waits while the Controller does not answer, and makes the request.
func (c *Client) send(ctx context.Context, r rest.Request) (rest.Response, error) {
	p, err := c.gate.wait(ctx)
	if err != nil {
		return rest.Response{}, err
	}
	answer, err := c.rest.Do(ctx, r)
	c.gate.report(ctx, p, err == nil && answer.Status != http.StatusBadGateway && answer.Status != http.StatusServiceUnavailable && answer.Status != http.StatusGatewayTimeout)
	return answer, err
}

// headers are those of every request within a session.
func (c *Client) headers(t *ticket) http.Header {
	h := http.Header{}
	h.Set("X-Avi-Version", c.cfg.Version)
	h.Set("X-Avi-Tenant", c.cfg.Tenant)
	h.Set("X-Avi-UserAgent", c.cfg.REST.UserAgent)
	h.Set("Referer", c.cfg.REST.BaseURL+"/")
	cookies, csrf := t.cookies()
	h.Set("Cookie", cookies)
	h.Set("X-CSRFToken", csrf)
	return h
}

// List returns all objects of a type that match, following the pages. With fields in the query the objects are partial. It never returns
// some of them: when objects came or went meanwhile it begins again.
func (c *Client) List(ctx context.Context, typ string, query url.Values) ([]Object, error) {
	const tries = 4
	for try := 1; ; try++ {
		objects, whole, err := c.listOnce(ctx, typ, query)
		if err != nil || whole {
			return objects, err
		}
		if try == tries {
			return nil, &StatusError{Status: http.StatusConflict, What: "GET " + typ, Message: fmt.Sprintf("the list changed while it was read, %d times", tries)}
		}
	}
}

func (c *Client) listOnce(ctx context.Context, typ string, query url.Values) (objects []Object, whole bool, err error) {
	q := url.Values{"include_name": {"true"}, "page_size": {"200"}, "sort": {"name"}}
	maps.Copy(q, query)
	seen := map[string]bool{}
	visited := map[string]bool{}
	count := -1
	for path := "/api/" + typ + "?" + q.Encode(); ; {
		visited[path] = true
		body, err := c.call(ctx, http.MethodGet, path, typ, nil)
		if err != nil {
			return nil, false, err
		}
		var page struct {
			Count   int               `json:"count"`
			Results []json.RawMessage `json:"results"`
			Next    string            `json:"next"`
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, false, unreadable("GET "+typ, err)
		}
		if count >= 0 && page.Count != count {
			return nil, false, nil // something moved from one page to another
		}
		count = page.Count
		for _, raw := range page.Results {
			o, err := parseObject(typ, raw)
			if err != nil {
				return nil, false, err
			}
			o.Full = !query.Has("fields")
			if seen[o.UUID] {
				return nil, false, nil // something was added before this page
			}
			seen[o.UUID] = true
			objects = append(objects, o)
		}
		if page.Next == "" {
			return objects, len(objects) == count, nil
		}
		// Only its path and query: a Controller names itself as it likes.
		next, err := url.Parse(page.Next)
		if err != nil || !strings.HasPrefix(next.Path, "/api/") || visited[next.RequestURI()] {
			return nil, false, unreadable("GET "+typ, fmt.Errorf("the next page %q is none", page.Next))
		}
		path = next.RequestURI()
	}
}
