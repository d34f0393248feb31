package haproxy

import (
	"errors"
	"slices"
	"testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// with returns a state with one Service whose members are these.
func with(state providers.State, members ...providers.Member) providers.State {
	state.Pools = slices.Clone(state.Pools)
	state.Pools[0].Members = slices.SortedFunc(slices.Values(members), providers.CompareMembers)
	return state
}

// TestRenamedBackend: a reload gives a Service another backend. A connection that the worker before carries is counted while its member drains, by the
// next lbsync as well, and ends when the member is removed; that of another Service with the same Pod does neither.
func TestRenamedBackend(t *testing.T) {
	t.Parallel()
	least := func(s providers.State) providers.State {
		s.Pools = slices.Clone(s.Pools)
		s.Pools[0].Settings.Algorithm = providers.LeastConnections
		return s
	}
	same := func(s providers.State) providers.State { return s }
	for _, c := range []struct {
		name          string
		before, after string // the open ports
		wish          func(providers.State) providers.State
		drainFirst    bool // the member drains already when the backend is renamed
	}{
		{"a spare one to its own, then drained", "8000-8009", "8000-8009", least, false},
		{"a spare one to its own, drained before", "8000-8009", "8000-8009", least, true},
		{"its own to a spare one, then drained", "", "8000-8009", same, false},
		{"its own to a spare one, drained before", "", "8000-8009", same, true},
		{"open ports switched off", "8000-8009", "", same, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBalancer(t)
			ports := func(p string) {
				b.cfg.OpenPorts = nil
				if p != "" {
					b.cfg.OpenPorts = []string{b.vips[0].String() + ":" + p}
				}
			}
			ports(c.before)
			d, _ := opened(t, b)
			one, two := newPod(t, "one"), newPod(t, "two")
			key, at, state := b.numbered(t, 1, one)
			_, otherAt, other := b.numbered(t, 2, one)
			d.must(providertest.Diff(providers.State{}, both(state, other)))
			live, beside := dialLive(t, at), dialLive(t, otherAt)
			set := func(now providers.State) {
				t.Helper()
				d.must(providertest.Diff(d.only(key), now))
			}
			enabled, drained := with(state, one.Member, two.Member), with(state, one.draining(), two.Member)
			set(enabled)
			if c.drainFirst {
				set(drained)
			}
			renamed := d.p.backend(key)
			if err := d.p.Close(); err != nil {
				t.Fatal(err)
			}
			ports(c.after)
			d.p = b.open()
			if now := d.only(key); c.drainFirst {
				d.must(providertest.Diff(now, c.wish(drained)))
			} else {
				d.must(providertest.Diff(now, c.wish(enabled)))
				set(c.wish(drained))
			}
			if now := d.p.backend(key); now == renamed {
				t.Fatalf("the backend is %s still, and the test shows nothing", now)
			}
			count := func(want int) {
				t.Helper()
				if n := d.observe().Members[key][one.ID()].Connections; n != want {
					t.Errorf("%d connections of the member that drains, want %d", n, want)
				}
			}
			count(1)
			if err := d.p.Close(); err != nil {
				t.Fatal(err)
			}
			d.p = b.open()
			count(1)
			if _, err := talk(live, false); err != nil {
				t.Fatalf("the connection broke before its member was removed: %v", err)
			}
			set(c.wish(with(state, two.Member)))
			b.eventually("the connection to the removed member is closed", func() error {
				if _, err := talk(live, false); err == nil {
					return errors.New("it still echoes")
				}
				return nil
			})
			if _, err := talk(beside, false); err != nil {
				t.Errorf("another Service's connection to the same Pod broke: %v", err)
			}
		})
	}
}
