package client

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/internal/rest"
)

// fake is a Controller of which each test writes the part that it is about. The simulator in avisim is the strict one.
type fake struct {
	*httptest.Server
	logins atomic.Int32
	dir    string
}

// serve answers logins by itself and the rest with h.
func serve(t *testing.T, h http.HandlerFunc) (*fake, *Client) {
	t.Helper()
	f := &fake{dir: t.TempDir()}
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/login" {
			h(w, r)
			return
		}
		n := f.logins.Add(1)
		for _, name := range []string{"csrftoken", "avi-sessionid", "sessionid"} {
			http.SetCookie(w, &http.Cookie{Name: name, Value: fmt.Sprintf("%s-%d", name, n)})
		}
		_, _ = w.Write([]byte(`{"version": {"Version": "30.2.1", "min_version": 18.2}}`))
	}))
	t.Cleanup(f.Close)
	file := func(name, text string) string {
		path := filepath.Join(f.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, err := New(Config{
		REST:     rest.Config{BaseURL: f.URL, CAFile: file("ca", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})))},
		Username: "lbsync", TokenFile: file("token", "geheim"), Tenant: "shop", Version: "22.1.3",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return f, c
}

func TestHeaders(t *testing.T) {
	var f *fake
	f, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/logout" {
			return
		}
		for name, want := range map[string]string{
			"X-Avi-Version": "22.1.3", "X-Avi-Tenant": "shop", "X-CSRFToken": "csrftoken-1", "Referer": f.URL + "/",
			"Cookie": "avi-sessionid=avi-sessionid-1; csrftoken=csrftoken-1; sessionid=sessionid-1",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		_, _ = w.Write([]byte(`{"uuid": "pool-1", "name": "a"}`))
	})
	if _, err := c.Post(t.Context(), "pool", map[string]string{"name": "a"}); err != nil {
		t.Error(err)
	}
}

// TestFreshCookies: 419 is answered with the cookies that came with it, and without another login.
func TestFreshCookies(t *testing.T) {
	asked := 0
	f, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/logout" {
			return
		}
		if asked++; asked == 1 {
			http.SetCookie(w, &http.Cookie{Name: "csrftoken", Value: "fresh"})
			w.WriteHeader(419)
			return
		}
		if got := r.Header.Get("X-CSRFToken"); got != "fresh" {
			t.Errorf("X-CSRFToken %q", got)
		}
		_, _ = w.Write([]byte(`{"uuid": "pool-1"}`))
	})
	if _, err := c.Get(t.Context(), "pool", "pool-1"); err != nil || f.logins.Load() != 1 || asked != 2 {
		t.Errorf("%v after %d logins and %d requests", err, f.logins.Load(), asked)
	}
}

// TestRefusedSession: a session that is never accepted ends in an error after one more login.
func TestRefusedSession(t *testing.T) {
	f, c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "CSRF token missing or incorrect.", http.StatusUnauthorized)
	})
	_, err := c.Get(t.Context(), "pool", "pool-1")
	if providers.KindOf(err) != providers.Misconfigured || Status(err) != 401 || !strings.Contains(err.Error(), "CSRF token missing") || f.logins.Load() != 2 {
		t.Errorf("%v after %d logins", err, f.logins.Load())
	}
}

