package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

var key = providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP}

func member(pod string, port uint16, state providers.MemberState) providers.Member {
	return providers.Member{UID: pod, Address: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.11"), port), State: state}
}

func pool(members ...providers.Member) *providers.Pool {
	slices.SortFunc(members, providers.CompareMembers)
	return &providers.Pool{Key: key, Settings: providers.PoolSettings{Algorithm: providers.RoundRobin}, Members: members}
}

func weighs(m providers.Member, weight uint8) providers.Member {
	m.Weight = weight
	return m
}

func steps(in []providers.MemberChange) string {
	var out []string
	for _, s := range in {
		out = append(out, fmt.Sprintf("%s %s:%d", s.Op, s.Member.UID, s.Member.Address.Port()))
	}
	return fmt.Sprint(out)
}

func TestSteps(t *testing.T) {
	const enabled, draining = providers.Enabled, providers.Draining
	for _, test := range []struct {
		name          string
		before, after []providers.Member
		want          string
	}{
		{"nothing", []providers.Member{member("a", 1, enabled)}, []providers.Member{member("a", 1, enabled)}, "[]"},
		{"grow before shrink", []providers.Member{member("a", 1, enabled), member("b", 2, enabled)},
			[]providers.Member{member("a", 1, draining), member("c", 3, enabled)}, "[Add c:3 Drain a:1 Remove b:2]"},
		{"enable before drain", []providers.Member{member("a", 1, enabled), member("b", 2, draining)},
			[]providers.Member{member("a", 1, draining), member("b", 2, enabled)}, "[Enable b:2 Drain a:1]"},
		{"the same port with another Pod", []providers.Member{member("a", 1, enabled), member("b", 2, enabled)},
			[]providers.Member{member("c", 1, enabled)}, "[Remove a:1 Add c:1 Remove b:2]"},
		{"another weight", []providers.Member{weighs(member("a", 1, enabled), 2), weighs(member("b", 2, enabled), 2)},
			[]providers.Member{weighs(member("a", 1, draining), 3), weighs(member("c", 3, enabled), 9)}, "[Add c:3 Weigh a:1 Drain a:1 Remove b:2]"},
		{"no weight is weight 1", []providers.Member{weighs(member("a", 1, enabled), 1)}, []providers.Member{member("a", 1, enabled)}, "[]"},
		{"the same Pod on another port", []providers.Member{member("a", 1, enabled)},
			[]providers.Member{member("a", 2, enabled)}, "[Add a:2 Remove a:1]"},
	} {
		if got := steps(Steps(test.before, test.after)); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// Whatever the members before and after: the steps come in the order in which each is safe, and lead from one to the other.
func TestOrderOfSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawMembers(t, "before"), drawMembers(t, "after")
		now := map[providers.MemberID]providers.Member{}
		for _, m := range before {
			now[m.ID()] = m
		}
		last := 0
		for _, s := range Steps(before, after) {
			at := slices.Index([]providers.MemberOp{providers.AddMember, providers.EnableMember, providers.WeighMember, providers.DrainMember, providers.RemoveMember}, s.Op) + 1
			if s.Op == providers.RemoveMember && slices.ContainsFunc(after, func(m providers.Member) bool { return m.Address == s.Member.Address }) {
				at = 0 // displaced
			}
			if at < last {
				t.Fatalf("%s of %s comes too late in %s", s.Op, s.Member.Address, steps(Steps(before, after)))
			}
			last = at
			if s.Op == providers.RemoveMember {
				delete(now, s.Member.ID())
				continue
			}
			for _, m := range now {
				if m.Address == s.Member.Address && m.UID != s.Member.UID {
					t.Fatalf("two members at %s in %s", m.Address, steps(Steps(before, after)))
				}
			}
			now[s.Member.ID()] = s.Member
		}
		got := pool(slices.Collect(maps.Values(now))...)
		if !EqualPools(got, pool(after...)) {
			t.Fatalf("%s leads to %+v", steps(Steps(before, after)), got.Members)
		}
	})
}

// drawMembers draws at most one member for each address.
func drawMembers(t *rapid.T, label string) (out []providers.Member) {
	for port := range uint16(6) {
		if pod := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, fmt.Sprintf("%s at %d", label, port+1)); pod != "" {
			state := rapid.SampledFrom([]providers.MemberState{providers.Enabled, providers.Draining}).Draw(t, "state")
			out = append(out, weighs(member(pod, port+1, state), uint8(rapid.IntRange(0, 3).Draw(t, "weight"))))
		}
	}
	return out
}

