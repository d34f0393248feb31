package nodecheck

import (
	"fmt"
	"strings"
)

// AntreaChainName is the chain of Antrea's NodePortLocal in table nat.
const AntreaChainName = "ANTREA-NODE-PORT-LOCAL"

const antreaOff = "Set nodePortLocal.enable: false in key antrea-agent.conf of ConfigMap antrea-config, and restart Antrea's agents:\n" +
	"kubectl -n kube-system rollout restart daemonset antrea-agent\n"

// judgeAntrea decides whether Antrea serves node ports here. No single sign tells. Its agent may run without NodePortLocal. Its chain
// stays behind when NodePortLocal is switched off or Antrea is removed. The range in its AntreaAgentInfo is what its configuration says,
// on or off; only an empty one proves something. But it holds a listening socket on every node port for as long as it lives, and none
// longer.
func judgeAntrea(f Facts) []Finding {
	off := f.AntreaPod != "" && f.AntreaRangeKnown && f.AntreaRange == ""
	chains, rules, held := len(f.AntreaChains) > 0, 0, 0
	var tools []string
	for _, c := range f.AntreaChains {
		tools = append(tools, string(c.Tool))
		for _, p := range c.Ports {
			rules++
			if f.listensOn(p.Protocol, p.Port) {
				held++
			}
		}
	}
	active := Finding{
		Severity: Error, Object: "agent",
		Meaning: "Two agents overwrite each other's annotation for ever, and load balancers see members come and go. npl-agent does not start beside Antrea's; if it was here first it goes on, because its sockets keep Antrea off its ports.",
		Fix: "Keep one of them. To keep npl-agent:\n" + antreaOff + "Then remove the chain that stays behind:\n" + removeChains(tools) +
			"\nTo keep Antrea's: uninstall npl-agent, then run on each Node:\nnpl-agent cleanup",
	}
	switch {
	case held > 0 && !off:
		active.Found = fmt.Sprintf("Antrea's NodePortLocal is at work: chain %s has %s, and its agent listens on %s of them", AntreaChainName, portCount(rules), of(held, rules))
		return []Finding{active}
	case chains && rules == 0 && f.AntreaPod != "" && !off:
		active.Found = fmt.Sprintf("Antrea's agent runs here (Pod %s), and chain %s exists and is empty: its NodePortLocal is on, or was", f.AntreaPod, AntreaChainName)
		return []Finding{active}
	case chains:
		return []Finding{{
			Severity: Warning, Object: "leftover",
			Found:   fmt.Sprintf("chain %s is left behind with %s (%s); nothing serves it any more", AntreaChainName, portCount(rules), strings.Join(tools, ", ")),
			Meaning: "Its rules lead to addresses that other Pods may have by now. npl-agent's rules come first, so only ports it has given to a Pod are safe from them.",
			Fix:     removeChains(tools),
		}}
	case f.AntreaPod != "" && f.AntreaRange != "":
		return []Finding{{
			Severity: Unknown, Object: "agent",
			Found:   fmt.Sprintf("Antrea's agent runs here (Pod %s) and is configured with NodePortLocal ports %s", f.AntreaPod, f.AntreaRange),
			Meaning: "Whether its NodePortLocal is on cannot be told before it has made its chain.",
			Fix:     "If it is on, switch it off. " + antreaOff,
		}}
	case f.AntreaPod != "":
		return []Finding{{Severity: OK, Object: "agent", Found: fmt.Sprintf("Antrea's agent runs here (Pod %s), without NodePortLocal", f.AntreaPod)}}
	}
	return nil
}

func of(some, all int) string {
	if some == all {
		return "all"
	}
	return fmt.Sprint(some)
}

// removeChains returns the commands that take the chain and the jumps to it away.
func removeChains(tools []string) string {
	if len(tools) == 0 {
		tools = []string{string(IPTables)}
	}
	var lines []string
	for _, tool := range tools {
		for _, hook := range []string{"PREROUTING", "OUTPUT"} {
			lines = append(lines, fmt.Sprintf("%s -t nat -D %s -m addrtype --dst-type LOCAL -j %s", tool, hook, AntreaChainName))
		}
		lines = append(lines, fmt.Sprintf("%s -t nat -F %s && %s -t nat -X %s", tool, AntreaChainName, tool, AntreaChainName))
	}
	return strings.Join(lines, "\n")
}
