package bigip

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// newTwo starts two devices that know nothing of each other.
func newTwo(t *testing.T) (*bench, *bigipsim.Sim, *bigipsim.Sim) {
	t.Helper()
	var devices []*bigipsim.Sim
	for range 2 {
		s, err := bigipsim.New(simConfig())
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices, s)
	}
	b := benchOf(t, devices...)
	b.cfg.Mode = Independent
	return b, devices[0], devices[1]
}

// TestConformanceIndependent judges two devices as if they were one.
func TestConformanceIndependent(t *testing.T) {
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		b, _, second := newTwo(t)
		h := harnessOf(b)
		h.PlantForeign, h.PlantPool, h.Connect = nil, nil, nil // they are planted on one device, which is judged by the other tests
		h.PlantPool = func(t *testing.T) (string, func(*testing.T)) {
			other := *b
			other.Sim = second
			other.plantPool(t)
			return b.plantPool(t)
		}
		broken := h.Break
		h.Break = func(t *testing.T) func() {
			second.Inject(bigipsim.Fault{Kind: bigipsim.Reset, Times: -1})
			restore := broken(t)
			return func() { second.Mend(); restore() }
		}
		return h
	})
}

func TestConformancePair(t *testing.T) {
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		b, pair := newPair(t)
		h := harnessOf(b)
		broken := h.Break
		h.Break = func(t *testing.T) func() {
			pair.B.Inject(bigipsim.Fault{Kind: bigipsim.Reset, Times: -1})
			restore := broken(t)
			return func() { pair.B.Mend(); restore() }
		}
		return h
	})
}

