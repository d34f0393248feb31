package model

import (
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

// deselected lets the members of Pods that an edit of labels or of the selector took out end their connections, which kube-proxy would
// leave alone, too. While the Service selects Pods that serve, and none of them is in the pool yet, as when it turns to Pods that have no
// node port so far, those that still take connections are better than an empty pool. Where it selects none that serves, nobody is meant to
// be reached. None comes back that drains already.
func (b *builder) deselected() {
	if b.current == nil || len(b.in.Deselected) == 0 {
		return
	}
	left := make(map[string]Deselected, len(b.in.Deselected))
	for _, d := range b.in.Deselected {
		left[d.Pod.UID] = d
	}
	grace := b.grace()
	for _, m := range b.current.Members {
		d, is := left[m.UID]
		if !is {
			continue
		}
		until, leads := b.leadsUntil(d, m)
		if !leads || len(b.claimants(m.ID())) > 0 {
			continue
		}
		member := b.member(d.Pod, m.Address)
		serves := d.Pod.Ready || b.in.Service.PublishNotReady
		if spare := until.Add(-min(withdrawDrain, grace/4)); serves && b.serving > 0 && m.State == providers.Enabled && b.in.Now.Before(spare) {
			b.spares[ofDeselected] = append(b.spares[ofDeselected], member)
			b.wake = earlier(b.wake, spare)
		}
		b.drain(member, until)
	}
}

// grace is how long a member stays that nothing in Kubernetes holds to its Pod any more.
func (b *builder) grace() time.Duration { return min(WithdrawGrace, b.limit) }

// leadsUntil returns until when a member that is there can be relied on to lead to the Pod, though the Service does not select it. Of a node
// port the Node must be known: else nobody could say where it is to be held, see loop.Holdings.
func (b *builder) leadsUntil(d Deselected, m providers.Member) (until time.Time, leads bool) {
	until = d.Since.Add(b.grace())
	target, resolved := b.target(d.Pod)
	switch {
	case !resolved || d.Pod.Finished || d.NodeGone:
		return until, false
	case b.in.Service.source() == annotations.ClusterIP:
		return until, slices.Contains(d.Pod.IPs, m.Address.Addr()) && m.Address.Port() == target
	case d.Node == nil:
		return until, false
	}
	for _, mapping := range d.Pod.Mappings {
		if addrPort(mapping) == m.Address && mapping.Protocol == protocolOf(b.key.Protocol) {
			reason, _ := b.check(d.Endpoint, mapping)
			return until, reason == "" && b.leadsTo(mapping, target)
		}
	}
	for _, w := range d.Pod.Withdrawn {
		if b.leadsTo(w.Mapping, target) && addrPort(w.Mapping) == m.Address {
			return earlier(until, w.At.Add(b.grace())), d.Node.Has(w.Mapping.NodeIP)
		}
	}
	return until, false
}
