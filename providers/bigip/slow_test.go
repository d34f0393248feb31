package bigip

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// faraway stands between the provider and a device. What passes arrives later by delay, in each direction, as over a long line: pieces follow each
// other without waiting for the one ahead to arrive.
type faraway struct {
	target string
	delay  time.Duration

	mu    sync.Mutex
	conns int
}

// farFrom puts the devices of a bench far away.
func farFrom(b *bench, delay time.Duration) []*faraway {
	b.t.Helper()
	var out []*faraway
	for n, url := range b.cfg.URLs {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(func() { _ = listener.Close() })
		f := &faraway{target: strings.TrimPrefix(url, "https://"), delay: delay}
		b.cfg.URLs[n] = "https://" + listener.Addr().String()
		go f.serve(listener)
		out = append(out, f)
	}
	return out
}

func (f *faraway) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conns
}

func (f *faraway) serve(l net.Listener) {
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns++
		f.mu.Unlock()
		go func() {
			far, err := net.Dial("tcp", f.target)
			if err != nil {
				_ = near.Close()
				return
			}
			go f.carry(far, near)
			f.carry(near, far)
		}()
	}
}

// carry takes what one end sends to the other, and the end of it.
func (f *faraway) carry(to, from net.Conn) {
	type piece struct {
		text []byte
		due  time.Time
	}
	line := make(chan piece, 4096)
	go func() {
		defer close(line)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			line <- piece{buffer[:n], time.Now().Add(f.delay)}
			if err != nil {
				return
			}
		}
	}()
	for p := range line {
		time.Sleep(time.Until(p.due))
		_, _ = to.Write(p.text) // what was closed in between reads the rest in vain
	}
	_ = to.Close()
}

// TestConnectionsAreKept: over a long line a connection costs more than a request, so requests share a few. Beside those of which a request is under way
// there may be some whose last answer has only just been read.
func TestConnectionsAreKept(t *testing.T) {
	b := newBench(t)
	line := farFrom(b, time.Millisecond)[0]
	p := b.open()
	now := providers.State{}
	for n := range 5 {
		next := web(key(0), "192.0.2.10", members(n, n+3)...)
		b.bring(p, now, next)
		b.observe(p, next)
		now = next
	}
	if n, calls := line.connections(), len(b.Calls()); n > calls/10 {
		t.Errorf("%d connections for %d requests", n, calls)
	}
}

// TestReadingDoesNotGrow: how many requests a reading takes depends on the pages, not on the pools.
func TestReadingDoesNotGrow(t *testing.T) {
	b := newBench(t)
	p := b.open()
	reads := func() int {
		b.ResetCounters()
		if _, err := p.Observe(t.Context(), providers.Scope{}); err != nil {
			t.Fatal(err)
		}
		return len(b.Calls())
	}
	reads() // logs in
	none := reads()
	all := fleet(50, 2)
	b.bring(p, providers.State{}, join(all...))
	if n := reads(); n != none {
		t.Errorf("%d requests for 50 pools, %d for none", n, none)
	}
}

