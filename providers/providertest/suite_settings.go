package providertest

import (
	"net/netip"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// poolSettings are two values of every setting that the capabilities name, for as many kinds of load balancer as can be.
func poolSettings(c providers.Capabilities) []providers.PoolSettings {
	var out []providers.PoolSettings
	for _, a := range c.Algorithms {
		out = append(out, providers.PoolSettings{Algorithm: a})
	}
	for _, kind := range c.Persistence {
		for _, timeout := range []time.Duration{0, 10 * time.Minute} {
			out = append(out, providers.PoolSettings{Persistence: providers.Persistence{Kind: kind, Timeout: timeout}})
		}
	}
	for _, kind := range c.Monitors {
		m := providers.Monitor{Type: kind}
		if kind == providers.MonitorExisting {
			continue // its name is the load balancer's; the provider has a test of its own
		}
		if kind == providers.MonitorHTTP || kind == providers.MonitorHTTPS {
			m.Path, m.Host = "/healthz", "shop.example"
		}
		out = append(out, providers.PoolSettings{Monitor: m})
		if kind != providers.MonitorNone {
			m.Interval, m.Timeout, m.Rise, m.Fall = 7*time.Second, 3*time.Second, 3, 4
			out = append(out, providers.PoolSettings{Monitor: m})
		}
	}
	for _, version := range c.ProxyProtocols {
		out = append(out, providers.PoolSettings{ProxyProtocol: version})
	}
	if c.Has(providers.SlowStart) {
		out = append(out, providers.PoolSettings{SlowStart: time.Minute})
	}
	if c.Has(providers.MemberConnections) {
		out = append(out, providers.PoolSettings{MemberConnections: 100}, providers.PoolSettings{MemberConnections: 200})
	}
	for _, o := range c.Options {
		if !o.Virtual && o.Example != "" {
			out = append(out, providers.PoolSettings{Options: map[string]string{o.Name: o.Example}})
		}
	}
	return out
}

func testPoolSettings(t *testing.T, f *fixture) {
	plain := f.service(0, member(0, enabled), member(1, draining))
	f.bring(t, plain)
	for _, s := range poolSettings(f.Provider.Capabilities()) {
		if s.Algorithm == "" {
			s.Algorithm = providers.RoundRobin
		}
		want := f.service(0, member(0, enabled), member(1, draining))
		want.Pools[0].Settings = s
		f.bring(t, want) // from another setting, with the members in place
	}
	f.bring(t, plain)
	for n, s := range poolSettings(f.Provider.Capabilities()) {
		if s.Algorithm == "" {
			s.Algorithm = providers.RoundRobin
		}
		want := f.service(1, member(2, enabled))
		want.Pools[0].Settings = s
		f.bring(t, join(plain, want)) // with the pool itself
		if n == 0 {
			f.Provider = f.Reopen(t)
			f.expect(t, join(plain, want))
		}
		f.bring(t, plain)
	}
}

func testVirtualServerSettings(t *testing.T, f *fixture) {
	c := f.Provider.Capabilities()
	var all []providers.VirtualServerSettings
	if c.Has(providers.SourceRanges) {
		all = append(all, providers.VirtualServerSettings{SourceRanges: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
			providers.VirtualServerSettings{SourceRanges: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/24")}})
	}
	if c.Has(providers.IdleTimeout) {
		all = append(all, providers.VirtualServerSettings{IdleTimeout: 10 * time.Minute})
	}
	if c.Has(providers.AcceptProxyProtocol) {
		all = append(all, providers.VirtualServerSettings{AcceptProxyProtocol: true})
	}
	for _, o := range c.Options {
		if o.Virtual && o.Example != "" {
			all = append(all, providers.VirtualServerSettings{Options: map[string]string{o.Name: o.Example}})
		}
	}
	plain := f.service(0, member(0, enabled))
	f.bring(t, plain)
	for _, s := range all {
		want := f.service(0, member(0, enabled))
		want.VirtualServers[0].Settings = s
		f.bring(t, want)
		f.Provider = f.Reopen(t)
		f.expect(t, want)
	}
	f.bring(t, plain)
}

func testWeights(t *testing.T, f *fixture) {
	if lacks(t, f.Provider.Capabilities().Has(providers.Weights), "weights of members") {
		return
	}
	weighed := func(n int, weight uint8) providers.Member {
		m := member(n, enabled)
		m.Weight = weight
		return m
	}
	f.bring(t, f.service(0, weighed(0, 5), member(1, enabled)))
	f.bring(t, f.service(0, weighed(0, 20), weighed(1, 2), weighed(2, 3)))
	f.Provider = f.Reopen(t)
	f.expect(t, f.state)
	f.bring(t, f.service(0, member(0, enabled), weighed(2, 3)))
}

func testUnsupported(t *testing.T, f *fixture) {
	good := f.service(1, member(3, enabled))
	f.bring(t, good)
	bad := f.service(0, member(0, enabled))
	bad.Pools[0].Settings.Options = map[string]string{"no-such-option": "1"}
	err := f.apply(t, Diff(providers.State{}, bad))[f.key(0)]
	if providers.KindOf(err) != providers.Rejected || err == nil {
		t.Errorf("an option that there is not: %v, want it %s", err, providers.Rejected)
	}
	f.expect(t, good)
}

func testAttached(t *testing.T, f *fixture) {
	if lacks(t, f.Provider.Capabilities().Has(providers.AttachedPools), "members in pools of others") {
		return
	}
	if lacks(t, f.PlantPool != nil, "PlantPool in the harness") {
		return
	}
	name, verify := f.PlantPool(t)
	attached := func(members ...providers.Member) providers.State {
		s := f.service(0, members...)
		s.Pools[0].Attached, s.Pools[0].Settings, s.VirtualServers = name, providers.PoolSettings{}, nil
		return s
	}
	for _, want := range []providers.State{
		attached(member(0, enabled)), attached(member(0, draining), member(1, enabled)), attached(member(1, enabled)), attached(), {},
	} {
		f.bring(t, want)
		f.Provider = f.Reopen(t)
		f.expect(t, want)
		verify(t)
	}
}
