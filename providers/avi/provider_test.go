package avi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/avisim"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// TestBadInput has one clear error for each thing that can be set up wrongly, and recovery without a restart where that can be.
func TestBadInput(t *testing.T) {
	roleWithout := func(resource string) []avisim.Privilege {
		var role []avisim.Privilege
		for _, r := range []string{"POOL", "VIRTUALSERVICE", "L4POLICYSET", "HEALTHMONITOR", "APPLICATIONPERSISTENCEPROFILE"} {
			if r != resource {
				role = append(role, avisim.Privilege{Type: "WRITE_ACCESS", Resource: "PERMISSION_" + r})
			}
		}
		for _, r := range []string{"CLOUD", "TENANT", "NETWORK", "VRFCONTEXT", "SERVICEENGINEGROUP", "NETWORKPROFILE", "APPLICATIONPROFILE"} {
			role = append(role, avisim.Privilege{Type: "READ_ACCESS", Resource: "PERMISSION_" + r})
		}
		return role
	}
	for name, test := range map[string]struct {
		sim  func(*avisim.Config)
		cfg  func(*controller)
		want string
		kind providers.Kind
		mend func(*controller)
	}{
		"nobody there": {cfg: func(c *controller) { c.cfg.URL = "https://127.0.0.1:1" }, want: "at https://127.0.0.1:1", kind: providers.Unavailable},
		"no such host": {cfg: func(c *controller) { c.cfg.URL = "https://no-such-host.invalid" }, want: "avi.url: this host name does not exist", kind: providers.Misconfigured},
		"certificate": {
			cfg: func(c *controller) { c.write(c.cfg.CAFile, string(newController(c.t).CAPEM())) }, want: "avi.caFile: give the certificate that signed the server's", kind: providers.Misconfigured,
			mend: func(c *controller) { c.write(c.cfg.CAFile, string(c.CAPEM())) },
		},
		"server name":   {cfg: func(c *controller) { c.cfg.ServerName = "avi.example" }, want: "avi.serverName", kind: providers.Misconfigured},
		"no CA file":    {cfg: func(c *controller) { c.cfg.CAFile += "x" }, want: "avi.caFile: give the path of a readable PEM file", kind: providers.Misconfigured},
		"user":          {cfg: func(c *controller) { c.cfg.Username = "nobody" }, want: `avi.username "nobody"`, kind: providers.Misconfigured},
		"password file": {cfg: func(c *controller) { c.write(c.cfg.PasswordFile, "") }, want: "the file is empty", kind: providers.Misconfigured, mend: func(c *controller) { c.write(c.cfg.PasswordFile, testPassword) }},
		"tenant": {
			cfg: func(c *controller) { c.cfg.Tenant = "shop" }, want: "set avi.tenant to one that does", kind: providers.Misconfigured,
			mend: func(c *controller) {
				if _, err := c.Create("tenant", "", map[string]any{"name": "shop"}); err != nil {
					c.t.Fatal(err)
				}
			},
		},
		"cloud": {
			cfg: func(c *controller) { c.cfg.Cloud = "vcenter" }, want: `avi.cloud "vcenter": the Controller has 0 of that name in tenant "admin"`, kind: providers.Misconfigured,
		},
		"SE group": {
			cfg: func(c *controller) { c.cfg.SEGroup = "cluster" }, want: `avi.seGroup "cluster": the Controller has 0 of that name in tenant "admin" and cloud "Default-Cloud"`, kind: providers.Misconfigured,
			mend: func(c *controller) {
				if _, err := c.Create("serviceenginegroup", "", map[string]any{"name": "cluster", "cloud_ref": "/api/cloud?name=Default-Cloud"}); err != nil {
					c.t.Fatal(err)
				}
			},
		},
		"VRF":         {cfg: func(c *controller) { c.cfg.VRF = "blue" }, want: `avi.vrf "blue"`, kind: providers.Misconfigured},
		"network":     {cfg: func(c *controller) { c.cfg.Network = "dmz" }, want: `avi.network "dmz"`, kind: providers.Misconfigured},
		"old version": {sim: func(c *avisim.Config) { c.Version = "21.1.6" }, want: "avi.apiVersion 22.1.3: this Controller speaks", kind: providers.Misconfigured},
		"permission": {
			sim: func(c *avisim.Config) { c.Role = roleWithout("POOL") }, want: `the role of avi.username "lbsync" lacks a right on pool`, kind: providers.Misconfigured,
		},
		"upgrade": {
			cfg: func(c *controller) {
				c.Fail(avisim.Fault{Kind: avisim.Answer, Status: http.StatusServiceUnavailable, Path: "/api/", Times: -1})
			}, want: "503", kind: providers.Unavailable, mend: func(c *controller) { c.Mend() },
		},
		"not JSON": {
			cfg: func(c *controller) {
				c.Fail(avisim.Fault{Kind: avisim.Answer, Status: http.StatusOK, Body: "<html>", Path: "/api/cloud"})
			}, want: "the answer is not what Avi sends", kind: providers.Unavailable, mend: func(*controller) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newController(t, func(cfg *avisim.Config) {
				if test.sim != nil {
					test.sim(cfg)
				}
			})
			if test.cfg != nil {
				test.cfg(c)
			}
			p := c.open()
			_, err := p.Observe(t.Context(), providers.Scope{})
			if providers.KindOf(err) != test.kind || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %s: %v\nwant %s with %q", providers.KindOf(err), err, test.kind, test.want)
			}
			want := web(key(0), "192.0.2.201", member(0))
			for k, err := range p.Apply(t.Context(), providertest.Diff(providers.State{}, want)) {
				if name != "not JSON" && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("apply %s: %v", k, err)
				}
			}
			if test.mend != nil {
				test.mend(c)
				c.eventually("it works", func() bool {
					_, err := p.Observe(t.Context(), providers.Scope{})
					return err == nil
				})
				c.bring(p, providers.State{}, want)
				c.observe(p, want)
			}
		})
	}
}

