package bigipsim_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

func TestResetBeforeAnythingIsDone(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.l.Inject(bigipsim.Fault{Kind: bigipsim.Reset, Method: "PATCH", Path: "/ltm/pool"})
	s.create(pools, pool())
	got, err := s.try("PATCH", web, object{"description": "x"})
	if err == nil {
		t.Fatalf("status %d, want no answer", got.status)
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("%v, want a reset", err)
	}
	if got := s.get(web).json()["description"]; got != nil {
		t.Errorf("description %v", got)
	}
	s.patch(web, object{"description": "x"}).want(200)
}

func TestAppliedButNotAnswered(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.l.Inject(bigipsim.Fault{Kind: bigipsim.Unanswered, Method: "POST"})
	if got, err := s.try("POST", pools, pool()); err == nil {
		t.Fatalf("status %d, want no answer", got.status)
	}
	s.post(pools, pool()).want(409)
}

func TestCutInTheMiddleOfTheAnswer(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.l.Inject(bigipsim.Fault{Kind: bigipsim.Cut})
	got, err := s.try("GET", pools, nil)
	if err == nil || got == nil || got.status != 200 || got.body == "" {
		t.Fatalf("%v, %v, want half an answer", got, err)
	}
}

func TestActiveAsynchronousTask(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.l.Inject(bigipsim.Fault{Kind: bigipsim.Busy, Times: 3})
	for range 3 {
		s.get(pools).refused(503, 32964609, "There is an active asynchronous task executing.")
	}
	s.get(pools).want(200)
}

func TestMCPDIsGone(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.l.Inject(bigipsim.Fault{Kind: bigipsim.LostMCPD})
	s.get(pools).refused(500, 32768001, "The connection to mcpd has been lost, try again.")
}

