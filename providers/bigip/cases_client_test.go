package bigip

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
	"github.com/nplbridge/nplbridge/providers/bigip/internal/client"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// The numbered cases of e2e/cases/bigip.yaml that are about logins, refusals and transactions.

// stepping advances a clock for as long as somebody waits for it.
func stepping(t *testing.T, c *testingclock.FakeClock, by time.Duration) {
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				if c.HasWaiters() {
					c.Step(by)
				}
			}
		}
	})
	t.Cleanup(func() { close(done); ended.Wait() })
}

func fakeClock() *testingclock.FakeClock { return testingclock.NewFakeClock(time.Now()) }

func TestBIGIP37ExpiredTokenIsOneLogin(t *testing.T) {
	b := newBench(t)
	p := b.open()
	c := p.groups[0].devices[0].client
	b.bring(p, providers.State{}, web(key(0), "192.0.2.10", member(0)))
	for _, how := range []struct {
		name string
		end  func()
	}{
		{"ended", b.EndTokens},
		{"expired", func() { b.Inject(bigipsim.Fault{Kind: bigipsim.ExpiredToken}) }},
	} {
		how.end()
		before, _, _ := b.Logins()
		b.ResetCounters()
		var callers sync.WaitGroup
		errs := make([]error, 50)
		for n := range errs {
			callers.Go(func() { _, errs[n] = c.Get(t.Context(), "/mgmt/tm/ltm/pool") })
		}
		callers.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: %v", how.name, err)
		}
		if after, _, _ := b.Logins(); after != before+1 {
			t.Errorf("%s: %d logins of 50 callers, want 1", how.name, after-before)
		}
		if n := b.Count("", "/mgmt/shared/"); n != 1 {
			t.Errorf("%s: %d calls about tokens, want 1", how.name, n)
		}
	}
	// A session that is refused again is an error after one more login.
	b.Inject(bigipsim.Fault{Kind: bigipsim.ExpiredToken, Path: "/mgmt/tm/", Times: -1})
	before, _, _ := b.Logins()
	if _, err := c.Get(t.Context(), "/mgmt/tm/ltm/pool"); providers.KindOf(err) != providers.Misconfigured {
		t.Errorf("%v", err)
	}
	if after, _, _ := b.Logins(); after != before+1 {
		t.Errorf("%d logins, want 1", after-before)
	}
}

func TestBIGIP38TooManyTokens(t *testing.T) {
	clock := fakeClock()
	b := newBench(t, func(c *bigipsim.Config) { c.Rules.MaxTokens, c.Clock = 3, clock })
	var others []*Provider
	for range 3 {
		q := b.open(WithClock(clock))
		b.observe(q, providers.State{})
		others = append(others, q)
	}
	p := b.open(WithClock(clock))
	b.ResetCounters()
	for range 20 {
		_, err := p.Observe(t.Context(), providers.Scope{})
		if providers.KindOf(err) != providers.Misconfigured || !strings.Contains(fmt.Sprint(err), "100 tokens are in use") || !strings.Contains(fmt.Sprint(err), "bigip.username") {
			t.Fatal(err)
		}
	}
	if n := b.Count(http.MethodPost, "/mgmt/shared/authn/login"); n != 1 {
		t.Errorf("%d logins, want 1", n)
	}
	clock.Step(61 * time.Second)
	_, _ = p.Observe(t.Context(), providers.Scope{})
	clock.Step(61 * time.Second) // the second pause is longer
	_, _ = p.Observe(t.Context(), providers.Scope{})
	if n := b.Count(http.MethodPost, "/mgmt/shared/authn/login"); n != 2 {
		t.Errorf("%d logins after two minutes, want 2", n)
	}
	b.ResetCounters()
	if err := others[0].Close(); err != nil {
		t.Fatal(err)
	}
	if n := b.Count(http.MethodDelete, "/mgmt/shared/authz/tokens/"); n != 1 {
		t.Errorf("%d tokens given back at exit, want 1", n)
	}
	clock.Step(10 * time.Minute)
	b.observe(p, providers.State{})
}

