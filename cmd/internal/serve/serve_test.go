package serve

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nplbridge/nplbridge/cmd/internal/buildinfo"
)

func get(t *testing.T, handler http.Handler, target string) (int, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, target, nil))
	return recorder.Code, recorder.Body.String()
}

func TestProbes(t *testing.T) {
	var ready Ready
	var dataplane error
	handler := Handler(&ready, Registry("demo", buildinfo.Read()))
	ready.Set(Check{"caches", func() error { return nil }}, Check{"dataplane", func() error { return dataplane }})

	for _, test := range []struct {
		name, target string
		err          error
		code         int
		body         string
	}{
		{"ready", "/readyz", nil, 200, "ok\n"},
		{"verbose", "/readyz?verbose", nil, 200, "[+]caches ok\n[+]dataplane ok\nok\n"},
		{"not ready", "/readyz", errors.New("no table"), 503, "[+]caches ok\n[-]dataplane: no table\nnot ready\n"},
		{"alive though not ready", "/livez", errors.New("no table"), 200, "ok\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dataplane = test.err
			if code, body := get(t, handler, test.target); code != test.code || body != test.body {
				t.Errorf("%d %q, want %d %q", code, body, test.code, test.body)
			}
		})
	}
	if code, _ := get(t, handler, "/"); code != http.StatusNotFound {
		t.Errorf("/ answers %d", code)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/readyz", nil))
	if recorder.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST /readyz answers %d", recorder.Code)
	}
}

func TestMetrics(t *testing.T) {
	registry := Registry("demo", buildinfo.Info{Version: "v1", Commit: "abc", Go: "go1"})
	code, body := get(t, Handler(&Ready{}, registry), "/metrics")
	if code != 200 || !strings.Contains(body, `demo_build_info{commit="abc",go="go1",version="v1"} 1`) ||
		!strings.Contains(body, "go_goroutines") || !strings.Contains(body, "process_open_fds") {
		t.Errorf("%d\n%s", code, body)
	}
	if problems, err := testutil.GatherAndLint(registry, "demo_build_info"); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

func TestListenInUse(t *testing.T) {
	first, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	if _, err := Listen(first.Addr().String()); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v", err)
	}
	if _, err := Listen("nonsense"); err == nil || strings.Contains(err.Error(), "listen tcp") {
		t.Errorf("got %v", err)
	}
}

// socketPath is short: a unix socket's path has at most 107 bytes.
func socketPath(t *testing.T) string {
	dir, err := os.MkdirTemp("", "npl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "run", "s.sock")
}

func TestStatusSocket(t *testing.T) {
	path := socketPath(t)
	if _, err := ReadStatus(t.Context(), path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nobody there: %v", err)
	}
	for _, generation := range []string{"first", "second"} {
		listener, err := ListenUnix(path)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
			t.Errorf("%v %v", info.Mode(), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- Serve(ctx, listener, StatusHandler(func() any { return map[string]string{"run": generation} }))
		}()
		if body, err := ReadStatus(t.Context(), path); err != nil || string(body) != `{"run":"`+generation+`"}` {
			t.Errorf("%s %v", body, err)
		}
		if _, err := ListenUnix(path); !errors.Is(err, ErrInUse) {
			t.Errorf("a second listener: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		// As after kill -9: the file stays and nobody listens.
		stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		stale.SetUnlinkOnClose(false)
		_ = stale.Close()
	}
}

func TestStatusIsReadOnly(t *testing.T) {
	handler := StatusHandler(func() any { return nil })
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(method, "/status", strings.NewReader("{}")))
		if body, _ := io.ReadAll(recorder.Body); recorder.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d %s", method, recorder.Code, body)
		}
	}
}
