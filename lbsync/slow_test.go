package lbsync

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// slowly is a load balancer each of whose requests takes a while: it is read by many, one after the other, and changed by some.
type slowly struct {
	providers.Provider
	each time.Duration
}

func (s slowly) request(ctx context.Context, times int) error {
	for range times {
		select {
		case <-ctx.Done():
			return &providers.Error{Kind: providers.Unavailable, What: "request", Err: context.Cause(ctx)}
		case <-time.After(s.each):
		}
	}
	return nil
}

func (s slowly) Observe(ctx context.Context, scope providers.Scope) (providers.Observed, error) {
	if err := s.request(ctx, 40); err != nil {
		return providers.Observed{}, err
	}
	return s.Provider.Observe(ctx, scope)
}

func (s slowly) Apply(ctx context.Context, c providers.Changes) providers.Results {
	if err := s.request(ctx, 4); err != nil {
		out := providers.Results{}
		for _, p := range c.Pools {
			out[p.Key] = err
		}
		return out
	}
	return s.Provider.Apply(ctx, c)
}

// A remote load balancer that is slow is read and written all the same, however long it takes: a reading that began anew each time it takes longer
// than writing is certain to be ours would never end.
func TestSlowLoadBalancerIsServed(t *testing.T) {
	for _, each := range []time.Duration{200 * time.Millisecond, 800 * time.Millisecond, 2500 * time.Millisecond} {
		t.Run(each.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				feed := inventory.NewIndex().Feed(time.Now())
				feed.SetNode(&model.Node{Name: "node-1", Addresses: []netip.Addr{netip.MustParseAddr("198.51.100.11")}}, time.Now())
				feed.SetService(model.Service{
					ServiceKey: model.ServiceKey{Namespace: "shop", Name: "web"}, UID: "web", On: []string{"memory"}, Admitted: true,
					Source: annotations.NodePortLocal, Selector: map[string]string{"app": "web"}, Families: []npl.Family{npl.IPv4},
					Ports: []model.ServicePort{{Port: 80, Protocol: providers.TCP, TargetNumber: 8080}},
					VIPs:  map[string][]netip.Addr{"memory": {netip.MustParseAddr("192.0.2.1")}},
				}, time.Now())
				feed.SetPod(&model.Pod{
					Namespace: "shop", Name: "web-1", UID: "web-1", Node: "node-1", Ready: true, Labels: map[string]string{"app": "web"},
					Mappings: []npl.Mapping{{PodPort: 8080, NodeIP: netip.MustParseAddr("198.51.100.11"), NodePort: 61001, Protocol: npl.TCP, Family: npl.IPv4}},
				}, time.Now())
				s, b := &Syncer{}, &balancer{name: "memory"}
				cfg := config("one")
				s.settings.Store(&cfg)
				metrics, err := loop.NewMetrics(prometheus.NewRegistry())
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				fence := func() (time.Time, error) { // as that of a Lease which is renewed every two seconds
					return began.Add(time.Since(began).Truncate(2*time.Second) + 14*time.Second), nil
				}
				lb := providertest.NewLoadBalancer(providertest.MemoryCapabilities())
				l := loop.New(s.loopConfig(b), feed, slowly{lb.Open(owner), each}, loop.Links{Fence: fence}, metrics, clock.RealClock{}, zap.NewNop())
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { l.Run(ctx); close(ended) }()
				defer func() { stop(); <-ended }()
				for range 600 {
					if state := lb.State(); len(state.Pools) == 1 && len(state.Pools[0].Members) == 1 {
						return
					}
					time.Sleep(time.Second)
				}
				t.Errorf("not served within ten minutes: %v", l.Health().Observe)
			})
		})
	}
}
