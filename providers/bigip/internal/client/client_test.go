package client

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
	"github.com/nplbridge/nplbridge/providers/internal/rest"
)

const password = "geheim"

// open returns a client for what a handler serves.
func open(t *testing.T, h http.Handler, change ...func(*Config)) *Client {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cfg := Config{
		REST:     rest.Config{BaseURL: server.URL, CAFile: file("ca", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))), MaxInFlight: 2},
		Username: "lbsync", PasswordFile: file("password", password+"\n"),
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func device(t *testing.T, change ...func(*bigipsim.Config)) *bigipsim.Sim {
	t.Helper()
	cfg := bigipsim.Config{Username: "lbsync", Password: password, Partitions: []bigipsim.Partition{{Name: "P"}}}
	for _, f := range change {
		f(&cfg)
	}
	s, err := bigipsim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestTokenIsRenewed: before its time is over, by PATCH for as long as the device allows, then by another login, which gives the old one back.
func TestTokenIsRenewed(t *testing.T) {
	for _, fromStart := range []bool{true, false} {
		clock := testingclock.NewFakeClock(time.Now())
		s := device(t, func(c *bigipsim.Config) { c.Clock, c.Rules.TokenFromStart = clock, fromStart })
		c := open(t, s, func(c *Config) { c.Clock = clock })
		refused := 0
		for range 12 * 6 * 2 { // twelve hours
			if _, err := c.Get(t.Context(), "/mgmt/tm/sys/version"); err != nil {
				t.Fatal(err)
			}
			clock.Step(5 * time.Minute)
		}
		for _, call := range s.Calls() {
			if call.Status != 200 {
				refused++
			}
		}
		logins, _, alive := s.Logins()
		if logins != 2 || alive != 1 || refused != 0 || s.Count(http.MethodDelete, "/mgmt/shared/authz/tokens/") != 1 {
			t.Errorf("from the start %v: %d logins, %d tokens alive, %d refusals, %d given back", fromStart, logins, alive, refused, s.Count(http.MethodDelete, "/mgmt/shared/authz/tokens/"))
		}
		clock.Step(time.Hour) // nobody called, so it has expired
		if _, err := c.Get(t.Context(), "/mgmt/tm/sys/version"); err != nil {
			t.Fatal(err)
		}
		if logins, _, alive = s.Logins(); logins != 3 || alive != 1 {
			t.Errorf("from the start %v: %d logins, %d tokens alive after an idle hour", fromStart, logins, alive)
		}
		c.Close()
		if _, _, alive = s.Logins(); alive != 0 {
			t.Errorf("%d tokens alive after Close", alive)
		}
	}
}

// TestWrongPasswordIsNotHammered: with a token and with basic authentication, one attempt and then a pause, unless the file changes.
func TestWrongPasswordIsNotHammered(t *testing.T) {
	for _, basic := range []bool{false, true} {
		clock := testingclock.NewFakeClock(time.Now())
		s := device(t, func(c *bigipsim.Config) { c.Password, c.Clock = "changed", clock })
		var file string
		c := open(t, s, func(c *Config) { c.Clock, c.Basic, file = clock, basic, c.PasswordFile })
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				_, err := c.Get(t.Context(), "/mgmt/tm/sys/version")
				if providers.KindOf(err) != providers.Misconfigured || !strings.Contains(fmt.Sprint(err), "bigip.passwordFile") {
					t.Errorf("%v", err)
				}
			})
		}
		callers.Wait()
		_, rejected, _ := s.Logins()
		if most := 1 + map[bool]int{true: 19}[basic]; rejected < 1 || rejected > most {
			t.Errorf("basic %v: %d attempts", basic, rejected)
		}
		before := rejected
		for range 30 {
			clock.Step(time.Minute)
			_, _ = c.Get(t.Context(), "/mgmt/tm/sys/version")
		}
		if _, rejected, _ = s.Logins(); rejected-before < 3 || rejected-before > 5 {
			t.Errorf("basic %v: %d attempts in half an hour", basic, rejected-before)
		}
		if err := os.WriteFile(file, []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Get(t.Context(), "/mgmt/tm/sys/version"); err != nil {
			t.Errorf("basic %v: the right password: %v", basic, err)
		}
	}
}

func TestBasicAuthentication(t *testing.T) {
	s := device(t)
	c := open(t, s, func(c *Config) { c.Basic = true })
	if _, err := c.Get(t.Context(), "/mgmt/tm/sys/version"); err != nil {
		t.Fatal(err)
	}
	if logins, _, _ := s.Logins(); logins != 0 {
		t.Errorf("%d logins", logins)
	}
	c.Close()
	if n := s.Count("", "/mgmt/shared/"); n != 0 {
		t.Errorf("%d calls for tokens", n)
	}
}

