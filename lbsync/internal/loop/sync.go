package loop

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/plan"
	"github.com/nplbridge/nplbridge/providers"
)

// outcome is what a Service wants, and what was known when that was worked out.
type outcome struct {
	exists bool
	model.Output
	seen    string
	blocked bool                   // by the watermark
	kept    map[providers.Key]bool // removals are held under them, because the cluster cannot be believed
	guarded map[providers.Key]int  // members that the guard holds
}

// work plans what is queued and begins as many calls as the load balancer takes. Where it takes one at a time that is one call for
// all, else one per Service. A Service is planned only when its call can begin, so that the newest wanted state is what is written.
func (l *Loop) work(ctx context.Context) {
	now := l.clock.Now()
	l.unblock(now)
	if l.queue.len() == 0 || now.Before(l.fencedAt) || !l.mayStartAny(now) || !l.open(ctx, now) {
		return
	}
	var all *call
	var waiting []model.ServiceKey
	for len(l.calls) < l.slots() {
		key, ok := l.queue.pop()
		if !ok {
			break
		}
		if !l.mayStart(key) {
			waiting = append(waiting, key)
			continue
		}
		changes, out := l.plan(key, now)
		switch {
		case changes.Empty() || l.cfg.DryRun:
			l.conclude(key, out, now)
		case !l.blocked.since.IsZero():
			l.blocked.services[key] = true
			out.blocked = true
			l.conclude(key, out, now)
		case l.slots() > 1:
			l.begin(ctx, newCall(key, changes, out))
		case all == nil:
			all = newCall(key, changes, out)
		default:
			all.add(key, changes, out)
		}
	}
	if all != nil {
		l.begin(ctx, all)
	}
	for _, key := range waiting {
		l.enqueue(key)
	}
}

// plan works out what a Service wants, and the changes to make now.
func (l *Loop) plan(key model.ServiceKey, now time.Time) (providers.Changes, outcome) {
	s := l.service(key)
	view, exists := l.source.Follow(key, l.picture.members(key), now)
	out := outcome{exists: exists, seen: l.seen, kept: map[providers.Key]bool{}, guarded: map[providers.Key]int{}}
	if exists {
		out.Output = l.build(key, view, now)
	}
	l.ports.learn(l.source.Nodes())
	l.ports.set(key, l.portsOf(key, view))
	l.remember(key, out.Output)
	s.wake, s.watch = out.Wake, out.Watch
	s.gated = slices.ContainsFunc(view.Endpoints, func(e model.Endpoint) bool { return e.Pod.Gated })
	c := plan.Between(l.picture.state(key), out.State)
	if l.source.Believable() {
		delete(l.kept, key)
	} else {
		c = l.keep(key, c, out)
	}
	c = l.guard(key, c, out, now)
	l.intend(key, c)
	c = l.allowed(key, c, out.State, now)
	l.appoint(key)
	return c, out
}

func (l *Loop) build(key model.ServiceKey, view inventory.View, now time.Time) model.Output {
	in := model.Input{
		Instance: l.cfg.Instance, Service: view.Service, Endpoints: view.Endpoints, Deselected: view.Deselected, Nodes: view.Nodes,
		Claimants: l.source.Claimants, Occupants: func(address netip.AddrPort, protocol providers.Protocol, podUID string) []providers.Key {
			return l.occupants.of(key, address, protocol, podUID)
		},
		Fate: l.source.Fate, PortRange: l.cfg.PortRange, NodeSelector: l.cfg.NodeSelector,
		Capabilities: l.can, DrainLimit: l.cfg.DrainLimit, Now: now,
	}
	if l.cfg.DryRun {
		in.Service.Admitted = true // as it would be
	}
	in.OnNode = l.onNode()
	if h := l.picture[key]; h != nil {
		in.Current, in.CurrentVS, in.Status, in.DrainingSince = h.pools, h.virtual, h.status, h.drainingSince
	}
	return model.Build(in)
}