func TestBIGIP39BusyDevice(t *testing.T) {
	b := newBench(t)
	clock := fakeClock()
	stepping(t, clock, 100*time.Millisecond)
	p := b.open(WithClock(clock))
	now := web(key(0), "192.0.2.10", member(0))
	b.bring(p, providers.State{}, now)
	next := web(key(0), "192.0.2.10", drained(member(0)))
	b.ResetCounters()
	b.Inject(bigipsim.Fault{Kind: bigipsim.Busy, Method: http.MethodPatch, Times: 3})
	began := clock.Now()
	b.bring(p, now, next)
	if n := b.Count(http.MethodPatch, "/mgmt/tm/ltm/pool/"); n != 4 {
		t.Errorf("%d attempts, want 4", n)
	}
	if waited := clock.Since(began); waited < 300*time.Millisecond {
		t.Errorf("it waited %s for three attempts", waited)
	}
	b.observe(p, next)
	// Cancelling ends the wait at once, whatever the clock says.
	still := b.open(WithClock(testingclock.NewFakeClock(time.Now())))
	b.observe(still, next)
	b.Inject(bigipsim.Fault{Kind: bigipsim.Busy, Method: http.MethodPatch, Times: -1})
	ctx, cancel := context.WithCancel(t.Context())
	b.ResetCounters()
	result := make(chan error)
	go func() { result <- still.Apply(ctx, providertest.Diff(next, now))[key(0)] }()
	b.eventually("the first attempt", func() bool { return b.Count(http.MethodPatch, "/mgmt/tm/ltm/pool/") == 1 })
	cancel()
	if err := <-result; providers.KindOf(err) != providers.Unavailable || !strings.Contains(err.Error(), "asynchronous task") {
		t.Errorf("%v", err)
	}
	if n := b.Count(http.MethodPatch, "/mgmt/tm/ltm/pool/"); n != 1 {
		t.Errorf("%d attempts, want 1", n)
	}
}

func TestBIGIP40WhichRefusalsAreRepeated(t *testing.T) {
	b := newBench(t)
	clock := fakeClock()
	stepping(t, clock, 100*time.Millisecond)
	p := b.open(WithClock(clock))
	now := web(key(0), "192.0.2.10", member(0))
	b.bring(p, providers.State{}, now)
	b.Inject(bigipsim.Fault{Kind: bigipsim.LostMCPD, Method: http.MethodPatch})
	next := web(key(0), "192.0.2.10", drained(member(0)))
	b.bring(p, now, next)
	b.ResetCounters()
	clash, good := web(key(1), "192.0.2.10", member(1)), web(key(2), "192.0.2.12", member(2))
	results := p.Apply(t.Context(), providertest.Diff(providers.State{}, join(clash, good)))
	if err := results[key(1)]; providers.KindOf(err) != providers.Rejected || client.Code(err) != client.CodeVirtualClash {
		t.Errorf("%v", err)
	}
	commits := 0
	for _, c := range b.Calls() {
		if c.Method == http.MethodPatch && strings.Contains(c.Path, "/transaction/") {
			commits++
		}
	}
	if err, done := results[key(2)]; err != nil || !done || commits != 2 {
		t.Errorf("the other Service: %v; %d commits, want 2", err, commits)
	}
	b.observe(p, join(next, good))
}

func TestBIGIP41AnswersThatAreNoJSON(t *testing.T) {
	b := newBench(t)
	clock := fakeClock()
	stepping(t, clock, time.Second)
	p := b.open(WithClock(clock))
	now := web(key(0), "192.0.2.10", member(0))
	b.bring(p, providers.State{}, now)
	for name, fault := range map[string]bigipsim.Fault{
		"HTML":          {Kind: bigipsim.HTMLPage},
		"empty 503":     {Kind: bigipsim.EmptyBody},
		"empty 500":     {Kind: bigipsim.Answer, Status: 500},
		"empty 200":     {Kind: bigipsim.Answer, Status: 200},
		"HTML 200":      {Kind: bigipsim.Answer, Status: 200, Body: "<html>hello</html>", Type: "text/html"},
		"cut-off JSON":  {Kind: bigipsim.Answer, Status: 503, Body: `{"code":503,"message":"There is an active asyn`},
		"another shape": {Kind: bigipsim.Answer, Status: 200, Body: `["items", {"items": 7}]`},
		"redirect":      {Kind: bigipsim.Answer, Status: 302, Body: "moved"},
		"cut answer":    {Kind: bigipsim.Cut},
	} {
		fault.Times, fault.Path = -1, "/mgmt/tm/ltm"
		b.Inject(fault)
		seen, err := p.Observe(t.Context(), providers.Scope{})
		classified, ok := errors.AsType[*providers.Error](err)
		if !ok || classified.Kind != providers.Unavailable || len(seen.State.Pools) > 0 || strings.Contains(err.Error(), "<html") {
			t.Errorf("%s: %v, %d pools", name, err, len(seen.State.Pools))
		}
		b.Mend()
		b.observe(p, now)
	}
	b.ResetCounters()
	b.noWrites()
}

