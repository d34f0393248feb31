package loop

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/plan"
	"github.com/nplbridge/nplbridge/providers"
)

// sync takes up everything dirty or due.
func (l *Loop) sync(ctx context.Context) {
	now := l.clock.Now()
	todo := l.collect(now)
	if len(todo) == 0 {
		l.settled()
		return
	}
	wanted := make(map[model.ServiceKey]model.Output, len(todo))
	changes, held := l.plan(todo, wanted, now)
	if !l.apply(ctx, changes, wanted) {
		for _, key := range todo {
			l.todo[key] = true
		}
		return
	}
	for _, key := range todo {
		l.noteDraining(key)
		l.propagated(key, changes)
	}
	l.metrics.cycle.Observe(l.clock.Since(now).Seconds())
	l.settled()
	l.report(todo, wanted, held)
}

func (l *Loop) settled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.health.Ready = true
	l.health.Held = !l.heldAt.IsZero()
	l.metrics.hold(l.health.Held)
}

// collect returns the Services to look at, sorted.
func (l *Loop) collect(now time.Time) []model.ServiceKey {
	dirty, _ := l.source.TakeDirty()
	for key, at := range dirty {
		l.todo[key] = true
		if first, waiting := l.since[key]; !waiting || at.Before(first) {
			l.since[key] = at
		}
	}
	for key, at := range l.wakes {
		if !now.Before(at) {
			l.todo[key] = true
		}
	}
	for key, f := range l.failures.all() {
		if !f.unsure && !now.Before(f.until) {
			l.todo[model.ServiceKeyOf(key)] = true
		}
	}
	if !l.heldAt.IsZero() && !now.Before(l.heldAt) {
		for _, key := range l.source.Keys() {
			l.todo[key] = true
		}
		for key := range l.picture {
			l.todo[key] = true
		}
		l.heldAt = time.Time{}
	}
	todo := slices.SortedFunc(maps.Keys(l.todo), compareServices)
	clear(l.todo)
	return todo
}

