// Package loop keeps a load balancer equal to the model. Events only make Services dirty; one goroutine turns everything
// that is dirty into one set of changes, applies it, and remembers per key what was acknowledged and what failed.
package loop

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// Source is the cluster; inventory.Feed is one.
type Source interface {
	Dirty() <-chan struct{}
	TakeDirty() (dirty map[model.ServiceKey]time.Time, seen string)
	View(model.ServiceKey) (inventory.View, bool)
	Keys() []model.ServiceKey
	Claimants(c model.Claim, podUID string) []string
	Believable() bool
}

// Config is how the loop works.
type Config struct {
	Instance    string        // name of the provider instance
	DrainLimit  time.Duration // the longest a member stays Draining
	Resync      time.Duration // between two readings of the whole load balancer
	DrainPoll   time.Duration // between two readings while members are draining
	CallTimeout time.Duration // of one Observe or Apply
	Gap         time.Duration // least time between the starts of two cycles, so that bursts become one
}

// fencedRetry is the pause when the fence forbids writing; the context usually ends in it.
const fencedRetry = time.Second

// heldRetry is the pause before held removals are looked at again.
const heldRetry = time.Second

// Loop is the loop. One Loop is run once.
type Loop struct {
	cfg      Config
	source   Source
	provider providers.Provider
	changed  <-chan struct{} // of a provider that is a Notifier, else nil
	fence    func() error    // says whether writing is still allowed
	onReport func(model.ServiceKey)
	metrics  *Metrics
	clock    clock.WithTicker
	log      *zap.Logger

	// Owned by Run's goroutine.
	picture    picture
	failures   failures
	draining   map[model.ServiceKey]bool
	wakes      map[model.ServiceKey]time.Time // when time alone changes what is wanted
	since      map[model.ServiceKey]time.Time // first event that is not acknowledged yet
	todo       map[model.ServiceKey]bool      // found since the last cycle
	resyncAt   time.Time
	observeAt  time.Time // no Observe before; set by a failed one
	notified   bool      // the provider asks for an Observe
	unreadable *failure  // of Observe
	pollAt     time.Time
	heldAt     time.Time // when held removals are looked at again; zero when none are

	mu      sync.Mutex
	reports map[model.ServiceKey]Report
	health  Health
}

// New returns a Loop. onReport is called when a Service's report has changed; it must not block.
func New(cfg Config, source Source, provider providers.Provider, fence func() error, onReport func(model.ServiceKey),
	metrics *Metrics, clk clock.WithTicker, log *zap.Logger,
) *Loop {
	l := &Loop{
		cfg: cfg, source: source, provider: provider, fence: fence, onReport: onReport, metrics: metrics, clock: clk, log: log,
		failures: failures{},
		draining: map[model.ServiceKey]bool{},
		wakes:    map[model.ServiceKey]time.Time{},
		since:    map[model.ServiceKey]time.Time{},
		todo:     map[model.ServiceKey]bool{},
		reports:  map[model.ServiceKey]Report{},
	}
	if n, ok := provider.(providers.Notifier); ok {
		l.changed = n.Changed()
	}
	return l
}

// Run works until ctx ends. The source must hold the whole first answer of the API server. What is on the load balancer
// stays there.
func (l *Loop) Run(ctx context.Context) {
	defer l.metrics.Reset()
	l.source.TakeDirty() // the first cycle takes up everything; what happened before it says nothing about how fast we are
	for ctx.Err() == nil {
		start := l.clock.Now()
		next := l.cycle(ctx)
		timer := l.clock.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-l.source.Dirty():
		case <-l.changed:
			l.notify()
		case <-timer.C():
		}
		timer.Stop()
		if rest := l.cfg.Gap - l.clock.Since(start); rest > 0 {
			select {
			case <-ctx.Done():
			case <-l.clock.After(rest):
			}
		}
	}
}

// cycle does all that is due and returns how long nothing will be, events aside.
func (l *Loop) cycle(ctx context.Context) time.Duration {
	select {
	case <-l.changed:
		l.notify()
	default:
	}
	now := l.clock.Now()
	if l.observeDue(now) {
		l.observe(ctx, now)
	}
	if l.picture != nil {
		l.sync(ctx)
	}
	return l.untilNext()
}

// notify has the load balancer read at once: it may be another one now than the one that could not be read.
func (l *Loop) notify() {
	l.notified = true
	l.observeAt = time.Time{}
}

