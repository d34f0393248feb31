package loop

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// Lookup returns the mappings behind a node address, port and protocol, which may be in any case: whose Pod and which Services. It
// answers for the Node's published address of that family only, and for nothing that the Node does not know.
func (d Document) Lookup(at netip.AddrPort, protocol string) []MappingStatus {
	address := at.Addr().Unmap()
	if !slices.Contains(d.Addresses, address) {
		return nil
	}
	var out []MappingStatus
	for _, m := range d.Mappings {
		if m.NodePort == at.Port() && m.Family == npl.FamilyOf(address) && strings.EqualFold(string(m.Protocol), protocol) {
			out = append(out, m)
		}
	}
	return out
}
