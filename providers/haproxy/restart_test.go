package haproxy

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// forgetful is a haproxy with one Service of pods, restarted before its file listed more than the first of them. Its
// Provider has not been called since.
func forgetful(t *testing.T, spied bool, pods ...*pod) (*balancer, desk, *spy) {
	t.Helper()
	b := newBalancer(t)
	b.cfg.WriteDelay = time.Minute
	_ = b.open().Close() // the directory must be there before haproxy is
	b.start()
	var s *spy
	if spied {
		s = spyOn(t, b)
	}
	d := desk{t, b.open()}
	d.observe()
	b.serve(d, testKey("web"), 80, pods[0])
	d.must(change(testKey("web"), members(pods[0]), members(pods...), nil))
	if got := len(b.servers(testKey("web"))); got != len(pods) {
		t.Fatalf("%d servers before the crash, want %d", got, len(pods))
	}
	b.kill()
	b.start()
	return b, d, s
}

// changed waits until the Provider tells of a change.
func (d desk) changed() {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 30*time.Second)
	defer cancel()
	select {
	case <-d.p.Changed():
	case <-ctx.Done():
		d.t.Fatal("the restart was not told")
	}
}

// looks waits until the keeper has looked at the worker n more times.
func (s *spy) looks(b *balancer, n int) {
	b.t.Helper()
	count := func() (n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.commands {
			if strings.HasPrefix(c, "show info") {
				n++
			}
		}
		return n
	}
	until := count() + n
	b.eventually("the keeper looks", func() error {
		if count() < until {
			return errors.New("not yet")
		}
		return nil
	})
}

// Members that came within WriteDelay before a crash are not in the file, so the new worker lacks them.
func TestRestartBeforeTheFileIsWritten(t *testing.T) {
	t.Parallel()
	one, two := newPod(t, "one"), newPod(t, "two")
	b, d, spy := forgetful(t, true, one, two)
	before := len(spy.writes())
	d.changed()
	spy.looks(b, 3)
	select {
	case <-d.p.Changed():
		t.Error("one restart was told twice")
	default:
	}

	seen := d.observe()
	if !seen.Restarted {
		t.Error("Observe does not say that haproxy was restarted")
	}
	want := providers.Pool{Key: testKey("web"), Settings: providers.PoolSettings{Algorithm: providers.RoundRobin}, Members: members(one)}
	if got := providertest.Render(providers.State{Pools: seen.State.Pools}); got != providertest.Render(providers.State{Pools: []providers.Pool{want}}) {
		t.Errorf("observed %s, the worker has one only", got)
	}
	if d.observe().Restarted {
		t.Error("one restart is observed twice")
	}
	if writes := spy.writes(); len(writes) != before {
		t.Errorf("looking wrote %q", writes[before:])
	}
	d.must(change(testKey("web"), members(one), members(one, two), nil))
	if got := len(b.servers(testKey("web"))); got != 2 {
		t.Errorf("%d servers after the repair", got)
	}
}

// An HAProxy that is gone is told of though nobody calls; whoever observes then hears it, and hears of the next worker when there is one.
func TestSilenceIsTold(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, one := desk{t, p}, newPod(t, "one")
	d.observe()
	b.serve(d, testKey("web"), 80, one)
	b.kill()
	d.changed()
	if _, err := p.Observe(t.Context(), providers.Scope{}); providers.KindOf(err) != providers.Unavailable {
		t.Errorf("Observe without haproxy: %v, want Unavailable", err)
	}
	b.start()
	d.changed()
	if !d.observe().Restarted {
		t.Error("Observe does not say that haproxy was restarted")
	}
}

// What was planned for the worker that died is not done to the next, in particular not when it needs a reload: that
// would make the short list the one that is wanted.
func TestNoChangeToAStranger(t *testing.T) {
	t.Parallel()
	one, two, three := newPod(t, "one"), newPod(t, "two"), newPod(t, "three")
	b, d, _ := forgetful(t, false, one, two)
	worker := b.worker()
	planned := change(testKey("web"), members(one, two), members(one, two, three), nil)
	other := change(testKey("other"), nil, members(one), &providers.VirtualServer{Key: testKey("other"), VIPs: b.vips[:1], Port: 81})
	both := providers.Changes{Pools: append(other.Pools, planned.Pools...), VirtualServers: other.VirtualServers}
	for _, changes := range []providers.Changes{other, both} { // and an error does not make the stranger known
		results := d.p.Apply(t.Context(), changes)
		if len(results) != len(changes.Pools) {
			t.Errorf("%d results", len(results))
		}
		for key, err := range results {
			if err == nil || providers.KindOf(err) != providers.Conflict || !strings.Contains(err.Error(), "restarted") {
				t.Errorf("%s: %v, want a conflict that says why", key, err)
			}
		}
	}
	if got := len(b.servers(testKey("web"))); got != 1 || b.worker() != worker {
		t.Errorf("Apply changed something: %d servers, worker %d, was %d", got, b.worker(), worker)
	}
	if !d.observe().Restarted {
		t.Error("Observe does not say that haproxy was restarted")
	}
	d.must(change(testKey("web"), members(one), members(one, two), nil))
	d.must(other)
	if got := len(b.servers(testKey("web"))); got != 2 {
		t.Errorf("%d servers after observing, repairing and a reload, want 2", got)
	}
}

// Our own reloads are no news.
func TestOwnReloadIsNotTold(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	_ = b.open().Close()
	b.start()
	spy := spyOn(t, b)
	d := desk{t, b.open()}
	one := newPod(t, "one")
	d.observe()
	for n, name := range []string{"a", "b", "c"} {
		b.serve(d, testKey(name), uint16(80+n), one)
	}
	spy.looks(b, 3)
	select {
	case <-d.p.Changed():
		t.Error("told of our own reload")
	default:
	}
	if d.observe().Restarted {
		t.Error("our own reload is observed as a restart")
	}
}
