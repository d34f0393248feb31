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
	until := w.At.Add(min(WithdrawGrace, b.limit))
	_, isThere := b.there[member.ID()]
	if !isThere || !b.in.Now.Before(until) || e.Node != nil && !e.Node.Has(w.Mapping.NodeIP) || len(b.claimants(member.ID())) > 0 {
		return
	}
	if e.Pod.Ready {
		b.spares[ofWithdrawn] = append(b.spares[ofWithdrawn], member)
		b.wake = earlier(b.wake, until)
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

// nodes enters Nodes with the Service's node port.
func (b *builder) nodes() {
	if b.port.NodePort == 0 {
		b.note("port %d/%s has no node port to make members of; set allocateLoadBalancerNodePorts to true, or annotation %s to %s",
			b.key.Port, b.key.Protocol, annotations.ServiceType, annotations.NodePortLocal)
	}
	local := map[string]standing{}
	for _, e := range b.in.Endpoints {
		if e.Pod.Finished || e.NodeGone {
			continue
		}
		s := b.podStanding(e.Pod)
		if e.Pod.Ready || s.enabled {
			b.serving++
		}
		if old, is := local[e.Pod.Node]; !is || s.better(old) {
			local[e.Pod.Node] = s
		}
	}
	addressed, selected := map[npl.Family]bool{}, 0
	for _, n := range b.in.Nodes {
		s, ok := b.nodeMember(n, local)
		if !ok || b.port.NodePort == 0 {
			continue
		}
		selected++
		for _, family := range b.in.Service.Families {
			if b.node(n, family, s) {
				addressed[family] = true
			}
		}
	}
	if len(b.in.Nodes) > 0 && !slices.ContainsFunc(b.in.Nodes, func(n *Node) bool { return n.selectedBy(b.in.NodeSelector) }) {
		b.note("no Node has the labels of nodePortSelector; label the Nodes that are to be members, or change the setting")
	}
	for _, family := range b.in.Service.Families {
		if selected > 0 && !addressed[family] {
			b.note("no Node that may be a member has an address of type InternalIP in %s", family)
		}
	}
}

// nodeMember judges a Node; ok is false when it can have no member, not even for a while.
func (b *builder) nodeMember(n *Node, local map[string]standing) (_ standing, ok bool) {
	s := standing{enabled: true}
	if b.in.Service.LocalOnly {
		if s, ok = local[n.Name]; !ok {
			return s, false // its own kube-proxy drops what comes
		}
	}
	switch {
	case n.Excluded || !n.selectedBy(b.in.NodeSelector):
		return standing{spare: noSpare}, true
	case s.enabled:
		return b.nodeStanding(n), true
	default:
		return s, true
	}
}

// node enters one address of a Node; ok is false when it has none of the family.
func (b *builder) node(n *Node, family npl.Family, s standing) (ok bool) {
	at := slices.IndexFunc(n.Internal, func(a netip.Addr) bool { return npl.FamilyOf(a) == family })
	if at < 0 {
		return false
	}
	m := providers.Member{UID: n.UID, Name: n.Name, Address: netip.AddrPortFrom(n.Internal[at], b.port.NodePort)}
	b.spoken[m.ID()] = true
	if others := b.claimants(m.ID()); len(others) > 0 {
		b.note("node port %s of Node %s is also claimed by %s, so it is no member; remove the annotation %s there", m.Address, n.Name, join(others), npl.Annotation)
		return true
	}
	if !s.enabled && s.spare == noSpare && s.until.IsZero() {
		s.until = b.undated(m.ID())
	}
	b.enter(m, s)
	return true
}

// selectedBy reports whether the Node has all the labels.
func (n *Node) selectedBy(labels map[string]string) bool {
	for k, v := range labels {
		if have, is := n.Labels[k]; !is || have != v {
			return false
		}
	}
	return true
}

// better reports whether a Pod in standing s speaks louder for its Node than one in standing o.
func (s standing) better(o standing) bool {
	if s.enabled != o.enabled || s.enabled {
		return s.enabled && !o.enabled
	}
	if s.spare != o.spare {
		return s.spare < o.spare
	}
	return s.until.After(o.until)
}
