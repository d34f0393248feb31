package avi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/avisim"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// The numbered cases of e2e/cases/avi.yaml that a provider can show.

func TestAVI37NothingChangedIsNothingWritten(t *testing.T) {
	c := newController(t)
	p := c.open()
	var members []providers.Member
	for n := range 5 {
		m := member(n)
		m.Address = netip.AddrPortFrom(netip.MustParseAddr("10.1.0.1"), uint16(61000+n)) // all on one Node
		members = append(members, m)
	}
	want := web(key(0), "192.0.2.201", members...)
	c.bring(p, providers.State{}, want)
	pool := c.object("pool", "shop-web-a")["name"].(string)
	calls := c.since()
	for range 100 {
		if err := c.Edit("pool", pool, func(o map[string]any) { // the Controller may keep them in any order
			servers := o["servers"].([]any)
			rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
		}); err != nil {
			t.Fatal(err)
		}
		got := c.observe(p, want)
		if diff := providertest.Diff(got.State, want); !diff.Empty() {
			t.Fatalf("a difference: %+v", diff)
		}
		again := providertest.Diff(providers.State{}, want) // also when it is told to make what is there
		for k, err := range p.Apply(t.Context(), again) {
			if err != nil {
				t.Fatalf("%s: %v", k, err)
			}
		}
	}
	if w := writes(calls()); len(w) > 0 {
		t.Errorf("%d writes:\n%s", len(w), lines(w))
	}
}

