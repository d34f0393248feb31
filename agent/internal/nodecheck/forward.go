package nodecheck

import (
	"fmt"
	"strings"
)

func judgeForwardPolicy(f Facts) []Finding {
	var out []Finding
	for _, c := range f.ForwardChains {
		if !f.needs(c.Family) {
			continue
		}
		finding := Finding{Severity: OK, Object: c.Chain + " " + string(c.Family), Found: fmt.Sprintf("%s: %s (%s)", c.Chain, c.Why, c.Family)}
		// The setting forwardAccept reaches the chains of iptables-nft only.
		coverable := strings.HasSuffix(c.Chain, "-nft")
		switch {
		case c.Open:
			finding.Found += "; a rule before that lets node ports through"
		case coverable && f.Settings.ForwardAccept:
			finding.Severity = Warning
			finding.Found += "; forwardAccept is on, but its rule is not there"
			finding.Meaning = "npl-agent adds the rule when it starts. Until then connections to node ports may be dropped."
			finding.Fix = "Start npl-agent. If it runs, its log says why it could not add the rule."
		default:
			finding.Severity = Warning
			finding.Meaning = "Connections to node ports are dropped unless another rule of this chain accepts them as traffic to Pods, as the rules of many CNIs do. npl-agent's own tables cannot overrule a drop."
			finding.Fix = "Let them through, where this firewall's rules are kept:\n" + c.Command
			if coverable {
				finding.Fix = "Set forwardAccept: true, or let them through by hand:\n" + c.Command
			}
		}
		out = append(out, finding)
	}
	return out
}
