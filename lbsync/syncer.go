package lbsync

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/lease"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/status"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/providers"
)

// Syncer is one running lbsync. The one that holds the Lease writes Services and every remote load balancer; a local load
// balancer is written by the Syncer beside it whether that leads or not.
type Syncer struct {
	cfg    Config
	client kubernetes.Interface
	log    *zap.Logger
	clock  clock.WithTicker

	watch     *inventory.Watch
	lease     *lease.Lease
	balancers []*balancer // in the order of Config.Providers
	leader    prometheus.Gauge

	leading    atomic.Bool
	controller atomic.Pointer[status.Controller] // nil unless leading
}

// balancer is one load balancer and the loop that writes it.
type balancer struct {
	name     string
	provider providers.Provider
	local    bool
	metrics  *loop.Metrics
	loop     atomic.Pointer[loop.Loop] // nil before it runs, and where another leads a remote load balancer
}

// New returns a Syncer that has not started; balancers holds a provider for each name in Config.Providers. The caller closes them
// after Run.
func New(cfg Config, client kubernetes.Interface, balancers map[string]providers.Provider, log *zap.Logger, reg prometheus.Registerer) (*Syncer, error) {
	return newSyncer(cfg, client, balancers, log, reg, clock.RealClock{})
}

func newSyncer(cfg Config, client kubernetes.Interface, balancers map[string]providers.Provider, log *zap.Logger, reg prometheus.Registerer,
	clk clock.WithTicker,
) (*Syncer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("lbsync configuration: %w", err)
	}
	selection := inventory.Selection{
		Instances:         cfg.Providers,
		Manager:           cfg.Instance + "/" + cfg.LeaseName,
		Source:            annotations.Source(cfg.ServiceType),
		NamespaceSelector: cfg.NamespaceSelector,
		BlockedNamespaces: cfg.BlockedNamespaces,
		DrainOnCordon:     cfg.DrainOnCordon,
		Nothing:           cfg.retiring,
	}
	if cfg.HandleUnclassed {
		selection.Unclassed = cfg.Providers[0]
	}
	for _, p := range cfg.AddressPools {
		selection.Pools = append(selection.Pools, pool(p))
	}
	watch, err := inventory.NewWatch(client, selection, clk)
	if err != nil {
		return nil, err
	}
	s := &Syncer{
		cfg: cfg, client: client, log: log, clock: clk, watch: watch,
		leader: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lbsync_leader", Help: "1 where the Lease is held, else 0."}),
	}
	for _, name := range cfg.Providers {
		metrics, err := loop.NewMetrics(prometheus.WrapRegistererWith(prometheus.Labels{"provider": name}, reg))
		if err != nil {
			return nil, fmt.Errorf("register metrics of provider %s: %w", name, err)
		}
		provider := balancers[name]
		s.balancers = append(s.balancers, &balancer{name: name, provider: provider, local: provider.Capabilities().Local, metrics: metrics})
	}
	if err := reg.Register(s.leader); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	s.lease = &lease.Lease{
		Namespace: cfg.LeaseNamespace, Name: cfg.LeaseName, Identity: cfg.Identity, Client: client, Log: log, Leading: s.lead,
	}
	watch.OnService(s.tell)
	return s, nil
}

func pool(p AddressPool) vip.Pool {
	out := vip.Pool{Name: p.Name, Providers: p.Providers, Namespaces: p.Namespaces, Selector: p.Selector, OnRequest: p.OnRequest}
	for _, r := range p.Ranges {
		out.Ranges = append(out.Ranges, vip.Range(r))
	}
	return out
}

func (s *Syncer) lead(is bool) {
	s.leading.Store(is)
	s.leader.Set(0)
	if is {
		s.leader.Set(1)
	}
}

// tell has the Service's status looked at, where that is our business.
func (s *Syncer) tell(key model.ServiceKey) {
	if c := s.controller.Load(); c != nil {
		c.Enqueue(key)
	}
}

