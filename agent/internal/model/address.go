package model

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// Choose returns the address that mappings of a family carry: the first of the first type that the Node has in this family. Each family
// chooses by itself, so that an ExternalIP of one family does not hide an InternalIP of the other.
func (p AddressPolicy) Choose(n Node, f npl.Family) (netip.Addr, bool) {
	for _, t := range p.Types {
		for _, a := range n.Addresses {
			if a.Type == t && npl.FamilyOf(a.IP) == f && p.admits(a.IP) {
				return a.IP, true
			}
		}
	}
	return netip.Addr{}, false
}

func (p AddressPolicy) admits(a netip.Addr) bool {
	return len(p.CIDRs) == 0 || slices.ContainsFunc(p.CIDRs, func(c netip.Prefix) bool { return c.Contains(a) })
}

// String names the settings behind the policy and their values.
func (p AddressPolicy) String() string {
	s := fmt.Sprintf("nodeAddressTypes %v", p.Types)
	if len(p.CIDRs) > 0 {
		s += fmt.Sprintf(" with nodeAddressCIDRs %v", p.CIDRs)
	}
	return s
}