func TestBIGIP42TransactionIsAllOrNothing(t *testing.T) {
	b := newBench(t)
	p := b.open()
	bad := web(key(0), "192.0.2.10", member(0))
	bad.VirtualServers[0].Settings.Options = map[string]string{optionVLANs: "/Common/nowhere"}
	err := p.Apply(t.Context(), providertest.Diff(providers.State{}, bad))[key(0)]
	if client.Code(err) != client.CodeNotFound || !strings.Contains(err.Error(), "/Common/nowhere") || !strings.Contains(err.Error(), "01020036") {
		t.Errorf("%v", err)
	}
	if b.has(b.poolPath(key(0))) {
		t.Error("the pool is there although its virtual server was refused")
	}
	b.observe(p, providers.State{})
	b.bring(p, providers.State{}, web(key(0), "192.0.2.10", member(0)))
	b.observe(p, web(key(0), "192.0.2.10", member(0)))
}

func TestBIGIP43TransactionCalls(t *testing.T) {
	b := newBench(t)
	p := b.open()
	c := p.groups[0].devices[0].client
	pool := func(name string) client.Command {
		return client.Command{Method: http.MethodPost, Path: client.Pools.Path(), Body: map[string]any{"name": name, "partition": "k8s"}}
	}
	if err := c.Run(t.Context()); err != nil || len(b.writes()) > 0 {
		t.Errorf("no command: %v\n%s", err, lines(b.writes()))
	}
	if err := c.Run(t.Context(), pool("a"), pool("b")); err != nil {
		t.Fatal(err)
	}
	within := map[string]int{}
	for _, call := range b.writes() {
		if call.Method == http.MethodPatch && call.Transaction != "" {
			t.Errorf("the commit is part of the transaction: %s", lines([]bigipsim.Call{call}))
		}
		within[call.Method+" "+fmt.Sprint(call.Transaction != "")]++
	}
	if within["POST false"] != 1 || within["POST true"] != 2 || within["PATCH false"] != 1 {
		t.Errorf("calls %v", within)
	}
	// One that has expired is begun anew, once.
	gone := bigipsim.Fault{Kind: bigipsim.Answer, Method: http.MethodPatch, Path: "/transaction/", Status: 404, Body: `{"code":404,"message":"the transaction (1) was not found or has expired.","errorStack":[],"apiError":1}`}
	b.Inject(gone)
	if err := c.Run(t.Context(), pool("c"), pool("d")); err != nil || !b.has("ltm/pool/~k8s~d") {
		t.Errorf("%v", err)
	}
	gone.Times = -1
	b.Inject(gone)
	b.ResetCounters()
	if err := c.Run(t.Context(), pool("e"), pool("f")); client.Status(err) != 404 || b.Count(http.MethodPost, "/mgmt/tm/transaction") != 2 {
		t.Errorf("%v after %d transactions", err, b.Count(http.MethodPost, "/mgmt/tm/transaction"))
	}
}