// A pool of somebody else in place of another: that one is left first, and no virtual server comes before its pool.
func TestAttachedElsewhere(t *testing.T) {
	vs := providers.VirtualServer{Key: key, VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Port: 80}
	attached := func(name string) *providers.Pool {
		p := pool(member("a", 1, providers.Enabled))
		p.Attached = name
		return p
	}
	for _, test := range []struct {
		name          string
		before, after providers.State
		want          string
	}{
		{"to another", providers.State{Pools: []providers.Pool{*attached("blue")}}, providers.State{Pools: []providers.Pool{*attached("green")}}, `leave "blue"`},
		{"to our own", providers.State{Pools: []providers.Pool{*attached("blue")}},
			providers.State{Pools: []providers.Pool{*attached("")}, VirtualServers: []providers.VirtualServer{vs}}, `leave "blue"`},
		{"from our own", providers.State{Pools: []providers.Pool{*attached("")}, VirtualServers: []providers.VirtualServer{vs}},
			providers.State{Pools: []providers.Pool{*attached("blue")}}, `leave "", delete the virtual server`},
	} {
		got := ""
		c := Between(test.before, test.after)
		for _, p := range c.Pools {
			if p.New == nil && len(p.Members) == 0 {
				got += fmt.Sprintf("leave %q", p.Old.Attached)
			} else {
				got += fmt.Sprintf("change %+v", p)
			}
		}
		for _, v := range c.VirtualServers {
			if v.New == nil {
				got += ", delete the virtual server"
			} else {
				got += ", a virtual server"
			}
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestHoldRemovals(t *testing.T) {
	a, b, c := member("a", 1, providers.Enabled), member("b", 2, providers.Enabled), member("c", 1, providers.Enabled)
	vs := &providers.VirtualServer{Key: key, VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Port: 80}
	state := func(p *providers.Pool, v *providers.VirtualServer) (s providers.State) {
		if p != nil {
			s.Pools = append(s.Pools, *p)
		}
		if v != nil {
			s.VirtualServers = append(s.VirtualServers, *v)
		}
		return s
	}
	for _, test := range []struct {
		name          string
		before, after providers.State
		explained     bool
		want          string
	}{
		{"emptied", state(pool(a, b), vs), state(pool(), vs), false, ""},
		{"gone", state(pool(a, b), vs), providers.State{}, false, ""},
		{"gone and explained", state(pool(a, b), vs), providers.State{}, true, "delete pool, delete virtual server"},
		{"replaced", state(pool(a), vs), state(pool(b), vs), false, "[Add b:2]"},
		{"address taken by another Pod", state(pool(a, b), vs), state(pool(c), vs), false, "[Remove a:1 Add c:1]"},
		{"created", providers.State{}, state(pool(a), nil), false, "[Add a:1]"},
	} {
		hold := HoldRemovals(func(providers.Key) bool { return test.explained })
		got := ""
		for _, c := range hold(Between(test.before, test.after)).Pools {
			if got = steps(c.Members); c.New == nil {
				got = "delete pool"
			}
		}
		for range hold(Between(test.before, test.after)).VirtualServers {
			got += ", delete virtual server"
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

var owner = providers.Owner{ClusterUID: "c1", Instance: "ns/name"}

// drawState draws what a strict load balancer accepts: within a pool every address is there once.
func drawState(t *rapid.T, label string) providers.State {
	var s providers.State
	for n := range 3 {
		if !rapid.Bool().Draw(t, fmt.Sprintf("%s has %d", label, n)) {
			continue
		}
		p := providers.Pool{
			Key:      providers.Key{Namespace: "shop", Service: fmt.Sprintf("web-%d", n), Port: 80, Protocol: providers.TCP},
			Settings: providers.PoolSettings{Algorithm: rapid.SampledFrom([]providers.Algorithm{providers.RoundRobin, providers.LeastConnections}).Draw(t, "algorithm")},
		}
		for port := range uint16(5) {
			if pod := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, fmt.Sprintf("Pod at %d", port+1)); pod != "" {
				state := rapid.SampledFrom([]providers.MemberState{providers.Enabled, providers.Draining}).Draw(t, "state")
				p.Members = append(p.Members, member(pod, port+1, state))
			}
		}
		s.Pools = append(s.Pools, p)
		if rapid.Bool().Draw(t, "has a virtual server") {
			vip := netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + 10*n + rapid.IntRange(0, 3).Draw(t, "vip"))})
			s.VirtualServers = append(s.VirtualServers, providers.VirtualServer{Key: p.Key, VIPs: []netip.Addr{vip}, Port: 80})
		}
	}
	return s
}

// What a plan promises, on a load balancer that refuses every wrong step: applying it gives what was wanted, a second
// plan is empty, foreign objects stay, and a pool that has members before and after never is without any on the way
// (unless all its addresses went to other Pods).
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawState(t, "before"), drawState(t, "after")
		lb := providertest.NewLoadBalancer(providertest.MemoryCapabilities())
		foreign := providers.Key{Namespace: "shop", Service: "web-9", Port: 80, Protocol: providers.TCP}
		lb.Tamper(providers.Owner{ClusterUID: "c2"}, foreign, &providers.Pool{Key: foreign, Settings: providers.PoolSettings{Algorithm: providers.RoundRobin}}, nil)
		p := lb.Open(owner)
		apply := func(c providers.Changes) {
			for key, err := range p.Apply(t.Context(), c) {
				if err != nil {
					t.Fatalf("%s: %v", key, err)
				}
			}
		}
		apply(Between(providers.State{}, before))
		observed, err := p.Observe(t.Context(), providers.Scope{})
		if err != nil {
			t.Fatal(err)
		}
		from := lb.Writes()
		apply(Between(observed.State, after))
		observed, err = p.Observe(t.Context(), providers.Scope{})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := providertest.Render(observed.State), providertest.Render(after); got != want {
			t.Fatalf("the plan led to\n%swant\n%s", got, want)
		}
		if again := Between(observed.State, after); !again.Empty() {
			t.Fatalf("a second plan is not empty: %+v", again)
		}
		if !slices.ContainsFunc(lb.State().Pools, func(p providers.Pool) bool { return p.Key == foreign }) {
			t.Fatal("the foreign pool is gone")
		}
		for _, op := range lb.Journal()[from:] {
			old, now := findPool(before, op.Key), findPool(after, op.Key)
			if old == nil || now == nil || len(old.Members) == 0 || len(now.Members) == 0 || disjointed(old, now) {
				continue
			}
			if op.Members == 0 {
				t.Fatalf("%s was empty after %s", op.Key, op.What)
			}
			if hasEnabled(old) && hasEnabled(now) && op.Enabled == 0 {
				t.Fatalf("%s had nothing enabled after %s", op.Key, op.What)
			}
		}
	})
}