// TestFailedLoginIsShared: whoever waited for a login that failed does not try again.
func TestFailedLoginIsShared(t *testing.T) {
	var logins atomic.Int32
	release := make(chan struct{})
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		logins.Add(1)
		<-release
		http.Error(w, "starting", http.StatusInternalServerError)
	}))
	defer s.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("geheim"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{REST: rest.Config{BaseURL: s.URL, Insecure: true}, Username: "u", TokenFile: token, Version: "22.1.3"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var workers sync.WaitGroup
	var arrived atomic.Int32
	for range 20 {
		workers.Go(func() {
			arrived.Add(1)
			if _, err := c.Get(t.Context(), "pool", "x"); providers.KindOf(err) != providers.Unavailable {
				t.Errorf("got %v", err)
			}
		})
	}
	for arrived.Load() < 20 || logins.Load() < 1 {
		time.Sleep(time.Millisecond)
	}
	close(release)
	workers.Wait()
	if n := logins.Load(); n > 10 { // one that came late logs in by itself
		t.Errorf("%d logins of 20 workers", n)
	}
}

func TestListBeginsAgainWhenItChanges(t *testing.T) {
	page := func(count int, next string, names ...string) string {
		var out []string
		for _, n := range names {
			out = append(out, fmt.Sprintf(`{"uuid": "pool-%s", "name": "%s"}`, n, n))
		}
		return fmt.Sprintf(`{"count": %d, "next": "%s", "results": [%s]}`, count, next, strings.Join(out, ","))
	}
	for name, test := range map[string]struct {
		answers []string // in order; the last repeats
		want    string   // names, or part of an error
	}{
		"one page":         {[]string{page(2, "", "a", "b")}, "a b"},
		"nothing":          {[]string{`{"count": 0, "results": []}`}, ""},
		"two pages":        {[]string{page(3, "https://elsewhere:1/api/pool/?page=2", "a", "b"), page(3, "", "c")}, "a b c"},
		"one left":         {[]string{page(3, "/api/pool/?page=2", "a", "b"), page(2, ""), page(2, "", "a", "c")}, "a c"},
		"one came":         {[]string{page(3, "/api/pool/?page=2", "b", "c"), page(4, "", "c", "d"), page(4, "", "a", "b", "c", "d")}, "a b c d"},
		"never the same":   {[]string{page(3, "", "a")}, "the list changed while it was read, 4 times"},
		"a circle":         {[]string{page(3, "/api/pool/?page=2", "a"), page(3, "/api/pool/?page=2", "b")}, "is none"},
		"another API":      {[]string{page(3, "https://elsewhere/evil", "a")}, "is none"},
		"without uuid":     {[]string{`{"count": 1, "results": [{"name": "a"}]}`}, "without uuid"},
		"not even JSON":    {[]string{`<html>`}, "not what Avi sends"},
		"a list in a list": {[]string{`[]`}, "not what Avi sends"},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			_, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/logout" {
					return
				}
				_, _ = w.Write([]byte(test.answers[min(n, len(test.answers)-1)]))
				n++
			})
			found, err := c.List(t.Context(), "pool", url.Values{"name": {"x"}})
			var names []string
			for _, o := range found {
				names = append(names, o.Name)
			}
			if got := strings.Join(names, " ") + fmt.Sprint(err); !strings.Contains(got, test.want) || (err == nil && got != test.want+"<nil>") {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		status int
		body   string
		header string
		kind   providers.Kind
		want   string
	}{
		{400, `{"error": "Cannot delete, object is referred by: ['VirtualService x']"}`, "", providers.Rejected, "referred by"},
		{400, `{"error": {"servers": [{"port": ["bad"]}]}}`, "", providers.Rejected, `"port"`},
		{400, `{"error": "field x introduced in 30.1.1, request version 22.1.3"}`, "", providers.Misconfigured, "avi.apiVersion is 22.1.3"},
		{403, `{"error": "Configuration is disallowed during upgrade"}`, "", providers.Unavailable, "upgrade"},
		{403, `{"error": "Tenant 'shop' does not exist!"}`, "", providers.Misconfigured, "avi.tenant"},
		{403, `{"error": "no"}`, "", providers.Misconfigured, "lacks a right on pool"},
		{404, `{"error": "Pool object not found!"}`, "", providers.Conflict, "not found"},
		{405, `{"detail": "Method 'PATCH' not allowed."}`, "", providers.Rejected, "not allowed"},
		{408, ``, "", providers.Unavailable, "Request Timeout"},
		{409, `{"error": "Pool with this Name already exists."}`, "", providers.Conflict, "already exists"},
		{412, `{"error": "Please reload the Pool"}`, "", providers.Conflict, "reload"},
		{429, `slow down`, "7", providers.Throttled, "slow down"},
		{500, `{"error": "Bad pb: x"}`, "", providers.Unavailable, "Bad pb"},
		{302, ``, "", providers.Unavailable, "Found"},
		{400, `geheim and {"password": "x"}`, "", providers.Rejected, "***"},
	} {
		t.Run(fmt.Sprint(test.status, " ", test.want), func(t *testing.T) {
			_, c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", test.header)
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			})
			_, err := c.Get(t.Context(), "pool", "pool-1")
			if providers.KindOf(err) != test.kind || Status(err) != test.status || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "geheim") {
				t.Errorf("%s: %v", providers.KindOf(err), err)
			}
			if wait := providers.RetryAfter(err); (wait > 0) != (test.header != "") {
				t.Errorf("wait %s", wait)
			}
		})
	}
}

