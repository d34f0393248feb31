package avisim_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/providers/avi/avisim"
)

const (
	username = "sync"
	password = "right-password"
)

// object is JSON.
type object = map[string]any

// lab is a Controller and its clock.
type lab struct {
	*avisim.Server
	t     *testing.T
	url   string
	clock *testingclock.FakePassiveClock
}

// start runs a Controller with a network of three addresses, 192.0.2.10 to .12, unless cfg has others.
func start(t *testing.T, cfg avisim.Config) *lab {
	t.Helper()
	l := &lab{t: t, clock: testingclock.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	cfg.Username, cfg.Password, cfg.Now = username, password, l.clock.Now
	if cfg.Networks == nil {
		cfg.Networks = []avisim.Network{{
			Name: "vips", Prefix: netip.MustParsePrefix("192.0.2.0/24"), First: netip.MustParseAddr("192.0.2.10"), Last: netip.MustParseAddr("192.0.2.12"),
		}}
	}
	s, err := avisim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.Server = s
	if l.url, err = s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *lab) pass(d time.Duration) { l.clock.SetTime(l.clock.Now().Add(d)) }

// browser is a raw HTTP client with cookies. It adds what a session needs; a test leaves out of it what it wants to see missed.
type browser struct {
	t      *testing.T
	url    string
	http   *http.Client
	header http.Header // of every request, beside Content-Type
}

// anonymous returns a client that has not logged in.
func (l *lab) anonymous() *browser {
	l.t.Helper()
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(l.CAPEM()) {
		l.t.Fatal("CAPEM holds no certificate")
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		l.t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}}
	l.t.Cleanup(transport.CloseIdleConnections)
	return &browser{l.t, l.url, &http.Client{Jar: jar, Transport: transport}, http.Header{"X-Avi-Version": {"31.1.1"}}}
}

// login returns a client with a session.
func (l *lab) login() *browser {
	l.t.Helper()
	b := l.anonymous()
	b.post("/login", object{"username": username, "password": password}).want(200)
	b.adopt()
	return b
}

// adopt takes the CSRF token from the cookies, as a client has to.
func (b *browser) adopt() {
	for _, c := range b.cookies() {
		if c.Name == "csrftoken" {
			b.header.Set("X-CSRFToken", c.Value)
		}
	}
	b.header.Set("Referer", b.url+"/")
}

func (b *browser) cookies() []*http.Cookie {
	u, err := url.Parse(b.url)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.http.Jar.Cookies(u)
}

// answer is what came back.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
	call   string
}

func (b *browser) do(method, path string, body any) *answer {
	b.t.Helper()
	got, err := b.try(method, path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

func (b *browser) try(method, path string, body any) (*answer, error) {
	b.t.Helper()
	var sent io.Reader
	if body != nil {
		raw, isRaw := body.(string)
		if !isRaw {
			encoded, err := json.Marshal(body)
			if err != nil {
				b.t.Fatal(err)
			}
			raw = string(encoded)
		}
		sent = strings.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, sent)
	if err != nil {
		b.t.Fatal(err)
	}
	maps.Copy(request.Header, b.header)
	if body != nil && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := b.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return &answer{b.t, response.StatusCode, response.Header, content, method + " " + path}, err
}

func (b *browser) get(path string) *answer { b.t.Helper(); return b.do(http.MethodGet, path, nil) }
func (b *browser) post(path string, body any) *answer {
	b.t.Helper()
	return b.do(http.MethodPost, path, body)
}
func (b *browser) put(path string, body any) *answer {
	b.t.Helper()
	return b.do(http.MethodPut, path, body)
}
func (b *browser) patch(path string, body any) *answer {
	b.t.Helper()
	return b.do(http.MethodPatch, path, body)
}
func (b *browser) remove(path string) *answer {
	b.t.Helper()
	return b.do(http.MethodDelete, path, nil)
}

// create posts an object and returns it as it was stored.
func (b *browser) create(kind string, body object) object {
	b.t.Helper()
	return b.post("/api/"+kind, body).want(201).json()
}

// want fails unless the status is this one.
func (a *answer) want(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: status %d, want %d: %s", a.call, a.status, status, a.body)
	}
	return a
}

// saying fails unless the body has each of the texts.
func (a *answer) saying(texts ...string) *answer {
	a.t.Helper()
	for _, text := range texts {
		if !bytes.Contains(a.body, []byte(text)) {
			a.t.Fatalf("%s: %s: does not say %q", a.call, a.body, text)
		}
	}
	return a
}

func (a *answer) json() object {
	a.t.Helper()
	var out object
	if err := json.Unmarshal(a.body, &out); err != nil {
		a.t.Fatalf("%s: %s: %v", a.call, a.body, err)
	}
	return out
}

// names are those of the results of a list.
func (a *answer) names() []string {
	a.t.Helper()
	names := []string{}
	for _, result := range a.json()["results"].([]any) {
		names = append(names, fmt.Sprint(result.(object)["name"]))
	}
	return names
}

func server(ip string, port int) object {
	return object{"ip": object{"addr": ip, "type": "V4"}, "port": port}
}

func pool(name string, servers ...object) object {
	return object{"name": name, "servers": servers}
}

func vsvip(name string) object {
	return object{"name": name, "vip": []object{{"vip_id": "0", "auto_allocate_ip": true, "ipam_network_subnet": object{"network_ref": "/api/network/?name=vips"}}}}
}

func virtualService(name, vip, pool string, ports ...int) object {
	services := []object{}
	for _, port := range ports {
		services = append(services, object{"port": port})
	}
	return object{
		"name": name, "vsvip_ref": "/api/vsvip/?name=" + vip, "pool_ref": "/api/pool?name=" + pool, "services": services,
		"network_profile_ref": "/api/networkprofile?name=System-TCP-Proxy", "application_profile_ref": "/api/applicationprofile?name=System-L4-Application",
	}
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