func TestRestjavadStarts(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.l.Inject(bigipsim.Fault{Kind: bigipsim.Unregistered})
	s.get(pools).denied(404, "URI path /mgmt/tm not registered.")
	s.l.SetMode(bigipsim.Registering)
	s.get(pools).denied(404, "URI path /mgmt/tm/ltm/pool not registered.  Please verify URI is supported and wait for /available suffix to be responsive.")
	s.l.login()
	s.l.SetMode(bigipsim.Restarting)
	for _, path := range []string{pools, "/mgmt/shared/authz/tokens"} {
		if got := s.get(path).want(503); !strings.Contains(got.body, "Configuration Utility restarting...") || !strings.HasPrefix(got.header.Get("Content-Type"), "text/html") {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	s.post("/mgmt/shared/authn/login", credentials).want(503)
	s.l.SetMode(bigipsim.Up)
	s.get(pools).want(200)
}

func TestErrorsAsOneAsksForThem(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.l.Inject(bigipsim.Fault{Kind: bigipsim.HTMLPage})
	s.l.Inject(bigipsim.Fault{Kind: bigipsim.EmptyBody})
	s.l.Inject(bigipsim.Fault{Kind: bigipsim.ExpiredToken})
	s.l.Inject(bigipsim.Fault{Kind: bigipsim.Answer, Status: 429, Body: "slow down", Type: "text/plain", Times: -1})
	if got := s.get(pools).want(503); !strings.Contains(got.body, "<html>") {
		t.Errorf("%s", got.body)
	}
	if got := s.get(pools).want(503); got.body != "" {
		t.Errorf("%s", got.body)
	}
	s.get(pools).denied(401, "X-F5-Auth-Token has expired.")
	for range 2 {
		if got := s.get(pools).want(429); got.body != "slow down" || got.header.Get("Content-Type") != "text/plain" {
			t.Errorf("%v %s", got.header, got.body)
		}
	}
	s.l.Mend()
	s.get(pools).want(200)
}

// While a write is under way nothing else is written, and reads are answered.
func TestWritesAreOneAfterTheOther(t *testing.T) {
	l := start(t, bigipsim.Config{})
	s := l.login()
	l.Inject(bigipsim.Fault{Method: "POST", Path: "/ltm/pool", Delay: time.Hour})
	ctx, leave := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Go(func() {
		if got, err := s.until(ctx).try("POST", pools, pool()); err == nil {
			t.Errorf("the first write was answered %d", got.status)
		}
	})
	eventually(t, "the first write is under way", l.Writing)
	s.get(pools).want(200)
	impatient, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if got, err := s.until(impatient).try("POST", nodes, object{"name": "10.0.0.1", "partition": "P"}); err == nil {
		t.Errorf("the second write was answered %d", got.status)
	}
	leave()
	first.Wait()
	s.create(nodes, object{"name": "10.0.0.2", "partition": "P"})
	s.get(web).want(404) // nothing is done for a client that left
	if l.MostInFlight() < 2 {
		t.Errorf("%d in flight, want 2", l.MostInFlight())
	}
}

// A call that is delayed is not answered while a client has patience for.
func TestDelayOfEachCall(t *testing.T) {
	l := start(t, bigipsim.Config{})
	s := l.login()
	l.SetDelay(time.Hour)
	impatient, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if got, err := s.until(impatient).try("GET", pools, nil); err == nil {
		t.Errorf("answered %d", got.status)
	}
	l.SetDelay(0)
	s.get(pools).want(200)
}

func TestCallsAreCounted(t *testing.T) {
	var mu sync.Mutex
	var seen []bigipsim.Call
	l := start(t, bigipsim.Config{Observe: func(c bigipsim.Call) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, c)
	}})
	s := l.login()
	if l.Writes() != 0 {
		t.Error("a login is a write")
	}
	l.ResetCounters()
	s.create(pools, pool(member("10.0.0.1%2:80")))
	s.get(pools + "?$select=name").want(200)
	s.patch(web+"/members/~P~10.0.0.1%252:80", object{"ratio": 2}).want(200)
	id := s.begin()
	s.within(id).remove(web).want(200)
	s.post("/mgmt/tm/sys/config", object{"command": "save"}).want(200)
	l.Inject(bigipsim.Fault{Kind: bigipsim.Reset})
	s.try("DELETE", web, nil)
	calls := l.Calls()
	if len(calls) != 7 || l.Writes() != 6 || l.Count("PATCH", "/mgmt/tm/ltm/pool") != 1 || l.Count("", "/mgmt/tm/ltm/pool") != 5 {
		t.Fatalf("%d writes of %+v", l.Writes(), calls)
	}
	for i, want := range []bigipsim.Call{
		{Method: "POST", Path: pools, Status: 200}, {Method: "GET", Path: pools, Query: "$select=name", Status: 200},
		{Method: "PATCH", Path: web + "/members/~P~10.0.0.1%252:80", Body: `{"ratio":2}`, Status: 200}, {Method: "POST", Path: "/mgmt/tm/transaction", Body: "{}", Status: 200},
		{Method: "DELETE", Path: web, Transaction: id, Status: 200}, {Method: "POST", Path: "/mgmt/tm/sys/config", Body: `{"command":"save"}`, Status: 200}, {Method: "DELETE", Path: web},
	} {
		got := calls[i]
		if want.Body == "" {
			got.Body = ""
		}
		if got != want {
			t.Errorf("call %d: %+v, want %+v", i, got, want)
		}
	}
	l.ResetCounters()
	if len(l.Calls()) != 0 || l.Writes() != 0 || l.MostInFlight() != 0 {
		t.Error("counters are left")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 8 || seen[0].Path != "/mgmt/shared/authn/login" || seen[0].Body != "" {
		t.Errorf("%+v", seen)
	}
}

// What an administrator does is neither counted nor delayed, and needs no login.
func TestAdministratorsCalls(t *testing.T) {
	l := start(t, bigipsim.Config{Delay: time.Hour, UserPartition: "P"})
	if status, body := l.Admin("POST", pools, `{"name":"web","partition":"Q"}`); status != 200 || !strings.Contains(string(body), "/Q/web") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := l.Admin("GET", pools+"/~Q~web", ""); status != 200 || !strings.Contains(string(body), "/Q/web") {
		t.Errorf("%d %s", status, body)
	}
	if len(l.Calls()) != 0 {
		t.Errorf("%v", l.Calls())
	}
}