// Whatever is held, nothing unexplained is lost, and the changes are still ones that a strict load balancer accepts.
func TestHoldProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawState(t, "before"), drawState(t, "after")
		lb := providertest.NewLoadBalancer(providertest.MemoryCapabilities())
		p := lb.Open(owner)
		p.Apply(t.Context(), Between(providers.State{}, before))
		held := HoldRemovals(func(providers.Key) bool { return false })(Between(before, after))
		for key, err := range p.Apply(t.Context(), held) {
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
		}
		for _, old := range before.Pools {
			now := findPool(lb.State(), old.Key)
			if now == nil {
				t.Fatalf("pool %s was deleted", old.Key)
			}
			for _, m := range old.Members {
				if !slices.ContainsFunc(now.Members, func(o providers.Member) bool { return o.Address == m.Address }) {
					t.Fatalf("%s lost %s", old.Key, m.Address)
				}
			}
		}
		if len(lb.State().VirtualServers) < len(before.VirtualServers) {
			t.Fatal("a virtual server was deleted")
		}
	})
}

func findPool(s providers.State, key providers.Key) *providers.Pool {
	for i := range s.Pools {
		if s.Pools[i].Key == key {
			return &s.Pools[i]
		}
	}
	return nil
}

func hasEnabled(p *providers.Pool) bool {
	return slices.ContainsFunc(p.Members, func(m providers.Member) bool { return m.State == providers.Enabled })
}

// disjointed: members are displaced from their addresses, which goes before everything else.
func disjointed(old, now *providers.Pool) bool {
	for _, m := range old.Members {
		for _, n := range now.Members {
			if m.Address == n.Address && m.UID != n.UID {
				return true
			}
		}
	}
	return false
}
