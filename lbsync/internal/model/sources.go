package model

import (
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

// source returns where members come from; a record without one means node ports of Pods.
func (s Service) source() annotations.Source {
	if s.Source == "" {
		return annotations.NodePortLocal
	}
	return s.Source
}

// endpoints enters the Pods, by their node ports or by their own addresses.
func (b *builder) endpoints() {
	for _, e := range b.in.Endpoints {
		if e.Pod.Finished {
			continue
		}
		if e.NodeGone {
			b.refuse(e.Pod, NodeGone, "its Node %s was deleted, so nothing leads to it; delete the Pod if it lingers", e.Pod.Node)
			continue
		}
		if e.Pod.Ready || b.in.Service.PublishNotReady {
			b.serving++
		}
		for _, p := range e.Pod.Problems {
			b.refuse(e.Pod, InvalidAnnotation, "%s; what it said last stays", p)
		}
		target, ok := b.target(e.Pod)
		switch {
		case !ok:
			b.refuse(e.Pod, TargetPortUnresolved, "the Pod has no %s port named %q; name a port of one of its containers so, or change targetPort of the Service's port %d",
				b.key.Protocol, b.port.TargetName, b.key.Port)
		case b.in.Service.source() == annotations.ClusterIP:
			b.podAddresses(e, target)
		default:
			b.mappings(e, target)
		}
	}
}

// target resolves targetPort in one Pod.
func (b *builder) target(p *Pod) (uint16, bool) {
	if b.port.TargetNumber != 0 {
		return b.port.TargetNumber, true
	}
	for _, port := range p.Ports {
		if port.Name == b.port.TargetName && port.Protocol == b.key.Protocol {
			return port.Number, true
		}
	}
	return 0, false
}

// member makes the member of a Pod, in no state yet.
func (b *builder) member(p *Pod, address netip.AddrPort) providers.Member {
	m := providers.Member{UID: p.UID, Name: p.ID(), Address: address}
	if p.Weight > 1 && b.in.Capabilities.Has(providers.Weights) {
		m.Weight = p.Weight
	}
	return m
}

// mappings enters the node ports of one Pod.
func (b *builder) mappings(e Endpoint, target uint16) {
	published := map[npl.Family]bool{}
	for _, m := range e.Pod.Mappings {
		if b.leadsTo(m, target) {
			published[m.Family] = true
			b.mapping(e, m)
		}
	}
	for _, w := range e.Pod.Withdrawn {
		if b.leadsTo(w.Mapping, target) {
			b.withdrawn(e, w)
		}
	}
	switch {
	case e.Pod.Malformed != "":
		b.refuse(e.Pod, MalformedAnnotation, "%s; its last good members, if any, stay", e.Pod.Malformed)
		b.keep(e, published)
	case len(published) == 0:
		b.refuse(e.Pod, NotPublished, "annotation %s has no %s mapping of Pod port %d for %s; see that npl-agent runs on Node %s, and that the Service's annotation %s is \"true\"",
			npl.Annotation, b.key.Protocol, target, join(b.in.Service.Families), e.Pod.Node, npl.EnabledAnnotation)
	}
}

// leadsTo reports whether a mapping is one of this port's.
func (b *builder) leadsTo(m npl.Mapping, target uint16) bool {
	return m.PodPort == target && m.Protocol == protocolOf(b.key.Protocol) && slices.Contains(b.in.Service.Families, m.Family)
}

// mapping enters one node port if it checks out.
func (b *builder) mapping(e Endpoint, m npl.Mapping) {
	member := b.member(e.Pod, addrPort(m))
	b.spoken[member.ID()] = true
	reason, why := b.check(e, m)
	if reason == "" {
		b.enter(member, b.standing(e))
		return
	}
	b.refuse(e.Pod, reason, "%s", why)
	if reason == PortOutOfRange {
		b.why[member.ID()] = why
	}
}

// withdrawn lets the member of a mapping that is no longer published drain. While its Pod is ready it is better than an empty pool.
func (b *builder) withdrawn(e Endpoint, w Withdrawal) {
	member := b.member(e.Pod, addrPort(w.Mapping))
	if b.spoken[member.ID()] {
		return
	}
	b.spoken[member.ID()] = true
	until := w.At.Add(b.grace())
	_, isThere := b.there[member.ID()]
	if !isThere || !b.in.Now.Before(until) || e.Node != nil && !e.Node.Has(w.Mapping.NodeIP) || len(b.claimants(member.ID())) > 0 {
		return
	}
	if spare := until.Add(-min(withdrawDrain, b.grace()/4)); e.Pod.Ready && b.in.Now.Before(spare) {
		b.spares[ofWithdrawn] = append(b.spares[ofWithdrawn], member)
		b.wake = earlier(b.wake, spare)
	}
	b.drain(member, until)
}

// keep lets the members stay that the Pod had in families which its malformed annotation does not speak of.
func (b *builder) keep(e Endpoint, published map[npl.Family]bool) {
	if b.current == nil {
		return
	}
	for _, m := range b.current.Members {
		if m.UID != e.Pod.UID || published[npl.FamilyOf(m.Address.Addr())] || b.spoken[m.ID()] {
			continue
		}
		b.spoken[m.ID()] = true
		if len(b.claimants(m.ID())) == 0 {
			b.enter(b.member(e.Pod, m.Address), b.standing(e))
		}
	}
}

// podAddresses enters a Pod with its own address in each family of the Service.
func (b *builder) podAddresses(e Endpoint, target uint16) {
	for _, family := range b.in.Service.Families {
		at := slices.IndexFunc(e.Pod.IPs, func(a netip.Addr) bool { return npl.FamilyOf(a) == family })
		if at < 0 {
			if len(b.in.Service.Families) == 1 || len(e.Pod.IPs) == 0 {
				b.refuse(e.Pod, NoAddress, "the Pod has no %s address; see its status, and ipFamilies of the Service", family)
			}
			continue
		}
		m := b.member(e.Pod, netip.AddrPortFrom(e.Pod.IPs[at], target))
		b.spoken[m.ID()] = true
		if others := b.claimants(m.ID()); len(others) > 0 {
			b.refuse(e.Pod, Contested, "%s is also claimed by %s, so neither is a member; remove the annotation %s from the Pod that npl-agent did not give the port to",
				m.Address, join(others), npl.Annotation)
			continue
		}
		b.enter(m, b.standing(e))
	}
}
