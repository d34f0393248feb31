package rest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// caOf writes the server's certificate to a file.
func caOf(t *testing.T, s *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	writeCA(t, file, s.Certificate().Raw)
	return file
}

func writeCA(t *testing.T, file string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start serves h and returns a client for it.
func start(t *testing.T, cfg Config, h http.HandlerFunc) (*Client, *httptest.Server) {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	cfg.BaseURL = s.URL
	if cfg.CAFile == "" && !cfg.Insecure {
		cfg.CAFile = caOf(t, s)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, s
}

func TestDo(t *testing.T) {
	var seen []string
	c, _ := start(t, Config{UserAgent: "lbsync/1", Observe: func(method, endpoint string, status int, took time.Duration) {
		if took < 0 {
			t.Error("negative duration")
		}
		seen = append(seen, method+" "+endpoint+" "+http.StatusText(status))
	}}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/pool" || r.URL.RawQuery != "name=a%20b" || r.Header.Get("User-Agent") != "lbsync/1" ||
			r.Header.Get("X-Test") != "1" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte("taken"))
	})
	answer, err := c.Do(t.Context(), Request{
		Method: http.MethodPost, Path: "/api/pool?name=a%20b", Header: http.Header{"X-Test": {"1"}}, Body: map[string]int{"a": 1}, Endpoint: "pool",
	})
	if err != nil || answer.Status != http.StatusConflict || string(answer.Body) != "taken" {
		t.Errorf("%+v, %v", answer, err)
	}
	if len(seen) != 1 || seen[0] != "POST pool Conflict" {
		t.Errorf("observed %q", seen)
	}
}

func TestRedirectIsAnAnswer(t *testing.T) {
	c, _ := start(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			t.Error("the redirect was followed")
		}
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	})
	if answer, err := c.Do(t.Context(), Request{Method: http.MethodGet, Path: "/"}); err != nil || answer.Status != http.StatusFound {
		t.Errorf("%+v, %v", answer, err)
	}
}

func TestSent(t *testing.T) {
	c, s := start(t, Config{Timeout: time.Second}, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			_, _ = io.Copy(io.Discard, r.Body) // only then the server sees the client leave
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	})
	do := func(ctx context.Context, path string) *Error {
		_, err := c.Do(ctx, Request{Method: http.MethodPost, Path: path, Body: 1})
		e, ok := errors.AsType[*Error](err)
		if !ok {
			t.Fatalf("%s: %v", path, err)
		}
		return e
	}
	if e := do(t.Context(), "/drop"); !e.Sent {
		t.Errorf("dropped: %+v", e)
	}
	if e := do(t.Context(), "/hang"); !e.Sent || !strings.Contains(e.Error(), "no answer within 1s") {
		t.Errorf("timed out: %+v", e)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if e := do(cancelled, "/never"); e.Sent || !errors.Is(e, context.Canceled) {
		t.Errorf("cancelled before: %+v", e)
	}
	if e := do(t.Context(), "relative"); e.Sent {
		t.Errorf("bad path: %+v", e)
	}
	s.Close()
	if e := do(t.Context(), "/down"); e.Sent || e.Kind() != providers.Unavailable {
		t.Errorf("nobody listens: %+v, %s", e, e.Kind())
	}
}

func TestBrokenAnswerIsNone(t *testing.T) {
	c, _ := start(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte(`{"count": 1`))
	})
	if _, err := c.Do(t.Context(), Request{Method: http.MethodGet, Path: "/"}); err == nil || !strings.Contains(err.Error(), "broke off") {
		t.Errorf("got %v", err)
	}
}

func TestInFlight(t *testing.T) {
	var now, most atomic.Int32
	release := make(chan struct{})
	full := make(chan struct{}, 10)
	c, _ := start(t, Config{MaxInFlight: 3}, func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		full <- struct{}{}
		<-release
	})
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() {
			if _, err := c.Do(t.Context(), Request{Method: http.MethodGet, Path: "/"}); err != nil {
				t.Error(err)
			}
		})
	}
	for range 3 {
		<-full
	}
	close(release)
	callers.Wait()
	if most.Load() != 3 {
		t.Errorf("%d at once, want 3", most.Load())
	}
}

func TestRateWaitsWithinTheContext(t *testing.T) {
	c, _ := start(t, Config{Rate: 0.001, Burst: 1}, func(http.ResponseWriter, *http.Request) {})
	if _, err := c.Do(t.Context(), Request{Method: http.MethodGet, Path: "/"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := c.Do(ctx, Request{Method: http.MethodGet, Path: "/"})
	if e, ok := errors.AsType[*Error](err); !ok || e.Sent || !strings.Contains(err.Error(), "rate limit") {
		t.Errorf("got %v", err)
	}
}

func TestCertificates(t *testing.T) {
	get := func(c *Client) error {
		c.Close() // so that the next request opens a connection
		_, err := c.Do(t.Context(), Request{Method: http.MethodGet, Path: "/"})
		return err
	}
	want := func(err error, hint string) {
		t.Helper()
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Sent || e.Kind() != providers.Misconfigured || !strings.Contains(e.Hint(), hint) {
			t.Errorf("got %v, want %q", err, hint)
		}
	}
	ok := func(http.ResponseWriter, *http.Request) {}
	file := filepath.Join(t.TempDir(), "ca.pem")
	c, s := start(t, Config{CAFile: file}, ok)
	want(get(c), "CA file: give the path")
	if err := os.WriteFile(file, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	want(get(c), "CA file: give the path")
	writeCA(t, file, foreign(t))
	want(get(c), "CA file: give the certificate that signed")
	writeCA(t, file, s.Certificate().Raw)
	if err := get(c); err != nil {
		t.Errorf("after the file was mended: %v", err)
	}
	c, _ = start(t, Config{ServerName: "avi.example"}, ok)
	want(get(c), "server name")
	c, _ = start(t, Config{Insecure: true}, ok)
	if err := get(c); err != nil {
		t.Errorf("insecure: %v", err)
	}

	plain := httptest.NewServer(http.HandlerFunc(ok))
	defer plain.Close()
	c, err := New(Config{BaseURL: strings.Replace(plain.URL, "http:", "https:", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if e, is := errors.AsType[*Error](get(c)); !is || !strings.Contains(e.Hint(), "does not speak TLS") {
		t.Errorf("plain HTTP: %+v", e)
	}
}

// foreign is a certificate that signed nothing here.
func foreign(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestBadConfig(t *testing.T) {
	good := Config{BaseURL: "https://avi.example"}
	for want, change := range map[string]func(*Config){
		`"http://a" is not https`: func(c *Config) { c.BaseURL = "http://a" },
		`"" is not https`:         func(c *Config) { c.BaseURL = "" },
		`/x" is not https`:        func(c *Config) { c.BaseURL = "https://a/x" },
		`"..." is not https`:      func(c *Config) { c.BaseURL = "https://u:geheim@a" },
		"timeout: 1ms":            func(c *Config) { c.Timeout = time.Millisecond },
		"flight: -1":              func(c *Config) { c.MaxInFlight = -1 },
		"rate: -1":                func(c *Config) { c.Rate = -1 },
		"burst: 5000":             func(c *Config) { c.Burst = 5000 },
	} {
		cfg := good
		change(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}