// TestRoleIsEnough runs with exactly the role that the how-to gives.
func TestRoleIsEnough(t *testing.T) {
	c := newController(t, func(cfg *avisim.Config) { cfg.Role = documentedRole(t) })
	c.cfg.Network, c.cfg.VRF = "vips", "global"
	p := c.open()
	want := merge(web(key(0), "192.0.2.201", member(0)), web(providers.Key{Namespace: "shop", Service: key(0).Service, Port: 53, Protocol: providers.UDP}, "192.0.2.201"))
	want.Pools[1].Settings = providers.PoolSettings{Monitor: providers.Monitor{Type: providers.MonitorHTTP}, Persistence: providers.Persistence{Kind: providers.SourceAddress}}
	c.bring(p, providers.State{}, want)
	c.observe(p, want)
	if _, err := p.AllocateVIPs(t.Context(), providers.VIPRequest{Group: "shop/b", IPv4: true}); err != nil {
		t.Error(err)
	}
	if err := p.ReleaseVIPs(t.Context(), "shop/b"); err != nil {
		t.Error(err)
	}
	c.bring(p, want, providers.State{})
}

// jumpingClock is the real one with what the test adds.
type jumpingClock struct {
	clock.RealClock
	jump time.Duration
}

func (c *jumpingClock) Now() time.Time { return c.RealClock.Now().Add(c.jump) }

// TestSecretsStayOut reads errors and logs of everything that can go wrong with a Controller that repeats what it was told.
func TestSecretsStayOut(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	c := newController(t)
	clock := &jumpingClock{}
	p, err := New(c.cfg, c.owner, zap.New(core), WithClock(clock))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	c.observe(p, providers.State{})
	var texts, all []string
	secrets := p.client.Secrets()
	if len(secrets) < 3 || !slices.Contains(secrets, testPassword) {
		t.Fatalf("%d secrets", len(secrets))
	}
	for _, status := range []int{400, 401, 403, 404, 405, 409, 412, 418, 419, 429, 500, 503} {
		c.observe(p, providers.State{})
		secrets = p.client.Secrets()
		all = append(all, secrets...)
		for _, body := range []string{
			strings.Join(secrets, " "), `{"error": "bad ` + strings.Join(secrets, " ") + `"}`, `{"error": {"password": "` + testPassword + `", "x": "` + secrets[1] + `"}}`,
			`{"detail": "` + secrets[2] + `"}`,
		} {
			c.Fail(avisim.Fault{Kind: avisim.Answer, Status: status, Body: body, Times: -1})
			_, err := p.Observe(t.Context(), providers.Scope{})
			if err == nil {
				t.Errorf("%d was no error", status)
				continue
			}
			texts = append(texts, err.Error())
			for _, err := range p.Apply(t.Context(), providertest.Diff(providers.State{}, web(key(0), "192.0.2.201", member(0)))) {
				texts = append(texts, err.Error())
			}
			c.Mend()
			all = append(all, p.client.Secrets()...)
		}
		clock.jump += time.Hour // 401 counts against the password
	}
	for _, entry := range logs.All() {
		texts = append(texts, fmt.Sprint(entry.Message, entry.ContextMap()))
	}
	for _, text := range texts {
		for _, secret := range all {
			if strings.Contains(text, secret) {
				t.Fatalf("a secret stands in %q", text)
			}
		}
	}
}

