package providertest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// Harness is one empty load balancer under test and the handles the suite has on it. Provider, Reopen and VIPs are
// required. What an optional field would check is not judged, and that is printed, when the field is nil.
type Harness struct {
	Provider providers.Provider

	// Reopen closes Provider and returns a new one on the same load balancer with the same owner: a restart of lbsync.
	Reopen func(t *testing.T) providers.Provider

	// VIPs are at least two addresses that virtual servers can have here, at most one per family in one virtual
	// server, so give two of one family or one of each.
	VIPs []netip.Addr

	// Port returns the port of the n-th virtual server, n from 0. The default is 8080+n.
	Port func(n int) uint16

	// PlantForeign puts objects without our mark on the load balancer, as like ours as can be, and returns a check
	// that they are untouched.
	PlantForeign func(t *testing.T) (verify func(t *testing.T))

	// PlantPool makes a pool of somebody else on the load balancer with one member of theirs, and returns its name for
	// providers.Pool.Attached and a check that the pool, that member and its settings are untouched. Needed with AttachedPools.
	PlantPool func(t *testing.T) (name string, verify func(t *testing.T))

	// Enabled counts the Enabled members of a pool on the load balancer by other means than Provider. It is called by
	// another goroutine while Apply runs; ok is false where the pool does not exist.
	Enabled func(key providers.Key) (n int, ok bool)

	// Journal returns the steps on members so far, in the order in which they took effect.
	Journal func() []providers.MemberChange

	// Bad returns changes for key that the load balancer refuses. The default is a virtual server without a pool.
	Bad func(key providers.Key) providers.Changes

	// Break makes the load balancer unreachable until restore is called.
	Break func(t *testing.T) (restore func())

	// Connect gives the one Draining member of a pool one connection until disconnect is called.
	Connect func(t *testing.T, key providers.Key, member providers.Member) (disconnect func())
}

// Run judges a provider. start returns a new, empty load balancer for each test; whatever it starts it must stop by
// t.Cleanup.
func Run(t *testing.T, start func(t *testing.T) Harness) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *fixture)
	}{
		{"capabilities", testCapabilities},
		{"round trip", testRoundTrip},
		{"every member change", testMemberChanges},
		{"idempotent", testIdempotent},
		{"empty pool", testEmptyPool},
		{"IPv6 members", testIPv6},
		{"two virtual servers, one address", testSharedAddress},
		{"virtual server edited", testVirtualServerEdit},
		{"pool settings", testPoolSettings},
		{"virtual server settings", testVirtualServerSettings},
		{"weights", testWeights},
		{"what it cannot do is refused", testUnsupported},
		{"members in a pool of somebody else", testAttached},
		{"never empty while members are replaced", testNeverEmpty},
		{"steps in order", testStepsInOrder},
		{"drain survives a restart", testDrainSurvives},
		{"everything survives a restart", testRestart},
		{"connections of draining members", testConnections},
		{"one bad key does not stop others", testBadKey},
		{"delete", testDelete},
		{"delete part", testDeletePart},
		{"foreign objects stay", testForeign},
		{"observe is never partial", testBroken},
		{"cancelled", testCancelled},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := start(t)
			if h.Port == nil {
				h.Port = func(n int) uint16 { return uint16(8080 + n) }
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			test.run(t, &fixture{Harness: h, ctx: ctx})
		})
	}
}

// fixture is a Harness with the verbs the tests are written in.
type fixture struct {
	Harness
	ctx   context.Context
	state providers.State // what the suite last brought the load balancer to
}

// key is the n-th Service port.
func (f *fixture) key(n int) providers.Key {
	return providers.Key{
		Namespace: "shop", Service: fmt.Sprintf("web-%d", n), Port: f.Port(n),
		Protocol: f.Provider.Capabilities().Protocols[0],
	}
}

// service is the n-th pool with these members and the virtual server in front of it.
func (f *fixture) service(n int, members ...providers.Member) providers.State {
	slices.SortFunc(members, providers.CompareMembers)
	return providers.State{
		Pools:          []providers.Pool{{Key: f.key(n), Settings: providers.PoolSettings{Algorithm: providers.RoundRobin}, Members: members}},
		VirtualServers: []providers.VirtualServer{{Key: f.key(n), VIPs: f.VIPs[:1], Port: f.Port(n)}},
	}
}

func join(states ...providers.State) providers.State {
	var out providers.State
	for _, s := range states {
		out.Pools = append(out.Pools, s.Pools...)
		out.VirtualServers = append(out.VirtualServers, s.VirtualServers...)
	}
	slices.SortFunc(out.Pools, func(a, b providers.Pool) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(out.VirtualServers, func(a, b providers.VirtualServer) int { return a.Key.Compare(b.Key) })
	return out
}

// member is the n-th Pod's member.
func member(n int, state providers.MemberState) providers.Member {
	return providers.Member{
		UID:     fmt.Sprintf("0f4c5b6e-0000-4000-8000-%012d", n),
		Name:    fmt.Sprintf("shop/web-%d", n),
		Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(n + 1)}), uint16(61000+n)),
		State:   state,
	}
}

func (f *fixture) apply(t *testing.T, changes providers.Changes) providers.Results {
	t.Helper()
	results := f.Provider.Apply(f.ctx, changes)
	for key, err := range results {
		var classified *providers.Error
		if err != nil && !errors.As(err, &classified) {
			t.Errorf("%s: the error is not classified: %v", key, err)
		}
	}
	return results
}

// bring takes the load balancer to a state, demands success for every key, and reads it back.
func (f *fixture) bring(t *testing.T, to providers.State) {
	t.Helper()
	changes := Diff(f.state, to)
	results := f.apply(t, changes)
	for _, key := range changeKeys(changes) {
		if err, attempted := results[key]; err != nil || !attempted {
			t.Fatalf("apply %s: attempted %v, error %v", key, attempted, err)
		}
	}
	f.state = to
	f.expect(t, to)
}

// scope names the pools of others that the present state has members in.
func (f *fixture) scope() providers.Scope {
	scope := providers.Scope{Attached: map[providers.Key]string{}}
	for _, p := range f.state.Pools {
		if p.Attached != "" {
			scope.Attached[p.Key] = p.Attached
		}
	}
	return scope
}

// expect reads the load balancer and compares.
func (f *fixture) expect(t *testing.T, want providers.State) providers.Observed {
	t.Helper()
	got, err := f.Provider.Observe(f.ctx, f.scope())
	if err != nil {
		t.Fatalf("observe: %v", err)
	}
	if g, w := Render(got.State), Render(want); g != w {
		t.Fatalf("observed\n%swant\n%s", g, w)
	}
	return got
}

func changeKeys(c providers.Changes) []providers.Key {
	var keys []providers.Key
	for _, p := range c.Pools {
		keys = append(keys, p.Key)
	}
	for _, v := range c.VirtualServers {
		keys = append(keys, v.Key)
	}
	slices.SortFunc(keys, providers.Key.Compare)
	return slices.Compact(keys)
}

// lacks reports, and prints, that something cannot be judged. That is no skipped test: there is nothing that ought to run here.
func lacks(t *testing.T, has bool, what string) bool {
	t.Helper()
	if !has {
		t.Logf("not judged: no %s", what)
	}
	return !has
}
