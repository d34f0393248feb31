package model

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// everything is a Service that asks for all there is.
func everything() *world {
	w := newWorld().pod(1, nil)
	w.Service.Wishes.Pool = providers.PoolSettings{
		Algorithm: providers.LeastConnections, Persistence: providers.Persistence{Kind: providers.SourceAddress, Timeout: time.Hour},
		Monitor: providers.Monitor{Type: providers.MonitorHTTP, Path: "/up"}, ProxyProtocol: providers.ProxyV2,
		SlowStart: time.Minute, MemberConnections: 100,
	}
	w.Service.Wishes.Virtual = providers.VirtualServerSettings{IdleTimeout: time.Minute, AcceptProxyProtocol: true}
	w.Service.Wishes.SharedVIP = "front"
	w.Capabilities.Options = []providers.Option{
		{Name: "retries", Check: tenAtMost}, {Name: "log", Virtual: true, Check: tenAtMost},
	}
	w.Service.Wishes.Options = map[string]map[string]string{"memory": {"retries": "3", "log": "1"}, "avi": {"retries": "4"}}
	return w
}

func tenAtMost(value string) string {
	if len(value) > 1 {
		return "write a digit"
	}
	return ""
}

func TestSettings(t *testing.T) {
	w := everything()
	out := Build(w.Input)
	pool, vs := out.State.Pools[0], out.State.VirtualServers[0]
	wantPool, wantVirtual := w.Service.Wishes.Pool, w.Service.Wishes.Virtual
	wantPool.Options, wantVirtual.Options = map[string]string{"retries": "3"}, map[string]string{"log": "1"}
	if !pool.Settings.Equal(wantPool) || !vs.Settings.Equal(wantVirtual) || vs.Shared != "shop/front" || cannot(out) != "" {
		t.Errorf("%s%q", providertest.Render(out.State), cannot(out))
	}
	if err := w.Capabilities.CheckPool(pool); err != nil {
		t.Error(err)
	}
}

// Each thing that cannot be had is named, and takes nothing else with it.
func TestCannot(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*world)
		want string
		gone func(*providers.PoolSettings, *providers.VirtualServer)
	}{
		{"algorithm", func(w *world) { w.Capabilities.Algorithms = nil }, "memory cannot balance by LeastConnections",
			func(p *providers.PoolSettings, _ *providers.VirtualServer) { p.Algorithm = providers.RoundRobin }},
		{"session affinity", func(w *world) { w.Capabilities.Persistence = nil }, "memory cannot keep clients by SourceAddress",
			func(p *providers.PoolSettings, _ *providers.VirtualServer) { p.Persistence = providers.Persistence{} }},
		{"monitor", func(w *world) { w.Capabilities.Monitors = nil }, "memory cannot monitor members by HTTP",
			func(p *providers.PoolSettings, _ *providers.VirtualServer) { p.Monitor = providers.Monitor{} }},
		{"PROXY protocol", func(w *world) { w.Capabilities.ProxyProtocols = nil }, "memory cannot send PROXY protocol v2",
			func(p *providers.PoolSettings, _ *providers.VirtualServer) { p.ProxyProtocol = "" }},
		{"slow start", without(providers.SlowStart), "memory cannot start members slowly",
			func(p *providers.PoolSettings, _ *providers.VirtualServer) { p.SlowStart = 0 }},
		{"member connections", without(providers.MemberConnections), "memory cannot limit the connections of a member",
			func(p *providers.PoolSettings, _ *providers.VirtualServer) { p.MemberConnections = 0 }},
		{"idle timeout", without(providers.IdleTimeout), "memory cannot have an idle timeout per Service",
			func(_ *providers.PoolSettings, v *providers.VirtualServer) { v.Settings.IdleTimeout = 0 }},
		{"PROXY protocol from clients", without(providers.AcceptProxyProtocol), "memory cannot take the PROXY protocol from clients",
			func(_ *providers.PoolSettings, v *providers.VirtualServer) { v.Settings.AcceptProxyProtocol = false }},
		{"shared address", without(providers.SharedVIPs), "memory cannot share an address among Services",
			func(_ *providers.PoolSettings, v *providers.VirtualServer) { v.Shared = "" }},
		{"option of the pool", func(w *world) { w.Service.Wishes.Options["memory"]["retries"] = "33" }, `option retries "33": write a digit`,
			func(p *providers.PoolSettings, _ *providers.VirtualServer) { p.Options = nil }},
		{"option of the virtual server", func(w *world) { w.Service.Wishes.Options["memory"]["log"] = "33" }, `option log "33": write a digit`,
			func(_ *providers.PoolSettings, v *providers.VirtualServer) { v.Settings.Options = nil }},
		{"option that is not there", func(w *world) { w.Service.Wishes.Options["memory"]["magic"] = "1" }, `memory has no option "magic"`,
			func(*providers.PoolSettings, *providers.VirtualServer) {}},
		{"two things", func(w *world) { w.Capabilities.Algorithms, w.Capabilities.Monitors = nil, nil },
			"memory cannot balance by LeastConnections; memory cannot monitor members by HTTP",
			func(p *providers.PoolSettings, _ *providers.VirtualServer) {
				p.Algorithm, p.Monitor = providers.RoundRobin, providers.Monitor{}
			}},
	} {
		whole := Build(everything().Input).State
		pool, vs := whole.Pools[0], whole.VirtualServers[0]
		test.gone(&pool.Settings, &vs)
		out := Build(everything().with(test.edit).Input)
		want := providers.State{Pools: []providers.Pool{pool}, VirtualServers: []providers.VirtualServer{vs}}
		if cannot(out) != test.want || providertest.Render(out.State) != providertest.Render(want) {
			t.Errorf("%s: %q, want %q\n%swant\n%s", test.name, cannot(out), test.want, providertest.Render(out.State), providertest.Render(want))
		}
	}
}

