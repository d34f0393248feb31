package stories

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/nplbridge/nplbridge/e2e/load"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// pair start | pair stop replaces the one load balancer by a pair of them, "lb" and "lb-2", or the reverse.
func (s *story) pair(_ *testscript.TestScript, args []string) (string, error) {
	if args[0] == "start" {
		s.Lab.StopLoadBalancer()
		return "", s.Lab.StartPair(s.ctx)
	}
	if err := s.Lab.StopPair(s.ctx); err != nil {
		return "", err
	}
	return "", s.Lab.StartLoadBalancer(s.ctx)
}

// on HOST VERB... runs a verb for the load balancer on that host of a pair instead of the one on lb.
func on(s *story, ts *testscript.TestScript, args []string) (string, error) {
	run, ok := verbs()[args[1]]
	if !ok {
		return "", fmt.Errorf("on: there is no verb %q", args[1])
	}
	balancer, err := s.Lab.LoadBalancerAt(args[0])
	if err != nil {
		return "", err
	}
	there := *s
	there.On = balancer
	return run(&there, ts, args[2:])
}

// power off HOST | power on HOST of a pair. What runs there ends without a word to anybody; it is back and ready after "on".
func (s *story) power(_ *testscript.TestScript, args []string) (string, error) {
	balancer, err := s.Lab.LoadBalancerAt(args[1])
	if err != nil {
		return "", err
	}
	if args[0] == "off" {
		return "", balancer.PowerOff()
	}
	return "", balancer.PowerOn(s.ctx)
}

// holds HOST ADDRESS finds the VIP, "address:port", on exactly this host of a pair.
func (s *story) holds(_ *testscript.TestScript, args []string) (string, error) {
	vip, err := netip.ParseAddrPort(args[1])
	if err != nil {
		return "", err
	}
	var holders []string
	for _, balancer := range s.Lab.LoadBalancers() {
		shared, err := balancer.Shared()
		if err != nil {
			return "", err
		}
		if slices.Contains(shared, vip.Addr()) {
			holders = append(holders, balancer.Place())
		}
	}
	if !slices.Equal(holders, args[:1]) {
		return "", fmt.Errorf("%s is on %q, not on %s alone", vip, holders, args[0])
	}
	return "", nil
}

// servers SERVICE prints HAProxy's servers with their numbers.
func (s *story) servers(_ *testscript.TestScript, args []string) (string, error) {
	lines, err := s.Servers(args[0])
	if err == nil && len(lines) == 0 {
		err = errAbsent
	}
	return strings.Join(lines, "\n") + "\n", err
}

// answering ADDRESS prints which Pod each host that is no load balancer gets an answer from.
func (s *story) answering(_ *testscript.TestScript, args []string) (string, error) {
	var out strings.Builder
	for _, where := range append([]string{"client"}, s.Lab.Nodes()...) {
		r := load.Run(s.ctx, 1, load.Options{Targets: args, Timeout: 5 * time.Second, Dial: s.DialFrom(where)})
		if r.Failed > 0 {
			return out.String(), fmt.Errorf("from %s: %v", where, r.Failures)
		}
		fmt.Fprintln(&out, where, slices.Collect(maps.Keys(r.ByPod)))
	}
	return out.String(), nil
}

// clients SERVICE N fails if HAProxy remembers the members of another number of clients of the Service's port 80.
func (s *story) clients(_ *testscript.TestScript, args []string) (string, error) {
	n, err := s.Clients(args[0], 80)
	if err == nil && strconv.Itoa(n) != args[1] {
		err = fmt.Errorf("HAProxy remembers %d clients of %s, not %s", n, args[0], args[1])
	}
	return fmt.Sprintln(n), err
}

// outage is a load that is known to lose requests.
type outage struct {
	churn

	mu      sync.Mutex
	last    time.Time // of an answer on a new connection
	longest time.Duration
}

// outageTimeout is when a client gives up.
const outageTimeout = 2 * time.Second

// requestsAfter is how many requests in a row, on new connections, show that it is over.
const requestsAfter = 200

// outage start ADDRESS | outage end. The end waits until requests on new connections succeed, and prints what was lost, and for how long nobody
// was answered.
func (s *story) outage(_ *testscript.TestScript, args []string) (string, error) {
	if args[0] == "start" {
		o := &outage{last: time.Now()}
		short := s.client(args[1])
		short.Timeout = outageTimeout
		kept := short
		kept.KeepAlive = true
		short.OnAnswer = func(_ string, _ load.Answer, at time.Time) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.longest = max(o.longest, at.Sub(o.last))
			o.last = at
		}
		o.short, o.long = load.Start(s.ctx, short), load.Start(s.ctx, kept)
		s.lossy = o
		return "", nil
	}
	if s.lossy == nil {
		return "", errors.New("outage end: none was begun")
	}
	o := s.lossy
	s.lossy = nil
	var since load.Result
	err := view.Poll(s.ctx, func() error {
		now := o.short.Result()
		if now.Failed != since.Failed || since.Requests == 0 {
			since = now
		}
		if n := now.Requests - since.Requests; n < requestsAfter {
			return fmt.Errorf("only %d requests since the last failure: %v", n, now.Failures)
		}
		return nil
	})
	short, long := o.stop()
	out := fmt.Sprintf("%d of %d requests on new connections lost, %d of %d on kept ones; %v the longest without an answer\n",
		short.Failed, short.Requests, long.Failed, long.Requests, o.longest.Round(time.Millisecond))
	s.loud("%s", out)
	return out, err
}

// service stop haproxy|lbsync ends it as a service manager would; service start haproxy|lbsync begins again, and waits until it is ready.
func (s *story) service(_ *testscript.TestScript, args []string) (string, error) {
	type unit struct {
		stop  func()
		start func() error
		ready func(context.Context) error
	}
	b := s.Balancer()
	u, ok := map[string]unit{
		"haproxy": {b.StopHAProxy, b.StartHAProxy, b.HAProxyReady},
		"lbsync":  {b.StopLBSync, b.StartLBSync, b.LBSyncReady},
	}[args[1]]
	if !ok {
		return "", fmt.Errorf("service: there is no %q; use haproxy or lbsync", args[1])
	}
	if args[0] == "stop" {
		u.stop()
		return "", nil
	}
	if err := u.start(); err != nil {
		return "", err
	}
	return "", view.Poll(s.ctx, func() error { return u.ready(s.ctx) })
}