func TestAVI38DriftIsRepairedAndForeignPoolsStay(t *testing.T) {
	c := newController(t)
	p := c.open()
	verify := c.plantForeign(t)
	two := providers.Key{Namespace: "shop", Service: "two", Port: 53, Protocol: providers.UDP}
	http := key(0)
	want := merge(web(http, "192.0.2.201", member(0), member(1), member(2)), web(two, "192.0.2.202", member(3)),
		web(providers.Key{Namespace: "shop", Service: "two", Port: 53, Protocol: providers.TCP}, "192.0.2.202", member(4)))
	want.Pools[1].Settings = providers.PoolSettings{
		Algorithm: providers.LeastConnections, Persistence: providers.Persistence{Kind: providers.SourceAddress},
		Monitor: providers.Monitor{Type: providers.MonitorHTTP, Path: "/ok"}, SlowStart: 5 * time.Minute,
	}
	c.bring(p, providers.State{}, want)
	c.observe(p, want)
	servers := func(o map[string]any) []any { return o["servers"].([]any) }
	for name, edit := range map[string]struct {
		typ, object string
		change      func(map[string]any)
	}{
		"member removed": {"pool", p.names.pool(http), func(o map[string]any) { o["servers"] = servers(o)[1:] }},
		"all removed":    {"pool", p.names.pool(http), func(o map[string]any) { delete(o, "servers") }},
		"member added": {"pool", p.names.pool(http), func(o map[string]any) {
			o["servers"] = append(servers(o), map[string]any{"ip": map[string]any{"addr": "10.7.7.7", "type": "V4"}, "port": 1})
		}},
		"member moved":    {"pool", p.names.pool(http), func(o map[string]any) { servers(o)[0].(map[string]any)["port"] = 1 }},
		"member weighed":  {"pool", p.names.pool(http), func(o map[string]any) { servers(o)[0].(map[string]any)["ratio"] = 7 }},
		"member unmarked": {"pool", p.names.pool(http), func(o map[string]any) { delete(servers(o)[0].(map[string]any), "external_uuid") }},
		"algorithm":       {"pool", p.names.pool(two), func(o map[string]any) { o["lb_algorithm"] = "LB_ALGORITHM_RANDOM" }},
		"no monitor":      {"pool", p.names.pool(two), func(o map[string]any) { delete(o, "health_monitor_refs") }},
		"no persistence":  {"pool", p.names.pool(two), func(o map[string]any) { delete(o, "application_persistence_profile_ref") }},
		"graceful":        {"pool", p.names.pool(http), func(o map[string]any) { o["graceful_disable_timeout"] = 0 }},
		"ramp":            {"pool", p.names.pool(two), func(o map[string]any) { o["connection_ramp_duration"] = 0 }},
		"port added":      {"virtualservice", p.names.service(serviceOf(http)), func(o map[string]any) { o["services"] = append(o["services"].([]any), map[string]any{"port": 9999}) }},
		"port changed":    {"virtualservice", p.names.service(serviceOf(two)), func(o map[string]any) { o["services"].([]any)[0] = map[string]any{"port": 54} }},
		"profile":         {"virtualservice", p.names.service(serviceOf(http)), func(o map[string]any) { o["network_profile_ref"] = "/api/networkprofile?name=System-TCP-Fast-Path" }},
		"no policy set":   {"virtualservice", p.names.service(serviceOf(two)), func(o map[string]any) { delete(o, "l4_policies") }},
		"ports' marker":   {"virtualservice", p.names.service(serviceOf(two)), func(o map[string]any) { o["markers"].([]any)[3].(map[string]any)["values"] = []any{"53/TCP=53"} }},
		"rules":           {"l4policyset", p.names.service(serviceOf(two)), func(o map[string]any) { delete(o, "l4_connection_policy") }},
		"address's family": {"vsvip", c.object("vsvip", "192.0.2.201")["name"].(string), func(o map[string]any) {
			o["vip"].([]any)[0].(map[string]any)["ip6_address"] = map[string]any{"addr": "2001:db8::9", "type": "V6"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.Edit(edit.typ, edit.object, edit.change); err != nil {
				t.Fatal(err)
			}
			got, err := p.Observe(t.Context(), providers.Scope{})
			if err != nil {
				t.Fatal(err)
			}
			diff := providertest.Diff(got.State, want)
			if diff.Empty() {
				t.Fatal("it was not seen")
			}
			for k, err := range p.Apply(t.Context(), diff) {
				if err != nil {
					t.Errorf("%s: %v", k, err)
				}
			}
			c.observe(p, want)
			verify(t)
		})
	}
}

func merge(states ...providers.State) (out providers.State) {
	for _, s := range states {
		out.Pools = append(out.Pools, s.Pools...)
		out.VirtualServers = append(out.VirtualServers, s.VirtualServers...)
	}
	slices.SortFunc(out.Pools, func(a, b providers.Pool) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(out.VirtualServers, func(a, b providers.VirtualServer) int { return a.Key.Compare(b.Key) })
	return out
}

func TestAVI39ClustersOnOneController(t *testing.T) {
	c := newController(t)
	c.cfg.Prefix = "prod"
	prod := c.open()
	dev := &controller{Server: c.Server, t: t, cfg: c.cfg, owner: c.owner}
	dev.cfg.Prefix, dev.owner.ClusterUID = "dev-prod", "0f4c5b6e-aaaa-4000-8000-000000000002"
	q := dev.open()
	mine, theirs := web(key(0), "192.0.2.201", member(0)), web(key(0), "192.0.2.202", member(1))
	c.bring(prod, providers.State{}, mine)
	dev.bring(q, providers.State{}, theirs)
	c.observe(prod, mine)
	dev.observe(q, theirs)
	c.bring(prod, mine, providers.State{})
	c.observe(prod, providers.State{})
	dev.observe(q, theirs)
}

func TestAVI40FiftyWorkersLogInOnce(t *testing.T) {
	c := newController(t)
	c.cfg.MaxInFlight = 50
	p := c.open()
	want := providers.State{}
	for n := range 50 {
		want = merge(want, web(key(n), fmt.Sprintf("192.0.2.%d", 101+n), member(n)))
	}
	c.bring(p, providers.State{}, want)
	before := c.Snapshot().Logins
	c.EndSessions()
	var workers sync.WaitGroup
	for n := range 50 {
		workers.Go(func() {
			now := want.Pools[n]
			now.Members = append(slices.Clone(now.Members), member(100+n))
			change := providers.Changes{Pools: []providers.PoolChange{{Key: now.Key, Old: &want.Pools[n], New: &now}}}
			for k, err := range p.Apply(t.Context(), change) {
				if err != nil {
					t.Errorf("%s: %v", k, err)
				}
			}
		})
	}
	workers.Wait()
	if n := c.Snapshot().Logins - before; n != 1 {
		t.Errorf("%d logins, want 1", n)
	}
}

func TestAVI41WrongPasswordIsNotHammered(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	c := newController(t, func(cfg *avisim.Config) { cfg.Now = clock.Now })
	c.write(c.cfg.PasswordFile, "an-old-password")
	p := c.open(WithClock(clock))
	for range 1800 { // half an hour of a caller that asks every second
		_, err := p.Observe(t.Context(), providers.Scope{})
		if providers.KindOf(err) != providers.Misconfigured || !strings.Contains(err.Error(), "avi.passwordFile") || strings.Contains(err.Error(), "an-old") {
			t.Fatalf("got %v", err)
		}
		clock.Step(time.Second)
	}
	if s := c.Snapshot(); s.Locked || s.RejectedLogins > 6 || s.RejectedLogins < 3 {
		t.Errorf("%d logins were rejected, locked: %v; want 3 to 6", s.RejectedLogins, s.Locked)
	}
	c.write(c.cfg.PasswordFile, testPassword)
	c.observe(p, providers.State{})
	c.SetPassword("a-third-password") // and once more, as a password is rotated
	c.EndSessions()
	if _, err := p.Observe(t.Context(), providers.Scope{}); providers.KindOf(err) != providers.Misconfigured {
		t.Errorf("with the replaced password: %v", err)
	}
	c.write(c.cfg.PasswordFile, "a-third-password")
	c.observe(p, providers.State{})
}

func TestAVI42ConcurrentWriterKeepsItsField(t *testing.T) {
	c := newController(t)
	p := c.open()
	before := web(key(0), "192.0.2.201", member(0), member(1))
	c.bring(p, providers.State{}, before)
	if err := c.Edit("pool", p.names.pool(key(0)), func(o map[string]any) {
		o["description"] = "mine"
		o["servers"].([]any)[0].(map[string]any)["hostname"] = "by-hand"
	}); err != nil {
		t.Fatal(err)
	}
	c.ResetCounts()
	after := web(key(0), "192.0.2.201", member(0), member(2))
	c.bring(p, before, after)
	counts := c.Counts()
	if counts[avisim.Count{Method: "PUT", Endpoint: "/api/pool/*", Status: 412}] != 1 || counts[avisim.Count{Method: "PUT", Endpoint: "/api/pool/*", Status: 200}] != 1 {
		t.Errorf("calls %v, want one PUT refused and one taken", counts)
	}
	c.observe(p, after)
	now := c.Snapshot().Object("pool", p.names.pool(key(0)))
	if now["description"] != "mine" || now["servers"].([]any)[0].(map[string]any)["hostname"] != "by-hand" {
		t.Errorf("what somebody else wrote is gone: %v", now)
	}
}

func TestAVI43LostAnswersMakeNoDuplicates(t *testing.T) {
	for name, fault := range map[string]avisim.Fault{
		"dropped": {Kind: avisim.DropAfter, Method: "POST"},
		"cut":     {Kind: avisim.Cut, Method: "POST"},
		"late":    {Method: "POST", Delay: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t)
			c.cfg.RequestTimeout = time.Second
			p := c.open()
			c.observe(p, providers.State{})
			two := providers.Key{Namespace: "shop", Service: key(0).Service, Port: 443, Protocol: providers.TCP}
			want := merge(web(key(0), "192.0.2.201", member(0)), web(two, "192.0.2.201", member(1)))
			want.Pools[0].Settings.Monitor = providers.Monitor{Type: providers.MonitorHTTP}
			want.Pools[0].Settings.Persistence.Kind = providers.SourceAddress
			for _, typ := range []string{typePool, typeVirtualService, typeVsVip, typeL4PolicySet, typeMonitor, typePersistence} {
				fault.Path = "/api/" + typ
				c.Fail(fault)
			}
			c.bring(p, providers.State{}, want)
			c.observe(p, want)
			counts := c.Counts()
			for typ, n := range map[string]int{typePool: 2, typeVirtualService: 1, typeVsVip: 1, typeL4PolicySet: 1, typeMonitor: 1, typePersistence: 1} {
				made, total := 0, 0
				for _, o := range c.Snapshot().Objects[typ] {
					if strings.HasPrefix(o["name"].(string), "nplbridge--") {
						made++
					}
				}
				for count, times := range counts {
					if count.Method == http.MethodPost && count.Endpoint == "/api/"+typ {
						total += times
					}
				}
				// One that is only late cannot be seen yet: it is sent again, and refused or found.
				if made != n || total < n || (total > n && name != "late") {
					t.Errorf("%d of type %s by %d calls, want %d each", made, typ, total, n)
				}
			}
		})
	}
}

