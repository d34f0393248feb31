// Package serve answers for a running program: probes and metrics over HTTP, its status on a unix socket. Everything
// here is read-only.
package serve

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/nplbridge/nplbridge/cmd/internal/buildinfo"
)

// Check is one named condition of readiness; nil is good.
type Check struct {
	Name  string
	Check func() error
}

// Ready is the list of checks behind /readyz. It changes once: from what start-up waits for to the program's own.
type Ready struct{ checks atomic.Pointer[[]Check] }

// Set replaces the checks.
func (r *Ready) Set(checks ...Check) { r.checks.Store(&checks) }

// Handler serves /livez, /readyz and /metrics. /livez is good while the process answers at all: what the program
// depends on must not get it killed. ?verbose lists every check of /readyz; a failing one is always listed.
func Handler(ready *Ready, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", ready.serve)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}

func (r *Ready) serve(w http.ResponseWriter, request *http.Request) {
	var list strings.Builder
	failed := false
	if checks := r.checks.Load(); checks != nil {
		for _, c := range *checks {
			if err := c.Check(); err != nil {
				failed = true
				fmt.Fprintf(&list, "[-]%s: %v\n", c.Name, err)
			} else {
				fmt.Fprintf(&list, "[+]%s ok\n", c.Name)
			}
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	switch {
	case failed:
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprint(w, list.String(), "not ready\n")
	case request.URL.Query().Has("verbose"):
		_, _ = fmt.Fprint(w, list.String(), "ok\n")
	default:
		_, _ = fmt.Fprintln(w, "ok")
	}
}

// Registry returns a registry of the program's own, with the Go and process collectors and <prefix>_build_info.
func Registry(prefix string, build buildinfo.Info) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        prefix + "_build_info",
		Help:        "Always 1; the labels say which build runs.",
		ConstLabels: prometheus.Labels{"version": build.Version, "commit": build.Commit, "go": build.Go},
	})
	info.Set(1)
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		info,
	)
	return registry
}
