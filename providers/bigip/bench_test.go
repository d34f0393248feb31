package bigip

import (
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// callTime is how long a device takes for a call in these benchmarks; it writes one after the other.
const callTime = 20 * time.Millisecond

// fleet is n Services with so many members each, on 50 Nodes.
func fleet(services, members int) []providers.State {
	out := make([]providers.State, services)
	for n := range out {
		all := make([]providers.Member, members)
		for i := range all {
			all[i] = podOf(n*members + i)
		}
		out[n] = web(key(n), netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}).String(), all...)
	}
	return out
}

func podOf(n int) providers.Member {
	m := member(n)
	m.Address = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(1 + n%50)}), uint16(30000+n/50))
	return m
}

// inParallel calls Apply as lbsync does: as many at once as the provider allows.
func inParallel(b *testing.B, p *Provider, n int, change func(int) providers.Changes) {
	b.Helper()
	next := make(chan int)
	var workers sync.WaitGroup
	for range p.Capabilities().Concurrency {
		workers.Go(func() {
			for i := range next {
				for k, err := range p.Apply(b.Context(), change(i)) {
					if err != nil {
						b.Errorf("%s: %v", k, err)
					}
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

func (b *bench) slow() {
	b.Inject(bigipsim.Fault{Kind: bigipsim.Slow, Times: -1, Delay: callTime})
	b.ResetCounters()
}

// report prints what the calls were.
func (b *bench) report(t *testing.B, rounds int) {
	reads, sent := 0, 0
	for _, c := range b.Calls() {
		if c.Method == http.MethodGet {
			reads++
		}
		sent += len(c.Body)
	}
	t.ReportMetric(float64(len(b.writes()))/float64(rounds), "writes/op")
	t.ReportMetric(float64(reads)/float64(rounds), "reads/op")
	t.ReportMetric(float64(sent)/float64(rounds)/1024, "KiB-sent/op")
	for _, path := range []string{"sys/config", "cm"} {
		t.ReportMetric(float64(b.Count(http.MethodPost, "/mgmt/tm/"+path)), "POST-"+path)
	}
}

// BenchmarkFirstSync brings 1,000 Services with 5 members each to an empty device.
func BenchmarkFirstSync(t *testing.B) {
	states := fleet(1000, 5)
	for range t.N {
		t.StopTimer()
		b := newBench(t)
		p := b.open()
		b.observe(p, providers.State{})
		b.slow()
		t.StartTimer()
		inParallel(t, p, len(states), func(n int) providers.Changes { return providertest.Diff(providers.State{}, states[n]) })
		t.StopTimer()
		b.report(t, 1)
	}
}

// BenchmarkRestart observes those 1,000 Services with a new provider.
func BenchmarkRestart(t *testing.B) {
	states := fleet(1000, 5)
	b := newBench(t)
	p := b.open()
	inParallel(t, p, len(states), func(n int) providers.Changes { return providertest.Diff(providers.State{}, states[n]) })
	_ = p.Close()
	b.slow()
	for t.Loop() {
		q := b.open()
		if _, err := q.Observe(t.Context(), providers.Scope{}); err != nil {
			t.Fatal(err)
		}
		_ = q.Close()
	}
	b.report(t, t.N)
	if w := b.writes(); len(w) > 0 {
		t.Errorf("a restart wrote:\n%s", lines(w))
	}
}

// BenchmarkReplacePod replaces one Pod of five.
func BenchmarkReplacePod(t *testing.B) {
	b := newBench(t)
	p := b.open()
	now := fleet(1, 5)[0]
	b.bring(p, providers.State{}, now)
	b.slow()
	n := 0
	for t.Loop() {
		next := web(now.Pools[0].Key, "198.18.0.0", append(slices.Clone(now.Pools[0].Members[1:]), podOf(50*(1+n%1000)))...) // on the Node of the one that goes
		b.bring(p, now, next)
		now, n = next, n+1
	}
	b.report(t, t.N)
}

// BenchmarkFifty replaces 50 members of a pool of 500.
func BenchmarkFifty(t *testing.B) {
	b := newBench(t)
	p := b.open()
	now := fleet(1, 500)[0]
	b.bring(p, providers.State{}, now)
	b.slow()
	n := 500
	for t.Loop() {
		all := slices.Clone(now.Pools[0].Members[50:])
		for range 50 {
			all, n = append(all, podOf(n)), n+1
		}
		next := web(key(0), "198.18.0.0", all...)
		if err := p.Apply(t.Context(), providers.Changes{Pools: []providers.PoolChange{{Key: key(0), Old: &now.Pools[0], New: &next.Pools[0]}}})[key(0)]; err != nil {
			t.Fatal(err)
		}
		now = next
	}
	b.report(t, t.N)
}

// BenchmarkRollingUpdate replaces 1,000 Pods of 20 Services, 20 a second: each is ready, 100 ms later the one it replaces drains and two seconds later is gone. As in lbsync, what
// becomes due for a Service while its last change is on its way is one change. It prints the time from an event to its acknowledgement.
func BenchmarkRollingUpdate(t *testing.B) {
	const services, pods = 20, 50
	for range t.N {
		t.StopTimer()
		b := newBench(t)
		p := b.open()
		states := fleet(services, pods)
		inParallel(t, p, services, func(n int) providers.Changes { return providertest.Diff(providers.State{}, states[n]) })
		b.slow()
		took := roll(t, p, states, pods)
		b.report(t, 1)
		slices.Sort(took)
		at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Microseconds()) / 1000 }
		t.ReportMetric(float64(len(took)), "events/op")
		t.ReportMetric(at(0.5), "p50-ms")
		t.ReportMetric(at(0.99), "p99-ms")
		b.Mend()
		b.observe(p, join(states...))
		t.StartTimer()
	}
}

// event is one thing that happens to a pool.
type event struct {
	at   time.Time
	edit func([]providers.Member) []providers.Member
}

func roll(t *testing.B, p *Provider, states []providers.State, pods int) (took []time.Duration) {
	var mu sync.Mutex
	slots := make(chan struct{}, p.Capabilities().Concurrency)
	var all sync.WaitGroup
	begin := time.Now()
	t.StartTimer()
	for n := range states {
		all.Go(func() {
			due := make(chan event, 4*pods)
			all.Go(func() { timeline(begin, n, len(states), pods, due) })
			now := states[n]
			for first := range due {
				slots <- struct{}{}
				batch := []event{first}
				for more := true; more; {
					select {
					case e, ok := <-due:
						if more = ok; ok {
							batch = append(batch, e)
						}
					default:
						more = false
					}
				}
				members := slices.Clone(now.Pools[0].Members)
				for _, e := range batch {
					members = e.edit(members)
				}
				next := web(now.Pools[0].Key, now.VirtualServers[0].VIPs[0].String(), members...)
				for k, err := range p.Apply(t.Context(), providertest.Diff(now, next)) {
					if err != nil {
						t.Errorf("%s: %v", k, err)
					}
				}
				<-slots
				now = next
				mu.Lock()
				for _, e := range batch {
					took = append(took, time.Since(e.at))
				}
				mu.Unlock()
			}
			states[n] = now
		})
	}
	all.Wait()
	t.StopTimer()
	return took
}

// timeline sends the events of one Service when they happen.
func timeline(begin time.Time, n, services, pods int, due chan<- event) {
	const step = 50 * time.Millisecond // over all Services
	var events []event
	for i := range pods {
		ready := begin.Add(time.Duration(i*services+n) * step)
		old, fresh := podOf(n*pods+i), podOf(20000+n*pods+i)
		events = append(events,
			event{ready, func(m []providers.Member) []providers.Member { return append(m, fresh) }},
			event{ready.Add(100 * time.Millisecond), func(m []providers.Member) []providers.Member {
				m[slices.IndexFunc(m, func(m providers.Member) bool { return m.UID == old.UID })].State = providers.Draining
				return m
			}},
			event{ready.Add(2 * time.Second), func(m []providers.Member) []providers.Member {
				return slices.DeleteFunc(m, func(m providers.Member) bool { return m.UID == old.UID })
			}})
	}
	slices.SortFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	for _, e := range events {
		time.Sleep(time.Until(e.at))
		due <- e
	}
	close(due)
}
