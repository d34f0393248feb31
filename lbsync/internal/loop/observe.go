package loop

import (
	"cmp"
	"context"
	"maps"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// readings is what there is to know about reading the load balancer.
type readings struct {
	asked     bool      // the provider wants one
	failed    *failure  // of the last one
	notBefore time.Time // because of it
	waiting   time.Time // since when one is due and waits for the calls under way; zero when none does
	resyncAt  time.Time
	pollAt    time.Time // while anything is polled
	pausedTo  time.Time // not polled before, however little was: a slow load balancer is not only read
	settleAt  time.Time // the next one for what a writer before us sent; zero when all of that has shown
	settledAt time.Time // the last one of these: the first shows what was only on its way, the last what took the load balancer as long as it may
}

// notify has the load balancer read at once: it may be another one now than the one that could not be read.
func (l *Loop) notify() {
	l.readings.asked = true
	l.readings.notBefore = time.Time{}
}

// dueReading returns when the load balancer is to be read next.
func (l *Loop) dueReading() time.Time {
	r := &l.readings
	if r.asked || l.picture == nil || r.failed != nil {
		return r.notBefore
	}
	at := earlier(earlier(r.resyncAt, r.settleAt), l.reread.next())
	if len(l.polled) > 0 {
		at = earlier(at, r.pollAt)
	}
	return later(at, r.notBefore)
}

func (l *Loop) readingDue(now time.Time) bool { return !now.Before(l.dueReading()) }

// nextReading returns when something about reading is due.
func (l *Loop) nextReading(now time.Time) time.Time {
	if l.readings.waiting.IsZero() {
		return l.dueReading()
	}
	at := l.readings.waiting.Add(l.cfg.CallTimeout)
	if !now.Before(at) {
		return time.Time{} // the end of a call is what comes next
	}
	for c := range l.calls {
		if slow := c.start.Add(patience); now.Before(slow) {
			at = earlier(at, slow)
		}
	}
	return at
}

// mayStartAny reports whether any call may begin although a reading may be due, which no call may run beside. While the reading waits for
// a slow call the others go on, but not for ever.
func (l *Loop) mayStartAny(now time.Time) bool {
	waiting := l.readings.waiting
	if waiting.IsZero() {
		return true
	}
	if !now.Before(waiting.Add(l.cfg.CallTimeout)) {
		return false
	}
	for c := range l.calls {
		if !now.Before(c.start.Add(patience)) {
			return true
		}
	}
	return false
}

// mayStart reports whether a call for this Service is one of those that may begin: while a reading waits, none that was slow itself.
func (l *Loop) mayStart(key model.ServiceKey) bool {
	return l.readings.waiting.IsZero() || !l.service(key).slow
}

// observe reads the load balancer and notes which Services that concerns. No call is under way.
func (l *Loop) observe(ctx context.Context, now time.Time) {
	l.readings.waiting = time.Time{}
	until, err := l.links.Fence()
	var observed providers.Observed
	if err == nil {
		t := &term{fence: l.links.Fence, until: until}
		err = t.during(ctx, cmp.Or(l.cfg.ReadTimeout, l.cfg.CallTimeout), func(call context.Context) (err error) {
			observed, err = l.provider.Observe(call, providers.Scope{Attached: l.attachedPools(), Until: until})
			return err
		})
		l.metrics.observed(l.clock.Since(now), err)
	}
	began := now
	now = l.clock.Now()
	l.mu.Lock()
	l.health.Observe = err
	if err == nil {
		l.health.LastObserve = now
		l.health.Foreign = observed.Foreign
	}
	l.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			l.unreadable(err, now)
		}
		return
	}
	l.read(observed, began, now)
}

func (l *Loop) unreadable(err error, now time.Time) {
	r := &l.readings
	news := r.failed == nil || r.failed.kind != providers.KindOf(err)
	r.failed = nextFailure(r.failed, err, now)
	r.notBefore = r.failed.until
	l.log.Warn("cannot read the load balancer; everything on it stays as it is",
		zap.String("kind", string(r.failed.kind)), zap.Duration("retry", r.notBefore.Sub(now)), zap.Error(err))
	if news {
		for _, key := range l.source.Keys() {
			l.links.OnReport(key)
		}
	}
}

