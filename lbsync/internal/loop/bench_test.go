package loop

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// perService is the number of Pods behind a Service, and perNode that on a Node, in benchmarks.
const (
	perService = 10
	perNode    = 100
)

// cluster fills a rig with Pods, each a member.
func cluster(r *rig, pods int) {
	for n := range (pods + perNode - 1) / perNode {
		r.x.SetNode(&model.Node{Name: fmt.Sprintf("n%d", n), UID: fmt.Sprintf("n%d", n), Addresses: []netip.Addr{nodeAddr(n)}}, r.clock.Now())
	}
	for s := range pods / perService {
		r.service(fmt.Sprintf("s%d", s), func(m *model.Service) { m.VIPs = nil })
	}
	for n := range pods {
		benchPod(r, n, true)
	}
}

func nodeAddr(n int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}) }

func benchPod(r *rig, n int, ready bool) {
	r.pod(fmt.Sprintf("s%d", n/perService), n, func(p *model.Pod) {
		p.Node = fmt.Sprintf("n%d", n/perNode)
		p.Ready, p.ReadyChanged = ready, r.clock.Now()
		p.Mappings[0].NodeIP, p.Mappings[0].NodePort = nodeAddr(n/perNode), uint16(61000+n%perNode)
	})
}

// One Pod changes in clusters of several sizes: what a whole cycle costs, up to the load balancer's acknowledgement (I8).
func BenchmarkPodChange(b *testing.B) {
	for _, pods := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			r := newRig(b)
			r.marks, r.version = &fixedMarks{}, 100
			r.restart()
			r.loop.source = versionedFeed{r.x, &r.version}
			cluster(r, pods)
			r.cycle()
			if got := len(r.lb.State().Pools); got != pods/perService {
				b.Fatalf("%d pools, want %d", got, pods/perService)
			}
			r.loop.provider = quick{r.loop.provider}
			runtime.GC()
			ready := false
			for b.Loop() {
				benchPod(r, pods/2, ready)
				r.cycle()
				ready = !ready
			}
		})
	}
}

// quick acknowledges everything at once, so that only our own work is measured.
type quick struct{ providers.Provider }

func (quick) Apply(_ context.Context, c providers.Changes) providers.Results {
	out := providers.Results{}
	for _, key := range changed(c) {
		out[key] = nil
	}
	return out
}

// 3,000 Pods become ready at once: how long until the load balancer, which takes 5 ms for each call, has acknowledged all.
func BenchmarkBurst(b *testing.B) {
	const events = 3000
	for _, concurrency := range []int{1, 8} {
		for _, services := range []int{300, 3000} {
			b.Run(fmt.Sprintf("services=%d/concurrency=%d", services, concurrency), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					r := newRig(b)
					can := providertest.MemoryCapabilities()
					can.Concurrency = concurrency
					r.lb = providertest.NewLoadBalancer(can)
					for n := range events / perNode {
						r.x.SetNode(&model.Node{Name: fmt.Sprintf("n%d", n), Addresses: []netip.Addr{nodeAddr(n)}}, r.clock.Now())
					}
					for s := range services {
						r.service(fmt.Sprintf("s%d", s), func(m *model.Service) { m.VIPs = nil })
					}
					metrics, err := NewMetrics(prometheus.NewRegistry())
					if err != nil {
						b.Fatal(err)
					}
					provider := &slowly{Provider: r.lb.Open(owner), acknowledged: make(chan int, events)}
					cfg := Config{Instance: "lb", DrainLimit: time.Minute, Resync: time.Hour, DrainPoll: time.Second, CallTimeout: time.Minute, Gap: 5 * time.Millisecond}
					l := New(cfg, r.x, provider, Links{}, metrics, clock.RealClock{}, zap.NewNop())
					ctx, stop := context.WithCancel(context.Background())
					done := make(chan struct{})
					go func() { defer close(done); l.Run(ctx) }()
					for !l.Health().Ready {
						time.Sleep(time.Millisecond)
					}
					b.StartTimer()
					for n := range events {
						s := n % services
						r.pod(fmt.Sprintf("s%d", s), n, func(p *model.Pod) {
							p.Node = fmt.Sprintf("n%d", n/perNode)
							p.Mappings[0].NodeIP, p.Mappings[0].NodePort = nodeAddr(n/perNode), uint16(61000+n%perNode)
						})
					}
					for members := 0; members < events; {
						members += <-provider.acknowledged
					}
					b.StopTimer()
					stop()
					<-done
					b.StartTimer()
				}
				b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/burst")
			})
		}
	}
}

// slowly takes 5 ms for each call and counts the members that it adds.
type slowly struct {
	providers.Provider
	acknowledged chan int
}

func (s *slowly) Apply(ctx context.Context, c providers.Changes) providers.Results {
	time.Sleep(5 * time.Millisecond)
	out := s.Provider.Apply(ctx, c)
	added := 0
	for _, p := range c.Pools {
		for _, step := range p.Members {
			if step.Op == providers.AddMember && out[p.Key] == nil {
				added++
			}
		}
	}
	s.acknowledged <- added
	return out
}