// TestOneOfTwoIsOutOfReach: the other one goes on, nothing is acknowledged that is not on both, and what was missed is made good.
func TestOneOfTwoIsOutOfReach(t *testing.T) {
	b, first, second := newTwo(t)
	p := b.open()
	k := key(0)
	one, two, three := web(k, "192.0.2.10", members(0, 2)...), web(k, "192.0.2.10", members(1, 3)...), web(k, "192.0.2.10", members(2, 4)...)
	apply := func(from, to providers.State) error {
		return p.Apply(t.Context(), providertest.Diff(from, to))[k]
	}
	on := func(s *bigipsim.Sim) string {
		return strings.Join(sortedKeys(membersAt(t, s, b.poolPath(k))), " ")
	}
	b.bring(p, providers.State{}, one)
	b.observe(p, one)
	b.bring(p, one, two)
	second.Inject(bigipsim.Fault{Kind: bigipsim.Reset, Times: -1})
	// What was observed of the second is older than what was written to it. Going back to that state must not look done.
	got, err := p.Observe(t.Context(), providers.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	if !providertest.Diff(got.State, two).Empty() {
		t.Errorf("nothing differs, yet observed is\n%s", providertest.Render(got.State))
	}
	if err := apply(two, one); err == nil {
		t.Error("a device out of reach acknowledged")
	}
	if on(first) != "10.1.0.0:61000 10.1.0.0:61001" || on(second) != "10.1.0.0:61001 10.1.0.0:61002" {
		t.Errorf("first %s, second %s", on(first), on(second))
	}
	got, err = p.Observe(t.Context(), providers.Scope{})
	if err != nil || providertest.Diff(got.State, one).Empty() || len(got.State.Pools[0].Members) != 3 {
		t.Errorf("%v, observed\n%s", err, providertest.Render(got.State))
	}
	if err := apply(one, three); err == nil || on(first) != "10.1.0.0:61002 10.1.0.0:61003" {
		t.Errorf("%v, first %s", err, on(first))
	}
	if err := apply(three, providers.State{}); err == nil || first.Count("", "x") != 0 {
		t.Errorf("%v", err)
	}
	got, err = p.Observe(t.Context(), providers.Scope{}) // gone from the first, and still on the second
	if err != nil || len(got.State.Pools) != 1 || len(got.State.VirtualServers) != 1 {
		t.Errorf("%v, observed\n%s", err, providertest.Render(got.State))
	}
	second.Mend()
	b.settle(p, three)
	if on(first) != on(second) || on(second) != "10.1.0.0:61002 10.1.0.0:61003" {
		t.Errorf("first %s, second %s", on(first), on(second))
	}
	// What is missing on one of them is missing.
	adminOf(t, second, "DELETE", "ltm/virtual/~k8s~"+b.names().virtual(k, true, netip.Prefix{}), nil)
	b.settle(p, three)
	adminOf(t, first, "DELETE", "ltm/virtual/~k8s~"+b.names().virtual(k, true, netip.Prefix{}), nil)
	adminOf(t, first, "DELETE", b.poolPath(k), nil)
	b.settle(p, three)
	// One that was never read is not guessed at.
	second.Inject(bigipsim.Fault{Kind: bigipsim.Reset, Times: -1})
	if seen, err := b.open().Observe(t.Context(), providers.Scope{}); err == nil {
		t.Errorf("observed\n%s", providertest.Render(seen.State))
	}
	// With none there is nothing to go by.
	first.Inject(bigipsim.Fault{Kind: bigipsim.Reset, Times: -1})
	if _, err := p.Observe(t.Context(), providers.Scope{}); providers.KindOf(err) != providers.Unavailable {
		t.Errorf("%v", err)
	}
}

// TestOneOfTwoHangs: a device that takes requests and never answers is waited for no longer than for one that cannot be reached, and neither reading nor
// writing the other one is held up.
func TestOneOfTwoHangs(t *testing.T) {
	b, first, second := newTwo(t)
	p := b.open()
	k := key(0)
	one, two := web(k, "192.0.2.10", members(0, 2)...), web(k, "192.0.2.10", members(1, 3)...)
	b.bring(p, providers.State{}, one)
	b.observe(p, one)
	second.Inject(bigipsim.Fault{Kind: bigipsim.Slow, Times: -1, Delay: time.Hour})
	defer second.Mend()                                                     // before the provider says goodbye to it
	ctx, cancel := context.WithTimeout(t.Context(), b.cfg.RequestTimeout/2) // by then no request has been given up by itself
	defer cancel()
	adminOf(t, first, "DELETE", b.poolPath(k)+"/members/~k8s~10.1.0.0:61001", nil)
	p.silence = 10 * time.Millisecond
	got, err := p.Observe(ctx, providers.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	if providertest.Diff(got.State, one).Empty() {
		t.Errorf("the first one lost a member, observed is\n%s", providertest.Render(got.State))
	}
	// What Apply says is what the reading found out: it asks nothing of that device.
	if err := p.Apply(ctx, providertest.Diff(got.State, two))[k]; providers.KindOf(err) != providers.Unavailable || !strings.Contains(err.Error(), "answered nothing") {
		t.Errorf("%v", err)
	}
	if on := strings.Join(sortedKeys(membersAt(t, first, b.poolPath(k))), " "); on != "10.1.0.0:61001 10.1.0.0:61002" || ctx.Err() != nil {
		t.Errorf("first %s, %v", on, ctx.Err())
	}
	second.Mend()
	p.silence = maxSilence
	b.settle(p, two)
	if on := strings.Join(sortedKeys(membersAt(t, second, b.poolPath(k))), " "); on != "10.1.0.0:61001 10.1.0.0:61002" {
		t.Errorf("second %s", on)
	}
	// Nothing is written before each was read once, so the first reading waits for a slow one.
	second.Inject(bigipsim.Fault{Kind: bigipsim.Slow, Times: -1, Delay: 20 * time.Millisecond})
	q := b.open()
	q.silence = 0
	b.observe(q, two)
}

// TestSilent: a device that answers, however slowly, is waited for, and so is one as long as no other was read.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, another, ended := &device{signs: make(chan struct{}, 1)}, make(chan struct{}), make(chan error, 1)
		go func() { ended <- d.silent(t.Context(), maxSilence, another) }()
		still := func(what string) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-ended:
				t.Fatalf("%s: %v", what, err)
			default:
			}
		}
		time.Sleep(10 * maxSilence)
		still("no other was read")
		d.signs <- struct{}{}
		synctest.Wait()
		close(another)
		for range 10 {
			time.Sleep(maxSilence - time.Millisecond)
			still("it answers")
			d.signs <- struct{}{}
			synctest.Wait()
		}
		time.Sleep(maxSilence)
		synctest.Wait()
		select {
		case err := <-ended:
			if err == nil {
				t.Error("no error")
			}
		default:
			t.Fatal("still waited for")
		}
	})
}