func TestAVI44ForeignObjectInTheWay(t *testing.T) {
	c := newController(t)
	p := c.open()
	c.observe(p, providers.State{})
	name := p.names.pool(key(0))
	if _, err := c.Create("pool", "", map[string]any{"name": name, "cloud_ref": "/api/cloud?name=Default-Cloud", "description": "not yours"}); err != nil {
		t.Fatal(err)
	}
	before := c.Snapshot().Object("pool", name)
	want := web(key(0), "192.0.2.201", member(0))
	err := p.Apply(t.Context(), providertest.Diff(providers.State{}, want))[key(0)]
	if providers.KindOf(err) != providers.Conflict || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "belongs to somebody else") {
		t.Fatalf("got %v", err)
	}
	if now := c.Snapshot().Object("pool", name); !reflect.DeepEqual(now, before) {
		t.Errorf("it was touched: %v", now)
	}
	if got := c.observe(p, providers.State{}).Foreign; !slices.Equal(got, []string{"pool " + name}) {
		t.Errorf("foreign: %q", got)
	}
	if err := c.Delete("pool", name); err != nil {
		t.Fatal(err)
	}
	if got := c.observe(p, providers.State{}).Foreign; len(got) != 0 {
		t.Errorf("foreign after it is gone: %q", got)
	}
	c.bring(p, providers.State{}, want)
	c.observe(p, want)
}

