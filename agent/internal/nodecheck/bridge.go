package nodecheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/agent/npl"
)

func bridgeSysctl(f npl.Family) string {
	if f == npl.IPv6 {
		return "net.bridge.bridge-nf-call-ip6tables"
	}
	return "net.bridge.bridge-nf-call-iptables"
}

func bridgeFine(f Facts) string {
	if len(f.PodBridges) == 0 {
		return "no Pod sits on a bridge"
	}
	var parts []string
	for _, family := range families() {
		if !f.needs(family) {
			continue
		}
		state := "do not pass netfilter; replies between Pods of one bridge are masqueraded"
		if f.BridgedPass[family] {
			state = "pass netfilter"
		}
		parts = append(parts, fmt.Sprintf("%s packets on the Pods' bridge %s", family, state))
	}
	return strings.Join(parts, "; ")
}

// judgeBridgeNetfilter: a Pod that reaches its neighbour on the bridge through a node port is answered by it directly, past the Node that
// translated the address, unless the bridge shows its packets to netfilter or the Node has put itself in as the source.
func judgeBridgeNetfilter(f Facts) []Finding {
	var out []Finding
	for _, b := range f.PodBridges {
		for _, family := range b.Families {
			if f.BridgedPass[family] || f.Settings.Masquerade != "none" {
				continue
			}
			out = append(out, Finding{
				Severity: Warning, Object: b.Name + " " + string(family),
				Found:   fmt.Sprintf("%s packets on bridge %s do not pass netfilter, and masquerade is none", family, b.Name),
				Meaning: "A Pod cannot reach a Pod on the same bridge through its node port: the reply does not pass the Node. Other clients are not concerned.",
				Fix:     fmt.Sprintf("Set masquerade: auto, or run:\nmodprobe br_netfilter && sysctl -w %s=1", bridgeSysctl(family)),
			})
		}
	}
	return out
}

func judgeHairpin(f Facts) []Finding {
	var out []Finding
	for _, b := range f.PodBridges {
		pass := slices.ContainsFunc(b.Families, func(family npl.Family) bool { return f.BridgedPass[family] })
		if !pass || len(b.NoHairpin) == 0 {
			continue
		}
		out = append(out, Finding{
			Severity: Warning, Object: b.Name,
			Found:   fmt.Sprintf("bridged packets pass netfilter, and %s of bridge %s lack hairpin mode: %s", portCount(len(b.NoHairpin)), b.Name, some(b.NoHairpin)),
			Meaning: "A Pod behind such a port cannot reach itself through its own node port. Other clients are not concerned.",
			Fix:     fmt.Sprintf("Set \"hairpinMode\": true in the CNI's configuration of the bridge plugin; for a Pod that runs already:\nbridge link set dev %s hairpin on", b.NoHairpin[0]),
		})
	}
	return out
}

func portCount(n int) string {
	if n == 1 {
		return "1 port"
	}
	return fmt.Sprintf("%d ports", n)
}

// shown is how many objects of a kind a finding lists.
const shown = 5

func some(names []string) string {
	if len(names) > shown {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
	}
	return strings.Join(names, ", ")
}
