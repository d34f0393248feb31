package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
)

// What a provider asks of its load balancer is counted under the name that the load balancer has here, also what nobody answers.
func TestCallsAreCounted(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer server.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("p"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"avi", "bigip"} {
		for code, url := range map[string]string{"503": server.URL, "0": "https://" + closed.Addr().String()} {
			registry := prometheus.NewRegistry()
			calls, err := observeCalls(registry)
			if err != nil {
				t.Fatal(err)
			}
			urlFlag := map[string]string{"avi": "--avi-url=", "bigip": "--bigip-urls="}[kind] + url
			values, err := load("--provider="+kind, "--provider-name=core", urlFlag, "--"+kind+"-username=u", "--"+kind+"-password-file="+password, "--"+kind+"-insecure")
			if err != nil {
				t.Fatal(err)
			}
			b, err := balancers(values)
			if err != nil {
				t.Fatal(err)
			}
			p, err := b[0].build(providers.Owner{ClusterUID: "u", Instance: "n/i"}, zap.NewNop(), calls(b[0].name))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Observe(t.Context(), providers.Scope{}); providers.KindOf(err) != providers.Unavailable {
				t.Errorf("%s: %v", kind, err)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			text, err := testutil.GatherAndFormat(registry, expfmt.TypeTextPlain, "lbsync_provider_request_duration_seconds")
			if err != nil {
				t.Fatal(err)
			}
			if want := `_count{code="` + code + `",endpoint="login",method="POST",provider="core"} `; !strings.Contains(string(text), want) {
				t.Errorf("%s: nothing with %s in\n%s", kind, want, text)
			}
		}
	}
}
