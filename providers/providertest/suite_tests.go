package providertest

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/nplbridge/nplbridge/providers"
)

const (
	enabled  = providers.Enabled
	draining = providers.Draining
)

func testCapabilities(t *testing.T, f *fixture) {
	c := f.Provider.Capabilities()
	if c.Name == "" || len(c.Protocols) == 0 || c.MaxMembers < 0 {
		t.Errorf("capabilities %+v: a name, a protocol and a limit that is not negative are required", c)
	}
	f.expect(t, providers.State{})
}

func testRoundTrip(t *testing.T, f *fixture) {
	least := f.service(1, member(2, enabled))
	least.Pools[0].Settings.Algorithm = providers.LeastConnections
	f.bring(t, join(f.service(0, member(0, enabled), member(1, draining)), least))
}

func testMemberChanges(t *testing.T, f *fixture) {
	f.bring(t, f.service(0, member(0, enabled), member(1, enabled)))
	f.bring(t, f.service(0, member(0, enabled), member(1, enabled), member(2, enabled)))
	f.bring(t, f.service(0, member(0, enabled), member(1, draining), member(2, enabled)))
	f.bring(t, f.service(0, member(0, draining), member(1, enabled), member(2, enabled)))
	f.bring(t, f.service(0, member(1, enabled), member(3, draining), member(4, enabled)))
	reused := member(4, enabled)
	reused.UID = member(5, enabled).UID
	f.bring(t, f.service(0, member(1, enabled)))
	f.bring(t, f.service(0, member(1, enabled), reused)) // an address that comes back with another Pod
	changed := f.service(0, member(1, enabled), reused)
	changed.Pools[0].Settings.Algorithm = providers.LeastConnections
	f.bring(t, changed)
}

func testIdempotent(t *testing.T, f *fixture) {
	want := f.service(0, member(0, enabled), member(1, draining))
	create := Diff(providers.State{}, want)
	f.bring(t, want)
	for key, err := range f.apply(t, create) {
		if err != nil {
			t.Errorf("again: create %s: %v", key, err)
		}
	}
	f.expect(t, want)

	smaller := f.service(0, member(0, enabled))
	shrink := Diff(want, smaller)
	f.bring(t, smaller)
	for key, err := range f.apply(t, shrink) {
		if err != nil {
			t.Errorf("again: shrink %s: %v", key, err)
		}
	}
	f.expect(t, smaller)

	remove := Diff(smaller, providers.State{})
	f.bring(t, providers.State{})
	for key, err := range f.apply(t, remove) {
		if err != nil {
			t.Errorf("again: delete %s: %v", key, err)
		}
	}
	f.expect(t, providers.State{})
}

func testEmptyPool(t *testing.T, f *fixture) {
	f.bring(t, f.service(0))
	f.bring(t, f.service(0, member(0, enabled)))
	f.bring(t, f.service(0))
}

func testIPv6(t *testing.T, f *fixture) {
	six := member(0, enabled)
	six.Address = netip.MustParseAddrPort("[fd00:30::11]:61000")
	f.bring(t, f.service(0, six, member(1, enabled)))
	six.State = draining
	f.bring(t, f.service(0, six, member(1, enabled)))
}

func testSharedAddress(t *testing.T, f *fixture) {
	f.bring(t, join(f.service(0, member(0, enabled)), f.service(1, member(1, enabled))))
	f.bring(t, f.service(1, member(1, enabled)))
}

func testVirtualServerEdit(t *testing.T, f *fixture) {
	f.bring(t, f.service(0, member(0, enabled)))
	moved := f.service(0, member(0, enabled))
	moved.VirtualServers[0].VIPs = f.VIPs[1:2]
	f.bring(t, moved)
	moved = f.service(0, member(0, enabled))
	moved.VirtualServers[0].Port = f.Port(7)
	f.bring(t, moved)
	if f.VIPs[0].Is4() != f.VIPs[1].Is4() {
		both := f.service(0, member(0, enabled))
		both.VirtualServers[0].VIPs = slices.SortedFunc(slices.Values(f.VIPs[:2]), providers.CompareAddrs)
		f.bring(t, both)
	}
	f.bring(t, providers.State{Pools: f.service(0, member(0, enabled)).Pools}) // members only
}

