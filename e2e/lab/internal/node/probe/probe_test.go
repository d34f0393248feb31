package probe

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestTally(t *testing.T) {
	for _, tc := range []struct{ answers, decided string }{
		{"++++", "..++"},
		{"--", ".."},
		{"---", "..-"},
		{"--+--+---", "........-"},
		{"++-+--++", ".+.....+"},
	} {
		tally := Tally{Success: 2, Failure: 3}
		if tc.answers == "++++" {
			tally.Success = 3
		}
		var got strings.Builder
		for _, a := range tc.answers {
			if tally.Add(a == '+') {
				got.WriteRune(a)
			} else {
				got.WriteRune('.')
			}
		}
		if got.String() != tc.decided {
			t.Errorf("%s: got %s, want %s", tc.answers, got.String(), tc.decided)
		}
	}
}

func server(t *testing.T, tls bool) (Target, int) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "example.org" || r.Header.Get("X") != "y" || r.URL.Query().Get("q") != "1" || !strings.HasPrefix(r.UserAgent(), "kube-probe/") {
			http.Error(w, "not as asked", http.StatusTeapot)
		}
	})
	mux.HandleFunc("/bad", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not well", http.StatusServiceUnavailable) })
	mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
	})
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/bad", http.StatusFound) })
	s := httptest.NewUnstartedServer(mux)
	if tls {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	port := int(netip.MustParseAddrPort(s.Listener.Addr().String()).Port())
	return Target{Host: "127.0.0.1", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}, Dial: (&net.Dialer{}).DialContext}, port
}

func TestHTTP(t *testing.T) {
	plain, port := server(t, false)
	secure, _ := server(t, true)
	headers := []corev1.HTTPHeader{{Name: "Host", Value: "example.org"}, {Name: "X", Value: "y"}}
	named := intstr.FromString("web")
	for name, tc := range map[string]struct {
		target Target
		action corev1.HTTPGetAction
		want   string // "" for healthy
	}{
		"ok":                 {plain, corev1.HTTPGetAction{Path: "/ok?q=1", Port: named, HTTPHeaders: headers}, ""},
		"by number":          {plain, corev1.HTTPGetAction{Path: "ok?q=1", Port: intstr.FromInt(port), HTTPHeaders: headers}, ""},
		"https, unverified":  {secure, corev1.HTTPGetAction{Path: "/ok?q=1", Port: named, Scheme: corev1.URISchemeHTTPS, HTTPHeaders: headers}, ""},
		"headers matter":     {plain, corev1.HTTPGetAction{Path: "/ok?q=1", Port: named}, "HTTP status 418: not as asked"},
		"bad":                {plain, corev1.HTTPGetAction{Path: "/bad", Port: named}, "HTTP status 503: not well"},
		"redirect away":      {plain, corev1.HTTPGetAction{Path: "/elsewhere", Port: named}, ""},
		"redirect to itself": {plain, corev1.HTTPGetAction{Path: "/here", Port: named}, "HTTP status 503"},
		"no such port":       {plain, corev1.HTTPGetAction{Port: intstr.FromString("none")}, `port "none": the container has no port of that name`},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, tc.target.Once(t.Context(), corev1.ProbeHandler{HTTPGet: &tc.action}), tc.want)
		})
	}
}

func check(t *testing.T, got Answer, want string) {
	t.Helper()
	if got.OK != (want == "") || !strings.Contains(got.Message, want) {
		t.Errorf("got %+v, want %q", got, want)
	}
}

func TestTCPAndExec(t *testing.T) {
	target, port := server(t, false)
	check(t, target.Once(t.Context(), corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}}), "")
	target.Host = "127.0.0.3"
	check(t, target.Once(t.Context(), corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port), Host: "127.0.0.1"}}), "")
	check(t, target.Once(t.Context(), corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}}), "refused")
	target.Exec = func(_ context.Context, command []string) (int, []byte, error) {
		switch command[0] {
		case "fails":
			return 3, []byte("because"), nil
		case "cannot":
			return 0, nil, errors.New("no such program")
		}
		return 0, nil, nil
	}
	exec := func(command string) corev1.ProbeHandler {
		return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}
	}
	check(t, target.Once(t.Context(), exec("works")), "")
	check(t, target.Once(t.Context(), exec("fails")), "exit status 3: because")
	check(t, target.Once(t.Context(), exec("cannot")), "no such program")
	check(t, target.Once(t.Context(), corev1.ProbeHandler{GRPC: &corev1.GRPCAction{}}), "not supported")
}

func TestWatchKeepsItsTimes(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	asked := make(chan struct{})
	answers := make(chan int)
	target := Target{Exec: func(context.Context, []string) (int, []byte, error) {
		asked <- struct{}{}
		return <-answers, nil, nil
	}}
	p := &corev1.Probe{
		InitialDelaySeconds: 5, PeriodSeconds: 7, FailureThreshold: 2,
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}},
	}
	ctx, cancel := context.WithCancel(t.Context())
	reports, done := make(chan Answer, 10), make(chan struct{})
	go func() { Watch(ctx, clock, p, target, func(a Answer) { reports <- a }); close(done) }()
	// after lets exactly so much time pass, and no probe may come a moment before.
	after := func(d time.Duration) {
		t.Helper()
		for !clock.HasWaiters() {
			time.Sleep(time.Millisecond)
		}
		clock.Step(d - time.Millisecond)
		if !clock.HasWaiters() {
			t.Errorf("asked before %s had passed", d)
		}
		clock.Step(time.Millisecond)
		<-asked
	}
	after(5 * time.Second)
	answers <- 1 // one failure of two
	after(7 * time.Second)
	answers <- 1
	if a := <-reports; a.OK {
		t.Errorf("got %+v, want the failure after two", a)
	}
	after(7 * time.Second)
	answers <- 0
	if a := <-reports; !a.OK {
		t.Errorf("got %+v, want success at once", a)
	}
	after(7 * time.Second)
	cancel()
	answers <- 1
	<-done
	if len(reports) != 0 {
		t.Error("reported after its end")
	}
}