func TestBIGIP45Monitors(t *testing.T) {
	b := newBench(t)
	p := b.open()
	kinds := map[string]providers.PoolSettings{
		"http":          {Monitor: providers.Monitor{Type: providers.MonitorHTTP, Path: "/a", Host: "shop.example", Interval: 7 * time.Second, Fall: 4, Rise: 3, Timeout: 2 * time.Second}},
		"https":         {Monitor: providers.Monitor{Type: providers.MonitorHTTPS}},
		"tcp":           {Monitor: providers.Monitor{Type: providers.MonitorTCP, Interval: 3 * time.Second}},
		"udp":           {Monitor: providers.Monitor{Type: providers.MonitorUDP, Interval: 3 * time.Second}},
		"gateway-icmp":  {Monitor: providers.Monitor{Interval: 3 * time.Second}, Options: map[string]string{optionMonitor: "gateway-icmp"}},
		"tcp-half-open": {Monitor: providers.Monitor{Interval: 3 * time.Second}, Options: map[string]string{optionMonitor: "tcp-half-open"}},
	}
	now := providers.State{}
	for _, kind := range sortedKeys(kinds) {
		next := web(key(0), "192.0.2.10", member(0))
		next.Pools[0].Settings = kinds[kind]
		b.bring(p, now, next)
		b.observe(p, next)
		now = next
		name := b.names().of(key(0), "monitor "+kind, "-"+kind)
		m := b.admin("GET", "ltm/monitor/"+kind+"/~k8s~"+name, nil)
		if m["destination"] != "*:*" {
			t.Errorf("%s: destination %v", kind, m["destination"])
		}
		if kind == "http" && (m["interval"] != 7.0 || m["timeout"] != 23.0 || m["timeUntilUp"] != 14.0 ||
			m["send"] != `GET /a HTTP/1.1\r\nHost: shop.example\r\nConnection: Close\r\n\r\n`) {
			t.Errorf("%s: %v", kind, m)
		}
		for _, other := range sortedKeys(kinds) {
			if other != kind && b.has("ltm/monitor/"+other+"/~k8s~"+b.names().of(key(0), "monitor "+other, "-"+other)) {
				t.Errorf("%s: the monitor of before, %s, is still there", kind, other)
			}
		}
	}
	// However the device writes the rule, it is the same one.
	b.admin("POST", "ltm/monitor/tcp", map[string]any{"name": "mine", "partition": "k8s"})
	for _, rule := range []string{"/Common/http and /Common/tcp", "/k8s/mine and /Common/http", "min 1 of /Common/http /k8s/mine", "/k8s/mine"} {
		next := web(key(0), "192.0.2.10", member(0))
		next.Pools[0].Settings.Monitor = providers.Monitor{Type: providers.MonitorExisting, Name: rule}
		b.bring(p, now, next)
		b.observe(p, next)
		b.ResetCounters()
		b.bring(b.open(), providers.State{}, next)
		b.noWrites()
		now = next
	}
	if !parseRule("min 1 of { /Common/b /Common/a } ").equal(parseRule("min 1 of /Common/a /Common/b")) || parseRule("/a and /b ").equal(parseRule("min 1 of /a /b")) {
		t.Error("rules are not compared by what they mean")
	}
	bad := web(key(0), "192.0.2.10", member(0))
	bad.Pools[0].Settings.Monitor = providers.Monitor{Type: providers.MonitorExisting, Name: "/Common/nowhere"}
	if err := p.Apply(t.Context(), providertest.Diff(now, bad))[key(0)]; providers.KindOf(err) != providers.Rejected || !strings.Contains(err.Error(), "/Common/nowhere") {
		t.Errorf("%v", err)
	}
}

func TestBIGIP46CollectionsWithoutItems(t *testing.T) {
	for _, items := range []bool{false, true} {
		b := newBench(t, func(c *bigipsim.Config) { c.Rules.EmptyItems = items })
		p := b.open()
		b.observe(p, providers.State{})
		all, err := p.groups[0].devices[0].client.List(t.Context(), client.Pools, client.ListOptions{Partition: "k8s", Expand: true})
		if err != nil || len(all) != 0 {
			t.Errorf("items shown %v: %d objects, %v", items, len(all), err)
		}
		want := providers.State{Pools: web(key(0), "192.0.2.10").Pools} // without members
		b.bring(p, providers.State{}, want)
		b.observe(p, want)
	}
}

func TestBIGIP47SavedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		delay time.Duration
		want  int
	}{"a minute": {time.Minute, 1}, "never": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			clock := fakeClock()
			b.cfg.SaveDelay, b.cfg.SyncDelay = c.delay, 0
			p := b.open(WithClock(clock))
			saves := func() int { return b.Count(http.MethodPost, "/mgmt/tm/sys/config") }
			b.observe(p, providers.State{})
			clock.Step(time.Hour)
			var now providers.State
			for n := range 100 {
				next := web(key(0), "192.0.2.10", member(n))
				b.bring(p, now, next)
				now = next
				clock.Step(100 * time.Millisecond)
			}
			if n := saves(); n != 0 {
				t.Fatalf("%d saves before the time", n)
			}
			if c.delay == 0 {
				clock.Step(time.Hour)
				if err := p.Close(); err != nil || saves() != 0 {
					t.Errorf("%v, %d saves", err, saves())
				}
				return
			}
			b.eventually("somebody waits for the clock", clock.HasWaiters)
			clock.Step(51 * time.Second) // a minute after the first change
			b.eventually("a save", func() bool { return saves() == 1 })
			b.Reboot()
			b.observe(p, now) // so it was kept
			clock.Step(time.Hour)
			b.observe(p, now)
			if n := saves(); n != c.want {
				t.Errorf("%d saves, want %d", n, c.want)
			}
			// What is not saved yet is saved at exit.
			b.bring(p, now, providers.State{})
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			b.Reboot()
			if n := saves(); n != 2 || b.has(b.poolPath(key(0))) {
				t.Errorf("%d saves, want 2", n)
			}
		})
	}
}