func testNeverEmpty(t *testing.T, f *fixture) {
	if lacks(t, f.Enabled != nil, "Enabled in the harness") {
		return
	}
	f.bring(t, f.service(0, member(0, enabled), member(1, enabled)))
	var watcher sync.WaitGroup
	watching, stop := context.WithCancel(t.Context())
	samples, empty := 0, 0
	started := make(chan struct{})
	watcher.Go(func() {
		for ; watching.Err() == nil; samples++ {
			if n, ok := f.Enabled(f.key(0)); !ok || n == 0 {
				empty++
			}
			if samples == 0 {
				close(started)
			}
		}
	})
	<-started
	for round := range 20 {
		a := 2 + 2*(round%2)
		f.bring(t, f.service(0, member(a, enabled), member(a+1, enabled)))
	}
	stop()
	watcher.Wait()
	if empty > 0 {
		t.Errorf("the pool was empty in %d of %d samples while its members were replaced", empty, samples)
	}
}

func testStepsInOrder(t *testing.T, f *fixture) {
	if lacks(t, f.Journal != nil, "Journal in the harness") {
		return
	}
	f.bring(t, f.service(0, member(0, enabled), member(1, draining), member(2, enabled)))
	before := len(f.Journal())
	f.bring(t, f.service(0, member(1, enabled), member(2, draining), member(3, enabled)))
	var got []providers.MemberOp
	for _, step := range f.Journal()[before:] {
		got = append(got, step.Op)
	}
	want := []providers.MemberOp{providers.AddMember, providers.EnableMember, providers.DrainMember, providers.RemoveMember}
	if !slices.Equal(got, want) {
		t.Errorf("steps took effect as %v, want %v", got, want)
	}
}

func testDrainSurvives(t *testing.T, f *fixture) {
	f.bring(t, f.service(0, member(0, enabled), member(1, enabled)))
	f.bring(t, f.service(0, member(0, enabled), member(1, draining)))
	f.Provider = f.Reopen(t)
	f.expect(t, f.state)
	f.bring(t, f.service(0, member(0, enabled), member(1, enabled)))
	f.Provider = f.Reopen(t)
	f.expect(t, f.state)
}

func testRestart(t *testing.T, f *fixture) {
	f.bring(t, join(f.service(0, member(0, enabled), member(1, draining)), f.service(1)))
	f.bring(t, join(f.service(0, member(0, enabled), member(2, enabled)), f.service(1, member(3, enabled))))
	f.Provider = f.Reopen(t)
	f.expect(t, f.state)
	f.bring(t, join(f.service(0, member(2, enabled)), f.service(2, member(4, enabled))))
	f.Provider = f.Reopen(t)
	f.expect(t, f.state)
	f.bring(t, providers.State{})
}

func testConnections(t *testing.T, f *fixture) {
	if lacks(t, f.Connect != nil, "Connect in the harness") {
		return
	}
	f.bring(t, f.service(0, member(0, enabled)))
	disconnect := f.Connect(t, f.key(0), member(0, enabled))
	f.bring(t, f.service(0, member(0, draining)))
	observed := f.expect(t, f.state)
	if n := observed.Members[f.key(0)][member(0, draining).ID()].Connections; n != 1 {
		t.Errorf("%d connections on the draining member, want 1", n)
	}
	disconnect()
	for {
		observed := f.expect(t, f.state)
		if m, known := observed.Members[f.key(0)][member(0, draining).ID()]; known && m.Connections == 0 {
			return
		}
		if f.ctx.Err() != nil {
			t.Fatal("the connection is closed and still counted")
		}
	}
}