// TestDeadPeerIsNotWaitedFor: while one device of a pair says that it is the active one, the other may hang.
func TestDeadPeerIsNotWaitedFor(t *testing.T) {
	b, _ := newPair(t)
	hangs, err := net.Listen("tcp", "127.0.0.1:0") // connects, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hangs.Close() }()
	b.cfg.URLs[1] = "https://" + hangs.Addr().String()
	p := b.open()
	ctx, cancel := context.WithTimeout(t.Context(), b.cfg.RequestTimeout/2) // by then nobody has given up on the other
	defer cancel()
	if _, err := p.Observe(ctx, providers.Scope{}); err != nil {
		t.Fatal(err)
	}
	now := web(key(0), "192.0.2.10", member(0))
	for k, err := range p.Apply(ctx, providertest.Diff(providers.State{}, now)) {
		if err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
}

// TestAskingWhetherActiveIsShort: before a write to one of a pair two requests, at the same time, find out whether it still is the active one.
func TestAskingWhetherActiveIsShort(t *testing.T) {
	b, pair := newPair(t)
	clock := fakeClock()
	p := b.open(WithClock(clock))
	now, next := web(key(0), "192.0.2.10", member(0)), web(key(0), "192.0.2.10", member(1))
	b.bring(p, providers.State{}, now)
	clock.Step(2 * roleAge)
	pair.A.ResetCounters()
	pair.B.ResetCounters()
	b.bring(p, now, next)
	reads := 0
	for _, c := range append(pair.A.Calls(), pair.B.Calls()...) {
		if c.Method == http.MethodGet {
			reads++
		}
	}
	if reads != 2 {
		t.Errorf("%d requests that read, want 2:\n%s%s", reads, lines(pair.A.Calls()), lines(pair.B.Calls()))
	}
	// It finds out that the partition is another traffic group's now.
	pair.A.Admin("POST", "/mgmt/tm/cm/traffic-group", `{"name": "traffic-group-9"}`)
	b.admin("PATCH", "sys/folder/~k8s", map[string]any{"trafficGroup": "/Common/traffic-group-9"})
	clock.Step(2 * roleAge)
	pair.A.ResetCounters()
	p.Apply(t.Context(), providertest.Diff(next, now))
	if n := pair.A.Count(http.MethodGet, "/mgmt/tm/cm/device"); n == 0 {
		t.Errorf("not asked anew:\n%s", lines(pair.A.Calls()))
	}
}

// TestKeysAreFinishedBeforeOthersBegin: on a slow device four Services that take turns would all run out of time; as many as there are requests under way
// get to their end.
func TestKeysAreFinishedBeforeOthersBegin(t *testing.T) {
	b := newBench(t)
	p := b.open()
	b.observe(p, providers.State{})
	states := fleet(12, 1)
	b.Inject(bigipsim.Fault{Kind: bigipsim.Slow, Times: -1, Delay: 3 * time.Millisecond})
	b.ResetCounters()
	var all sync.WaitGroup
	for _, s := range states {
		all.Go(func() {
			for k, err := range p.Apply(t.Context(), providertest.Diff(providers.State{}, s)) {
				if err != nil {
					t.Errorf("%s: %v", k, err)
				}
			}
		})
	}
	all.Wait()
	open, most := 0, 0
	for _, c := range b.Calls() {
		switch {
		case c.Method == http.MethodPost && c.Path == "/mgmt/tm/transaction":
			open++
		case c.Method == http.MethodPatch && strings.HasPrefix(c.Path, "/mgmt/tm/transaction/"):
			open--
		}
		most = max(most, open)
	}
	if most == 0 || most > b.cfg.MaxInFlight {
		t.Errorf("%d transactions at once, want 1 to %d", most, b.cfg.MaxInFlight)
	}
}

// TestNoTimeLeft: what is not begun in time is not attempted, and not taken for done where it is on one of two devices.
func TestNoTimeLeft(t *testing.T) {
	b := newBench(t)
	p := b.open()
	b.observe(p, providers.State{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.ResetCounters()
	if results := p.Apply(ctx, providertest.Diff(providers.State{}, join(fleet(3, 1)...))); len(results) != 0 || len(b.Calls()) != 0 {
		t.Errorf("%v, %d calls", results, len(b.Calls()))
	}
	two, _, _ := newTwo(t)
	q := two.open()
	two.observe(q, providers.State{})
	results := q.Apply(ctx, providertest.Diff(providers.State{}, join(fleet(3, 1)...)))
	for n := range 3 {
		if err := results[key(n)]; err == nil || providers.KindOf(err) != providers.Unavailable {
			t.Errorf("%s: %v", key(n), err)
		}
	}
}

// BenchmarkObserveFarAway reads devices that are far away: the delay is that of each direction, so a request takes twice as long.
func BenchmarkObserveFarAway(t *testing.B) {
	for _, services := range []int{10, 100, 1000} {
		b := newBench(t)
		near := b.open()
		states := fleet(services, 5)
		inParallel(t, near, len(states), func(n int) providers.Changes { return providertest.Diff(providers.State{}, states[n]) })
		_ = near.Close()
		url := b.cfg.URLs[0]
		for _, delay := range []time.Duration{0, 50, 200, 400} {
			delay *= time.Millisecond
			t.Run(fmt.Sprintf("pools=%d/delay=%s", services, delay), func(t *testing.B) {
				b.cfg.URLs[0] = url
				farFrom(b, delay)
				var first, again time.Duration
				for range t.N {
					q := b.open()
					for _, took := range []*time.Duration{&first, &again} {
						began := time.Now()
						if _, err := q.Observe(t.Context(), providers.Scope{}); err != nil {
							t.Fatal(err)
						}
						*took += time.Since(began)
					}
					_ = q.Close()
				}
				t.ReportMetric(first.Seconds()/float64(t.N), "s-first")
				t.ReportMetric(again.Seconds()/float64(t.N), "s-again")
			})
		}
	}
}

// BenchmarkNewServicesFarAway brings four Services at once, as lbsync does, to a device that is far away. It prints how long each call takes, of which
// lbsync gives it no more than the Lease lasts.
func BenchmarkNewServicesFarAway(t *testing.B) {
	for _, delay := range []time.Duration{0, 50, 200, 400} {
		delay *= time.Millisecond
		t.Run(fmt.Sprintf("delay=%s", delay), func(t *testing.B) {
			b := newBench(t)
			farFrom(b, delay)
			p := b.open()
			b.observe(p, providers.State{})
			states := fleet(4*t.N, 2)
			var longest time.Duration
			t.ResetTimer()
			for n := range t.N {
				began := time.Now()
				inParallel(t, p, 4, func(i int) providers.Changes { return providertest.Diff(providers.State{}, states[4*n+i]) })
				longest = max(longest, time.Since(began))
			}
			t.ReportMetric(longest.Seconds(), "s-longest-call")
		})
	}
}