// plan builds what the Services want and returns the changes to make now, and the keys under which something is held.
func (l *Loop) plan(todo []model.ServiceKey, wanted map[model.ServiceKey]model.Output, now time.Time) (providers.Changes, map[providers.Key]bool) {
	var all providers.Changes
	held := map[providers.Key]bool{}
	believable := l.source.Believable()
	for _, key := range todo {
		view, exists := l.source.View(key)
		var out model.Output
		if exists {
			out = l.build(key, view, now)
			wanted[key] = out
		}
		delete(l.wakes, key)
		if !out.Wake.IsZero() {
			l.wakes[key] = out.Wake
		}
		c := plan.Between(l.picture.state(key), out.State)
		if !believable {
			c = l.hold(c, exists, out, held)
		}
		c = l.allowed(key, c, out.State, now)
		all.Pools = append(all.Pools, c.Pools...)
		all.VirtualServers = append(all.VirtualServers, c.VirtualServers...)
	}
	slices.SortFunc(all.Pools, func(a, b providers.PoolChange) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(all.VirtualServers, func(a, b providers.VirtualServerChange) int { return a.Key.Compare(b.Key) })
	return all, held
}

func (l *Loop) build(key model.ServiceKey, view inventory.View, now time.Time) model.Output {
	in := model.Input{
		Instance: l.cfg.Instance, Service: view.Service, Endpoints: view.Endpoints, Claimants: l.source.Claimants,
		Capabilities: l.provider.Capabilities(), DrainLimit: l.cfg.DrainLimit, Now: now,
	}
	if h := l.picture[key]; h != nil {
		in.Current, in.CurrentVS, in.Status = h.pools, h.virtual, h.status
	}
	return model.Build(in)
}

// hold applies invariant I6: while the API server's answer cannot be believed, only what an existing Service itself says
// is removed. It notes the keys under which something is kept.
func (l *Loop) hold(c providers.Changes, exists bool, out model.Output, held map[providers.Key]bool) providers.Changes {
	explained := func(key providers.Key) bool { return exists && findPool(out.State, key) == nil }
	kept := plan.HoldRemovals(explained)(c)
	before, after := steps(c), steps(kept)
	for key := range before {
		if before[key] != after[key] {
			held[key] = true
			l.heldAt = l.clock.Now().Add(heldRetry)
		}
	}
	return kept
}

// steps counts what there is to do under each key.
func steps(c providers.Changes) map[providers.Key]int {
	out := map[providers.Key]int{}
	for _, p := range c.Pools {
		out[p.Key] += 1 + len(p.Members)
	}
	for _, v := range c.VirtualServers {
		out[v.Key]++
	}
	return out
}

// allowed leaves out the keys that wait after a failure, and forgets failures that there is nothing left to do about.
func (l *Loop) allowed(service model.ServiceKey, c providers.Changes, wanted providers.State, now time.Time) providers.Changes {
	if len(l.failures[service]) == 0 {
		return c
	}
	todo := steps(c)
	waits := map[providers.Key]bool{}
	for key, f := range l.failures[service] {
		if todo[key] == 0 && !f.unsure {
			l.failures.clear(key)
			continue
		}
		f.reconsider(findPool(wanted, key), findVirtualServer(wanted, key), now)
		waits[key] = f.unsure || now.Before(f.until)
	}
	c.Pools = slices.DeleteFunc(c.Pools, func(p providers.PoolChange) bool { return waits[p.Key] })
	c.VirtualServers = slices.DeleteFunc(c.VirtualServers, func(v providers.VirtualServerChange) bool { return waits[v.Key] })
	return c
}

// apply makes the changes and enters the results. It returns false when the fence forbids it.
func (l *Loop) apply(ctx context.Context, changes providers.Changes, wanted map[model.ServiceKey]model.Output) bool {
	if changes.Empty() {
		return true
	}
	if err := l.fence(); err != nil {
		l.log.Warn("not writing to the load balancer", zap.Error(err))
		return false
	}
	start := l.clock.Now()
	call, cancel := context.WithTimeout(ctx, l.cfg.CallTimeout)
	results := l.provider.Apply(call, changes)
	cancel()
	keys := changed(changes)
	l.metrics.applied(l.clock.Since(start), keys, results)
	now := l.clock.Now()
	for _, key := range keys {
		err, attempted := results[key]
		if !attempted {
			err = &providers.Error{Kind: providers.Unavailable, What: "change " + key.String() + ": not attempted"}
		}
		if err == nil {
			l.failures.clear(key)
			continue
		}
		state := wanted[model.ServiceKeyOf(key)].State
		f := l.failures.set(key, err, now)
		f.pool, f.virtual = findPool(state, key), findVirtualServer(state, key)
		level := zap.WarnLevel
		if f.waits {
			level = zap.DebugLevel
		}
		l.log.Log(level, "the load balancer did not take a change", zap.String("pool", key.String()), zap.String("kind", string(f.kind)),
			zap.Duration("retry", f.until.Sub(now)), zap.Error(err))
	}
	confirmed := func(key providers.Key) bool {
		err, attempted := results[key]
		return attempted && err == nil
	}
	l.picture.acknowledge(changes, confirmed)
	for _, p := range changes.Pools {
		if confirmed(p.Key) {
			for _, step := range p.Members {
				l.log.Debug("member", zap.String("pool", p.Key.String()), zap.String("op", string(step.Op)),
					zap.String("pod", step.Member.Name), zap.String("address", step.Member.Address.String()))
			}
		}
	}
	return true
}

// propagated closes the time from the first event about a Service to the acknowledgement of what followed from it.
func (l *Loop) propagated(service model.ServiceKey, changes providers.Changes) {
	first, waiting := l.since[service]
	if !waiting || len(l.failures[service]) > 0 {
		return
	}
	delete(l.since, service)
	if slices.ContainsFunc(changes.Pools, func(p providers.PoolChange) bool { return model.ServiceKeyOf(p.Key) == service }) {
		l.metrics.propagation.Observe(l.clock.Since(first).Seconds())
	}
}

func findPool(s providers.State, key providers.Key) *providers.Pool {
	for i := range s.Pools {
		if s.Pools[i].Key == key {
			return &s.Pools[i]
		}
	}
	return nil
}

func findVirtualServer(s providers.State, key providers.Key) *providers.VirtualServer {
	for i := range s.VirtualServers {
		if s.VirtualServers[i].Key == key {
			return &s.VirtualServers[i]
		}
	}
	return nil
}