func without(f providers.Feature) func(*world) {
	return func(w *world) {
		var left []providers.Feature
		for _, have := range w.Capabilities.Features {
			if have != f {
				left = append(left, have)
			}
		}
		w.Capabilities.Features = left
	}
}

func TestUnservablePorts(t *testing.T) {
	ranges := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	restricted := func(w *world) { w.Service.Wishes.Virtual.SourceRanges = ranges }
	there := func(w *world) {
		w.has(1, providers.Enabled)
		w.CurrentVS[key] = &providers.VirtualServer{Key: key, VIPs: w.Service.VIPs["lb"], Port: 80}
	}
	for _, test := range []struct {
		name  string
		world *world
		want  string
	}{
		{"source ranges", newWorld().pod(1, nil).with(restricted), ""},
		{"source ranges that cannot be enforced", newWorld().pod(1, nil).with(restricted).with(there).with(without(providers.SourceRanges)),
			"unserved: memory cannot restrict clients by their address"},
		{"protocol", newWorld().pod(1, nil).with(there).with(func(w *world) { w.Capabilities.Protocols = nil }), "unserved: memory cannot balance TCP"},
		{"pool of somebody else", newWorld().pod(1, nil).with(attach("80", "lb", "blue")).with(without(providers.AttachedPools)),
			"unserved: memory cannot add members to a pool of somebody else"},
		{"source ranges of a pool of somebody else", newWorld().pod(1, nil).with(attach("80", "lb", "blue")).with(restricted),
			`unserved: clients cannot be restricted to 10.0.0.0/8 in front of pool "blue", which is somebody else's; restrict them there and remove the field from the Service`},
	} {
		out := Build(test.world.Input)
		served := !strings.HasPrefix(test.want, "unserved")
		if cannot(out) != test.want || (len(out.State.Pools) > 0) != served || (len(out.State.VirtualServers) > 0) != served {
			t.Errorf("%s: %q, want %q\n%s", test.name, cannot(out), test.want, providertest.Render(out.State))
		}
	}
}

// What cannot be read stays as it is, except a restriction that can.
func TestKeptSettings(t *testing.T) {
	w := everything().has(1, providers.Enabled)
	before := providers.VirtualServerSettings{IdleTimeout: time.Hour, SourceRanges: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Options: map[string]string{"log": "9"}}
	w.CurrentVS[key] = &providers.VirtualServer{Key: key, VIPs: w.Service.VIPs["lb"], Port: 80, Settings: before}
	w.Service.Wishes.Virtual.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	w.Service.Wishes.Kept = annotations.Kept{Pool: true, Virtual: true}
	out := Build(w.Input)
	want := before
	want.SourceRanges = w.Service.Wishes.Virtual.SourceRanges
	if got := out.State.VirtualServers[0].Settings; !got.Equal(want) {
		t.Errorf("virtual server: %+v, want %+v", got, want)
	}
	if got := out.State.Pools[0].Settings; !got.Equal(w.Current[key].Settings) {
		t.Errorf("pool: %+v, want %+v", got, w.Current[key].Settings)
	}
	w.Current, w.CurrentVS = nil, nil
	out = Build(w.Input)
	if out.State.Pools[0].Settings.Algorithm != providers.LeastConnections || out.State.VirtualServers[0].Settings.IdleTimeout != time.Minute {
		t.Errorf("nothing to keep: what can be read counts:\n%s", providertest.Render(out.State))
	}
}

func TestDrainLimitOfTheService(t *testing.T) {
	short := time.Minute
	for _, test := range []struct {
		name string
		pod  func(*Pod)
		want string
	}{
		{"before", terminating(short - 1), "u1:61001 Draining, u2:61002 Enabled"},
		{"terminating", terminating(short), "u2:61002 Enabled"},
		{"not ready", unready(short), "u2:61002 Enabled"},
	} {
		w := newWorld().pod(1, test.pod).pod(2, nil).has(1, providers.Draining)
		w.Service.Wishes.DrainLimit = &short
		if got := members(Build(w.Input)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	none := time.Duration(0)
	w := newWorld().pod(1, terminating(0)).pod(2, nil).has(1, providers.Enabled)
	w.Service.Wishes.DrainLimit = &none
	if got := members(Build(w.Input)); got != "u2:61002 Enabled" {
		t.Errorf("no drain at all: %q", got)
	}
}