func (l *Loop) observeDue(now time.Time) bool {
	if now.Before(l.observeAt) {
		return false
	}
	if l.notified || l.picture == nil || !now.Before(l.resyncAt) || l.unreadable != nil || len(l.draining) > 0 && !now.Before(l.pollAt) {
		return true
	}
	for _, f := range l.failures.all() {
		if f.unsure && !now.Before(f.until) {
			return true
		}
	}
	return false
}

// observe reads the load balancer and notes which Services that concerns.
func (l *Loop) observe(ctx context.Context, now time.Time) {
	err := l.fence()
	var observed providers.Observed
	if err == nil {
		call, cancel := context.WithTimeout(ctx, l.cfg.CallTimeout)
		observed, err = l.provider.Observe(call, providers.Scope{})
		cancel()
		l.metrics.observed(l.clock.Since(now), err)
	}
	now = l.clock.Now()
	l.mu.Lock()
	l.health.Observe = err
	if err == nil {
		l.health.LastObserve = now
	}
	l.mu.Unlock()
	if err != nil {
		if ctx.Err() != nil {
			return
		}
		news := l.unreadable == nil || l.unreadable.kind != providers.KindOf(err)
		l.unreadable = nextFailure(l.unreadable, err, now)
		l.observeAt = l.unreadable.until
		l.log.Warn("cannot read the load balancer; everything on it stays as it is",
			zap.String("kind", string(l.unreadable.kind)), zap.Duration("retry", l.observeAt.Sub(now)), zap.Error(err))
		if news {
			for _, key := range l.source.Keys() {
				l.onReport(key)
			}
		}
		return
	}
	another := l.notified
	l.unreadable, l.notified = nil, false
	fresh := newPicture(observed)
	if l.picture == nil || !now.Before(l.resyncAt) {
		for _, key := range l.source.Keys() {
			l.todo[key] = true
		}
		l.resyncAt = now.Add(l.cfg.Resync)
	}
	for _, key := range l.picture.differ(fresh) {
		l.todo[key] = true
		if l.picture != nil && !l.failures.unsure(key) {
			l.drifted(key, observed.Restarted)
		}
	}
	for key := range l.draining {
		l.todo[key] = true
	}
	for key, f := range l.failures.all() {
		f.unsure = false
		if another {
			f.forgive(now)
		}
		l.todo[model.ServiceKeyOf(key)] = true
	}
	l.picture = fresh
	l.pollAt = now.Add(l.cfg.DrainPoll)
	l.draining = map[model.ServiceKey]bool{}
	for key := range l.picture {
		l.noteDraining(key)
	}
}

// drifted tells that the load balancer has something else of a Service than was last written or read.
func (l *Loop) drifted(key model.ServiceKey, restarted bool) {
	cause, message := causeEdited, "the load balancer was changed by somebody else"
	if restarted {
		cause, message = causeRestarted, l.provider.Capabilities().Name+" was restarted and had not kept the last changes"
	}
	l.metrics.drift.WithLabelValues(cause).Inc()
	l.log.Info(message, zap.String("service", key.String()))
}

func (l *Loop) noteDraining(key model.ServiceKey) {
	if _, draining := l.picture.members(key); draining == 0 {
		delete(l.draining, key)
		return
	}
	if len(l.draining) == 0 {
		l.pollAt = l.clock.Now().Add(l.cfg.DrainPoll)
	}
	l.draining[key] = true
}

// untilNext returns how long nothing is due.
func (l *Loop) untilNext() time.Duration {
	now := l.clock.Now()
	var next time.Time
	due := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	reading := func(at time.Time) { // what needs an Observe waits for it
		if at.Before(l.observeAt) {
			at = l.observeAt
		}
		due(at)
	}
	if l.picture == nil {
		return max(l.observeAt.Sub(now), 0)
	}
	reading(l.resyncAt)
	if l.unreadable != nil {
		due(l.observeAt)
	}
	if len(l.draining) > 0 {
		reading(l.pollAt)
	}
	for _, f := range l.failures.all() {
		if f.unsure {
			reading(f.until)
		} else {
			due(f.until)
		}
	}
	for _, at := range l.wakes {
		due(at)
	}
	if !l.heldAt.IsZero() {
		due(l.heldAt)
	}
	if len(l.todo) > 0 {
		due(now.Add(fencedRetry))
	}
	return max(next.Sub(now), 0)
}
