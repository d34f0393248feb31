package lbsync

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
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
	"github.com/nplbridge/nplbridge/lbsync/internal/applied"
	"github.com/nplbridge/nplbridge/lbsync/internal/gate"
	"github.com/nplbridge/nplbridge/lbsync/internal/host"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/lease"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/status"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/lbsync/internal/watermarks"
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
	host      *host.Addresses
	getenv    func(string) string
	leader    prometheus.Gauge

	settings   atomic.Pointer[Config] // as of the last Reload
	leading    atomic.Bool
	controller atomic.Pointer[status.Controller] // nil unless leading
	gates      atomic.Pointer[gate.Controller]   // nil unless leading
	opened     *gate.Metrics
}

// balancer is one load balancer and the loop that writes it.
type balancer struct {
	name     string
	provider providers.Provider
	local    bool
	metrics  *loop.Metrics
	marks    *watermarks.Metrics
	loop     atomic.Pointer[loop.Loop]         // nil before it runs, and where another leads a remote load balancer
	applied  atomic.Pointer[applied.Publisher] // beside a local one while the loop runs
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
		Manager:           cfg.manager(),
		Source:            annotations.Source(cfg.ServiceType),
		NamespaceSelector: cfg.NamespaceSelector,
		BlockedNamespaces: cfg.BlockedNamespaces,
		DrainOnCordon:     cfg.DrainOnCordon,
		AtNodes:           cfg.NodeAddresses,
		Nothing:           cfg.retiring,
	}
	if cfg.HandleUnclassed {
		selection.Unclassed = cfg.Providers[0]
	}
	for _, name := range cfg.Providers {
		if _, ok := balancers[name].(providers.Allocator); ok {
			selection.Allocate = append(selection.Allocate, name)
		}
	}
	for _, p := range cfg.AddressPools {
		selection.Pools = append(selection.Pools, pool(p))
	}
	if len(cfg.NodeAddresses) > 0 && cfg.NodeName == "" && !cfg.retiring {
		return nil, errors.New(`lbsync configuration: nodeName: "": haproxy.nodeAddresses needs the name of the Node that this process runs on; in a Pod set ` +
			"LBSYNC_NODE_NAME from the field spec.nodeName")
	}
	for _, name := range slices.Concat(cfg.NodeAddresses, cfg.AnnounceByInterface) {
		if !balancers[name].Capabilities().Local {
			return nil, fmt.Errorf("lbsync configuration: load balancer %s is not beside this process, so it is on no address of this host: take it out of "+
				"haproxy.nodeAddresses and haproxy.announce", name)
		}
	}
	watch, err := inventory.NewWatch(client, selection, clk)
	if err != nil {
		return nil, err
	}
	s := &Syncer{
		cfg: cfg, client: client, log: log, clock: clk, watch: watch, getenv: os.Getenv,
		leader: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lbsync_leader", Help: "1 where the Lease is held, else 0."}),
	}
	s.settings.Store(&cfg)
	s.host = &host.Addresses{Read: host.Interfaces, Changed: s.hostChanged, Clock: clk, Log: log}
	for _, name := range cfg.Providers {
		labelled := prometheus.WrapRegistererWith(prometheus.Labels{"provider": name}, reg)
		metrics, err := loop.NewMetrics(labelled)
		marks, also := watermarks.NewMetrics(labelled, clk)
		if err := errors.Join(err, also); err != nil {
			return nil, fmt.Errorf("register metrics of provider %s: %w", name, err)
		}
		provider := balancers[name]
		s.balancers = append(s.balancers, &balancer{
			name: name, provider: provider, local: provider.Capabilities().Local, metrics: metrics, marks: marks,
		})
	}
	if err := reg.Register(s.leader); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if s.opened, err = gate.NewMetrics(reg); err != nil {
		return nil, err
	}
	s.lease = &lease.Lease{
		Namespace: cfg.LeaseNamespace, Name: cfg.LeaseName, Identity: cfg.Identity, Client: client, Log: log, Leading: s.lead,
	}
	watch.OnService(s.tell)
	watch.OnGated(func(key inventory.PodKey) {
		if g := s.gates.Load(); g != nil {
			g.OnPod(key)
		}
	})
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
	s.watch.Start(ctx)
	defer s.watch.Stop()
	if !s.watch.Wait(ctx) {
		return nil
	}
	if _, err := s.host.Refresh(); err != nil {
		s.log.Warn("cannot read this host's addresses yet", zap.Error(err))
	}
	services, pods, nodes := s.watch.Index.Counts()
	s.log.Info("caches hold the cluster", zap.Int("services", services), zap.Int("pods", pods), zap.Int("nodes", nodes))

	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { s.followHost(ctx) })
	for _, b := range s.balancers {
		if b.local || s.cfg.DryRun {
			working.Go(func() { s.work(ctx, b, nil) })
		}
	}
	if s.cfg.DryRun {
		return nil
	}
	broadcaster := events.NewBroadcaster(status.Sink{EventSink: &events.EventSinkImpl{Interface: s.client.EventsV1()}})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("start recording Events: %w", err)
	}
	recorder := broadcaster.NewRecorder(scheme.Scheme, "nplbridge.io/lbsync")
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

