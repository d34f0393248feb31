package dataplane

import (
	"errors"
	"net/netip"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// flow is what conntrack entries of one node port have in common.
type flow struct {
	protocol byte
	port     uint16
}

func (k Key) flow() flow { return flow{protocolNumbers[k.Protocol], k.NodePort} }

// flows lists the entries of f that a change makes wrong, with the target they should have: none for deleted ports.
func (c Change) flows(f *family) map[flow]netip.AddrPort {
	out := map[flow]netip.AddrPort{}
	for _, k := range c.Delete {
		if k.Family == f.ip && k.Protocol == npl.UDP {
			out[k.flow()] = netip.AddrPort{}
		}
	}
	for _, k := range c.FlushTCP {
		if k.Family == f.ip {
			out[k.flow()] = netip.AddrPort{}
		}
	}
	for k, target := range c.Set {
		_, flushed := out[k.flow()]
		if k.Family == f.ip && (k.Protocol == npl.UDP || flushed) {
			out[k.flow()] = target
		}
	}
	return out
}

// staleFlows matches the conntrack entries to one of our addresses and ports that lead elsewhere than they should. A UDP
// datagram that arrives before its rule pins the whole flow to "no NAT" for as long as the client keeps sending.
type staleFlows struct {
	self map[netip.Addr]bool
	want map[flow]netip.AddrPort
}

func (s staleFlows) MatchConntrackFlow(c *netlink.ConntrackFlow) bool {
	target, ours := s.want[flow{c.Forward.Protocol, c.Forward.DstPort}]
	if !ours {
		return false
	}
	to, ok := netip.AddrFromSlice(c.Forward.DstIP)
	if !ok || !s.self[to.Unmap()] {
		return false
	}
	from, ok := netip.AddrFromSlice(c.Reverse.SrcIP)
	return ok && netip.AddrPortFrom(from.Unmap(), c.Reverse.SrcPort) != target
}

// forget deletes the conntrack entries of these flows that lack the wanted NAT, in one walk. That it cannot is worth one
// warning, not a failure: new connections are right in any case.
func (n *NFT) forget(f *family, want map[flow]netip.AddrPort) {
	if len(want) == 0 {
		return
	}
	filter := staleFlows{self: make(map[netip.Addr]bool, len(n.self)), want: want}
	for _, a := range n.self {
		filter.self[a] = true
	}
	var err error
	for range readAttempts {
		_, err = n.route.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(f.af), filter)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		n.warnOnce("conntrack", "cannot forget old connections: UDP clients may keep talking to a Pod that is gone until they pause; "+
			"load module nf_conntrack_netlink, or enable CONFIG_NF_CT_NETLINK", zap.Error(err))
	}
}

// warnForeign reports NAT chains of others that see packets before ours: where they have an answer, ours is never asked.
func (n *NFT) warnForeign() {
	chains, err := n.kernel.ListChains()
	if err != nil {
		_ = n.kernel.dial() // the rest of a broken dump; only a warning is lost
		return
	}
	for _, c := range chains {
		if c.Table != nil && c.Table.Name != TableName && c.Type == nftables.ChainTypeNAT && c.Priority != nil && c.Hooknum != nil &&
			*c.Priority < priorityDNAT && (*c.Hooknum == *nftables.ChainHookPrerouting || *c.Hooknum == *nftables.ChainHookOutput) {
			n.warnOnce("chain "+c.Table.Name+" "+c.Name, "another NAT chain sees packets before ours and may take node ports away",
				zap.String("table", c.Table.Name), zap.String("chain", c.Name), zap.Int32("priority", int32(*c.Priority)))
		}
	}
}
