package nodecheck

import (
	"fmt"
	"strings"

	"github.com/nplbridge/nplbridge/agent/npl"
)

func judgeKernel(f Facts) []Finding {
	var out []Finding
	for _, missing := range f.Missing {
		object, why, _ := strings.Cut(missing, ": ")
		out = append(out, Finding{
			Severity: Error, Object: object,
			Found:   fmt.Sprintf("the kernel refuses %s: %s", object, why),
			Meaning: "The agent cannot write its rules; no Pod gets a node port.",
			Fix: "Linux 5.10 or later with these modules is needed:\nmodprobe -a nf_tables nft_chain_nat nft_nat nft_masq nft_ct nf_conntrack\n" +
				"If it says \"operation not permitted\", run as UID 0 with capability NET_ADMIN.",
		})
	}
	return out
}

// conntrackFull is where the connection tracking table begins to be a danger, in percent.
const conntrackFull = 90

func conntrackFine(f Facts) string {
	return fmt.Sprintf("%d of %d connections tracked", f.Tracked, f.TrackedLimit)
}

func judgeConntrack(f Facts) []Finding {
	if f.TrackedLimit == 0 || f.Tracked < f.TrackedLimit/100*conntrackFull {
		return nil
	}
	return []Finding{{
		Severity: Warning,
		Found:    fmt.Sprintf("%d of %d connections tracked", f.Tracked, f.TrackedLimit),
		Meaning:  "When the table is full the kernel drops packets of new connections, to node ports too.",
		Fix:      fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d", 2*f.TrackedLimit),
	}}
}

// families in the order in which findings about them are shown.
func families() []npl.Family { return []npl.Family{npl.IPv4, npl.IPv6} }

func judgeForwarding(f Facts) []Finding {
	var out []Finding
	for _, family := range families() {
		forwards, known := f.Forwarding[family]
		if !f.needs(family) || forwards {
			continue
		}
		sysctl := "net.ipv4.ip_forward"
		if family == npl.IPv6 {
			sysctl = "net.ipv6.conf.all.forwarding"
		}
		finding := Finding{
			Severity: Error, Object: string(family),
			Found:   fmt.Sprintf("%s is 0", sysctl),
			Meaning: fmt.Sprintf("The Node hands no %s packet from outside on to a Pod; node ports are silent.", family),
			Fix:     fmt.Sprintf("sysctl -w %s=1\nand write the same into a file in /etc/sysctl.d, or let the CNI do so.", sysctl),
		}
		if !known {
			finding.Found = fmt.Sprintf("%s is disabled on this Node, but its Pods have %s addresses", family, family)
			finding.Fix = fmt.Sprintf("sysctl -w net.ipv6.conf.all.disable_ipv6=0\nor leave %s out of the setting ipFamilies.", family)
		}
		out = append(out, finding)
	}
	return out
}
