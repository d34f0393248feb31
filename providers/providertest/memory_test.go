package providertest_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

var (
	ours   = providers.Owner{ClusterUID: "c1", Instance: "nplbridge-system/nplbridge"}
	theirs = providers.Owner{ClusterUID: "c2", Instance: "nplbridge-system/nplbridge"}
)

func TestMemoryConforms(t *testing.T) {
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		lb := providertest.NewLoadBalancer(providertest.MemoryCapabilities())
		return providertest.Harness{
			Provider:     lb.Open(ours),
			Reopen:       func(*testing.T) providers.Provider { return lb.Open(ours) },
			VIPs:         []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
			PlantForeign: func(t *testing.T) func(*testing.T) { return plant(lb) },
			PlantPool: func(*testing.T) (string, func(*testing.T)) {
				lb.PlantPool("legacy-pool")
				return "legacy-pool", func(*testing.T) {}
			},
			Enabled: func(key providers.Key) (int, bool) {
				for _, p := range lb.State().Pools {
					if p.Key == key {
						n := 0
						for _, m := range p.Members {
							if m.State == providers.Enabled {
								n++
							}
						}
						return n, true
					}
				}
				return 0, false
			},
			Journal: func() []providers.MemberChange {
				var steps []providers.MemberChange
				for _, op := range lb.Journal() {
					if op.Member.UID != "" {
						steps = append(steps, providers.MemberChange{Op: providers.MemberOp(op.What), Member: op.Member})
					}
				}
				return steps
			},
			Break: func(t *testing.T) func() {
				err := &providers.Error{Kind: providers.Unavailable, What: "cable cut"}
				lb.FailObserve(err)
				for n := range 3 {
					lb.FailKey(providers.Key{Namespace: "shop", Service: "web-" + string(rune('0'+n)), Port: uint16(8080 + n), Protocol: providers.TCP}, err)
				}
				return func() { lb.FailObserve(nil) }
			},
			Connect: func(t *testing.T, key providers.Key, m providers.Member) func() {
				lb.SetConnections(key, m.ID(), 1)
				return func() { lb.SetConnections(key, m.ID(), 0) }
			},
		}
	})
}

func plant(lb *providertest.LoadBalancer) func(*testing.T) {
	key := providers.Key{Namespace: "shop", Service: "web-9", Port: 8089, Protocol: providers.TCP}
	pool := providers.Pool{Key: key, Settings: providers.PoolSettings{Algorithm: providers.RoundRobin}}
	vs := providers.VirtualServer{Key: key, VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.9")}, Port: 8089}
	lb.Tamper(theirs, key, &pool, &vs)
	return func(t *testing.T) {
		t.Helper()
		for _, p := range lb.State().Pools {
			if p.Key == key {
				return
			}
		}
		t.Errorf("the foreign pool %s is gone", key)
	}
}

// The strictness itself: what a real load balancer refuses is refused, with the right kind, and leaves no write.
func TestMemoryRefuses(t *testing.T) {
	key := providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP}
	m := providers.Member{UID: "u1", Address: netip.MustParseAddrPort("192.0.2.11:61000"), State: providers.Enabled}
	other := providers.Member{UID: "u2", Address: m.Address, State: providers.Enabled}
	pool := func(members ...providers.Member) *providers.Pool {
		return &providers.Pool{Key: key, Settings: providers.PoolSettings{Algorithm: providers.RoundRobin}, Members: members}
	}
	vs := &providers.VirtualServer{Key: key, VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Port: 80}
	step := func(op providers.MemberOp, m providers.Member) providers.MemberChange {
		return providers.MemberChange{Op: op, Member: m}
	}
	pools := func(key providers.Key, old, now *providers.Pool, steps ...providers.MemberChange) providers.Changes {
		return providers.Changes{Pools: []providers.PoolChange{{Key: key, Old: old, New: now, Members: steps}}}
	}
	sctp := providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.SCTP}
	second := providers.Key{Namespace: "shop", Service: "web2", Port: 80, Protocol: providers.TCP}
	secondVS := &providers.VirtualServer{Key: second, VIPs: vs.VIPs, Port: 80}
	for _, test := range []struct {
		name    string
		changes providers.Changes
		want    providers.Kind
	}{
		{"duplicate add", pools(key, pool(m), pool(m, other), step(providers.AddMember, other)), providers.Rejected},
		{"an address taken over before it is free", pools(key, pool(m), pool(other), step(providers.AddMember, other), step(providers.RemoveMember, m)), providers.Rejected},
		{"removal of an absent member", pools(key, pool(m), pool(), step(providers.RemoveMember, other)), providers.Rejected},
		{"enable of an enabled member", pools(key, pool(m), pool(), step(providers.EnableMember, m)), providers.Rejected},
		{"steps that lead elsewhere", pools(key, pool(m), pool()), providers.Rejected},
		{"another start", pools(key, pool(), pool(m), step(providers.AddMember, m)), ""},
		{"not what we thought", pools(key, pool(), pool(other), step(providers.AddMember, other)), providers.Conflict},
		{"create what exists", pools(key, nil, pool()), providers.Conflict},
		{"pool still used", providers.Changes{Pools: []providers.PoolChange{{Key: key, Old: pool(m)}}}, providers.Rejected},
		{"protocol", pools(sctp, nil, &providers.Pool{Key: sctp, Settings: providers.PoolSettings{Algorithm: providers.RoundRobin}}), providers.Rejected},
		{"virtual server without pool", providers.Changes{VirtualServers: []providers.VirtualServerChange{{Key: second, New: secondVS}}}, providers.Rejected},
		{"address and port taken", providers.Changes{
			Pools:          []providers.PoolChange{{Key: second, New: &providers.Pool{Key: second, Settings: providers.PoolSettings{Algorithm: providers.RoundRobin}}}},
			VirtualServers: []providers.VirtualServerChange{{Key: second, New: secondVS}},
		}, providers.Rejected},
	} {
		t.Run(test.name, func(t *testing.T) {
			lb := providertest.NewLoadBalancer(providertest.MemoryCapabilities())
			p := lb.Open(ours)
			start := providers.State{Pools: []providers.Pool{*pool(m)}, VirtualServers: []providers.VirtualServer{*vs}}
			for key, err := range p.Apply(t.Context(), providertest.Diff(providers.State{}, start)) {
				if err != nil {
					t.Fatal(key, err)
				}
			}
			for key, err := range p.Apply(t.Context(), test.changes) {
				if (err == nil) != (test.want == "") || err != nil && providers.KindOf(err) != test.want {
					t.Errorf("%s: %v, want kind %q", key, err, test.want)
				}
			}
		})
	}
	t.Run("what another owner has", func(t *testing.T) {
		lb := providertest.NewLoadBalancer(providertest.MemoryCapabilities())
		lb.Tamper(theirs, key, pool(m), vs)
		p := lb.Open(ours)
		for _, c := range []providers.Changes{pools(key, nil, pool()), pools(key, pool(m), nil), {VirtualServers: []providers.VirtualServerChange{{Key: key, Old: vs}}}} {
			if err := p.Apply(t.Context(), c)[key]; providers.KindOf(err) != providers.Rejected {
				t.Errorf("%v: %v, want %s", c, err, providers.Rejected)
			}
		}
		if lb.Writes() != 0 || !slices.Equal(lb.State().Pools[0].Members, pool(m).Members) {
			t.Error("the other owner's pool was touched")
		}
	})
}
