package dataplane

import (
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

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

// staleFlows tells which entries lead elsewhere than they should. A UDP datagram that arrives before its rule pins the
// whole flow to "no NAT" for as long as the client keeps sending.
type staleFlows struct {
	self []netip.Addr // sorted
	want map[flow]netip.AddrPort
}

func (s staleFlows) match(e entry) bool {
	target, ours := s.want[e.flow]
	if !ours {
		return false
	}
	_, here := slices.BinarySearchFunc(s.self, e.to, netip.Addr.Compare)
	return here && e.from != target
}

// forget deletes the conntrack entries of these flows that lack the wanted NAT. That it cannot is worth one warning, not
// a failure: new connections are right in any case. The next repair tries again.
func (n *NFT) forget(f *family, want map[flow]netip.AddrPort) {
	byProtocol := map[byte][]uint16{}
	for fl := range want {
		byProtocol[fl.protocol] = append(byProtocol[fl.protocol], fl.port)
	}
	stale := staleFlows{n.self, want}
	for _, protocol := range slices.Sorted(maps.Keys(byProtocol)) {
		if err := n.kernel.forget(f, protocol, byProtocol[protocol], stale); err != nil {
			n.walkDue[f] = true
			n.warnOnce("conntrack", "cannot forget old connections: clients may keep talking to a Pod that is gone until they pause; "+
				"load module nf_conntrack_netlink, or enable CONFIG_NF_CT_NETLINK", zap.Error(errors.Join(err, n.kernel.dial())))
			return
		}
	}
}

// Of linux/netfilter/nfnetlink_conntrack.h and net/netfilter/nf_internals.h.
const (
	ctaFilter, ctaFilterOrigFlags             = 25, 1
	filterProtoNum, filterProtoDstPort uint32 = 1 << 3, 1 << 5
)

// forget walks the entries of one protocol once. The kernel does the choosing by protocol, and by port if there is just
// one: a busy Node has a hundred thousand entries, of which we want none or two. Kernels before 5.8 ignore the filter and
// send them all.
func (k *kernel) forget(f *family, protocol byte, ports []uint16, stale staleFlows) error {
	flags, proto := filterProtoNum, []field{{nl.CTA_PROTO_NUM, protocol}}
	if len(ports) == 1 {
		flags |= filterProtoDstPort
		proto = append(proto, field{nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, ports[0])})
	}
	request, err := conntrackMessage(f, nl.IPCTNL_MSG_CT_GET, netlink.Dump,
		field{nl.CTA_TUPLE_ORIG, []field{{nl.CTA_TUPLE_PROTO, proto}}},
		field{ctaFilter, []field{{ctaFilterOrigFlags, binary.NativeEndian.AppendUint32(nil, flags)}}})
	if err != nil {
		return err
	}
	var found []entry
	if err := k.dump(request, func(data []byte) {
		if e, ok := decodeEntry(data); ok && stale.match(e) {
			found = append(found, e)
		}
	}); err != nil {
		return explain("list conntrack entries", err)
	}
	for _, e := range found {
		request, err := conntrackMessage(f, nl.IPCTNL_MSG_CT_DELETE, netlink.Acknowledge, e.identity...)
		if err != nil {
			return err
		}
		if _, err := k.execute(request); err != nil && !errors.Is(err, unix.ENOENT) {
			return explain("delete a conntrack entry", err)
		}
	}
	return nil
}

func conntrackMessage(f *family, msg uint16, flags netlink.HeaderFlags, fields ...field) (netlink.Message, error) {
	data, err := encode(fields)
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_CTNETLINK<<8 | msg), Flags: netlink.Request | flags},
		Data:   append(generic(f.nf, 0), data...),
	}, err
}

// entry is a connection as conntrack knows it.
type entry struct {
	flow
	to       netip.Addr     // whom the client asked for
	from     netip.AddrPort // who answers
	identity []field        // what the kernel needs to find it again
}

// decodeEntry decodes a conntrack message; false for what is not about a port of IPv4 or IPv6.
func decodeEntry(b []byte) (e entry, ok bool) {
	attrs, err := attributes(netlink.Message{Data: b})
	if err != nil {
		return e, false
	}
	var orig, reply tuple
	for attrs.Next() {
		typ := attrs.Type()
		switch typ {
		case nl.CTA_TUPLE_ORIG:
			attrs.Nested(orig.decode)
		case nl.CTA_TUPLE_REPLY:
			attrs.Nested(reply.decode)
		}
		switch typ {
		case nl.CTA_TUPLE_ORIG, nl.CTA_ID, nl.CTA_ZONE: // connections of different zones may look the same otherwise
			e.identity = append(e.identity, field{typ, slices.Clone(attrs.Bytes())})
		}
	}
	e.flow = flow{orig.protocol, orig.dstPort}
	e.to, e.from = orig.dst, netip.AddrPortFrom(reply.src, reply.srcPort)
	return e, attrs.Err() == nil && e.to.IsValid() && reply.src.IsValid()
}

// tuple is one direction of an entry.
type tuple struct {
	protocol         byte
	src, dst         netip.Addr
	srcPort, dstPort uint16
}

func (t *tuple) decode(parts *netlink.AttributeDecoder) error {
	for parts.Next() {
		switch parts.Type() {
		case nl.CTA_TUPLE_IP:
			parts.Nested(func(ip *netlink.AttributeDecoder) error {
				for ip.Next() {
					switch ip.Type() {
					case nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC:
						t.src, _ = netip.AddrFromSlice(ip.Bytes())
					case nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST:
						t.dst, _ = netip.AddrFromSlice(ip.Bytes())
					}
				}
				return nil
			})
		case nl.CTA_TUPLE_PROTO:
			parts.Nested(func(proto *netlink.AttributeDecoder) error {
				for proto.Next() {
					switch proto.Type() {
					case nl.CTA_PROTO_NUM:
						t.protocol = proto.Uint8()
					case nl.CTA_PROTO_SRC_PORT:
						t.srcPort = proto.Uint16()
					case nl.CTA_PROTO_DST_PORT:
						t.dstPort = proto.Uint16()
					}
				}
				return nil
			})
		}
	}
	return nil
}
