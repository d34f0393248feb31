package bigipsim_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

const (
	username = "lb"
	password = "right-password"
)

// object is JSON.
type object = map[string]any

// lab is a device, its clock and where it listens.
type lab struct {
	*bigipsim.Sim
	t     *testing.T
	clock *testingclock.FakePassiveClock
	http  *http.Client
	url   string
}

// start runs a device with the partitions P and Q, and R, whose default route domain is 2, unless cfg has others.
func start(t *testing.T, cfg bigipsim.Config) *lab {
	t.Helper()
	clock := prepare(&cfg)
	s, err := bigipsim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, s, clock)
}

func prepare(cfg *bigipsim.Config) *testingclock.FakePassiveClock {
	clock := testingclock.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	if cfg.Username == "" {
		cfg.Username = username
	}
	cfg.Password, cfg.Clock = password, clock
	if cfg.Partitions == nil {
		cfg.Partitions = []bigipsim.Partition{{Name: "P"}, {Name: "Q"}, {Name: "R", DefaultRouteDomain: 2}}
		cfg.RouteDomains = []int{2, 10}
	}
	return clock
}

func serve(t *testing.T, s *bigipsim.Sim, clock *testingclock.FakePassiveClock) *lab {
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	return &lab{s, t, clock, server.Client(), server.URL}
}

func (l *lab) pass(d time.Duration) { l.clock.SetTime(l.clock.Now().Add(d)) }

// session is a raw HTTP client.
type session struct {
	l      *lab
	header http.Header // of every request
	user   *[2]string  // of basic authentication
	ctx    context.Context
}

func (l *lab) anonymous() *session {
	return &session{l, http.Header{"Content-Type": {"application/json"}}, nil, l.t.Context()}
}

// basic is a client that sends the password with each call.
func (l *lab) basic() *session {
	s := l.anonymous()
	s.user = &[2]string{username, password}
	return s
}

var credentials = object{"username": username, "password": password, "loginProviderName": "tmos"}

// login is a client with a token.
func (l *lab) login() *session {
	l.t.Helper()
	s := l.anonymous()
	token := at(s.post("/mgmt/shared/authn/login", credentials).want(200).json(), "token", "token")
	s.header.Set("X-F5-Auth-Token", token.(string))
	return s
}

// within is the same client in a transaction.
func (s *session) within(id string) *session {
	out := &session{s.l, s.header.Clone(), s.user, s.ctx}
	out.header.Set("X-F5-REST-Coordination-Id", id)
	return out
}

// until is the same client, which waits until ctx ends.
func (s *session) until(ctx context.Context) *session {
	return &session{s.l, s.header.Clone(), s.user, ctx}
}

// answer is what came back.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   string
	call   string
}

func (s *session) try(method, path string, body any) (*answer, error) {
	s.l.t.Helper()
	var sent io.Reader
	if body != nil {
		raw, isRaw := body.(string)
		if !isRaw {
			encoded, err := json.Marshal(body)
			if err != nil {
				s.l.t.Fatal(err)
			}
			raw = string(encoded)
		}
		sent = strings.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(s.ctx, method, s.l.url+path, sent)
	if err != nil {
		s.l.t.Fatal(err)
	}
	request.Header = s.header.Clone()
	if s.user != nil {
		request.SetBasicAuth(s.user[0], s.user[1])
	}
	response, err := s.l.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return &answer{s.l.t, response.StatusCode, response.Header, string(content), method + " " + path}, err
}

func (s *session) do(method, path string, body any) *answer {
	s.l.t.Helper()
	got, err := s.try(method, path, body)
	if err != nil {
		s.l.t.Fatal(err)
	}
	return got
}

func (s *session) get(path string) *answer          { s.l.t.Helper(); return s.do("GET", path, nil) }
func (s *session) post(path string, b any) *answer  { s.l.t.Helper(); return s.do("POST", path, b) }
func (s *session) put(path string, b any) *answer   { s.l.t.Helper(); return s.do("PUT", path, b) }
func (s *session) patch(path string, b any) *answer { s.l.t.Helper(); return s.do("PATCH", path, b) }
func (s *session) remove(path string) *answer       { s.l.t.Helper(); return s.do("DELETE", path, nil) }
func (s *session) create(kind string, b object) object {
	s.l.t.Helper()
	return s.post(kind, b).want(200).json()
}

// want fails unless the status is this one.
func (a *answer) want(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: status %d, want %d: %s", a.call, a.status, status, a.body)
	}
	return a
}

