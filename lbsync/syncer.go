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

// Syncer is one running lbsync. The one that holds the Lease writes Services and, unless the load balancer is local, the
// load balancer; a local load balancer is written by the Syncer beside it whether that leads or not.
type Syncer struct {
	cfg      Config
	client   kubernetes.Interface
	provider providers.Provider
	local    bool
	log      *zap.Logger
	clock    clock.WithTicker

	watch   *inventory.Watch
	lease   *lease.Lease
	metrics *loop.Metrics
	leader  prometheus.Gauge

	leading    atomic.Bool
	loop       atomic.Pointer[loop.Loop]         // nil before it runs, and where another leads a remote load balancer
	controller atomic.Pointer[status.Controller] // nil unless leading
}

// New returns a Syncer that has not started. The caller closes the provider after Run.
func New(cfg Config, client kubernetes.Interface, provider providers.Provider, log *zap.Logger, reg prometheus.Registerer) (*Syncer, error) {
	return newSyncer(cfg, client, provider, log, reg, clock.RealClock{})
}

func newSyncer(cfg Config, client kubernetes.Interface, provider providers.Provider, log *zap.Logger, reg prometheus.Registerer,
	clk clock.WithTicker,
) (*Syncer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("lbsync configuration: %w", err)
	}
	selection := inventory.Selection{
		Class:     annotations.ClassPrefix + cfg.ProviderName,
		Unclassed: cfg.HandleUnclassed,
		Manager:   cfg.Instance + "/" + cfg.ProviderName,
	}
	for _, r := range cfg.AddressPools {
		selection.Pools = append(selection.Pools, vip.Range(r))
	}
	watch, err := inventory.NewWatch(client, selection, clk)
	if err != nil {
		return nil, err
	}
	metrics, err := loop.NewMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	s := &Syncer{
		cfg: cfg, client: client, provider: provider, local: provider.Capabilities().Local, log: log, clock: clk,
		watch: watch, metrics: metrics,
		leader: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lbsync_leader", Help: "1 where the Lease is held, else 0."}),
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
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: s.client.EventsV1()})
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
	if s.local {
		working.Go(func() { s.work(ctx, func() error { return nil }) })
	}
	return s.lease.Run(ctx, func(term context.Context) {
		var working sync.WaitGroup
		defer working.Wait()
		if !s.local {
			working.Go(func() { s.work(term, s.lease.Fence) })
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

// work runs the loop until ctx ends.
func (s *Syncer) work(ctx context.Context, fence func() error) {
	cfg := loop.Config{
		DrainLimit: s.cfg.DrainLimit, Resync: s.cfg.Resync,
		DrainPoll: 5 * time.Second, CallTimeout: remoteCall, Gap: 5 * time.Millisecond,
	}
	if s.local {
		cfg.DrainPoll, cfg.CallTimeout = time.Second, localCall
	}
	l := loop.New(cfg, s.watch.Index, s.provider, fence, s.tell, s.metrics, s.clock, s.log)
	s.loop.Store(l)
	defer s.loop.CompareAndSwap(l, nil)
	l.Run(ctx)
}

// speak writes Services until ctx ends.
func (s *Syncer) speak(ctx context.Context, recorder events.EventRecorder) {
	c := &status.Controller{
		Selection: s.watch.Selection, Instance: s.cfg.Instance, Client: s.client, Services: s.watch,
		Recorder: recorder, Clock: s.clock, Log: s.log,
		Report: func(key model.ServiceKey) (loop.Report, bool) {
			if l := s.loop.Load(); l != nil {
				return l.Report(key)
			}
			return loop.Report{}, false
		},
		Trouble: func() error {
			if l := s.loop.Load(); l != nil {
				return l.Health().Observe
			}
			return nil
		},
	}
	c.Init()
	s.controller.Store(c)
	defer s.controller.CompareAndSwap(c, nil)
	c.Run(ctx)
}

// ClusterUID returns what identifies the cluster: the UID of its Namespace kube-system.
func ClusterUID(ctx context.Context, client kubernetes.Interface) (string, error) {
	ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read Namespace %s, whose UID identifies the cluster: %w", metav1.NamespaceSystem, err)
	}
	return string(ns.UID), nil
}
