package avisim_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers/avi/avisim"
)

func TestDropBeforeAnythingIsDone(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	l.Fail(avisim.Fault{Kind: avisim.Drop, Method: "POST", Path: "/api/pool"})
	if got, err := b.try("POST", "/api/pool", pool("p")); err == nil {
		t.Fatalf("status %d, want no answer", got.status)
	}
	if l.Snapshot().Object("pool", "p") != nil {
		t.Error("the pool is there")
	}
	b.create("pool", pool("p"))
}

func TestDropAfterItIsApplied(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	l.Fail(avisim.Fault{Kind: avisim.DropAfter, Method: "POST", Path: "/api/pool"})
	if got, err := b.try("POST", "/api/pool", pool("p")); err == nil {
		t.Fatalf("status %d, want no answer", got.status)
	}
	b.post("/api/pool", pool("p")).want(409)
}

func TestCutInTheMiddleOfTheAnswer(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	b.create("pool", pool("p"))
	l.Fail(avisim.Fault{Kind: avisim.Cut, Method: "GET"})
	got, err := b.try("GET", "/api/pool", nil)
	if err == nil || got == nil || got.status != 200 || len(got.body) == 0 {
		t.Fatalf("%v, %v, want half an answer", got, err)
	}
}

func TestErrorsAsOneAsksForThem(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	l.Fail(avisim.Fault{Kind: avisim.Answer, Status: 502, Times: 2})
	l.Fail(avisim.Fault{Kind: avisim.Answer, Method: "GET", Body: `{"error":"Bad pb: x"}`})
	l.Fail(avisim.Fault{Kind: avisim.Answer, Status: 429, Body: "slow down", Type: "text/plain", Header: map[string][]string{"retry-after": {"7"}}})
	for range 2 {
		if got := b.get("/api/pool").want(502).saying("<html>", "502 Bad Gateway"); got.header.Get("Content-Type") != "text/html" {
			t.Errorf("type %s", got.header.Get("Content-Type"))
		}
	}
	b.get("/api/pool").want(500).saying("Bad pb")
	if got := b.get("/api/pool").want(429); got.header.Get("Retry-After") != "7" {
		t.Errorf("headers %v", got.header)
	}
	b.get("/api/pool").want(200)
	l.Fail(avisim.Fault{Kind: avisim.Answer, Times: -1})
	b.get("/api/pool").want(500)
	b.get("/api/pool").want(500)
	l.Mend()
	b.get("/api/pool").want(200)
}

func TestSessionEndsInTheMiddle(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	l.Fail(avisim.Fault{Kind: avisim.EndSession})
	b.get("/api/pool").want(401)
	b.get("/api/pool").want(401)
	b = l.login()
	l.EndSessions()
	b.get("/api/pool").want(401)
}

func TestUpgradeModeRefusesWrites(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	uuid := b.create("pool", pool("p"))["uuid"].(string)
	l.SetMode(avisim.Upgrading)
	b.post("/api/pool", pool("q")).want(403).saying("Configuration is disallowed during upgrade")
	b.remove("/api/pool/" + uuid).want(403)
	b.get("/api/pool/" + uuid).want(200)
	l.SetMode(avisim.Up)
	b.remove("/api/pool/" + uuid).want(204)
}

func TestStartingAnswersHTML(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	l.SetMode(avisim.Starting)
	b.get("/api/pool").want(503).saying("<html>")
	b.post("/login", object{"username": username, "password": password}).want(503)
	l.SetMode(avisim.Up)
	b.get("/api/pool").want(200)
}

// A call that is delayed is not answered while a client has patience for; nothing is done for a client that left.
func TestDelayOfEachCall(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	impatient := *b
	impatient.http = &http.Client{Jar: b.http.Jar, Transport: b.http.Transport, Timeout: 20 * time.Millisecond}
	l.SetDelay(time.Hour)
	if got, err := impatient.try("POST", "/api/pool", pool("p")); err == nil {
		t.Errorf("answered %d", got.status)
	}
	l.SetDelay(0)
	l.Fail(avisim.Fault{Delay: time.Hour})
	if got, err := impatient.try("POST", "/api/pool", pool("p")); err == nil {
		t.Errorf("a slow call was answered %d", got.status)
	}
	b.create("pool", pool("p"))
}

func TestCallsAreCounted(t *testing.T) {
	var mu sync.Mutex
	var seen []avisim.Call
	l := start(t, avisim.Config{Observe: func(c avisim.Call) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, c)
	}})
	b := l.login()
	uuid := b.create("pool", pool("p"))["uuid"].(string)
	l.ResetCounts()
	b.get("/api/pool?fields=name").want(200)
	b.get("/api/pool/" + uuid).want(200)
	b.get("/api/pool/" + uuid + "/runtime/server").want(200)
	b.get("/api/pool/none").want(404)
	l.Fail(avisim.Fault{Kind: avisim.Drop})
	b.try("POST", "/api/pool", pool("q"))
	for count, want := range map[avisim.Count]int{
		{Method: "GET", Endpoint: "/api/pool", Status: 200}: 1, {Method: "GET", Endpoint: "/api/pool/*", Status: 200}: 1,
		{Method: "GET", Endpoint: "/api/pool/*", Status: 404}: 1, {Method: "GET", Endpoint: "/api/pool/*/runtime/server", Status: 200}: 1,
		{Method: "POST", Endpoint: "/api/pool"}: 1, // dropped
	} {
		if got := l.Counts()[count]; got != want {
			t.Errorf("%v: %d, want %d", count, got, want)
		}
	}
	if got := l.CountCalls("", "/api/pool"); got != 2 {
		t.Errorf("%d calls of the collection, want 2", got)
	}
	if l.MostInFlight() != 1 {
		t.Errorf("%d in flight", l.MostInFlight())
	}
	mu.Lock()
	defer mu.Unlock()
	if c := seen[2]; c.Query != "fields=name" || c.Status != 200 || c.Answered == 0 || c.Version != "31.1.1" {
		t.Errorf("%+v", c)
	}
}
