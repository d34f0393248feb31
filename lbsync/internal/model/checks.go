package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
)

// check returns why a mapping of a Pod must not become a member, or "". Somebody else may have written it, so nothing in it is believed:
// the address must be one of the Pod's own Node, the port one that npl-agent gives or the Pod declares, and nobody else's.
func (b *builder) check(e Endpoint, m npl.Mapping) (Reason, string) {
	member := providers.MemberID{UID: e.Pod.UID, Address: addrPort(m)}
	_, isThere := b.there[member]
	switch {
	case e.Node == nil && !isThere:
		// A Pod that is a member stays one while its Node is out of sight, and none becomes one.
		return NodeUnknown, fmt.Sprintf("Node %q or its addresses are not known, so %s cannot be checked; see that the Node has an address of type InternalIP",
			e.Pod.Node, member.Address)
	case e.Node != nil && !e.Node.Has(m.NodeIP):
		return ForeignNodeAddress, fmt.Sprintf("%s is not on an address of the Pod's Node %s (%s); remove the annotation %s from the Pod, npl-agent writes it anew",
			member.Address, e.Node.Name, join(e.Node.Addresses), npl.Annotation)
	case !b.in.PortRange.has(m.NodePort) && !e.Pod.declares(m.NodePort, b.key.Protocol):
		return PortOutOfRange, fmt.Sprintf("node port %d is outside of the range %s that npl-agent takes ports from, and the Pod declares no hostPort %d/%s; "+
			"remove the annotation %s from the Pod, or set portRange of lbsync to that of npl-agent", m.NodePort, b.in.PortRange, m.NodePort, b.key.Protocol, npl.Annotation)
	}
	if others := b.claimants(member); len(others) > 0 {
		return Contested, fmt.Sprintf("%s is also claimed by %s, so neither is a member; remove the annotation %s from the Pod that npl-agent did not give the port to",
			member.Address, strings.Join(others, ", "), npl.Annotation)
	}
	for _, o := range e.Pod.Mappings {
		if addrPort(o) == member.Address && o.Protocol == m.Protocol && o.PodPort != m.PodPort {
			return Contested, fmt.Sprintf("%s is published for the Pod's ports %d and %d at once; remove the annotation %s from the Pod, npl-agent writes it anew",
				member.Address, m.PodPort, o.PodPort, npl.Annotation)
		}
	}
	if still := b.occupants(member); !isThere && len(still) > 0 {
		return StillListed, fmt.Sprintf("%s is still a member of %s for the Pod that had it before; it enters when that one has left", member.Address, join(still))
	}
	return "", ""
}

// occupants returns the pools, other than this one, that lead to where a member would for another Pod.
func (b *builder) occupants(m providers.MemberID) []providers.Key {
	if b.in.Occupants == nil {
		return nil
	}
	return slices.DeleteFunc(b.in.Occupants(m.Address, b.key.Protocol, m.UID), func(k providers.Key) bool { return k == b.key })
}

// has reports whether p is in the range.
func (r PortRange) has(p uint16) bool { return r == PortRange{} || r.First <= p && p <= r.Last }

// String returns "first-last".
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// declares reports whether a container of the Pod has the host port.
func (p *Pod) declares(port uint16, protocol providers.Protocol) bool {
	return slices.Contains(p.HostPorts, HostPort{Protocol: protocol, Port: port})
}
