package dataplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// family holds what differs between the IPv4 and the IPv6 table.
type family struct {
	ip           npl.Family
	nf           nftables.TableFamily
	af           int
	name         string // as the nft tool spells it
	addrType     nftables.SetDatatype
	saddr, daddr uint32 // offsets in the IP header
	afterAddr    uint32 // the register that follows an address held in register 1
	ctDst        uint32 // conntrack key of the destination address
}

var (
	ipv4 = &family{
		ip: npl.IPv4, nf: nftables.TableFamilyIPv4, af: unix.AF_INET, name: "ip",
		addrType: nftables.TypeIPAddr, saddr: 12, daddr: 16, afterAddr: reg32_01, ctDst: nftCtDstIP,
	}
	ipv6 = &family{
		ip: npl.IPv6, nf: nftables.TableFamilyIPv6, af: unix.AF_INET6, name: "ip6",
		addrType: nftables.TypeIP6Addr, saddr: 8, daddr: 24, afterAddr: reg2, ctDst: nftCtDstIP6,
	}
)

// Keys of linux/netfilter/nf_tables.h that x/sys lacks.
const (
	nftCtDstIP  = 20
	nftCtDstIP6 = 22
)

// String names the table as the nft tool does: "table ip nplbridge".
func (f *family) String() string { return "table " + f.name + " " + TableName }

func (f *family) table() *nftables.Table { return &nftables.Table{Name: TableName, Family: f.nf} }

// Elements of sets and maps are kept as the kernel's bytes in a string: each part of a concatenation is padded to four.

// protocols in the order of their rules.
var protocols = []npl.Protocol{npl.TCP, npl.UDP, npl.SCTP}

var protocolNumbers = map[npl.Protocol]byte{npl.TCP: unix.IPPROTO_TCP, npl.UDP: unix.IPPROTO_UDP, npl.SCTP: unix.IPPROTO_SCTP}

// encodeKey is the element "inet_proto . inet_service".
func encodeKey(k Key) string {
	b := []byte{protocolNumbers[k.Protocol], 0, 0, 0}
	b = binary.BigEndian.AppendUint16(b, k.NodePort)
	return string(append(b, 0, 0))
}

// decodeKey fails on what we never write: another protocol, port 0, or another length.
func (f *family) decodeKey(s string) (Key, error) {
	if len(s) == 8 {
		k := Key{Family: f.ip, NodePort: binary.BigEndian.Uint16([]byte(s[4:6]))}
		for p, n := range protocolNumbers {
			if s[0] == n && k.NodePort != 0 && encodeKey(Key{Protocol: p, NodePort: k.NodePort}) == s {
				k.Protocol = p
				return k, nil
			}
		}
	}
	return Key{}, fmt.Errorf("%s: element key % x is not protocol . port", f, s)
}

// encodeTarget is the data "ipv4_addr . inet_service" or "ipv6_addr . inet_service".
func encodeTarget(t netip.AddrPort) string {
	b := binary.BigEndian.AppendUint16(t.Addr().AsSlice(), t.Port())
	return string(append(b, 0, 0))
}

func (f *family) decodeTarget(s string) (netip.AddrPort, error) {
	n := int(f.addrType.Bytes)
	if len(s) == n+4 {
		if a, ok := netip.AddrFromSlice([]byte(s[:n])); ok {
			return netip.AddrPortFrom(a, binary.BigEndian.Uint16([]byte(s[n:n+2]))), nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("%s: element data % x is not address . port", f, s)
}

func encodeAddr(a netip.Addr) string { return string(a.AsSlice()) }

// encodePair is "address . address" or "iface_index . iface_index" of something with itself.
func encodePair(s string) string { return s + s }

func encodeInterface(index int) string {
	return string(binary.NativeEndian.AppendUint32(nil, uint32(index)))
}

// podOf is the address in the data of a mapping.
func (f *family) podOf(data string) string { return data[:min(len(data), int(f.addrType.Bytes))] }

// hairpins are the pairs Pod -> same Pod of all targets.
func (f *family) hairpins(ports map[string]element) map[string]element {
	out := make(map[string]element, len(ports))
	for _, e := range ports {
		out[encodePair(f.podOf(e.data))] = element{}
	}
	return out
}

// portSet returns the set that repeats a key of the map, and its element "inet_service" there.
func portSet(key string) (set, element string, ok bool) {
	for _, p := range protocols {
		if key[0] == protocolNumbers[p] {
			return setOf(p), key[4:6], true
		}
	}
	return "", "", false
}

func families(v6 bool) []*family {
	all := []*family{ipv4, ipv6}
	if !v6 {
		all = slices.Delete(all, 1, 2)
	}
	return all
}