func TestAVI45ControllerDownForTenMinutes(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	c := newController(t)
	p := c.open(WithClock(clock))
	var want, more providers.State
	for n := range 8 {
		want = merge(want, web(key(n), fmt.Sprintf("192.0.2.%d", 101+n), member(n)))
		more = merge(more, web(key(n), fmt.Sprintf("192.0.2.%d", 101+n), member(n), member(100+n)))
	}
	c.bring(p, providers.State{}, want)
	calls := c.since()
	c.Fail(avisim.Fault{Kind: avisim.Answer, Status: http.StatusServiceUnavailable, Times: -1})
	down := clock.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var workers sync.WaitGroup
	for n := range 8 { // eight workers that never rest
		workers.Go(func() {
			change := providers.Changes{Pools: []providers.PoolChange{{Key: more.Pools[n].Key, Old: &want.Pools[n], New: &more.Pools[n]}}}
			for {
				err := p.Apply(ctx, change)[more.Pools[n].Key]
				if err == nil || ctx.Err() != nil {
					return
				}
				if kind := providers.KindOf(err); kind != providers.Unavailable {
					t.Errorf("got %s: %v", kind, err)
					return
				}
			}
		})
	}
	for clock.Since(down) < 10*time.Minute {
		c.eventually("somebody waits", clock.HasWaiters)
		clock.Step(time.Second)
	}
	// Pauses grow to 15 s, give or take half, so ten minutes have 40 to 80 attempts after the eight that were on their way.
	if n := len(calls()); n < 20 || n > 120 {
		t.Errorf("%d calls in ten minutes", n)
	}
	c.Mend()
	c.EndSessions() // the leader is another one
	done := make(chan struct{})
	go func() { workers.Wait(); close(done) }()
	c.eventually("all workers are done", func() bool {
		clock.Step(time.Second)
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	c.observe(p, more)
}

func TestAVI46ListsFollowNextByPathOnly(t *testing.T) {
	c := newController(t, func(cfg *avisim.Config) { cfg.URLHost = "controller.example:4443" })
	p := c.open()
	names := names{c.cfg.Prefix, c.owner}
	want := providers.State{}
	for n := range 450 {
		k := providers.Key{Namespace: "shop", Service: fmt.Sprintf("web-%03d", n), Port: 80, Protocol: providers.TCP}
		want.Pools = append(want.Pools, providers.Pool{Key: k})
		if _, err := c.Create("pool", "", map[string]any{
			"name": names.pool(k), "cloud_ref": "/api/cloud?name=Default-Cloud", "created_by": names.createdBy(), "lb_algorithm": "LB_ALGORITHM_ROUND_ROBIN",
			"graceful_disable_timeout": 60, "health_monitor_refs": []string{"/api/healthmonitor?name=System-TCP"},
			"markers": names.markers(marker{markService, []string{serviceOf(k).String()}}, marker{markPort, []string{"80/TCP"}}),
		}); err != nil {
			t.Fatal(err)
		}
	}
	calls := c.since()
	c.observe(p, want)
	pages := 0
	for _, call := range calls() {
		if call.Endpoint == "/api/pool" {
			pages++
		}
	}
	if pages != 3 {
		t.Errorf("%d pages of pools, want 3", pages)
	}
}

func TestAVI47FiveThousandMembers(t *testing.T) {
	for name, rules := range map[string]avisim.Rules{"PATCH merges": {Duplicates: avisim.MergeDuplicates}, "PATCH refuses": {}} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, func(cfg *avisim.Config) { cfg.Rules = rules })
			p := c.open()
			all := make([]providers.Member, 5001)
			for n := range all {
				all[n] = member(n)
			}
			slices.SortFunc(all, providers.CompareMembers)
			before := web(key(0), "192.0.2.201", all[:4999]...)
			c.bring(p, providers.State{}, before)
			draining := slices.Clone(all[:5000])
			draining[17].State = providers.Draining
			const small = 2 << 10
			for _, step := range []struct {
				what    string
				members []providers.Member
				most    int // bytes
			}{
				{"one more", all[:5000], small},
				{"one drains", draining, map[bool]int{true: small, false: 4 << 20}[name == "PATCH merges"]},
				{"one leaves and another comes", append(slices.Clone(draining[:17]), draining[18:]...), small},
				{"another one comes as one leaves", slices.Concat(draining[:17], draining[18:4999], all[5000:]), 2 * small},
			} {
				after := web(key(0), "192.0.2.201", step.members...)
				calls := c.since()
				c.replace(p, before, after)
				sent := 0
				for _, call := range writes(calls()) {
					sent += call.Sent
				}
				if sent == 0 || sent > step.most {
					t.Errorf("%s: %d bytes sent, want at most %d", step.what, sent, step.most)
				}
				before = after
			}
			c.observe(p, before)
			tooMany := web(key(0), "192.0.2.201", all...)
			err := p.Apply(t.Context(), providers.Changes{Pools: []providers.PoolChange{{Key: key(0), Old: &before.Pools[0], New: &tooMany.Pools[0]}}})[key(0)]
			if providers.KindOf(err) != providers.Rejected || !strings.Contains(err.Error(), "5001 members in one pool, the most is 5000") {
				t.Errorf("5001 members: %v", err)
			}
			c.observe(p, before)
		})
	}
}