// Of one call to the provider as a whole; a remote provider bounds each of its requests itself. What writes to a remote one must be over before
// another candidate can hold the Lease, see lease.Fence, which leaves it 4 s to 14 s; what only reads goes on as long as the Lease is renewed.
// The settle is how long a call of the holder before us may be on its way as a rule. A load balancer that may take longer than remoteLate to
// carry out what it was sent says so itself, see providers.Capabilities.
const (
	remoteCall   = 15 * time.Second
	remoteRead   = 5 * time.Minute
	remoteLate   = 4 * time.Second
	remoteSettle = 5 * time.Second
	localCall    = 30 * time.Second
)

// loopConfig returns how the loop of a load balancer works.
func (s *Syncer) loopConfig(b *balancer) loop.Config {
	settings := s.settings.Load()
	cfg := loop.Config{
		Instance: b.name, DrainLimit: settings.DrainLimit, Resync: settings.Resync, GuardHold: settings.GuardHold,
		PortRange: model.PortRange(settings.PortRange), NodeSelector: settings.NodePortSelector, DryRun: settings.DryRun,
		DrainPoll: 5 * time.Second, CallTimeout: remoteCall, ReadTimeout: remoteRead, Late: remoteLate, Settle: remoteSettle, Gap: 5 * time.Millisecond,
		OnNode: s.onNode(b),
	}
	if b.local {
		cfg.DrainPoll, cfg.CallTimeout, cfg.ReadTimeout, cfg.Late, cfg.Settle = time.Second, localCall, localCall, localCall, 0
	}
	return cfg
}

// work runs the loop of one load balancer until ctx ends, and what is published of it.
func (s *Syncer) work(ctx context.Context, b *balancer, fence func() (time.Time, error)) {
	log := s.log.With(zap.String("provider", b.name))
	feed := s.watch.Index.Feed(s.clock.Now())
	defer feed.Close()
	marks, applied := s.publishers(b, fence, log)
	links := loop.Links{Fence: fence, OnReport: s.tell, OnMembers: s.tellMembers}
	if marks != nil {
		links.Marks = marks
	}
	if applied != nil {
		links.OnReport = func(key model.ServiceKey) { s.tell(key); applied.Changed() }
		links.OnMembers = func(key model.ServiceKey) { s.tellMembers(key); applied.Changed() }
	}
	settings := s.settings.Load()
	l := loop.New(s.loopConfig(b), feed, b.provider, links, b.metrics, s.clock, log)
	b.loop.Store(l)
	if s.settings.Load() != settings {
		l.Configure(s.loopConfig(b)) // Reload has not seen this loop yet
	}
	defer b.loop.CompareAndSwap(l, nil)
	var publishing sync.WaitGroup
	defer publishing.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // so that nobody is waited for, should the loop panic: that has to end the process
	if marks != nil {
		publishing.Go(func() { marks.Run(ctx, l) })
	}
	if applied != nil {
		b.applied.Store(applied)
		defer b.applied.Store(nil)
		publishing.Go(func() { applied.Run(ctx, l) })
	}
	l.Run(ctx)
}

// publishers returns who tells npl-agents which removals the load balancer has acknowledged and, beside a local one, who tells the holder
// of the Lease what was applied; none on a dry run.
func (s *Syncer) publishers(b *balancer, fence func() (time.Time, error), log *zap.Logger) (*watermarks.Publisher, *applied.Publisher) {
	if s.cfg.DryRun {
		return nil, nil
	}
	cfg := watermarks.Config{
		Client: s.client, Namespace: s.cfg.LeaseNamespace, Instance: s.cfg.Instance, Provider: b.name, Fence: fence,
		Metrics: b.marks, Clock: s.clock, Log: log,
	}
	if !b.local {
		cfg.Name = watermarks.Name(s.cfg.LeaseName, b.name, "")
		return watermarks.New(cfg), nil
	}
	cfg.Identity = s.cfg.Identity
	cfg.Name = watermarks.Name(s.cfg.LeaseName, b.name, s.cfg.Identity)
	cfg.Owner = s.ownPod()
	standing := &applied.Publisher{
		Client: s.client, Namespace: s.cfg.LeaseNamespace,
		Heartbeat: watermarks.ObjectName(s.cfg.LeaseName, "applied", b.name, s.cfg.Identity),
		Content:   watermarks.ObjectName(s.cfg.LeaseName, "served", b.name, s.cfg.Identity),
		Instance:  s.cfg.Instance, Identity: s.cfg.Identity, Provider: b.name, Owner: cfg.Owner, Clock: s.clock, Log: log,
	}
	if s.atNodes(b) {
		standing.Node, standing.Instances = s.cfg.NodeName, s.countInstances
		cfg.Instances = s.countInstances
	}
	if s.byInterface(b) {
		standing.Holds = s.host.Has
	}
	standing.Init()
	return watermarks.New(cfg), standing
}

