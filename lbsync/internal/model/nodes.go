package model

import (
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

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