// onNode returns the Node that the load balancer stands on, as it is now; nil where that is of no concern.
func (l *Loop) onNode() *model.OnNode {
	on := l.cfg.OnNode
	if on.Name == "" {
		return nil
	}
	out := &model.OnNode{Reserved: on.Reserved, Owner: func(asks model.ServiceKey, port uint16, protocol providers.Protocol) (model.ServiceKey, bool) {
		return l.source.PortOwner(l.cfg.Instance, asks, port, protocol)
	}}
	nodes := l.source.Nodes()
	if at, ok := slices.BinarySearchFunc(nodes, on.Name, func(n *model.Node, name string) int { return strings.Compare(n.Name, name) }); ok {
		out.Addresses = nodes[at].Listens(on.Local)
	}
	return out
}

// keep applies invariant I6: while the API server's answer cannot be believed, only what an existing Service itself says is removed.
func (l *Loop) keep(key model.ServiceKey, c providers.Changes, out outcome) providers.Changes {
	explained := func(key providers.Key) bool { return out.exists && findPool(out.State, key) == nil }
	kept := plan.HoldRemovals(explained)(c)
	before, after := steps(c), steps(kept)
	delete(l.kept, key)
	for k := range before {
		if before[k] != after[k] {
			out.kept[k] = true
			l.kept[key] = true
			if l.believeAt.IsZero() {
				l.believeAt = l.clock.Now().Add(heldRetry)
			}
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
		if leads := l.misleading(c, key); len(leads) > 0 {
			f.hurry(leads, now)
		}
		waits[key] = f.unsure || now.Before(f.until)
	}
	return without(c, func(key providers.Key) bool { return waits[key] })
}

// misleading returns the members that are to be removed under key and lead to a Pod that is another one's.
func (l *Loop) misleading(c providers.Changes, key providers.Key) (out []providers.MemberID) {
	for _, p := range c.Pools {
		if p.Key != key || p.New == nil {
			continue
		}
		for _, step := range p.Members {
			m := step.Member
			if step.Op == providers.RemoveMember &&
				len(l.source.Claimants(model.Claim{Address: m.Address, Protocol: protocolOf(key)}, m.UID)) > 0 {
				out = append(out, m.ID())
			}
		}
	}
	return out
}

// conclude ends the work on a Service that there is nothing to write of, or nothing now.
func (l *Loop) conclude(key model.ServiceKey, out outcome, now time.Time) {
	if len(l.failures[key]) == 0 {
		l.service(key).since = time.Time{}
	}
	l.poll(key, now)
	l.report(key, out)
	delete(l.first, key)
	if !out.exists {
		l.forget(key)
	}
}

// forget drops what is remembered of a Service that is gone.
func (l *Loop) forget(key model.ServiceKey) {
	s := l.services[key]
	if s == nil || s.call != nil || s.again || l.picture[key] != nil || len(l.failures[key]) > 0 || !s.since.IsZero() {
		return
	}
	delete(l.services, key)
	delete(l.polled, key)
	delete(l.kept, key)
	delete(l.guards, key)
	l.due.set(key, time.Time{})
	l.reread.set(key, time.Time{})
}

// settled enters how the loop is, and what the watermark may say.
func (l *Loop) settled() {
	l.refreshPorts()
	l.mu.Lock()
	l.health.Ready = l.picture != nil && len(l.first) == 0 && l.blocked.since.IsZero()
	l.health.Waiting = l.blocked.why
	l.health.Held = len(l.kept) > 0
	if l.health.Ready && l.queue.len() == 0 {
		l.standing = l.seen
	}
	held := l.health.Held
	l.mu.Unlock()
	l.metrics.hold(held)
	if len(l.kept) == 0 {
		l.believeAt = time.Time{}
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

func logStep(log *zap.Logger, key providers.Key, step providers.MemberChange) {
	log.Debug("member", zap.String("pool", key.String()), zap.String("op", string(step.Op)),
		zap.String("pod", step.Member.Name), zap.String("address", step.Member.Address.String()))
}
