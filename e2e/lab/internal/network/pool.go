package network

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Numbers of a Pod range that no Pod gets: 0 is the range itself, 1 the gateway, the last one broadcast.
const gatewayNumber = 1

// pool hands out the host numbers of a Node's Pods. Not for concurrent use.
type pool struct {
	cidr   netip.Prefix // IPv4; the IPv6 address has the same number
	lowest bool         // always the lowest free one
	size   uint32
	next   uint32
	used   map[uint32]bool
}

func newPool(cidr netip.Prefix, lowest bool) *pool {
	return &pool{cidr: cidr, lowest: lowest, size: 1<<(cidr.Addr().BitLen()-cidr.Bits()) - 1, next: gatewayNumber + 1, used: map[uint32]bool{}}
}

func (p *pool) take() (uint32, error) {
	if p.lowest {
		p.next = gatewayNumber + 1
	}
	for range p.size {
		number := p.next
		if p.next++; p.next >= p.size {
			p.next = gatewayNumber + 1
		}
		if !p.used[number] {
			p.used[number] = true
			return number, nil
		}
	}
	return 0, fmt.Errorf("all %d addresses of %s are in use", len(p.used), p.cidr)
}

func (p *pool) give(number uint32) { delete(p.used, number) }

// numbered is the address with this host number in a prefix.
func numbered(prefix netip.Prefix, number uint32) netip.Addr {
	bytes := prefix.Masked().Addr().AsSlice()
	last := bytes[len(bytes)-4:]
	binary.BigEndian.PutUint32(last, binary.BigEndian.Uint32(last)|number)
	address, _ := netip.AddrFromSlice(bytes)
	return address
}
