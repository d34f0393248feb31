// Package loop keeps a load balancer equal to the model. Events only make Services dirty; one goroutine plans them, has as many
// calls under way as the load balancer takes, and remembers per key what was acknowledged and what failed.
package loop

import (
	"context"
	"iter"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// Source is the cluster; inventory.Feed is one.
type Source interface {
	Dirty() <-chan struct{}
	TakeDirty() (dirty map[model.ServiceKey]time.Time, seen string)
	View(model.ServiceKey) (inventory.View, bool)
	// Follow is View with the Pods of members that the Service does not select; what happens to them makes it dirty until the next call.
	Follow(key model.ServiceKey, members iter.Seq[inventory.Member], now time.Time) (inventory.View, bool)
	Keys() []model.ServiceKey
	Claimants(c model.Claim, podUID string) []string
	Fate(podUID string) model.Fate
	Nodes() []*model.Node
	Believable() bool
	PortOwner(instance string, asks model.ServiceKey, port uint16, protocol providers.Protocol) (owner model.ServiceKey, ok bool)
}

// Marks is what npl-agents were told about node ports; watermarks.Publisher is one.
type Marks interface {
	// Last returns what was last published of this load balancer, by this process or the one before. known is false until that
	// could be read; a Watermark without Seen says that there is none.
	Last() (last watermark.Watermark, known bool)
	// Changed is called when Holdings may say something else than before. It must not block.
	Changed()
}

// Config is how the loop works.
type Config struct {
	Instance     string        // name of the provider instance
	DrainLimit   time.Duration // the longest a member stays Draining, unless its Service says otherwise
	Resync       time.Duration // between two readings of the whole load balancer
	DrainPoll    time.Duration // between two readings while members are draining or their health decides
	CallTimeout  time.Duration // of one Apply, which also ends when the Fence said that it may
	ReadTimeout  time.Duration // of one Observe, however often the Fence moves on meanwhile; 0 is CallTimeout
	Late         time.Duration // for how long after its end the load balancer may still carry out a call that nobody answered; at least, see late
	Gap          time.Duration // least time between taking up events twice, so that bursts become one
	Settle       time.Duration // a second reading so long after the first, for what a writer before us sent and did not wait for; see late
	GuardHold    time.Duration // how long a suspicious loss is held at least; 0 is no guard
	PortRange    model.PortRange
	NodeSelector map[string]string
	DryRun       bool // plan and report, and write nothing
	OnNode       OnNode
}

// OnNode says on which Node the load balancer stands, if it serves Services at the Node's addresses; the zero value is on none.
type OnNode struct {
	Name     string
	Reserved []model.ReservedPorts
	// Local reports whether an address is on an interface of this host; nil knows of none.
	Local func(netip.Addr) bool
}

// Links are whom a loop asks and tells. Functions must not block; each may be nil.
type Links struct {
	// Fence returns until when a call may last, or an error when nothing may be written; the zero time is no limit.
	Fence     func() (until time.Time, err error)
	OnReport  func(model.ServiceKey) // a Service's outcome has changed
	OnMembers func(model.ServiceKey) // its pools, or the health of their members, have changed
	Marks     Marks                  // nil where nobody relies on them
}

const (
	// fencedRetry is the pause when nothing may be written; a context usually ends in it, or a call of Wake.
	fencedRetry = time.Second
	// heldRetry is the pause before it is asked again whether the API server's answer can be believed.
	heldRetry = time.Second
	// patience is for how long nothing is begun while a reading waits for the calls under way. Beyond it a call is slow, and nobody
	// else has to wait for it.
	patience = 250 * time.Millisecond
	// seenPoll is how often it is looked up how far we have seen, for those who wait for it.
	seenPoll = 10 * time.Second
	// healthWait is for how long after a member was enabled its health is worth reading the load balancer often.
	healthWait = 2 * time.Minute
)

// Loop is the loop. One Loop is run once.
type Loop struct {
	source   Source
	provider providers.Provider
	can      providers.Capabilities
	changed  <-chan struct{} // of a provider that is a Notifier, else nil
	links    Links
	metrics  *Metrics
	clock    clock.WithTicker
	log      *zap.Logger
	ended    chan *call
	wakeUp   chan struct{} // see Wake

	// Owned by Run's goroutine.
	cfg       Config
	picture   picture
	occupants *occupants
	services  map[model.ServiceKey]*service
	failures  failures
	guards    guards
	queue     *queue
	due       *agenda                   // when time alone is a reason to look at a Service
	reread    *agenda                   // when the load balancer is to be read because of a Service that nothing is sure of
	polled    map[model.ServiceKey]bool // for whom the load balancer is read often
	kept      map[model.ServiceKey]bool // have removals held, because the cluster cannot be believed
	first     map[model.ServiceKey]bool // not done since the first reading
	calls     map[*call]bool            // under way
	readings  readings
	ports     *ports
	seen      string // resourceVersion of Pods up to which everything is taken up
	signalled bool   // there may be something to take up
	takenAt   time.Time
	believeAt time.Time // when it is asked again whether the cluster can be believed; zero while nothing is kept
	fencedAt  time.Time // nothing is begun before
	blocked   blocked
	caughtUp  bool // see covered

	mu          sync.Mutex
	reports     map[model.ServiceKey]Report
	planned     map[model.ServiceKey]providers.Changes // wanted and not acknowledged
	unpublished map[model.ServiceKey]bool              // have Pods without a node port
	holdings    holdings
	standing    string // what was seen when the queue was empty last
	health      Health
	next        *Config // see Configure
}

// service is what the loop remembers of one Service.
type service struct {
	call     *call     // under way
	again    bool      // to be looked at when call has ended
	slow     bool      // its last call was
	since    time.Time // first event that is in no call yet
	wake     time.Time // of model.Output
	watch    bool      // of model.Output
	gated    bool      // a Pod of it waits for its readiness gate
	fresh    time.Time // until when the health of its members is worth reading
	direct   bool      // its members were Pods' own addresses at some time
	attached map[providers.Key]string
}

// New returns a Loop.
func New(cfg Config, source Source, provider providers.Provider, links Links, metrics *Metrics, clk clock.WithTicker, log *zap.Logger) *Loop {
	ignore := func(model.ServiceKey) {}
	if links.OnReport == nil {
		links.OnReport = ignore
	}
	if links.OnMembers == nil {
		links.OnMembers = ignore
	}
	if links.Fence == nil {
		links.Fence = func() (time.Time, error) { return time.Time{}, nil }
	}
	l := &Loop{
		source: source, provider: provider, can: provider.Capabilities(), links: links, metrics: metrics, clock: clk, log: log,
		wakeUp: make(chan struct{}, 1), cfg: cfg, signalled: true,
		services: map[model.ServiceKey]*service{}, failures: failures{}, guards: guards{},
		queue: newQueue(), due: newAgenda(), reread: newAgenda(),
		polled: map[model.ServiceKey]bool{}, kept: map[model.ServiceKey]bool{}, first: map[model.ServiceKey]bool{},
		calls: map[*call]bool{}, ports: newPorts(), blocked: blocked{services: map[model.ServiceKey]bool{}},
		reports: map[model.ServiceKey]Report{}, planned: map[model.ServiceKey]providers.Changes{}, unpublished: map[model.ServiceKey]bool{},
	}
	l.ended = make(chan *call, l.slots())
	if n, ok := provider.(providers.Notifier); ok {
		l.changed = n.Changed()
	}
	return l
}

// late returns for how long after its end the load balancer may still carry out a call that nobody answered.
func (l *Loop) late() time.Duration { return max(l.cfg.Late, l.can.Late) }

// slots is how many calls may be under way at once.
func (l *Loop) slots() int { return max(1, l.can.Concurrency) }

// Run works until ctx ends and no call is under way any more. The source must hold the whole first answer of the API server. What is
// on the load balancer stays there.
func (l *Loop) Run(ctx context.Context) {
	defer l.metrics.Reset()
	l.source.TakeDirty() // the first reading has everything looked at; what happened before it says nothing about how fast we are
	for ctx.Err() == nil {
		timer := l.clock.NewTimer(l.cycle(ctx))
		select {
		case <-ctx.Done():
		case <-l.source.Dirty():
			l.signalled = true
		case <-l.changed:
			l.notify()
		case <-l.wakeUp:
			l.fencedAt = time.Time{}
		case c := <-l.ended:
			l.finish(c)
		case <-timer.C():
		}
		timer.Stop()
	}
	for len(l.calls) > 0 {
		l.finish(<-l.ended)
	}
}

// Wake has the loop look at once whether it may write now. It does not block.
func (l *Loop) Wake() {
	select {
	case l.wakeUp <- struct{}{}:
	default:
	}
}

// Configure changes how the loop works; Instance, Settle and DryRun stay. It may be called at any time.
func (l *Loop) Configure(cfg Config) {
	l.mu.Lock()
	l.next = &cfg
	l.mu.Unlock()
	l.Wake()
}

// earlier returns the earlier of two times, of which the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// cycle does all that is due and returns how long nothing will be, events aside.
func (l *Loop) cycle(ctx context.Context) time.Duration {
	for more := true; more; {
		select {
		case <-l.changed:
			l.notify()
		case <-l.source.Dirty():
			l.signalled = true
		case c := <-l.ended:
			l.finish(c)
		default:
			more = false
		}
	}
	l.reconfigure()
	now := l.clock.Now()
	l.takeUp(now)
	if l.readingDue(now) {
		if len(l.calls) == 0 {
			l.observe(ctx, now)
		} else if l.readings.waiting.IsZero() {
			l.readings.waiting = now
		}
	}
	if l.picture != nil {
		l.enqueueDue(l.clock.Now())
		l.work(ctx)
	}
	l.settled()
	return l.untilNext()
}

// reconfigure takes over what Configure was given.
func (l *Loop) reconfigure() {
	l.mu.Lock()
	next := l.next
	l.next = nil
	l.mu.Unlock()
	if next == nil {
		return
	}
	if l.picture != nil && !l.readings.resyncAt.IsZero() {
		l.readings.resyncAt = l.readings.resyncAt.Add(next.Resync - l.cfg.Resync)
	}
	next.Instance, next.Settle, next.DryRun = l.cfg.Instance, l.cfg.Settle, l.cfg.DryRun
	l.cfg = *next
	l.enqueueAll()
}

// enqueueAll has every Service looked at that there is, or that has something on the load balancer.
func (l *Loop) enqueueAll() {
	for _, key := range l.source.Keys() {
		l.enqueue(key)
	}
	for _, key := range l.picture.services() {
		l.enqueue(key)
	}
}

// enqueue has a Service looked at.
func (l *Loop) enqueue(key model.ServiceKey) {
	if s := l.services[key]; s != nil && s.call != nil {
		s.again = true
		return
	}
	l.queue.push(key, l.urgent(key))
}

// urgent reports whether a member leads to another Pod now. It is asked only when there is a queue to jump.
func (l *Loop) urgent(key model.ServiceKey) bool {
	h := l.picture[key]
	if h == nil || l.queue.len()+len(l.calls) < l.slots() {
		return false
	}
	for _, pool := range h.pools {
		for _, m := range pool.Members {
			if len(l.source.Claimants(model.Claim{Address: m.Address, Protocol: protocolOf(pool.Key)}, m.UID)) > 0 {
				return true
			}
		}
	}
	return false
}

// takeUp enters what became dirty, no more often than the Gap allows.
func (l *Loop) takeUp(now time.Time) {
	if now.Before(l.takenAt.Add(l.cfg.Gap)) {
		return
	}
	dirty, seen := l.source.TakeDirty()
	l.signalled, l.takenAt, l.seen = false, now, seen
	for _, key := range sortedServices(dirty) {
		s := l.service(key)
		if at := dirty[key]; s.since.IsZero() || at.Before(s.since) {
			s.since = at
		}
		l.ports.touch(key)
		l.enqueue(key)
	}
}

// service returns what is remembered of a Service, making it if need be.
func (l *Loop) service(key model.ServiceKey) *service {
	s := l.services[key]
	if s == nil {
		s = &service{}
		l.services[key] = s
	}
	return s
}

// enqueueDue enters the Services whose time has come.
func (l *Loop) enqueueDue(now time.Time) {
	for _, key := range l.due.due(now) {
		l.enqueue(key)
	}
	if l.believeAt.IsZero() || now.Before(l.believeAt) {
		return
	}
	l.believeAt = now.Add(heldRetry)
	if l.source.Believable() {
		l.believeAt = time.Time{}
		for _, key := range sortedServices(l.kept) {
			l.enqueue(key)
		}
	}
}

// appoint enters when time alone will be a reason to look at a Service, or to read the load balancer because of it.
func (l *Loop) appoint(key model.ServiceKey) {
	var due, reread time.Time
	if s := l.services[key]; s != nil {
		due = s.wake
	}
	for _, f := range l.failures[key] {
		if f.unsure {
			reread = earlier(reread, f.until)
		} else {
			due = earlier(due, f.until)
		}
	}
	for _, g := range l.guards[key] {
		due = earlier(due, g.until)
	}
	l.due.set(key, due)
	l.reread.set(key, reread)
}

// untilNext returns how long nothing is due.
func (l *Loop) untilNext() time.Duration {
	now := l.clock.Now()
	if l.picture == nil {
		return max(l.readings.notBefore.Sub(now), 0)
	}
	next := earlier(l.nextReading(now), l.due.next())
	next = earlier(next, l.believeAt)
	if l.links.Marks != nil { // how far we have seen is news to whoever waits for a node port, and nothing else may wake us
		next = earlier(next, l.takenAt.Add(seenPoll))
	}
	if l.queue.len() > 0 && now.Before(l.fencedAt) {
		next = earlier(next, l.fencedAt)
	}
	if !l.blocked.since.IsZero() {
		next = earlier(next, now.Add(fencedRetry))
	}
	if l.signalled { // not taken up yet
		next = earlier(next, l.takenAt.Add(l.cfg.Gap))
	}
	return max(next.Sub(now), 0)
}