func testBadKey(t *testing.T, f *fixture) {
	bad := f.key(1)
	if f.Bad == nil {
		f.Bad = func(key providers.Key) providers.Changes {
			vs := providers.VirtualServer{Key: key, VIPs: f.VIPs[:1], Port: f.Port(1)}
			return providers.Changes{VirtualServers: []providers.VirtualServerChange{{Key: key, New: &vs}}}
		}
	}
	good := join(f.service(0, member(0, enabled)), f.service(2, member(2, enabled)))
	changes, refused := Diff(providers.State{}, good), f.Bad(bad)
	changes.Pools = append(changes.Pools, refused.Pools...)
	changes.VirtualServers = append(changes.VirtualServers, refused.VirtualServers...)
	slices.SortFunc(changes.Pools, func(a, b providers.PoolChange) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(changes.VirtualServers, func(a, b providers.VirtualServerChange) int { return a.Key.Compare(b.Key) })
	results := f.apply(t, changes)
	if results[bad] == nil {
		t.Errorf("%s was accepted", bad)
	}
	for _, n := range []int{0, 2} {
		if err, attempted := results[f.key(n)]; err != nil || !attempted {
			t.Errorf("%s: attempted %v, error %v: the bad key stopped it", f.key(n), attempted, err)
		}
	}
	observed, err := f.Provider.Observe(f.ctx, providers.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range good.Pools {
		if got := find(observed.State.Pools, want.Key, poolKey); got == nil || Render(*got) != Render(want) {
			t.Errorf("%s is not on the load balancer", want.Key)
		}
	}
}

func testDelete(t *testing.T, f *fixture) {
	f.bring(t, join(f.service(0, member(0, enabled), member(1, draining)), f.service(1)))
	f.bring(t, providers.State{})
	f.Provider = f.Reopen(t)
	f.expect(t, providers.State{})
}

func testDeletePart(t *testing.T, f *fixture) {
	f.bring(t, join(f.service(0, member(0, enabled)), f.service(1, member(1, enabled)), f.service(2, member(2, enabled))))
	f.bring(t, join(f.service(0, member(0, enabled)), f.service(2, member(2, enabled))))
}

func testForeign(t *testing.T, f *fixture) {
	if lacks(t, f.PlantForeign != nil, "PlantForeign in the harness") {
		return
	}
	verify := f.PlantForeign(t)
	f.expect(t, providers.State{})
	f.bring(t, f.service(0, member(0, enabled)))
	verify(t)
	f.Provider = f.Reopen(t)
	f.expect(t, f.state)
	f.bring(t, providers.State{})
	verify(t)
}

func testBroken(t *testing.T, f *fixture) {
	if lacks(t, f.Break != nil, "Break in the harness") {
		return
	}
	f.bring(t, f.service(0, member(0, enabled)))
	restore := f.Break(t)
	observed, err := f.Provider.Observe(f.ctx, providers.Scope{})
	if err == nil {
		t.Fatalf("Observe of an unreachable load balancer answered\n%s", Render(observed.State))
	}
	if kind := providers.KindOf(err); kind != providers.Unavailable {
		t.Errorf("the kind of %q is %s, want %s", err, kind, providers.Unavailable)
	}
	for key, err := range f.apply(t, Diff(f.state, f.service(0, member(0, enabled), member(1, enabled)))) {
		if err == nil {
			t.Errorf("%s: an unreachable load balancer acknowledged", key)
		}
	}
	restore()
	if _, err := f.Provider.Observe(f.ctx, providers.Scope{}); err != nil {
		t.Fatalf("observe after it came back: %v", err)
	}
}

func testCancelled(t *testing.T, f *fixture) {
	f.bring(t, f.service(0, member(0, enabled)))
	done, cancel := context.WithCancel(f.ctx)
	cancel()
	for key, err := range f.Provider.Apply(done, Diff(f.state, f.service(0, member(0, enabled), member(1, enabled)))) {
		if err == nil {
			t.Errorf("%s was acknowledged after its context had ended", key)
		}
	}
	f.expect(t, f.state)
}
