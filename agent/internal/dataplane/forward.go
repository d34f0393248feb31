package dataplane

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// PortRange is an inclusive range of ports, 1..65535, First <= Last.
type PortRange struct{ First, Last uint16 }

// String returns "61000-62000", or "61000".
func (r PortRange) String() string { return r.join("-") }

func (r PortRange) join(separator string) string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprint(r.First, separator, r.Last)
}

// Barrier is a chain that drops forwarded packets unless a rule ahead of its end accepts them: packets to Pods through
// node ports may be among them.
type Barrier struct {
	Family npl.Family
	// Chain names it as its own tool does: "chain FORWARD of iptables-nft", "chain inet firewalld filter_FORWARD".
	Chain string
	// Why says what drops: "policy DROP", "rule 7 drops all that comes so far".
	Why string
	// Open is true when a rule ahead of what drops accepts connections to node ports. Rules that accept them for another
	// reason, such as the Pod's address, are not recognised.
	Open bool
	// Command opens it by hand.
	Command string
}

// handComment is the comment in the commands for people. It is not our mark: what somebody else has added is theirs.
const handComment = "node ports"

// openings lists the ranges of original destination ports that must pass: the configured one, and node ports outside it,
// which exist while Pods move after the range was changed.
func openings(configured PortRange, keys []Key, f npl.Family) []PortRange {
	var strays []uint16
	for _, k := range keys {
		if k.Family == f && (k.NodePort < configured.First || k.NodePort > configured.Last) {
			strays = append(strays, k.NodePort)
		}
	}
	slices.Sort(strays)
	out := []PortRange{configured}
	for _, p := range strays {
		if last := &out[len(out)-1]; len(out) > 1 && int(p) <= int(last.Last)+1 {
			last.Last = max(last.Last, p)
			continue
		}
		out = append(out, PortRange{p, p})
	}
	return out
}

func (r PortRange) validate() error {
	if r.First == 0 || r.Last < r.First {
		return fmt.Errorf("node port range %d-%d: must be two ports from 1 to 65535, the smaller first", r.First, r.Last)
	}
	return nil
}

// compareBarriers orders them for people.
func compareBarriers(a, b Barrier) int {
	return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Chain, b.Chain))
}
