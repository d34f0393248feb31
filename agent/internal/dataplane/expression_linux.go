package dataplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The library's own expressions are not used: it sends the direction of a conntrack key in a width that the kernel warns
// about, cannot read it back, and skips expressions it does not know, so that an edited rule could look untouched.

// expression is one instruction of a rule, with its attributes as netlink carries them.
type expression struct {
	name   string
	fields []field
	// ignore lists attributes that the kernel adds of itself.
	ignore []uint16
}

// field is a netlink attribute: uint8 and uint32 go in network byte order, []byte as they are, strings with a final zero
// byte, []field nested.
type field struct {
	typ   uint16
	value any
}

// Registers: 1 and 2 hold 16 bytes; reg32_01 is the second quarter of 1.
const (
	reg1     uint32 = unix.NFT_REG_1
	reg2     uint32 = unix.NFT_REG_2
	reg32_01 uint32 = unix.NFT_REG32_01
)

func payload(base, offset, length, to uint32) expression {
	return expression{name: "payload", fields: []field{
		{unix.NFTA_PAYLOAD_DREG, to}, {unix.NFTA_PAYLOAD_BASE, base}, {unix.NFTA_PAYLOAD_OFFSET, offset}, {unix.NFTA_PAYLOAD_LEN, length},
	}}
}

func meta(key, to uint32) expression {
	return expression{name: "meta", fields: []field{{unix.NFTA_META_DREG, to}, {unix.NFTA_META_KEY, key}}}
}

const dstNAT = 1 << 5 // IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h

// ctStatus loads the conntrack entry's status bits.
func ctStatus(to uint32) expression {
	return expression{name: "ct", fields: []field{{unix.NFTA_CT_DREG, to}, {unix.NFTA_CT_KEY, uint32(unix.NFT_CT_STATUS)}}}
}

// ctOriginal loads part of the tuple that the client sent.
func ctOriginal(key, to uint32) expression {
	const directionOriginal uint8 = 0 // IP_CT_DIR_ORIGINAL
	return expression{name: "ct", fields: []field{
		{unix.NFTA_CT_DREG, to}, {unix.NFTA_CT_KEY, key}, {unix.NFTA_CT_DIRECTION, directionOriginal},
	}}
}

func lookup(set string, from uint32) expression {
	return expression{name: "lookup", ignore: []uint16{unix.NFTA_LOOKUP_SET_ID},
		fields: []field{{unix.NFTA_LOOKUP_SET, set}, {unix.NFTA_LOOKUP_SREG, from}}}
}

func lookupMap(set string, from, to uint32) expression {
	e := lookup(set, from)
	e.fields = append(e.fields, field{unix.NFTA_LOOKUP_DREG, to})
	return e
}

// anyBit continues when register from has one of the bits, given in host byte order.
func anyBit(bits, from uint32) []expression {
	mask, zero := binary.NativeEndian.AppendUint32(nil, bits), make([]byte, 4)
	return []expression{
		{name: "bitwise", fields: []field{
			{unix.NFTA_BITWISE_SREG, from}, {unix.NFTA_BITWISE_DREG, from}, {unix.NFTA_BITWISE_LEN, uint32(4)},
			{unix.NFTA_BITWISE_MASK, []field{{unix.NFTA_DATA_VALUE, mask}}}, {unix.NFTA_BITWISE_XOR, []field{{unix.NFTA_DATA_VALUE, zero}}},
		}},
		compareTo(unix.NFT_CMP_NEQ, zero, from),
	}
}

func compareTo(op uint32, data []byte, from uint32) expression {
	return expression{name: "cmp", fields: []field{
		{unix.NFTA_CMP_SREG, from}, {unix.NFTA_CMP_OP, op}, {unix.NFTA_CMP_DATA, []field{{unix.NFTA_DATA_VALUE, data}}},
	}}
}