// Reload takes over what can change while the Syncer runs, and returns an error that names every setting which cannot: those keep their
// values until the process is started anew. An invalid configuration changes nothing.
func (s *Syncer) Reload(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("lbsync configuration: %w", err)
	}
	live := *s.settings.Load()
	live.DrainLimit, live.Resync, live.GuardHold, live.GateTimeout = cfg.DrainLimit, cfg.Resync, cfg.GuardHold, cfg.GateTimeout
	live.PortRange, live.NodePortSelector, live.NodePortRange = cfg.PortRange, cfg.NodePortSelector, cfg.NodePortRange
	s.settings.Store(&live)
	for _, b := range s.balancers {
		if l := b.loop.Load(); l != nil {
			l.Configure(s.loopConfig(b))
		}
	}
	cfg.retiring = live.retiring
	var fixed []string
	was, is := reflect.ValueOf(live), reflect.ValueOf(cfg)
	for _, field := range reflect.VisibleFields(was.Type()) {
		if field.IsExported() && !reflect.DeepEqual(was.FieldByIndex(field.Index).Interface(), is.FieldByIndex(field.Index).Interface()) {
			fixed = append(fixed, strings.ToLower(field.Name[:1])+field.Name[1:])
		}
	}
	if len(fixed) > 0 {
		return fmt.Errorf("%s: can only change with a restart", strings.Join(fixed, ", "))
	}
	return nil
}

// speak writes Services and readiness gates until ctx ends.
func (s *Syncer) speak(ctx context.Context, recorder events.EventRecorder) {
	others := s.others()
	views, groups := s.views(others)
	c := &status.Controller{
		Selection: s.watch.Selection, Instance: s.cfg.Instance, Balancers: views, Client: s.client, Fence: s.lease.Fence,
		Services: s.watch, Claimants: s.watch.Index.Claimants, Nodes: s.watch.Index.Nodes, Recorder: recorder, Clock: s.clock, Log: s.log,
	}
	c.Init()
	s.controller.Store(c)
	defer s.controller.CompareAndSwap(c, nil)
	var beside sync.WaitGroup
	defer beside.Wait()
	if others != nil {
		beside.Go(func() { others.Run(ctx) })
		beside.Go(func() { s.followGroups(ctx, groups) })
	}
	if !s.cfg.retiring { // then no Service is ours, and every Pod's gate would seem to be of no concern
		beside.Go(func() { s.openGates(ctx, c, recorder) })
	}
	c.Run(ctx)
}

// openGates writes readiness gates until ctx ends.
func (s *Syncer) openGates(ctx context.Context, c *status.Controller, recorder events.EventRecorder) {
	g := &gate.Controller{
		Selection: c.Selection, Balancers: c.Balancers, Pods: s.watch.Index, Services: s.watch, Client: s.client, Fence: c.Fence,
		Timeout:  func() time.Duration { return s.settings.Load().GateTimeout },
		Recorder: recorder, Metrics: s.opened, Clock: s.clock, Log: s.log,
	}
	g.Init()
	s.gates.Store(g)
	defer s.gates.CompareAndSwap(g, nil)
	g.Run(ctx)
}

// views returns the load balancers as the Lease holder sees them.
func (s *Syncer) views(others *applied.Group) (out []status.Balancer, groups []*group) {
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
		if b.local && others != nil {
			view.Others = func(key model.ServiceKey, seen string) (pending, silent []string) {
				return others.Others(b.name, key, seen)
			}
			view.Behind = func(key model.ServiceKey, seen string) bool { return others.Behind(b.name, key, seen) }
			g := &group{Syncer: s, balancer: b, others: others, held: map[netip.Addr]time.Time{}}
			g.complete(&view)
			groups = append(groups, g)
		}
		out = append(out, view)
	}
	return out, groups
}

// tellMembers has looked at who waits for the members of a Service, where that is our business.
func (s *Syncer) tellMembers(key model.ServiceKey) {
	if g := s.gates.Load(); g != nil {
		g.OnMembers(key)
	}
}

// others returns who follows what other processes have applied, nil where no load balancer is a local one.
func (s *Syncer) others() *applied.Group {
	if !slices.ContainsFunc(s.balancers, func(b *balancer) bool { return b.local }) {
		return nil
	}
	return &applied.Group{
		Client: s.client, Namespace: s.cfg.LeaseNamespace, Instance: s.cfg.Instance, Identity: s.cfg.Identity, Pod: s.ownPod(), Clock: s.clock, Log: s.log,
		Keys: s.watch.Index.Keys, Tell: func(key model.ServiceKey) { s.tell(key); s.tellMembers(key) },
		Reached: func() map[string]string {
			out := map[string]string{}
			for _, b := range s.balancers {
				if l := b.loop.Load(); b.local && l != nil {
					out[b.name], _ = l.Standing()
				}
			}
			return out
		},
	}
}

// ClusterUID returns what identifies the cluster: the UID of its Namespace kube-system.
func ClusterUID(ctx context.Context, client kubernetes.Interface) (string, error) {
	ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read Namespace %s, whose UID identifies the cluster: %w", metav1.NamespaceSystem, err)
	}
	return string(ns.UID), nil
}