func (a *answer) json() object {
	a.t.Helper()
	var out object
	if err := json.Unmarshal([]byte(a.body), &out); err != nil {
		a.t.Fatalf("%s: %s: %v", a.call, a.body, err)
	}
	return out
}

// refused fails unless the body is the one of icrd with this message; api 0 is none.
func (a *answer) refused(status int, api int, message string) *answer {
	a.t.Helper()
	a.want(status)
	got := a.json()
	if got["message"] != message {
		a.t.Errorf("%s: message\n %v, want\n %s", a.call, got["message"], message)
	}
	if got["code"] != float64(status) {
		a.t.Errorf("%s: code %v, want %d", a.call, got["code"], status)
	}
	if stack, ok := got["errorStack"].([]any); !ok || len(stack) != 0 {
		a.t.Errorf("%s: errorStack %v, want []", a.call, got["errorStack"])
	}
	if have, given := got["apiError"]; (api != 0) != given || (given && have != float64(api)) {
		a.t.Errorf("%s: apiError %v, want %d", a.call, have, api)
	}
	return a
}

// denied fails unless the body is the one of restjavad with this message.
func (a *answer) denied(status int, message string) *answer {
	a.t.Helper()
	a.want(status)
	got := a.json()
	if s, _ := got["message"].(string); !strings.HasPrefix(s, message) {
		a.t.Errorf("%s: message %q, want %q", a.call, s, message)
	}
	if got["kind"] != ":resterrorresponse" || got["code"] != float64(status) || got["restOperationId"] == nil || got["apiError"] != nil {
		a.t.Errorf("%s: %s is no error of restjavad", a.call, a.body)
	}
	return a
}

// names are those of the items of a collection.
func (a *answer) names() string {
	a.t.Helper()
	items, _ := a.json()["items"].([]any)
	var names []string
	for _, item := range items {
		names = append(names, item.(object)["name"].(string))
	}
	return strings.Join(names, " ")
}

// at follows names and indexes into JSON.
func at(value any, path ...any) any {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			m, _ := value.(object)
			value = m[s]
		case int:
			list, _ := value.([]any)
			if s >= len(list) {
				return nil
			}
			value = list[s]
		}
	}
	return value
}

const (
	pools    = "/mgmt/tm/ltm/pool"
	nodes    = "/mgmt/tm/ltm/node"
	virtuals = "/mgmt/tm/ltm/virtual"
	web      = pools + "/~P~web"
)

func member(name string, more ...any) object {
	out := object{"name": name, "partition": "P"}
	for i := 0; i+1 < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

// pool is P's pool web with these members.
func pool(members ...object) object {
	return object{"name": "web", "partition": "P", "members": append([]object{}, members...)}
}

func virtual(name, destination string, more ...any) object {
	out := object{"name": name, "partition": "P", "destination": destination, "ipProtocol": "tcp"}
	for i := 0; i+1 < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

// begin opens a transaction and returns its ID.
func (s *session) begin() string {
	s.l.t.Helper()
	var got struct {
		ID json.Number `json:"transId"`
	}
	if err := json.Unmarshal([]byte(s.post("/mgmt/tm/transaction", object{}).want(200).body), &got); err != nil {
		s.l.t.Fatal(err)
	}
	return got.ID.String()
}

func (s *session) commit(id string) *answer {
	s.l.t.Helper()
	return s.patch("/mgmt/tm/transaction/"+id, object{"state": "VALIDATING"})
}
