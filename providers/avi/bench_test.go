package avi

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/avisim"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// callTime is how long a Controller takes for a call in these benchmarks, beside its work.
const callTime = 20 * time.Millisecond

// fleet is n Services with so many members each.
func fleet(services, members int) []providers.State {
	out := make([]providers.State, services)
	for n := range out {
		k := providers.Key{Namespace: "shop", Service: fmt.Sprintf("web-%04d", n), Port: 80, Protocol: providers.TCP}
		all := make([]providers.Member, members)
		for i := range all {
			all[i] = member(n*members + i)
		}
		slices.SortFunc(all, providers.CompareMembers)
		out[n] = web(k, netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}).String(), all...)
	}
	return out
}

// inParallel calls Apply as lbsync does: as many at once as the provider allows, never two for one Service.
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

// report prints what the calls were; the login is neither read nor write.
func report(b *testing.B, calls []avisim.Call, rounds int) {
	reads, sent, received := 0, 0, 0
	for _, call := range calls {
		if call.Method == http.MethodGet {
			reads++
		}
		sent, received = sent+call.Sent, received+call.Answered
	}
	b.ReportMetric(float64(len(writes(calls)))/float64(rounds), "writes/op")
	b.ReportMetric(float64(reads)/float64(rounds), "reads/op")
	b.ReportMetric(float64(sent)/float64(rounds)/1024, "KiB-sent/op")
	b.ReportMetric(float64(received)/float64(rounds)/1024, "KiB-read/op")
}

// BenchmarkFirstSync brings 1,000 Services with 5 members each to an empty Controller.
func BenchmarkFirstSync(b *testing.B) {
	states := fleet(1000, 5)
	for range b.N {
		b.StopTimer()
		c := newController(b)
		p := c.open()
		c.observe(p, providers.State{})
		c.SetDelay(callTime)
		calls := c.since()
		b.StartTimer()
		inParallel(b, p, len(states), func(n int) providers.Changes { return providertest.Diff(providers.State{}, states[n]) })
		b.StopTimer()
		report(b, calls(), 1)
	}
}

// BenchmarkRestart observes those 1,000 Services with a new provider.
func BenchmarkRestart(b *testing.B) {
	states := fleet(1000, 5)
	c := newController(b)
	p := c.open()
	inParallel(b, p, len(states), func(n int) providers.Changes { return providertest.Diff(providers.State{}, states[n]) })
	c.SetDelay(callTime)
	calls := c.since()
	for b.Loop() {
		if _, err := c.open().Observe(b.Context(), providers.Scope{}); err != nil {
			b.Fatal(err)
		}
	}
	made := calls()
	report(b, made, b.N)
	if w := writes(made); len(w) > 0 {
		b.Errorf("a restart wrote:\n%s", lines(w))
	}
}

// BenchmarkReplacePod replaces one Pod of five.
func BenchmarkReplacePod(b *testing.B) {
	c := newController(b)
	p := c.open()
	now := fleet(1, 5)[0]
	c.bring(p, providers.State{}, now)
	c.SetDelay(callTime)
	calls := c.since()
	n := 0
	for b.Loop() {
		next := web(now.Pools[0].Key, "198.18.0.0", append(slices.Clone(now.Pools[0].Members[1:]), member(100+n))...)
		slices.SortFunc(next.Pools[0].Members, providers.CompareMembers)
		c.bring(p, now, next)
		now, n = next, n+1
	}
	report(b, calls(), b.N)
}

// BenchmarkRollingUpdate replaces 1,000 Pods of 20 Services, 100 a second: each is ready, then the one it replaces drains and two seconds later is gone. As in
// lbsync, what becomes due for a Service while its last change is on its way is one change. It prints the time from an event to its
// acknowledgement, and beside it what AKO's design would take: one PUT of the whole pool for each event, in one queue of ten a second after a burst of 100.
func BenchmarkRollingUpdate(b *testing.B) {
	const services, pods = 20, 50
	for range b.N {
		b.StopTimer()
		c := newController(b)
		p := c.open()
		states := fleet(services, pods)
		inParallel(b, p, services, func(n int) providers.Changes { return providertest.Diff(providers.State{}, states[n]) })
		c.SetDelay(callTime)
		calls := c.since()
		r := roll(b, p, states, pods)
		made := calls()
		report(b, made, 1)
		slices.Sort(r.took)
		at := func(q float64) float64 { return float64(r.took[int(q*float64(len(r.took)-1))].Microseconds()) / 1000 }
		b.ReportMetric(float64(len(r.took)), "events/op")
		b.ReportMetric(at(0.5), "p50-ms")
		b.ReportMetric(at(0.99), "p99-ms")
		b.ReportMetric(float64(len(r.took)), "AKO-PUTs/op")
		b.ReportMetric(float64(len(r.took)-100)/10, "AKO-queue-s")
		want := providers.State{}
		for _, s := range states {
			want = merge(want, s)
		}
		c.SetDelay(0)
		c.observe(p, want)
		b.StartTimer()
	}
}

type rolled struct{ took []time.Duration }

// event is one thing that happens to a pool.
type event struct {
	at   time.Time
	edit func([]providers.Member) []providers.Member
}

func roll(b *testing.B, p *Provider, states []providers.State, pods int) rolled {
	var mu sync.Mutex
	var r rolled
	slots := make(chan struct{}, p.Capabilities().Concurrency)
	var all sync.WaitGroup
	begin := time.Now()
	b.StartTimer()
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
				slices.SortFunc(members, providers.CompareMembers)
				next := web(now.Pools[0].Key, now.VirtualServers[0].VIPs[0].String(), members...)
				for k, err := range p.Apply(b.Context(), providertest.Diff(now, next)) {
					if err != nil {
						b.Errorf("%s: %v", k, err)
					}
				}
				<-slots
				now = next
				mu.Lock()
				for _, e := range batch {
					r.took = append(r.took, time.Since(e.at))
				}
				mu.Unlock()
			}
			states[n] = now
		})
	}
	all.Wait()
	b.StopTimer()
	return r
}

// timeline sends the events of one Service when they happen.
func timeline(begin time.Time, n, services, pods int, due chan<- event) {
	const step = 10 * time.Millisecond // over all Services
	var events []event
	for i := range pods {
		ready := begin.Add(time.Duration(i*services+n) * step)
		old, fresh := member(n*pods+i), member(20000+n*pods+i)
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
