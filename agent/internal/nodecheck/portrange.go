package nodecheck

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/agent/npl"
)

func ephemeralFine(f Facts) string {
	return fmt.Sprintf("portRange %s is apart from the ports of outgoing connections, %s", f.Settings.PortRange, f.Ephemeral)
}

func judgeEphemeral(f Facts) []Finding {
	common, ok := f.Settings.PortRange.common(f.Ephemeral)
	if !ok {
		return nil
	}
	free := common.without(f.Reserved)
	if len(free) == 0 {
		return []Finding{{Severity: OK, Found: fmt.Sprintf("portRange %s overlaps the ports of outgoing connections, %s, but is reserved in ip_local_reserved_ports", f.Settings.PortRange, f.Ephemeral)}}
	}
	return []Finding{{
		Severity: Warning,
		Found:    fmt.Sprintf("portRange %s overlaps the ports the kernel gives to outgoing connections, %s: %s", f.Settings.PortRange, f.Ephemeral, list(free)),
		Meaning:  "Programs on the Node may hold such a port for a while; a Pod is then given another. After a restart of the agent a program may be quicker than it and hold the port of a running Pod.",
		Fix: fmt.Sprintf("Choose another portRange, or reserve it:\nsysctl -w net.ipv4.ip_local_reserved_ports=%s\nand write the same into a file in /etc/sysctl.d.",
			list(append(slices.Clone(f.Reserved), f.Settings.PortRange))),
	}}
}

func list(ranges []Ports) string {
	var parts []string
	for _, r := range ranges {
		parts = append(parts, r.String())
	}
	return strings.Join(parts, ",")
}

func nodePortRangeFine(f Facts) string {
	return fmt.Sprintf("portRange %s is apart from clusterNodePortRange %s", f.Settings.PortRange, f.Settings.ClusterNodePortRange)
}

func judgeNodePortRange(f Facts) []Finding {
	common, ok := f.Settings.PortRange.common(f.Settings.ClusterNodePortRange)
	if !ok {
		return nil
	}
	return []Finding{{
		Severity: Error,
		Found:    fmt.Sprintf("portRange %s overlaps clusterNodePortRange %s: %s", f.Settings.PortRange, f.Settings.ClusterNodePortRange, common),
		Meaning:  "kube-proxy serves Services of type NodePort there; npl-agent's rules come first and would take their traffic.",
		Fix:      "Choose another portRange, or correct clusterNodePortRange; it is the API server's --service-node-port-range.",
	}}
}

func judgePortsInUse(f Facts) []Finding {
	var busy []string
	for _, l := range f.Listeners {
		if f.Settings.PortRange.contains(l.Address.Port()) {
			busy = append(busy, fmt.Sprintf("%s/%s", l.Address, l.Protocol))
		}
	}
	if len(busy) == 0 {
		return nil
	}
	slices.Sort(busy)
	busy = slices.Compact(busy)
	return []Finding{{
		Severity: Warning,
		Found:    fmt.Sprintf("%s of portRange %s %s already in use: %s", portCount(len(busy)), f.Settings.PortRange, isAre(len(busy)), some(busy)),
		Meaning:  "These numbers are not given to Pods. If one belongs to a Pod since before, the Pod keeps it and the program on the Node gets nothing from outside.",
		Fix:      "See who listens:\nss -ltunp\nMove the program, or choose another portRange.",
	}}
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// listensOn reports whether a socket on every address waits for clients at a port.
func (f Facts) listensOn(p npl.Protocol, port uint16) bool {
	return slices.ContainsFunc(f.Listeners, func(l Listener) bool {
		return l.Protocol == p && l.Address.Port() == port && l.Address.Addr().IsUnspecified()
	})
}
