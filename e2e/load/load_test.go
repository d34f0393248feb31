package load

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestRunCountsAnswersAndFailures(t *testing.T) {
	var n atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := n.Add(1)
		if i%5 == 0 {
			http.Error(w, "no", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, `{"pod":"p%d","node":"n","peer":%q}`, i%2, r.RemoteAddr)
	}))
	defer srv.Close()
	for _, keepAlive := range []bool{false, true} {
		n.Store(0)
		got := Run(t.Context(), 100, Options{
			Targets: []string{strings.TrimPrefix(srv.URL, "http://")}, Clients: 3, KeepAlive: keepAlive,
			Timeout: time.Minute, Dial: new(net.Dialer).DialContext,
		})
		if got.Requests != 100 || got.Failed != 20 || got.ByPod["p0"] != 40 || got.ByPod["p1"] != 40 {
			t.Errorf("keepAlive=%v: %+v, want 100 requests, 20 failed, 40 answers of each Pod", keepAlive, got)
		}
		if got.Peers["127.0.0.1"] != 80 || got.Ratio() != 1 || len(got.Failures) != 1 {
			t.Errorf("keepAlive=%v: peers %v, ratio %v, failures %v", keepAlive, got.Peers, got.Ratio(), got.Failures)
		}
	}
}

func TestStopReturnsEverythingCounted(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"pod":"p"}`) }))
	defer srv.Close()
	enough := make(chan struct{})
	var answers atomic.Int32
	l := Start(context.Background(), Options{
		Targets: []string{strings.TrimPrefix(srv.URL, "http://")}, Clients: 2, Timeout: time.Minute, Dial: new(net.Dialer).DialContext,
		OnAnswer: func(string, Answer, time.Time) {
			if answers.Add(1) == 50 {
				close(enough)
			}
		},
	})
	<-enough
	got := l.Stop()
	if got.Failed != 0 || got.Requests != int(answers.Load()) {
		t.Errorf("Stop: %d requests, %d failed, want %d requests, none failed", got.Requests, got.Failed, answers.Load())
	}
}
