package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/internal/rest"
)

// The codes by which mcpd says what is wrong, the eight hexadecimal digits that begin its messages.
const (
	CodeNotFound       = "01020036" // the object is not there
	CodeExists         = "01020066" // the object is there already
	CodeNodeByOther    = "0107003a" // a member's address belongs to a node of another name
	CodeAddressTaken   = "0107176c" // a node has this address already
	CodeNodeInUse      = "01070110"
	CodePoolInUse      = "01070265"
	CodeMonitorInUse   = "01070083"
	CodeNoMonitor      = "01070022"
	CodeVirtualClash   = "01070333" // two virtual servers would take the same traffic
	CodeVirtualClash2  = "01b90011" // the same where address lists are in play
	CodeCrossPartition = "01070726"
	CodeNoFolder       = "01070734"
)

// Numbers that come as apiError.
const (
	apiNoFolder = 26214401 // and other faults that icrd itself finds
	apiNoMCPD   = 32768001
	apiBusy     = 32964609
)

// StatusError is an answer that refuses a request.
type StatusError struct {
	Status   int
	Code     string // eight hexadecimal digits in lower case, or empty; of a transaction, those of what failed in it
	APIError int64  // 0 where restjavad or the web server answered
	What     string // method and path
	Message  string // what the device says, without secrets
}

// Error returns the request, the status and what the device says.
func (e *StatusError) Error() string { return fmt.Sprintf("%s: %d %s", e.What, e.Status, e.Message) }

// Status returns the HTTP status of err, and 0 when it is not a StatusError.
func Status(err error) int {
	if e, ok := errors.AsType[*StatusError](err); ok {
		return e.Status
	}
	return 0
}

// Code returns the eight digits of err, and "" when it has none.
func Code(err error) string {
	if e, ok := errors.AsType[*StatusError](err); ok {
		return e.Code
	}
	return ""
}

// NotFound reports whether err says that an object is not there. An address that no worker serves (yet) is another 404.
func NotFound(err error) bool {
	e, ok := errors.AsType[*StatusError](err)
	return ok && e.Status == http.StatusNotFound && !e.starting()
}

// starting reports whether the REST framework answers before its workers are there, or without them.
func (e *StatusError) starting() bool {
	return e.Status == http.StatusNotFound && e.Code == "" && e.APIError == 0 && strings.Contains(e.Message, "not registered")
}

// temporary reports whether the same request can succeed a moment later without anybody doing anything, and was not carried out.
func (e *StatusError) temporary() bool {
	return e.Status == http.StatusServiceUnavailable || e.starting() || e.APIError == apiNoMCPD || e.APIError == apiBusy
}

// ofToken reports whether a 401 is about the token; the others are about what the account may do, which another login does not change.
func (e *StatusError) ofToken() bool {
	return strings.Contains(e.Message, "X-F5-Auth-Token") || !strings.Contains(e.Message, "Authorization failed: user")
}

// kind classifies the answer.
func (e *StatusError) kind() providers.Kind {
	switch {
	case e.temporary(), e.Status >= 500, e.Status/100 == 3, e.Status == http.StatusRequestTimeout:
		return providers.Unavailable
	case e.Status == http.StatusTooManyRequests:
		return providers.Throttled
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden, e.noPartition():
		return providers.Misconfigured
	case e.Status == http.StatusConflict, e.Code == CodeExists:
		return providers.Conflict
	case e.Status == http.StatusNotFound, e.Code == CodeNotFound:
		return providers.Conflict
	}
	return providers.Rejected
}

func (e *StatusError) noPartition() bool {
	return e.Status == http.StatusBadRequest && ((e.Code == CodeNoFolder && strings.Contains(e.Message, "folder does not exist")) ||
		(e.APIError == apiNoFolder && strings.Contains(e.Message, "folder") && strings.Contains(e.Message, "was not found")))
}

var (
	codeForm    = regexp.MustCompile(`(?i)(?:^|[^0-9a-f])([0-9a-f]{8}):[0-9]+:`)
	messageForm = regexp.MustCompile(`"message"\s*:\s*"((?:\\.|[^"\\])*)`)
	tagForm     = regexp.MustCompile(`(?is)<(?:head|style|script)[^>]*>.*?</(?:head|style|script)>|<[^>]*>`)
)

// decodeError reads an answer that refuses a request, in any of the forms that a device has: of icrd and mcpd (with apiError), of restjavad
// (without), and text or HTML of the web server. What is cut off or empty is read as far as it goes.
func decodeError(what string, status int, body []byte, secrets ...string) *StatusError {
	e := &StatusError{Status: status, What: what}
	var answer struct {
		Message  string      `json:"message"`
		APIError json.Number `json:"apiError"`
	}
	text := string(body)
	switch {
	case json.Unmarshal(body, &answer) == nil:
		if answer.Message != "" {
			text = answer.Message
		}
		e.APIError, _ = strconv.ParseInt(answer.APIError.String(), 10, 64) // 0 for one that is no number
	case messageForm.MatchString(text): // cut off behind the beginning of the message
		cut := messageForm.FindStringSubmatch(text)[1]
		if json.Unmarshal([]byte(`"`+cut+`"`), &text) != nil {
			text = cut
		}
	case strings.Contains(text, "<"):
		text = tagForm.ReplaceAllString(text, " ")
	}
	if m := codeForm.FindStringSubmatch(text); m != nil {
		e.Code = strings.ToLower(m[1])
	}
	if e.Message = rest.Redact([]byte(text), secrets...); e.Message == "" {
		e.Message = http.StatusText(status)
	}
	return e
}

// refused makes an answer an error, with a hint where a setting may be wrong.
func (c *Client) refused(what string, answer rest.Response) error {
	e := decodeError(what, answer.Status, answer.Body, c.Secrets()...)
	kind := e.kind()
	switch {
	case e.Status == http.StatusUnauthorized && e.ofToken():
		e.Message += " (a login that has just succeeded is not accepted)"
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden:
		e.Message += fmt.Sprintf(" (the role of bigip.username %q lacks a right; docs/reference/bigip.md has one that is enough)", c.cfg.Username)
	case e.noPartition():
		e.Message += " (create the partition, or correct bigip.partition)"
	}
	return &providers.Error{Kind: kind, What: "bigip", Err: e}
}

var errUnreadable = errors.New("the answer is not what a BIG-IP sends")

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
	for _, s := range [][2]string{{"CA file", "bigip.caFile"}, {"server name", "bigip.serverName"}, {"base URL", "bigip.urls"}} {
		if rest, found := strings.CutPrefix(hint, s[0]); found {
			hint = " (" + s[1] + rest + ")"
			break
		}
	}
	return &providers.Error{Kind: e.Kind(), What: what + " at " + c.cfg.REST.BaseURL + hint, Err: err}
}

// reset reports whether a connection was cut while an answer was awaited.
func reset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, errEOF) || errors.Is(err, errUnexpectedEOF)
}

// asRefusal returns the StatusError in err, or nil.
func asRefusal(err error) *StatusError {
	e, _ := errors.AsType[*StatusError](err)
	return e
}