// Run works until ctx ends and then returns nil; an error means that it could not begin. Everything on the load balancer
// stays as it is. While the API server does not answer, Run waits and touches nothing.
func (s *Syncer) Run(ctx context.Context) error {
	broadcaster := events.NewBroadcaster(status.Sink{EventSink: &events.EventSinkImpl{Interface: s.client.EventsV1()}})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("start recording Events: %w", err)
	}
	recorder := broadcaster.NewRecorder(scheme.Scheme, "nplbridge.io/lbsync")

	s.watch.Start(ctx)
	defer s.watch.Stop()
	if !s.watch.Wait(ctx) {
		return nil
	}
	services, pods, nodes := s.watch.Index.Counts()
	s.log.Info("caches hold the cluster", zap.Int("services", services), zap.Int("pods", pods), zap.Int("nodes", nodes))

	var working sync.WaitGroup
	defer working.Wait()
	for _, b := range s.balancers {
		if b.local {
			working.Go(func() { s.work(ctx, b, nil) })
		}
	}
	return s.lease.Run(ctx, func(term context.Context) {
		var working sync.WaitGroup
		defer working.Wait()
		for _, b := range s.balancers {
			if !b.local {
				working.Go(func() { s.work(term, b, s.lease.Fence) })
			}
		}
		s.speak(term, recorder)
	})
}

// Of one call to the provider. A remote one must be over before another candidate can hold the Lease, which is five
// seconds after the last moment that we may have started it.
const (
	remoteCall = 4 * time.Second
	localCall  = 30 * time.Second
)

// work runs the loop of one load balancer until ctx ends.
func (s *Syncer) work(ctx context.Context, b *balancer, fence func() (time.Time, error)) {
	cfg := loop.Config{
		Instance: b.name, DrainLimit: s.cfg.DrainLimit, Resync: s.cfg.Resync,
		DrainPoll: 5 * time.Second, CallTimeout: remoteCall, Gap: 5 * time.Millisecond,
	}
	if b.local {
		cfg.DrainPoll, cfg.CallTimeout = time.Second, localCall
	}
	feed := s.watch.Index.Feed(s.clock.Now())
	defer feed.Close()
	links := loop.Links{Fence: fence, OnReport: s.tell}
	l := loop.New(cfg, feed, b.provider, links, b.metrics, s.clock, s.log.With(zap.String("provider", b.name)))
	b.loop.Store(l)
	defer b.loop.CompareAndSwap(l, nil)
	l.Run(ctx)
}

// speak writes Services until ctx ends.
func (s *Syncer) speak(ctx context.Context, recorder events.EventRecorder) {
	c := &status.Controller{
		Selection: s.watch.Selection, Instance: s.cfg.Instance, Balancers: s.views(), Client: s.client, Services: s.watch,
		Claimants: s.watch.Index.Claimants, Recorder: recorder, Clock: s.clock, Log: s.log,
	}
	c.Init()
	s.controller.Store(c)
	defer s.controller.CompareAndSwap(c, nil)
	c.Run(ctx)
}

// views returns the load balancers as the Lease holder sees them.
func (s *Syncer) views() (out []status.Balancer) {
	for _, b := range s.balancers {
		view := status.Balancer{
			Name: b.name, Capabilities: b.provider.Capabilities(),
			Report: func(key model.ServiceKey) (loop.Report, bool) {
				if l := b.loop.Load(); l != nil {
					return l.Report(key)
				}
				return loop.Report{}, false
			},
			Trouble: func() error {
				if l := b.loop.Load(); l != nil {
					return l.Health().Observe
				}
				return nil
			},
		}
		if a, ok := b.provider.(providers.Allocator); ok {
			view.Allocator = status.Fenced(a, s.lease.Fence)
		}
		out = append(out, view)
	}
	return out
}

// ClusterUID returns what identifies the cluster: the UID of its Namespace kube-system.
func ClusterUID(ctx context.Context, client kubernetes.Interface) (string, error) {
	ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read Namespace %s, whose UID identifies the cluster: %w", metav1.NamespaceSystem, err)
	}
	return string(ns.UID), nil
}