func dnatTo(family, addr, port uint32) expression {
	return expression{name: "nat", ignore: []uint16{unix.NFTA_NAT_FLAGS}, fields: []field{
		{unix.NFTA_NAT_TYPE, uint32(unix.NFT_NAT_DNAT)}, {unix.NFTA_NAT_FAMILY, family},
		{unix.NFTA_NAT_REG_ADDR_MIN, addr}, {unix.NFTA_NAT_REG_ADDR_MAX, addr},
		{unix.NFTA_NAT_REG_PROTO_MIN, port}, {unix.NFTA_NAT_REG_PROTO_MAX, port},
	}}
}

func masquerade() expression { return expression{name: "masq"} }

func jump(chain string) expression {
	code := int32(unix.NFT_JUMP)
	return verdict(field{unix.NFTA_VERDICT_CODE, uint32(code)}, field{unix.NFTA_VERDICT_CHAIN, chain})
}

// Verdicts of linux/netfilter.h.
const nfDrop, nfAccept uint32 = 0, 1

func drop() expression   { return verdict(field{unix.NFTA_VERDICT_CODE, nfDrop}) }
func accept() expression { return verdict(field{unix.NFTA_VERDICT_CODE, nfAccept}) }

func verdict(fields ...field) expression {
	return expression{name: "immediate", fields: []field{
		{unix.NFTA_IMMEDIATE_DREG, uint32(unix.NFT_REG_VERDICT)},
		{unix.NFTA_IMMEDIATE_DATA, []field{{unix.NFTA_DATA_VERDICT, fields}}},
	}}
}

func encode(fields []field) ([]byte, error) {
	ae := netlink.NewAttributeEncoder()
	ae.ByteOrder = binary.BigEndian
	encodeFields(ae, fields)
	return ae.Encode()
}

// encodeFields writes attributes in order.
func encodeFields(ae *netlink.AttributeEncoder, fields []field) {
	for _, f := range fields {
		switch v := f.value.(type) {
		case uint8:
			ae.Uint8(f.typ, v)
		case uint32:
			ae.Uint32(f.typ, v)
		case uint64:
			ae.Uint64(f.typ, v)
		case string:
			ae.String(f.typ, v)
		case []byte:
			ae.Bytes(f.typ, v)
		case []field:
			ae.Nested(f.typ, func(ae *netlink.AttributeEncoder) error {
				encodeFields(ae, v)
				return nil
			})
		default:
			panic(fmt.Sprintf("netlink attribute %d: no encoding for %T", f.typ, v))
		}
	}
}

// kernelExpression is an expression as the kernel reports it.
type kernelExpression struct {
	name string
	data []byte // its attributes
}

// attribute returns the bytes of an attribute; nil when there is none.
func (e kernelExpression) attribute(typ uint16) []byte {
	ad, err := netlink.NewAttributeDecoder(e.data)
	if err != nil {
		return nil
	}
	for ad.Next() {
		if ad.Type() == typ {
			return ad.Bytes()
		}
	}
	return nil
}

// same reports whether the kernel's expression does what e does. Kernels of different ages write the same number in
// different widths and add attributes that are zero; neither makes a difference.
func (e expression) same(k kernelExpression) bool {
	return e.name == k.name && sameFields(e.fields, k.data, e.ignore)
}

func sameFields(want []field, data []byte, ignore []uint16) bool {
	have := map[uint16][]byte{}
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return false
	}
	for ad.Next() {
		have[ad.Type()] = ad.Bytes()
	}
	if ad.Err() != nil {
		return false
	}
	for _, f := range want {
		if !sameValue(f.value, have[f.typ]) {
			return false
		}
		delete(have, f.typ)
	}
	for typ, rest := range have {
		if significant(rest) != nil && !slices.Contains(ignore, typ) {
			return false
		}
	}
	return true
}

func sameValue(want any, have []byte) bool {
	var b []byte
	switch v := want.(type) {
	case []field:
		return sameFields(v, have, nil)
	case uint8:
		b = []byte{v}
	case uint32:
		b = binary.BigEndian.AppendUint32(nil, v)
	case string:
		b = append([]byte(v), 0)
	case []byte:
		b = v
	}
	return bytes.Equal(significant(b), significant(have))
}

// significant removes leading zeros; nothing remains of zero.
func significant(b []byte) []byte {
	if b = bytes.TrimLeft(b, "\x00"); len(b) == 0 {
		return nil
	}
	return b
}
