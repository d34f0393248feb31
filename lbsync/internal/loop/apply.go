package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// call is one Apply.
type call struct {
	services []model.ServiceKey
	outcomes []outcome // of the services
	since    []time.Time
	changes  providers.Changes
	start    time.Time
	results  providers.Results
}

func newCall(key model.ServiceKey, changes providers.Changes, out outcome) *call {
	return &call{services: []model.ServiceKey{key}, outcomes: []outcome{out}, changes: changes}
}

// add puts another Service into the call. Services come in any order, the keys of changes are sorted.
func (c *call) add(key model.ServiceKey, changes providers.Changes, out outcome) {
	c.services = append(c.services, key)
	c.outcomes = append(c.outcomes, out)
	c.changes.Pools = append(c.changes.Pools, changes.Pools...)
	c.changes.VirtualServers = append(c.changes.VirtualServers, changes.VirtualServers...)
}

// open reports whether the fence is.
func (l *Loop) open(ctx context.Context, now time.Time) bool {
	_, err := l.links.Fence()
	if err == nil {
		return true
	}
	if ctx.Err() == nil {
		l.log.Warn("not writing to the load balancer", zap.Error(err))
	}
	l.fencedAt = now.Add(fencedRetry)
	return false
}

// blocked is what may not be written yet because of the watermark, and is planned nevertheless.
type blocked struct {
	why      error
	since    time.Time
	services map[model.ServiceKey]bool // that have something to write
}

// blockedPatience is for how long nobody is told: at each start it takes a moment.
const blockedPatience = 10 * time.Second

// unblock looks whether the watermark allows to write now. What was blocked is looked at again when it does, and when it takes so long that
// reports should say why.
func (l *Loop) unblock(now time.Time) {
	why := l.covered()
	overdue := why != nil && !l.blocked.since.IsZero() && now.Sub(l.blocked.since) >= blockedPatience
	told := l.blocked.why != nil
	switch {
	case why == nil:
		l.blocked.since, l.blocked.why = time.Time{}, nil
	case l.blocked.since.IsZero():
		l.blocked.since = now
	case overdue:
		l.blocked.why = why
	}
	if why == nil || overdue && !told {
		for _, key := range sortedServices(l.blocked.services) {
			l.enqueue(key)
		}
		clear(l.blocked.services)
	}
	if overdue && !told {
		l.log.Warn("nothing is written to the load balancer", zap.Error(why))
	}
}

// covered returns an error as long as the first watermark of this load balancer is not published, and while our picture of the cluster
// is older than what was published last (invariant I6): we could bring back what was confirmed to be gone.
func (l *Loop) covered() error {
	if l.links.Marks == nil || l.caughtUp {
		return nil
	}
	last, known := l.links.Marks.Last()
	switch {
	case !known:
		return errors.New("the last watermark is not read yet")
	case last.Seen == "":
		return errors.New("the first watermark is not published yet")
	}
	if c, ok := watermark.CompareVersions(l.seen, last.Seen); !ok || c < 0 {
		return fmt.Errorf("our picture of the cluster is of resourceVersion %q, older than %s of the last watermark", l.seen, last.Seen)
	}
	l.caughtUp = true
	return nil
}

// begin starts a call, unless the fence is closed: then its Services go back into the queue.
func (l *Loop) begin(ctx context.Context, c *call) {
	until, err := l.links.Fence()
	if err != nil {
		l.log.Warn("not writing to the load balancer", zap.Error(err))
		l.fencedAt = l.clock.Now().Add(fencedRetry)
		for _, key := range c.services {
			l.queue.push(key, false)
		}
		return
	}
	sortChanges(c.changes)
	c.start = l.clock.Now()
	for _, key := range c.services {
		s := l.service(key)
		s.call = c
		c.since = append(c.since, s.since)
		s.since = time.Time{}
		l.ports.touch(key)
	}
	for _, p := range c.changes.Pools {
		l.ports.expect(p)
	}
	l.calls[c] = true
	go func() {
		call, cancel := l.deadline(ctx, until)
		c.results = l.provider.Apply(call, c.changes)
		cancel()
		l.ended <- c
	}()
}

