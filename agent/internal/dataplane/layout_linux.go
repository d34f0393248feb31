package dataplane

import (
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// The sets of a table.
const (
	setPorts   = "ports"   // map: protocol . node port -> Pod address . Pod port
	setSelf    = "self"    // addresses at which this Node serves node ports
	setCooling = "cooling" // protocol . node port of freed ports, with a timeout; no rule reads it
	setHairpin = "hairpin" // Pod address . same Pod address
	setUturn   = "uturn"   // interface . same interface
)

// setOf names the set that repeats the node ports of one protocol for the masquerade rules. They would look into the map,
// but the nft tool (1.0.6) aborts on a listing that joins a protocol with a port of the original tuple.
func setOf(p npl.Protocol) string { return string(p) + "-ports" }

// The chains of a table.
const (
	chainPrerouting  = "prerouting"
	chainOutput      = "output"
	chainPostrouting = "postrouting"
	chainMasquerade  = "masquerade-ours"
)

// Priorities: ahead of the DNAT and SNAT of kube-proxy and of the portmap plugin (-100 and 100). The first NAT chain
// that has an answer wins.
const (
	priorityDNAT = -110
	prioritySNAT = 90
)

// layout is the fixed part of one family's table: everything but the elements.
type layout struct {
	sets   []set
	chains []chain
}

// set is a set, or a map where data has a type.
type set struct {
	name      string
	key, data nftables.SetDatatype
	timeout   bool
	hostOrder bool // keys are in host byte order; only the nft tool's listing depends on it
}

// chain is a chain with its rules. A base chain has a hook and a priority; others are jumped to.
type chain struct {
	name     string
	hook     *nftables.ChainHook
	priority nftables.ChainPriority
	rules    []rule
}

// rule is what the kernel runs and the comment that says why.
type rule struct {
	comment string
	exprs   []expression
}

func newLayout(f *family, mode string) layout {
	portKey := nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService)
	l := layout{sets: []set{
		{name: setPorts, key: portKey, data: nftables.MustConcatSetType(f.addrType, nftables.TypeInetService)},
		{name: setSelf, key: f.addrType},
		{name: setCooling, key: portKey, timeout: true},
		{name: setHairpin, key: nftables.MustConcatSetType(f.addrType, f.addrType)},
		{name: setUturn, key: nftables.MustConcatSetType(nftables.TypeIFIndex, nftables.TypeIFIndex), hostOrder: true},
	}}
	masq := chain{name: chainMasquerade}
	for _, p := range protocols {
		l.sets = append(l.sets, set{name: setOf(p), key: nftables.TypeInetService})
		masq.rules = append(masq.rules, rule{exprs: []expression{
			meta(unix.NFT_META_L4PROTO, reg1), compareTo(unix.NFT_CMP_EQ, []byte{protocolNumbers[p]}, reg1),
			ctOriginal(unix.NFT_CT_PROTO_DST, reg1), lookup(setOf(p), reg1), masquerade(),
		}})
	}
	dnat := []rule{{"node port to Pod", f.dnat()}}
	l.chains = []chain{
		masq, // first: others jump to it
		{chainPrerouting, nftables.ChainHookPrerouting, priorityDNAT, dnat},
		{chainOutput, nftables.ChainHookOutput, priorityDNAT, dnat},
		{chainPostrouting, nftables.ChainHookPostrouting, prioritySNAT, f.masquerade(mode)},
	}
	return l
}

// dnat is "ip daddr @self dnat ip to meta l4proto . th dport map @ports".
func (f *family) dnat() []expression {
	return []expression{
		payload(unix.NFT_PAYLOAD_NETWORK_HEADER, f.daddr, f.addrType.Bytes, reg1), lookup(setSelf, reg1),
		meta(unix.NFT_META_L4PROTO, reg1), payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, reg32_01),
		lookupMap(setPorts, reg1, reg1), dnatTo(uint32(f.nf), reg1, f.afterAddr),
	}
}

// masquerade restricts every mode to connections that went through our own DNAT: the status bit, the address and the port
// that the client asked for. Another NAT of the Node must never lose its client's address to us.
func (f *family) masquerade(mode string) []rule {
	ours := slices.Concat([]expression{ctStatus(reg1)}, anyBit(dstNAT, reg1),
		[]expression{ctOriginal(f.ctDst, reg1), lookup(setSelf, reg1), jump(chainMasquerade)})
	switch mode {
	case MasqueradeNone:
		return nil
	case MasqueradeAll:
		return []rule{{"every client", ours}}
	}
	return []rule{
		{"client behind the interface of the Pod", slices.Concat([]expression{
			meta(unix.NFT_META_IIF, reg1), meta(unix.NFT_META_OIF, reg32_01), lookup(setUturn, reg1),
		}, ours)},
		{"Pod that reaches itself", slices.Concat([]expression{
			payload(unix.NFT_PAYLOAD_NETWORK_HEADER, f.saddr, f.addrType.Bytes, reg1),
			payload(unix.NFT_PAYLOAD_NETWORK_HEADER, f.daddr, f.addrType.Bytes, f.afterAddr),
			lookup(setHairpin, reg1),
		}, ours)},
	}
}

// same reports whether the kernel's set has the type and the flags of s.
func (s set) same(k *nftables.Set) bool {
	return (s.data.Bytes > 0) == k.IsMap && s.timeout == k.HasTimeout && k.Timeout == 0 && !k.Constant && !k.Interval && !k.Dynamic &&
		s.key.GetNFTMagic() == k.KeyType.GetNFTMagic() && s.key.Bytes == k.KeyType.Bytes &&
		s.data.GetNFTMagic() == k.DataType.GetNFTMagic() && s.data.Bytes == k.DataType.Bytes
}

// same reports whether the kernel's chain is hooked where c is.
func (c chain) same(k *nftables.Chain) bool {
	if c.hook == nil || k.Hooknum == nil || k.Priority == nil || k.Policy == nil {
		return c.hook == nil && k.Hooknum == nil
	}
	return k.Type == nftables.ChainTypeNAT && *k.Hooknum == *c.hook && *k.Priority == c.priority && *k.Policy == nftables.ChainPolicyAccept
}

func (r rule) userData() []byte {
	if r.comment == "" {
		return nil
	}
	return userdata.AppendString(nil, userdata.TypeComment, r.comment)
}

// same reports whether the kernel's rule does what r does.
func (r rule) same(k kernelRule) bool {
	return r.comment == k.comment && slices.EqualFunc(r.exprs, k.exprs, expression.same)
}