func TestAVI48RollingUpdateIsCoalesced(t *testing.T) {
	c := newController(t)
	p := c.open()
	const services, pods = 20, 50
	var states []providers.State
	for n := range services {
		members := make([]providers.Member, pods)
		for i := range members {
			members[i] = member(n*pods + i)
		}
		slices.SortFunc(members, providers.CompareMembers)
		states = append(states, web(key(n), fmt.Sprintf("192.0.2.%d", 101+n), members...))
		c.bring(p, providers.State{}, states[n])
	}
	calls, applies := c.since(), 0
	var workers sync.WaitGroup
	var mu sync.Mutex
	for n := range services {
		workers.Go(func() {
			now := states[n]
			for i := range pods { // one Pod is ready, another one drains, the one before that is gone: that is one change
				members := slices.Clone(now.Pools[0].Members)
				members = slices.DeleteFunc(members, func(m providers.Member) bool { return m.State == providers.Draining })
				at := slices.IndexFunc(members, func(m providers.Member) bool { return m.UID == member(n*pods+i).UID })
				members[at].State = providers.Draining
				members = append(members, member(10000+n*pods+i))
				slices.SortFunc(members, providers.CompareMembers)
				next := web(key(n), fmt.Sprintf("192.0.2.%d", 101+n), members...)
				c.replace(p, now, next)
				now = next
				mu.Lock()
				applies++
				mu.Unlock()
			}
			states[n] = now
		})
	}
	workers.Wait()
	made := calls()
	if len(made) != applies {
		t.Errorf("%d calls for %d changes, want one each:\n%s", len(made), applies, lines(made[:min(len(made), 20)]))
	}
	c.observe(p, merge(states...))
}