// finish enters what became of a call.
func (l *Loop) finish(c *call) {
	delete(l.calls, c)
	now := l.clock.Now()
	keys := changed(c.changes)
	l.metrics.applied(now.Sub(c.start), keys, c.results)
	states := make(map[model.ServiceKey]providers.State, len(c.services))
	for i, key := range c.services {
		states[key] = c.outcomes[i].State
	}
	for _, key := range keys {
		l.enter(key, c, states[model.ServiceKeyOf(key)], now)
	}
	for _, p := range c.changes.Pools {
		if c.confirmed(p.Key) {
			for _, key := range l.occupants.replace(l.pool(p.Key), p.New) {
				l.enqueue(key)
			}
		}
	}
	l.offer(l.picture.freed(c), now)
	l.picture.acknowledge(c.changes, c.confirmed, now)
	for _, p := range c.changes.Pools {
		f := l.failures.of(p.Key)
		l.ports.answered(p, f != nil && f.unsure, now.Add(l.late()))
		if !c.confirmed(p.Key) {
			continue
		}
		for _, step := range p.Members {
			logStep(l.log, p.Key, step)
			if step.Op == providers.AddMember || step.Op == providers.EnableMember {
				l.service(model.ServiceKeyOf(p.Key)).fresh = now.Add(healthWait)
			}
		}
	}
	slow := now.Sub(c.start) >= patience
	written := map[model.ServiceKey]bool{}
	for _, p := range c.changes.Pools {
		written[model.ServiceKeyOf(p.Key)] = true
	}
	for i, key := range c.services {
		s := l.service(key)
		s.call, s.slow = nil, slow
		switch since := c.since[i]; {
		case since.IsZero():
		case len(l.failures[key]) > 0:
			s.since = earlier(s.since, since)
		case written[key]:
			l.metrics.propagation.Observe(now.Sub(since).Seconds())
		}
		l.acknowledged(key, c)
		l.poll(key, now)
		l.ports.touch(key)
		l.appoint(key)
		l.report(key, c.outcomes[i])
		delete(l.first, key)
		if s.again {
			s.again = false
			l.enqueue(key)
		} else if !c.outcomes[i].exists {
			l.forget(key)
		}
	}
	l.metrics.cycle.Observe(now.Sub(c.start).Seconds())
}

// enter notes the result of one key.
func (l *Loop) enter(key providers.Key, c *call, wanted providers.State, now time.Time) {
	err, attempted := c.results[key]
	if !attempted {
		err = &providers.Error{Kind: providers.Unavailable, What: "change " + key.String() + ": not attempted"}
	}
	if err == nil {
		l.failures.clear(key)
		return
	}
	previous := l.failures.of(key)
	f := l.failures.set(key, err, now)
	f.unsure = f.unsure && attempted
	f.pool, f.virtual = findPool(wanted, key), findVirtualServer(wanted, key)
	f.tried = l.misleading(c.changes, key)
	level := zap.WarnLevel
	if f.waits || f.repeats(previous) {
		level = zap.DebugLevel
	}
	l.log.Log(level, "the load balancer did not take a change", zap.String("pool", key.String()), zap.String("kind", string(f.kind)),
		zap.Duration("retry", f.until.Sub(now)), zap.Error(err))
}

func (c *call) confirmed(key providers.Key) bool {
	err, attempted := c.results[key]
	return attempted && err == nil
}

// intend notes what is wanted of a Service and not there, see Planned.
func (l *Loop) intend(key model.ServiceKey, c providers.Changes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Empty() {
		delete(l.planned, key)
		return
	}
	l.planned[key] = providers.Changes{Pools: slices.Clone(c.Pools), VirtualServers: slices.Clone(c.VirtualServers)} // a call sorts its own
}

// acknowledged takes out of what is wanted and not there what is there now.
func (l *Loop) acknowledged(key model.ServiceKey, c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := without(l.planned[key], c.confirmed)
	if left.Empty() {
		delete(l.planned, key)
		return
	}
	l.planned[key] = left
}

// Planned returns what is wanted and not there: what the loop is about to do, could not do, or, on a dry run, would do.
func (l *Loop) Planned() providers.Changes {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out providers.Changes
	for _, c := range l.planned {
		out.Pools = append(out.Pools, c.Pools...)
		out.VirtualServers = append(out.VirtualServers, c.VirtualServers...)
	}
	sortChanges(out)
	return out
}
