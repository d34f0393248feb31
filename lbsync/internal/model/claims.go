package model

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
)

// Claims returns the node ports that a Pod rightfully claims: those on addresses of its own Node, while it runs. A Pod
// that names another Node's address claims nothing, so it cannot push anybody out.
func Claims(p *Pod, n *Node) []Claim {
	if n == nil || p.Finished {
		return nil
	}
	var out []Claim
	for _, m := range p.Mappings {
		if n.Has(m.NodeIP) {
			out = append(out, Claim{addrPort(m), m.Protocol})
		}
	}
	return out
}

func addrPort(m npl.Mapping) netip.AddrPort { return netip.AddrPortFrom(m.NodeIP, m.NodePort) }

func protocolOf(p providers.Protocol) npl.Protocol { return npl.Protocol(strings.ToLower(string(p))) }

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func join[T any](in []T) string {
	fields := make([]string, len(in))
	for i, v := range in {
		fields[i] = fmt.Sprint(v)
	}
	return strings.Join(fields, ", ")
}
