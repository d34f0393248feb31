package model

import (
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

// former keeps the members of a source that the Service had before: Enabled until those of the present one have taken over, which is when
// every ready Pod has its new member on the load balancer, in use and in good health as far as that is told; then they drain. So a pool is
// never without, whatever the order in which Pods, agents and the load balancer do their part. Pods that are refused for good hold nothing
// up, as long as others have taken over.
func (b *builder) former() {
	if b.current == nil {
		return
	}
	type old struct {
		member providers.Member
		standing
	}
	var olds []old
	for _, m := range b.current.Members {
		if s, is := b.formerStanding(m); is && !b.spoken[m.ID()] && len(b.claimants(m.ID())) == 0 {
			olds = append(olds, old{m, s})
		}
	}
	if len(olds) == 0 {
		return
	}
	room := len(b.wanted)
	if most := b.in.Capabilities.MaxMembers; most > 0 && room+len(olds) > most {
		olds = olds[:min(len(olds), most/2)] // else neither source would ever find room for the other
		room = min(room, most-len(olds))
	}
	over := b.takenOver(room)
	for _, o := range olds {
		id := o.member.ID()
		switch {
		case !o.enabled:
			b.enter(o.member, o.standing)
		case !over && b.there[id].State == providers.Enabled:
			b.want(o.member, providers.Enabled)
		default:
			b.enter(o.member, standing{spare: ofFormerSource, until: b.undated(id)})
		}
	}
}

// formerStanding judges a member that is of another source than the present one; ok is false when it is not, or leads nowhere any more.
func (b *builder) formerStanding(m providers.Member) (_ standing, ok bool) {
	source := b.in.Service.source()
	e, isPod := b.pods[m.UID]
	if !isPod {
		return standing{enabled: true}, source != annotations.NodePort && b.isNodePort(m)
	}
	target, resolved := b.target(e.Pod)
	if !resolved || e.Pod.Finished || e.NodeGone {
		return standing{}, false
	}
	if source != annotations.ClusterIP && slices.Contains(e.Pod.IPs, m.Address.Addr()) && m.Address.Port() == target {
		return b.standing(e), true
	}
	if source == annotations.NodePortLocal {
		return standing{}, false
	}
	for _, mapping := range e.Pod.Mappings {
		if b.leadsTo(mapping, target) && addrPort(mapping) == m.Address {
			reason, _ := b.check(e, mapping)
			return b.standing(e), reason == ""
		}
	}
	for _, w := range e.Pod.Withdrawn {
		until := w.At.Add(b.grace())
		if b.leadsTo(w.Mapping, target) && addrPort(w.Mapping) == m.Address && b.in.Now.Before(until) {
			s := standing{spare: noSpare, until: until}
			if e.Pod.Ready {
				s.spare = ofWithdrawn
			}
			return s, true
		}
	}
	return standing{}, false
}

// isNodePort reports whether a member looks like a Node with the Service's node port. Where the Nodes are known it has to be one of them.
func (b *builder) isNodePort(m providers.Member) bool {
	return b.port.NodePort != 0 && m.Address.Port() == b.port.NodePort &&
		(len(b.in.Nodes) == 0 || slices.ContainsFunc(b.in.Nodes, func(n *Node) bool { return n.UID == m.UID && n.Has(m.Address.Addr()) }))
}

// healthBeat is how long monitors are given between two looks at a switch of sources that waits for them.
const healthBeat = 5 * time.Second

// takenOver reports whether the present source's members do all the work. Of them room find room beside the former ones.
func (b *builder) takenOver(room int) bool {
	confirmed, missing, unhealthy := 0, 0, 0
	for id, m := range b.wanted {
		there, is := b.there[id]
		switch {
		case m.State != providers.Enabled:
			room--
		case !is || there.State != providers.Enabled:
			missing++
		case !b.healthy(id):
			unhealthy++
		default:
			confirmed++
		}
	}
	switch {
	case b.serving == 0:
		return true
	case confirmed > 0 && confirmed >= room && !b.pending:
		return true
	case missing > 0:
		b.soon(beat)
	case unhealthy > 0:
		b.soon(healthBeat)
	}
	b.watch = b.watch || missing+unhealthy > 0
	return false
}

// healthy reports whether a member works, as far as the load balancer can tell: where it tells so of any member, it must of this one.
func (b *builder) healthy(id providers.MemberID) bool {
	if !b.in.Capabilities.Has(providers.MemberHealth) {
		return true
	}
	all := b.in.Status[b.key]
	status, known := all[id]
	switch {
	case !known || status.Blocked:
		return false
	case status.Health != providers.HealthUnknown:
		return status.Health == providers.HealthUp
	}
	for _, other := range all {
		if other.Health != providers.HealthUnknown {
			return false
		}
	}
	return true
}