// TestRightsAreNotTheToken: a 401 about rights is an answer, and no reason to log in again.
func TestRightsAreNotTheToken(t *testing.T) {
	s := device(t)
	c := open(t, s)
	s.Inject(bigipsim.Fault{
		Kind: bigipsim.Answer, Path: "/mgmt/tm/", Status: 401, Times: -1,
		Body: `{"code":401,"message":"Authorization failed: user=https://localhost/mgmt/shared/authz/users/lbsync resource=/mgmt/tm/ltm/pool verb=GET uri:x referrer:y sender:z"}`,
	})
	for range 5 {
		if _, err := c.Get(t.Context(), "/mgmt/tm/ltm/pool"); providers.KindOf(err) != providers.Misconfigured || !strings.Contains(fmt.Sprint(err), "role") {
			t.Error(err)
		}
	}
	if logins, _, _ := s.Logins(); logins != 1 {
		t.Errorf("%d logins", logins)
	}
}

// TestPages: a long list is read in pages and whole, also when something goes while it is read.
func TestPages(t *testing.T) {
	s := device(t)
	c := open(t, s)
	const total = 2*pageSize + 7
	for n := range total {
		s.Admin("POST", "/mgmt/tm/ltm/node", fmt.Sprintf(`{"name":"n%04d","partition":"P","address":"10.9.%d.%d"}`, n, n/250, n%250))
	}
	all, err := c.List(t.Context(), Nodes, ListOptions{Partition: "P"})
	if err != nil || len(all) != total || s.Count(http.MethodGet, "/mgmt/tm/ltm/node") != 3 {
		t.Errorf("%d objects by %d calls, %v", len(all), s.Count(http.MethodGet, "/mgmt/tm/ltm/node"), err)
	}
	seen := map[string]bool{}
	for _, raw := range all {
		seen[identity(raw)] = true
	}
	if len(seen) != total {
		t.Errorf("%d different objects", len(seen))
	}
	// The first object goes after the first page: without the overlap, one would be missed.
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("$skip") == fmt.Sprint(pageSize-1) {
			s.Admin("DELETE", "/mgmt/tm/ltm/node/~P~n0000", "")
		}
		s.ServeHTTP(w, r)
	})
	all, err = open(t, inner).List(t.Context(), Nodes, ListOptions{Partition: "P"})
	if err != nil || len(all) != total-1 {
		t.Errorf("%d objects, %v", len(all), err)
	}
	for n, raw := range all {
		if want := fmt.Sprintf("/P/n%04d", n+1); identity(raw) != want {
			t.Fatalf("object %d is %s, want %s", n, identity(raw), want)
		}
	}
}

// TestPagesThatAreIgnored: a device that gives everything at once is believed.
func TestPagesThatAreIgnored(t *testing.T) {
	for _, total := range []int{0, 3, pageSize + 50} {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/mgmt/shared/authn/login" {
				_, _ = w.Write([]byte(`{"token":{"token":"T","timeout":1200}}`))
				return
			}
			var items []string
			for n := range total {
				items = append(items, fmt.Sprintf(`{"fullPath":"/P/%d"}`, n))
			}
			_, _ = fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(items, ","))
		})
		if all, err := open(t, h).List(t.Context(), Pools, ListOptions{}); err != nil || len(all) != total {
			t.Errorf("%d of %d objects, %v", len(all), total, err)
		}
	}
}

// TestLostConnections: what may be repeated is, once; a POST is not.
func TestLostConnections(t *testing.T) {
	s := device(t)
	c := open(t, s)
	if _, err := c.Get(t.Context(), "/mgmt/tm/ltm/pool"); err != nil {
		t.Fatal(err)
	}
	s.Inject(bigipsim.Fault{Kind: bigipsim.Reset, Path: "/mgmt/tm/"})
	if _, err := c.Get(t.Context(), "/mgmt/tm/ltm/pool"); err != nil {
		t.Error(err)
	}
	s.ResetCounters()
	s.Inject(bigipsim.Fault{Kind: bigipsim.Unanswered, Method: http.MethodPost, Path: "/mgmt/tm/"})
	_, err := c.Post(t.Context(), Pools.Path(), map[string]string{"name": "x", "partition": "P"})
	if providers.KindOf(err) != providers.Unavailable || s.Count(http.MethodPost, "/mgmt/tm/ltm/pool") != 1 {
		t.Errorf("%v after %d calls", err, s.Count(http.MethodPost, "/mgmt/tm/ltm/pool"))
	}
}

// TestDeadlineHasPassed: what was begun under a deadline that is over sends nothing more.
func TestDeadlineHasPassed(t *testing.T) {
	s := device(t)
	c := open(t, s)
	if _, err := c.Get(t.Context(), "/mgmt/tm/ltm/pool"); err != nil {
		t.Fatal(err)
	}
	s.ResetCounters()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
	defer cancel()
	command := Command{Method: http.MethodPost, Path: Pools.Path(), Body: map[string]string{"name": "x", "partition": "P"}}
	for _, commands := range [][]Command{{command}, {command, command}} {
		if err := c.Run(late, commands...); providers.KindOf(err) != providers.Unavailable {
			t.Error(err)
		}
	}
	if n := len(s.Calls()); n != 0 {
		t.Errorf("%d calls", n)
	}
}