func TestAllocate(t *testing.T) {
	c := newController(t, func(cfg *avisim.Config) {
		cfg.Networks[0].Last = cfg.Networks[0].First.Next() // two addresses
	})
	c.cfg.Network, c.cfg.Subnets = "vips", []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	p := c.open()
	allocate := func(r providers.VIPRequest) []netip.Addr {
		t.Helper()
		got, err := p.AllocateVIPs(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := allocate(providers.VIPRequest{Group: "shop/a", IPv4: true})
	if len(first) != 1 || !slices.Equal(allocate(providers.VIPRequest{Group: "shop/a", IPv4: true}), first) {
		t.Fatalf("the first group got %v, then others", first)
	}
	wanted := netip.MustParseAddr("192.0.2.11")
	if got := allocate(providers.VIPRequest{Group: "shop/b", IPv4: true, Wanted: []netip.Addr{wanted}}); !slices.Equal(got, []netip.Addr{wanted}) {
		t.Fatalf("got %v, want %v", got, wanted)
	}
	_, err := p.AllocateVIPs(t.Context(), providers.VIPRequest{Group: "shop/c", IPv4: true})
	if providers.KindOf(err) != providers.Rejected || !strings.Contains(err.Error(), "No available free IPs") {
		t.Errorf("a third address of two: %v", err)
	}
	for _, r := range []providers.VIPRequest{{Group: "shop/d"}, {Group: "shop/d", IPv4: true, Wanted: []netip.Addr{netip.MustParseAddr("2001:db8::1")}}} {
		if _, err := p.AllocateVIPs(t.Context(), r); providers.KindOf(err) != providers.Rejected {
			t.Errorf("%+v: %v", r, err)
		}
	}

	// The virtual service takes the allocated address as it is, and a restart finds everything.
	want := web(key(0), first[0].String(), member(0))
	c.bring(p, providers.State{}, want)
	p = c.open()
	c.observe(p, want)
	if got := allocate(providers.VIPRequest{Group: "shop/a", IPv4: true}); !slices.Equal(got, first) {
		t.Errorf("after a restart %v, want %v", got, first)
	}
	if err := p.ReleaseVIPs(t.Context(), "shop/a"); providers.KindOf(err) != providers.Conflict {
		t.Errorf("released while in use: %v", err)
	}
	c.bring(p, want, providers.State{})
	if n := len(c.Snapshot().Objects["vsvip"]); n != 2 {
		t.Errorf("%d addresses are reserved, want the two that were not given back", n)
	}
	for range 2 {
		for _, group := range []string{"shop/a", "shop/b", "shop/none"} {
			if err := p.ReleaseVIPs(t.Context(), group); err != nil {
				t.Error(err)
			}
		}
	}
	if n := len(c.Snapshot().Objects["vsvip"]); n != 0 {
		t.Errorf("%d addresses are left", n)
	}
}

// TestObserver: what is told for metrics has names out of a small set, whatever objects are called.
func TestObserver(t *testing.T) {
	c := newController(t)
	var mu sync.Mutex
	told := map[string]int{}
	p := c.open(WithObserver(func(method, endpoint string, status int, took time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		told[fmt.Sprint(method, " ", endpoint, " ", status)]++
	}))
	c.observe(p, providers.State{})
	c.bring(p, providers.State{}, web(key(0), "192.0.2.201", member(0)))
	for _, want := range []string{"POST login 200", "POST pool 201", "POST virtualservice 201", "POST vsvip 201"} {
		if told[want] != 1 {
			t.Errorf("%s: %d times in %v", want, told[want], told)
		}
	}
	for name := range told {
		if strings.ContainsAny(name, "/?") {
			t.Errorf("%q is no name out of a small set", name)
		}
	}
}

func TestAllocateLostAnswer(t *testing.T) {
	c := newController(t)
	p := c.open()
	c.observe(p, providers.State{})
	c.Fail(avisim.Fault{Kind: avisim.DropAfter, Method: "POST", Path: "/api/vsvip"})
	got, err := p.AllocateVIPs(t.Context(), providers.VIPRequest{Group: "shop/a", IPv4: true, IPv6: true})
	if err != nil || familiesOf(got) != [2]bool{true, true} || len(c.Snapshot().Objects["vsvip"]) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestPortsOfOneService goes through all shapes that a virtual service can have.
func TestPortsOfOneService(t *testing.T) {
	c := newController(t)
	p := c.open()
	port := func(n uint16, protocol providers.Protocol) providers.State {
		return web(providers.Key{Namespace: "shop", Service: "web", Port: n, Protocol: protocol}, "192.0.2.201", member(int(n)))
	}
	fast := port(8080, providers.TCP)
	fast.VirtualServers[0].Settings.Options = map[string]string{networkProfile: "System-TCP-Fast-Path"}
	now := providers.State{}
	for _, want := range []providers.State{
		port(80, providers.TCP),
		merge(port(53, providers.UDP), port(53, providers.TCP)), // one port number, two protocols
		merge(port(53, providers.UDP), port(80, providers.TCP), fast),
		merge(port(53, providers.UDP)),
		merge(port(53, providers.UDP), port(54, providers.UDP)),
		fast,
		{},
	} {
		c.bring(p, now, want)
		c.observe(p, want)
		o := c.Snapshot().Objects
		if n, m := len(o["virtualservice"]), len(o["l4policyset"]); n != min(1, len(want.VirtualServers)) || m != min(1, len(want.VirtualServers)/2) {
			t.Errorf("%d ports have %d virtual services and %d policy sets", len(want.VirtualServers), n, m)
		}
		p = c.open()
		c.observe(p, want)
		now = want
	}
}

func TestPortsThatDisagree(t *testing.T) {
	c := newController(t)
	p := c.open()
	a, b := web(providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP}, "192.0.2.201"), web(providers.Key{Namespace: "shop", Service: "web", Port: 81, Protocol: providers.TCP}, "192.0.2.202")
	for k, err := range p.Apply(t.Context(), providertest.Diff(providers.State{}, merge(a, b))) {
		if providers.KindOf(err) != providers.Rejected || !strings.Contains(err.Error(), "cannot have the addresses") {
			t.Errorf("%s: %v", k, err)
		}
	}
	b.VirtualServers[0].VIPs, b.VirtualServers[0].Port = a.VirtualServers[0].VIPs, 80
	for k, err := range p.Apply(t.Context(), providertest.Diff(providers.State{}, merge(a, b))) {
		if providers.KindOf(err) != providers.Rejected || !strings.Contains(err.Error(), "both want port 80/TCP") {
			t.Errorf("%s: %v", k, err)
		}
	}
}

// TestAddresses moves a Service from address to address, alone and beside another one that shares them.
func TestAddresses(t *testing.T) {
	c := newController(t)
	p := c.open()
	with := func(n int, port uint16, addrs ...string) providers.State {
		k := key(n)
		k.Port = port
		s := web(k, addrs[0], member(n))
		for _, a := range addrs[1:] {
			s.VirtualServers[0].VIPs = append(s.VirtualServers[0].VIPs, netip.MustParseAddr(a))
		}
		s.VirtualServers[0].Shared = "shop/group"
		return s
	}
	const a4, b4, a6, b6 = "192.0.2.201", "192.0.2.202", "2001:db8::201", "2001:db8::202"
	now := providers.State{}
	for _, want := range []providers.State{
		with(0, 80, a4), with(0, 80, a4, a6), with(0, 80, b4, a6), with(0, 80, b4, b6), with(0, 80, b6), with(0, 80, a4),
		merge(with(0, 80, a4), with(1, 81, a4)), merge(with(0, 80, b4), with(1, 81, b4)), with(1, 81, b4), {},
	} {
		c.bring(p, now, want)
		c.observe(p, want)
		if n := len(c.Snapshot().Objects["vsvip"]); n != min(1, len(want.VirtualServers)) {
			t.Errorf("%d VsVips for %d virtual servers of one address", n, len(want.VirtualServers))
		}
		now = want
	}
}

func TestHealthAndBlock(t *testing.T) {
	c := newController(t)
	p := c.open()
	want := web(key(0), "192.0.2.201", member(0), member(1), member(2))
	want.Pools[0].Members[2].State = providers.Draining
	c.bring(p, providers.State{}, want)
	pool := c.object("pool", "shop-web-a")
	c.SetHealth(pool["uuid"].(string), member(1).Address.String(), avisim.Health{State: avisim.OperDown, Reason: "no answer"})
	health := func() (out []providers.Health) {
		observed := c.observe(p, want)
		for n := range 3 {
			m := observed.Members[key(0)][member(n).ID()]
			if m.Connections >= 0 {
				t.Errorf("member %d: %d connections, which Avi does not tell", n, m.Connections)
			}
			out = append(out, m.Health)
		}
		return out
	}
	if got := health(); !slices.Equal(got, []providers.Health{providers.HealthUp, providers.HealthDown, providers.HealthUnknown}) {
		t.Errorf("health %q", got)
	}
	c.Fail(avisim.Fault{Kind: avisim.Answer, Status: http.StatusForbidden, Path: "/api/pool/" + pool["uuid"].(string) + "/runtime"})
	if got := health(); got[0] != providers.HealthUnknown {
		t.Errorf("health that may not be read: %q", got)
	}

	// An operator disables the first: its state stays what lbsync set, and a later write does not enable it.
	if err := c.Edit("pool", pool["name"].(string), func(o map[string]any) {
		for _, s := range o["servers"].([]any) {
			if s.(map[string]any)["description"] == member(0).Name {
				s.(map[string]any)["enabled"] = false
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if !c.observe(p, want).Members[key(0)][member(0).ID()].Blocked {
		t.Error("the block was not seen")
	}
	after := web(key(0), "192.0.2.201", member(0), member(1), member(3))
	c.bring(p, want, after)
	if !c.observe(p, after).Members[key(0)][member(0).ID()].Blocked {
		t.Error("a write took the block away")
	}
}

func TestOrphansAreSwept(t *testing.T) {
	c := newController(t)
	p := c.open()
	c.observe(p, providers.State{})
	two := merge(web(key(0), "192.0.2.201", member(0)), web(providers.Key{Namespace: "shop", Service: key(0).Service, Port: 81, Protocol: providers.TCP}, "192.0.2.201"))
	two.Pools[0].Settings.Monitor.Type = providers.MonitorHTTP
	c.Fail(avisim.Fault{Kind: avisim.Answer, Status: 400, Method: "POST", Path: "/api/virtualservice", Body: `{"error": "no"}`})
	for k, err := range p.Apply(t.Context(), providertest.Diff(providers.State{}, two)) {
		if providers.KindOf(err) != providers.Rejected {
			t.Errorf("%s: %v", k, err)
		}
	}
	pools := c.observe(p, providers.State{Pools: two.Pools}).State // the Service is deleted while it is half made
	c.bring(p, pools, providers.State{})
	other := web(key(1), "192.0.2.202", member(1))
	c.observe(p, providers.State{})
	c.bring(p, providers.State{}, other)
	for typ, all := range c.Snapshot().Objects {
		for _, o := range all {
			if strings.Contains(o["name"].(string), "shop-web-a") || strings.Contains(o["name"].(string), "192.0.2.201") {
				t.Errorf("%s %s is left", typ, o["name"])
			}
		}
	}
	c.observe(p, other)
}

func TestNameStillReserved(t *testing.T) {
	c := newController(t, func(cfg *avisim.Config) { cfg.Rules.NameReserved = 500 * time.Millisecond })
	p := c.open()
	want := web(key(0), "192.0.2.201", member(0))
	c.bring(p, providers.State{}, want)
	c.bring(p, want, providers.State{})
	err := p.Apply(t.Context(), providertest.Diff(providers.State{}, want))[key(0)]
	if providers.KindOf(err) != providers.Throttled || providers.RetryAfter(err) <= 0 || !strings.Contains(err.Error(), "still reserved") {
		t.Fatalf("got %v", err)
	}
	c.eventually("the name is free", func() bool {
		return p.Apply(t.Context(), providertest.Diff(providers.State{}, want))[key(0)] == nil
	})
	c.observe(p, want)
}

func TestMonitorExisting(t *testing.T) {
	c := newController(t)
	p := c.open()
	want := web(key(0), "192.0.2.201", member(0))
	want.Pools[0].Settings.Monitor = providers.Monitor{Type: providers.MonitorExisting, Name: "System-Ping"}
	c.bring(p, providers.State{}, want)
	c.observe(p, want)
	if refs := fmt.Sprint(c.object("pool", "shop-web-a")["health_monitor_refs"]); !strings.HasSuffix(refs, "#System-Ping]") {
		t.Errorf("monitors %s", refs)
	}
	bad := web(key(1), "192.0.2.202", member(1))
	bad.Pools[0].Settings.Monitor = providers.Monitor{Type: providers.MonitorExisting, Name: "none such"}
	if err := p.Apply(t.Context(), providertest.Diff(providers.State{}, bad))[key(1)]; providers.KindOf(err) != providers.Rejected || !strings.Contains(err.Error(), "none such") {
		t.Errorf("a monitor that there is not: %v", err)
	}
}

func TestSettingsThatAviCannotHave(t *testing.T) {
	c := newController(t)
	p := c.open()
	for want, s := range map[string]providers.PoolSettings{
		"slow start: 1m30s is not whole minutes up to 300m":    {SlowStart: 90 * time.Second},
		"persistence timeout: 721m":                            {Persistence: providers.Persistence{Kind: providers.SourceAddress, Timeout: 721 * time.Minute}},
		"monitor send_interval: 3601 is more than 3600":        {Monitor: providers.Monitor{Type: providers.MonitorTCP, Interval: 3601 * time.Second}},
		`monitor path "/a b" and host "" must not have blanks`: {Monitor: providers.Monitor{Type: providers.MonitorHTTP, Path: "/a b"}},
		"avi cannot monitor members by HTTPS":                  {Monitor: providers.Monitor{Type: providers.MonitorHTTPS}},
		"avi cannot limit the connections of a member":         {MemberConnections: 5},
		"a monitor that exists: its name is empty":             {Monitor: providers.Monitor{Type: providers.MonitorExisting}},
	} {
		bad := web(key(0), "192.0.2.201", member(0))
		bad.Pools[0].Settings = s
		err := p.Apply(t.Context(), providertest.Diff(providers.State{}, bad))[key(0)]
		if strings.HasPrefix(want, "persistence") {
			want = "persistence timeout: 12h1m0s is not whole minutes up to 720m"
		}
		if providers.KindOf(err) != providers.Rejected || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestCancelledKeepsOthersOut(t *testing.T) {
	c := newController(t)
	p := c.open()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Observe(ctx, providers.Scope{}); providers.KindOf(err) != providers.Unavailable || err == nil {
		t.Errorf("got %v", err)
	}
	c.observe(p, providers.State{}) // its haste is not the others'
}

// documentedRole is the role that docs/how-to/avi.md gives.
func documentedRole(t *testing.T) []avisim.Privilege {
	t.Helper()
	text, err := os.ReadFile("../../docs/how-to/avi.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = bytes.Cut(text, []byte("```json\n"))
	text, _, _ = bytes.Cut(text, []byte("```"))
	var role struct {
		Privileges []avisim.Privilege `json:"privileges"`
	}
	if err := json.Unmarshal(text, &role); err != nil || len(role.Privileges) == 0 {
		t.Fatalf("the role in the how-to: %v", err)
	}
	return role.Privileges
}
