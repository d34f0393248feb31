package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/internal/rest"
)

// statusExpiredCookies asks for the same request with the cookies that come with it.
const statusExpiredCookies = 419

// StatusError is an answer that refuses a request.
type StatusError struct {
	Status     int
	What       string // method and path
	Message    string // what the Controller says, without secrets
	RetryAfter time.Duration
}

// Error returns the request, the status and what the Controller says.
func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: %d %s", e.What, e.Status, e.Message)
}

// ForeignError says that a name is taken by an object of somebody else.
type ForeignError struct{ Type, Name string }

// Error returns what is in the way.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s %q belongs to somebody else and is left alone; rename or delete it", e.Type, e.Name)
}

// ReservedError says that a name is refused as taken although no object has it, as for a while after a deletion.
type ReservedError struct{ Type, Name string }

// Error returns what is in the way.
func (e *ReservedError) Error() string {
	return fmt.Sprintf("the name of %s %q is still reserved after a deletion", e.Type, e.Name)
}

// Status returns the HTTP status of err, and 0 when it is not a StatusError.
func Status(err error) int {
	if e, ok := errors.AsType[*StatusError](err); ok {
		return e.Status
	}
	return 0
}

// Says reports whether err is a refusal whose message contains a text, in any case.
func Says(err error, text string) bool {
	e, ok := errors.AsType[*StatusError](err)
	return ok && strings.Contains(strings.ToLower(e.Message), strings.ToLower(text))
}

// mayHaveHappened reports whether a failed request may have been applied.
func mayHaveHappened(err error) bool {
	if e, ok := errors.AsType[*rest.Error](err); ok {
		return e.Sent
	}
	status := Status(err)
	return status == http.StatusRequestTimeout || status >= 500 || errors.Is(err, errUnreadable)
}

var errUnreadable = errors.New("the answer is not what Avi sends")

func unreadable(what string, err error) error {
	return &providers.Error{Kind: providers.Unavailable, What: what, Err: fmt.Errorf("%w: %w", errUnreadable, err)}
}

// noAnswer describes a request that failed without an answer, naming the setting that may be wrong.
func (c *Client) noAnswer(what string, err error) error {
	e, ok := errors.AsType[*rest.Error](err)
	if !ok {
		return &providers.Error{Kind: providers.Unavailable, What: what, Err: err}
	}
	hint := e.Hint()
	for is, setting := range map[string]string{"CA file": "avi.caFile", "server name": "avi.serverName", "base URL": "avi.url"} {
		if rest, found := strings.CutPrefix(hint, is); found {
			hint = " (" + setting + rest + ")"
			break
		}
	}
	return &providers.Error{Kind: e.Kind(), What: what + " at " + c.cfg.REST.BaseURL + hint, Err: err}
}

// refused classifies an answer.
func (c *Client) refused(what, endpoint string, answer rest.Response) error {
	e := &StatusError{Status: answer.Status, What: what, Message: c.message(answer)}
	kind := providers.Rejected
	switch answer.Status {
	case http.StatusBadRequest, http.StatusMethodNotAllowed:
		if Says(e, "introduced in") || Says(e, "api version") || Says(e, "x-avi-version") {
			kind = providers.Misconfigured
			e.Message += " (avi.apiVersion is " + c.cfg.Version + ")"
		}
	case http.StatusUnauthorized:
		kind = providers.Misconfigured
		e.Message += " (a session that has just begun is not accepted; is the clock of the Controller right?)"
	case http.StatusForbidden:
		switch {
		case Says(e, "during upgrade"):
			kind = providers.Unavailable
		case Says(e, "tenant") && Says(e, "does not exist"):
			kind = providers.Misconfigured
			e.Message += " (set avi.tenant to one that does, or create it)"
		default:
			kind = providers.Misconfigured
			e.Message += fmt.Sprintf(" (the role of avi.username %q lacks a right on %s; docs/how-to/avi.md has a role that is enough)", c.cfg.Username, endpoint)
		}
	case http.StatusNotFound:
		if !strings.HasPrefix(what, http.MethodPost) { // of a new object it is a reference that leads nowhere
			kind = providers.Conflict
		}
	case http.StatusConflict, http.StatusPreconditionFailed:
		kind = providers.Conflict
	case http.StatusTooManyRequests:
		kind = providers.Throttled
	case http.StatusRequestTimeout, statusExpiredCookies:
		kind = providers.Unavailable
	default:
		if answer.Status >= 500 || answer.Status/100 == 3 {
			kind = providers.Unavailable
		}
	}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = min(time.Duration(seconds)*time.Second, time.Hour)
	}
	out := &providers.Error{Kind: kind, What: "avi", Err: e}
	if kind == providers.Throttled {
		out.RetryAfter = e.RetryAfter
	}
	return out
}

// message takes what an answer says out of its JSON, or shows the beginning of whatever it is.
func (c *Client) message(answer rest.Response) string {
	secrets := c.Secrets()
	var body struct {
		Error  json.RawMessage `json:"error"`
		Detail string          `json:"detail"`
	}
	if json.Unmarshal(answer.Body, &body) == nil {
		var text string
		switch {
		case json.Unmarshal(body.Error, &text) == nil && text != "":
			return rest.Redact([]byte(text), secrets...)
		case len(body.Error) > 0:
			return rest.Redact(body.Error, secrets...)
		case body.Detail != "":
			return rest.Redact([]byte(body.Detail), secrets...)
		}
	}
	if len(answer.Body) == 0 {
		return http.StatusText(answer.Status)
	}
	return rest.Redact(answer.Body, secrets...)
}