func TestGateLetsOneTry(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	g := &gate{clock: clock}
	ctx := t.Context()
	p, _ := g.wait(ctx)
	g.report(ctx, p, false)
	passes := make(chan pass, 10)
	for range 10 {
		go func() {
			p, err := g.wait(ctx)
			if err != nil {
				t.Error(err)
			}
			passes <- p
		}()
	}
	step := func() pass {
		for {
			select {
			case p := <-passes:
				return p
			default:
				clock.Step(10 * time.Millisecond)
				time.Sleep(time.Millisecond)
			}
		}
	}
	one := step()
	if !one.try {
		t.Error("the first is no try")
	}
	clock.Step(time.Hour)
	select {
	case p := <-passes:
		t.Errorf("a second one while the first tries: %+v", p)
	case <-time.After(20 * time.Millisecond):
	}
	g.report(ctx, one, true)
	for range 9 {
		if p := <-passes; p.try {
			t.Error("a try although all is well")
		}
	}
	done, cancel := context.WithCancelCause(ctx)
	g.report(ctx, pass{}, false)
	cancel(errors.New("enough"))
	if _, err := g.wait(done); providers.KindOf(err) != providers.Unavailable || !strings.Contains(err.Error(), "enough") {
		t.Errorf("got %v", err)
	}
}

func TestParseRef(t *testing.T) {
	for text, want := range map[string]Ref{
		"https://10.0.0.1/api/pool/pool-1#web#1":    {"pool", "pool-1", "web#1"},
		"/api/pool/pool-1":                          {"pool", "pool-1", ""},
		"/api/pool/pool-1/":                         {"pool", "pool-1", ""},
		"/api/pool/?name=web%201&cloud=x":           {"pool", "", "web 1"},
		"/api/pool?cloud=x&name=web":                {"pool", "", "web"},
		"https://h//api//pool/pool-1?include_name=": {"pool", "pool-1", ""},
		"pool-1": {"", "pool-1", ""},
		"":       {},
	} {
		if got := ParseRef(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
	if got := ParseRef(RefByName("pool", "a b&c=#d")); got != (Ref{"pool", "", "a b&c=#d"}) {
		t.Errorf("%+v", got)
	}
}

func FuzzParseRef(f *testing.F) {
	f.Add("https://10.0.0.1/api/pool/pool-1#web")
	f.Fuzz(func(t *testing.T, name string) {
		if got := ParseRef(RefByName("pool", name)); got.Type != "pool" || got.Name != name || got.UUID != "" {
			t.Errorf("%q: %+v", name, got)
		}
		ParseRef(name)
	})
}

func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"uuid": "pool-1", "name": "a", "servers": [{"ip": 1}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := parseObject("pool", raw)
		if err != nil {
			return
		}
		fields, err := o.overlay(map[string]any{"name": "b", "servers": nil})
		if err != nil {
			t.Fatal(err)
		}
		if _, there := fields["servers"]; there || string(fields["name"]) != `"b"` {
			t.Errorf("%s became %v", raw, fields)
		}
		if _, err := json.Marshal(fields); err != nil {
			t.Error(err)
		}
	})
}

func TestCompareVersions(t *testing.T) {
	for _, v := range []struct {
		a, b string
		want int
	}{
		{"22.1.3", "22.1.3", 0}, {"22.1.3", "22.1.10", -1}, {"30.2.1", "22.1.3", 1}, {"22.1", "22.1.0", 0}, {"18.2", "22.1.3", -1},
		{"22.1.3-2p1", "22.1.3", 0}, {"x", "0", 0}, {"99999999999999999999.1", "1.1", 1},
	} {
		if got := CompareVersions(v.a, v.b); max(-1, min(1, got)) != v.want {
			t.Errorf("%s and %s: %d, want %d", v.a, v.b, got, v.want)
		}
	}
}