// read takes over what was observed by a call that began at began.
func (l *Loop) read(observed providers.Observed, began, now time.Time) {
	r := &l.readings
	another, again := r.asked, r.failed != nil
	r.asked, r.failed, r.notBefore = false, nil, time.Time{}
	before, fresh := l.picture, newPicture(observed)
	fresh.keepDates(before, now)
	l.picture = fresh
	var waited []model.ServiceKey
	if l.occupants, waited = newOccupants(fresh, l.occupants); len(waited) > 0 {
		for _, key := range waited {
			l.enqueue(key)
		}
	}
	l.ports.read(began)
	switch {
	case before == nil:
		if l.cfg.Settle > 0 {
			r.settleAt = now.Add(l.cfg.Settle)
			r.settledAt = later(r.settleAt, now.Add(l.late()))
		}
		for _, key := range l.source.Keys() {
			l.first[key] = true
		}
		for key := range fresh {
			l.first[key] = true
		}
		fallthrough
	case !now.Before(r.resyncAt):
		l.enqueueAll()
		r.resyncAt = now.Add(l.cfg.Resync)
	}
	if !r.settleAt.IsZero() && !began.Before(r.settleAt) {
		r.settleAt = time.Time{}
		if began.Before(r.settledAt) {
			r.settleAt = r.settledAt
		}
	}
	differ := before.differ(fresh)
	for _, key := range differ {
		l.ports.touch(key)
		l.enqueue(key)
		if before != nil && !l.failures.unsure(key) {
			l.drifted(key, observed.Restarted)
		}
	}
	for key := range l.polled {
		l.enqueue(key)
	}
	for _, service := range sortedServices(l.failures) {
		for _, f := range l.failures[service] {
			f.unsure = false
			if another {
				f.forgive(now)
			}
		}
		l.ports.touch(service)
		l.enqueue(service)
		l.appoint(service)
	}
	l.offer(before.freedIn(fresh, differ), now)
	if again {
		for _, key := range l.source.Keys() {
			l.links.OnReport(key)
		}
	}
	l.tellHealth()
	r.pausedTo = now.Add(now.Sub(began))
	r.pollAt = l.nextPoll(now)
	for key := range l.polled {
		l.poll(key, now)
	}
	for key := range fresh {
		if fresh.drains(key) {
			l.poll(key, now)
		}
	}
}

// drifted tells that the load balancer has something else of a Service than was last written or read.
func (l *Loop) drifted(key model.ServiceKey, restarted bool) {
	cause, message := causeEdited, "the load balancer was changed by somebody else"
	if restarted {
		cause, message = causeRestarted, l.can.Name+" was restarted and had not kept the last changes"
	}
	l.metrics.drift.WithLabelValues(cause).Inc()
	l.log.Info(message, zap.String("service", key.String()))
}

// poll decides whether the load balancer is read often for a Service: while its members drain, while their health decides what is wanted
// next, and for a while when a Pod waits until its member is up.
func (l *Loop) poll(key model.ServiceKey, now time.Time) {
	s := l.service(key)
	if s.gated && l.can.Has(providers.MemberHealth) && now.Before(s.fresh) && !l.picture.healthy(key) || s.watch || l.picture.drains(key) {
		if len(l.polled) == 0 {
			l.readings.pollAt = l.nextPoll(now)
		}
		l.polled[key] = true
		return
	}
	delete(l.polled, key)
}

// nextPoll returns when the load balancer is read next because of what is polled.
func (l *Loop) nextPoll(now time.Time) time.Time {
	return later(now.Add(l.cfg.DrainPoll), l.readings.pausedTo)
}

// attachedPools is what Observe has to look at beside our own: what Services ask for now, and what they had until it is removed.
func (l *Loop) attachedPools() map[providers.Key]string {
	out := map[providers.Key]string{}
	if l.picture == nil {
		for _, key := range l.source.Keys() {
			if view, ok := l.source.View(key); ok && len(view.Service.Wishes.Attachments) > 0 {
				l.remember(key, l.build(key, view, l.clock.Now()))
			}
		}
	}
	for _, s := range l.services {
		maps.Copy(out, s.attached)
	}
	return out
}

// remember notes the pools of somebody else that a Service's members are put into.
func (l *Loop) remember(key model.ServiceKey, out model.Output) {
	var attached map[providers.Key]string
	add := func(pool providers.Key, name string) {
		if attached == nil {
			attached = map[providers.Key]string{}
		}
		attached[pool] = name
	}
	for _, pool := range out.State.Pools {
		if pool.Attached != "" {
			add(pool.Key, pool.Attached)
		}
	}
	if h := l.picture[key]; h != nil {
		for _, pool := range h.pools { // it is left before the other one is entered
			if pool.Attached != "" {
				add(pool.Key, pool.Attached)
			}
		}
	}
	if attached != nil || l.services[key] != nil {
		l.service(key).attached = attached
	}
}

// deadline bounds a call that writes: by its time, and by how long writing is certain to be ours.
func (l *Loop) deadline(ctx context.Context, until time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.CallTimeout)
	if until.IsZero() {
		return ctx, cancel
	}
	ctx, fenced := context.WithDeadline(ctx, until)
	return ctx, func() { fenced(); cancel() }
}
