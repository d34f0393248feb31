package model

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
)

// OnNode is the Node that a load balancer stands on, where it serves Services that name no address at those of its Node.
type OnNode struct {
	Addresses []netip.Addr // of the Node that it can listen on, see Node.Listens; none while they are not known
	Reserved  []ReservedPorts
	// Owner returns the oldest other Service that is to be on the Nodes with a port, if that is older than this one.
	Owner func(ServiceKey, uint16, providers.Protocol) (owner ServiceKey, ok bool)
}

// ReservedPorts are ports of Nodes that no Service can have there.
type ReservedPorts struct {
	PortRange
	For string // who has them, and what they would do to clients of the Service
}

// PortReason says why a port is not served although the load balancer could.
type PortReason string

// The reasons.
const (
	PortTaken    PortReason = "PortTaken"    // an older Service has it on the Nodes' addresses
	PortReserved PortReason = "PortReserved" // the Nodes need it themselves
)

// PortReasons lists every PortReason.
func PortReasons() []PortReason { return []PortReason{PortReserved, PortTaken} }

// AtNodes reports whether the Service asks for no address, so that a load balancer on a Node serves it at that Node's.
func (s Service) AtNodes() bool {
	return len(s.Wishes.Addresses) == 0 && s.Wishes.AddressPool == "" && len(s.Wishes.Attachments) == 0
}

// Listens returns the addresses on which a load balancer on the Node listens, sorted: the internal ones, and those of the external ones that
// are on an interface of the Node rather than on a router that translates them.
func (n *Node) Listens(local func(netip.Addr) bool) (out []netip.Addr) {
	for _, a := range n.Addresses {
		if slices.Contains(n.Internal, a) || local != nil && local(a) {
			out = append(out, a)
		}
	}
	return out
}

// Publishes returns the addresses at which a Service is reached that a load balancer on the Node serves at these, sorted: in each family the
// external ones if the Node has any, else the internal ones that are served.
func (n *Node) Publishes(served []netip.Addr) (out []netip.Addr) {
	external := func(a netip.Addr) bool { return n.Has(a) && !slices.Contains(n.Internal, a) }
	for _, family := range []npl.Family{npl.IPv4, npl.IPv6} {
		of := func(addrs []netip.Addr) []netip.Addr {
			return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return npl.FamilyOf(a) != family || !n.Has(a) })
		}
		here := of(served)
		if len(here) == 0 {
			continue
		}
		all := of(n.Addresses)
		if slices.ContainsFunc(all, external) {
			here = slices.DeleteFunc(all, func(a netip.Addr) bool { return !external(a) })
		}
		out = append(out, here...)
	}
	slices.SortFunc(out, providers.CompareAddrs)
	return slices.Compact(out)
}

// onNode returns the Node that the Service is served on; nil where it has addresses of its own, or members only.
func (b *builder) onNode() *OnNode {
	if b.attached != "" || !b.in.Service.AtNodes() {
		return nil
	}
	return b.in.OnNode
}

// refusePort returns why the port is none that a Service can have on Nodes, or that this one cannot, and notes it.
func (b *builder) refusePort() PortReason {
	on := b.onNode()
	if on == nil {
		return ""
	}
	for _, r := range on.Reserved {
		if r.has(b.key.Port) {
			b.note("on the Nodes' addresses, ports %s are for %s; choose another port, or ask for an address", r.PortRange, r.For)
			return PortReserved
		}
	}
	if on.Owner == nil {
		return ""
	}
	if owner, taken := on.Owner(b.in.Service.ServiceKey, b.key.Port, b.key.Protocol); taken {
		b.note("on the Nodes' addresses, port %s belongs to Service %s, which is older; choose another port, or ask for an address",
			fmt.Sprintf("%d/%s", b.key.Port, b.key.Protocol), owner)
		return PortTaken
	}
	return ""
}

// vips returns where clients are to connect; none where that is not known yet, or cannot be read.
func (b *builder) vips() (out []netip.Addr) {
	s, on := b.in.Service, b.onNode()
	switch {
	case on == nil:
		return s.VIPs[b.in.Instance]
	case s.Wishes.Kept.Addresses:
		return nil // it keeps what it has
	}
	for _, a := range on.Addresses {
		if slices.Contains(s.Families, npl.FamilyOf(a)) {
			out = append(out, a)
		}
	}
	return out
}
