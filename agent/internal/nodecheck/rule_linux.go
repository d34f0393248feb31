package nodecheck

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// rule is what the checks want to know of a rule.
type rule struct {
	match    Match
	protocol npl.Protocol
	notrack  bool
}

// ctNoTrack is XT_CT_NOTRACK of linux/netfilter/xt_CT.h.
const ctNoTrack = 1 << 0

// readRule understands what iptables-nft and people commonly write; the rest becomes Match.Other.
func readRule(r *nftables.Rule) rule {
	var out rule
	var loaded expr.Any // what the register holds that is compared next
	var mask []byte
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Counter, *expr.Log, *expr.Immediate, *expr.Verdict, *expr.NAT:
		case *expr.Payload, *expr.Meta, *expr.Ct:
			loaded, mask = e, nil
		case *expr.Bitwise:
			mask = e.Mask
		case *expr.Cmp:
			out.compare(loaded, mask, e)
		case *expr.Notrack:
			out.notrack = true
		case *expr.Target:
			out.target(e.Name, e.Info)
		case *expr.Match:
			out.extension(e.Name, e.Info)
		default:
			out.match.Other = true
		}
	}
	return out
}

// compare takes "loaded == data" into account.
func (r *rule) compare(loaded expr.Any, mask []byte, c *expr.Cmp) {
	payload, ok := loaded.(*expr.Payload)
	if m, isMeta := loaded.(*expr.Meta); isMeta && m.Key == expr.MetaKeyL4PROTO && c.Op == expr.CmpOpEq && len(c.Data) == 1 {
		r.protocol = protocolOf(c.Data[0])
	}
	switch {
	case !ok || c.Op != expr.CmpOpEq:
	case payload.Base == expr.PayloadBaseTransportHeader && payload.Offset == 0 && payload.Len == 2 && mask == nil:
		r.match.SourcePort = onePort(binary.BigEndian.Uint16(c.Data))
		return
	case payload.Base == expr.PayloadBaseTransportHeader && payload.Offset == 2 && payload.Len == 2 && mask == nil:
		r.match.DestinationPort = onePort(binary.BigEndian.Uint16(c.Data))
		return
	case payload.Base == expr.PayloadBaseNetworkHeader:
		// Offsets of the addresses in the headers of IPv4 (RFC 791) and IPv6 (RFC 8200).
		switch size := len(c.Data); {
		case payload.Offset == 12 && size <= 4:
			r.match.Source = prefix(c.Data, mask, 4)
			return
		case payload.Offset == 16 && size <= 4:
			r.match.Destination = prefix(c.Data, mask, 4)
			return
		case payload.Offset == 8 && size > 1:
			r.match.Source = prefix(c.Data, mask, 16)
			return
		case payload.Offset == 24 && size > 1:
			r.match.Destination = prefix(c.Data, mask, 16)
			return
		}
	}
	r.match.Other = true
}

// extension takes a match of xtables into account.
func (r *rule) extension(name string, info xt.InfoAny) {
	switch i := info.(type) {
	case *xt.Tcp:
		r.protocol = npl.TCP
		r.ports(i.SrcPorts, i.DstPorts, i.InvFlags != 0 || i.FlagsMask != 0 || i.Option != 0)
	case *xt.Udp:
		r.protocol = npl.UDP
		r.ports(i.SrcPorts, i.DstPorts, i.InvFlags != 0)
	default:
		r.match.Other = r.match.Other || name != "comment"
	}
}

func (r *rule) ports(source, destination [2]uint16, other bool) {
	all := [2]uint16{0, 65535}
	if source != all {
		r.match.SourcePort = Ports{source[0], source[1]}
	}
	if destination != all {
		r.match.DestinationPort = Ports{destination[0], destination[1]}
	}
	r.match.Other = r.match.Other || other
}

// target takes a target of xtables into account.
func (r *rule) target(name string, info xt.InfoAny) {
	raw, _ := info.(*xt.Unknown)
	if name == "NOTRACK" || name == "CT" && raw != nil && len(*raw) >= 2 && binary.NativeEndian.Uint16(*raw)&ctNoTrack != 0 {
		r.notrack = true
	}
}

func protocolOf(number byte) npl.Protocol {
	switch number {
	case unix.IPPROTO_TCP:
		return npl.TCP
	case unix.IPPROTO_UDP:
		return npl.UDP
	case unix.IPPROTO_SCTP:
		return npl.SCTP
	}
	return ""
}

func onePort(p uint16) Ports { return Ports{p, p} }

// prefix makes a prefix of the first bytes of an address of size bytes and its mask.
func prefix(data, mask []byte, size int) netip.Prefix {
	if mask == nil {
		mask = bytes.Repeat([]byte{0xff}, len(data))
	}
	ones := 0
	for _, b := range mask {
		ones += bits.LeadingZeros8(^b)
		if b != 0xff {
			break
		}
	}
	full := make([]byte, size)
	copy(full, data)
	ones = min(ones, 8*size)
	a, _ := netip.AddrFromSlice(full)
	return netip.PrefixFrom(a, ones).Masked()
}