func TestBIGIP51SecretsAreNowhere(t *testing.T) {
	b := newBench(t, func(c *bigipsim.Config) { c.Rules.MaxLoginFailures = 100 })
	core, logged := observer.New(zapcore.DebugLevel)
	var mu sync.Mutex
	var seen []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf(format, args...))
	}
	secrets := []string{testPassword}
	open := func(basic bool) *Provider {
		cfg := b.cfg
		cfg.BasicAuth = basic
		p, err := New(cfg, b.owner, zap.New(core), WithObserver(func(method, endpoint string, status int, took time.Duration) {
			note("%s %s %d %s", method, endpoint, status, took)
		}), WithClock(fakeClock()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	now := web(key(0), "192.0.2.10", member(0))
	for _, basic := range []bool{false, true} {
		p := open(basic)
		for k, err := range p.Apply(t.Context(), providertest.Diff(providers.State{}, now)) {
			note("%s %v", k, err)
		}
		own := secretsOf(p) // another login's token is just a text to this one
		secrets = append(secrets, own...)
		// A device that repeats what it was told, in every place.
		for _, answer := range []bigipsim.Fault{
			{Status: 400, Body: `{"code":400,"message":"no ` + strings.Join(own, " ") + `"}`}, {Status: 401, Body: `{"token":"` + own[len(own)-1] + `"}`},
			{Status: 500, Body: "<html>" + strings.Join(own, " ")}, {Status: 404, Body: testPassword}, {Status: 200, Body: testPassword},
		} {
			answer.Kind, answer.Times = bigipsim.Answer, -1
			b.Inject(answer)
			_, err := p.Observe(t.Context(), providers.Scope{})
			note("%v", err)
			for k, err := range p.Apply(t.Context(), providertest.Diff(now, providers.State{})) {
				note("%s %v %+v", k, err, err)
			}
			b.Mend()
		}
		b.write(b.cfg.PasswordFile, "wrong-password")
		b.EndTokens()
		_, err := p.Observe(t.Context(), providers.Scope{})
		note("%v", err)
		b.write(b.cfg.PasswordFile, testPassword)
		_ = p.Close()
	}
	for _, entry := range logged.All() {
		note("%s %v", entry.Message, entry.ContextMap())
	}
	if len(secrets) < 4 || len(seen) < 20 {
		t.Fatalf("%d secrets and %d texts, so this test shows nothing", len(secrets), len(seen))
	}
	for _, text := range seen {
		for _, secret := range append(secrets, "wrong-password") {
			if strings.Contains(text, secret) {
				t.Errorf("a secret stands in %q", text)
			}
		}
	}
}

func secretsOf(p *Provider) []string { return p.groups[0].devices[0].client.Secrets() }

func TestBIGIP52TwoInFlight(t *testing.T) {
	b := newBench(t)
	p := b.open()
	b.observe(p, providers.State{})
	b.ResetCounters()
	b.Inject(bigipsim.Fault{Kind: bigipsim.Slow, Times: -1, Delay: 200 * time.Microsecond})
	const pools, rounds = 250, 4 // 1000 changes
	var workers sync.WaitGroup
	slots := make(chan struct{}, p.Capabilities().Concurrency*4) // more than the provider promises to take
	for n := range pools {
		workers.Go(func() {
			now := providers.State{}
			for round := range rounds {
				next := providers.State{Pools: web(key(n), "192.0.2.10", member(n*rounds+round)).Pools}
				slots <- struct{}{}
				if err := p.Apply(t.Context(), providertest.Diff(now, next))[key(n)]; err != nil {
					t.Errorf("%s: %v", key(n), err)
				}
				<-slots
				now = next
			}
		})
	}
	workers.Wait()
	if most := b.MostInFlight(); most > 2 || most < 1 {
		t.Errorf("%d requests in flight, want 2 at most", most)
	}
	var want providers.State
	for n := range pools {
		want = join(want, providers.State{Pools: web(key(n), "192.0.2.10", member(n*rounds+rounds-1)).Pools})
	}
	b.observe(p, want)
}
