package nodecheck

import (
	"fmt"
	"slices"
)

// judgeReversePath: with a strict rp_filter the kernel drops a packet that came in by another interface than the one by which its source
// would be answered. It looks when it routes the packet, before any masquerade, so masquerade is no cure.
func judgeReversePath(f Facts) []Finding {
	if len(f.Uplinks) < 2 {
		return nil
	}
	var strict []string
	for _, u := range f.Uplinks {
		if u.Strict && !u.Default {
			strict = append(strict, u.Name)
		}
	}
	var out []Finding
	for _, name := range strict {
		out = append(out, Finding{
			Severity: Warning, Object: name,
			Found:   fmt.Sprintf("the Node has %d networks, and rp_filter is strict on %s, by which the default route does not leave", len(f.Uplinks), name),
			Meaning: fmt.Sprintf("A client that reaches the Node by %s and is not in a network routed there is dropped before any rule sees it.", name),
			Fix:     fmt.Sprintf("sysctl -w net.ipv4.conf.%s.rp_filter=2\nor route such clients back by %s (`ip route`, `ip rule`). The setting masquerade does not help: the filter comes first.", name, name),
		})
	}
	return out
}

func podRoutesFine(f Facts) string {
	if len(f.Routes) == 0 {
		return "no Pod with a network of its own to test"
	}
	return fmt.Sprintf("the Node has routes of its own to its Pods (%d tested)", len(f.Routes))
}

func judgePodRoutes(f Facts) []Finding {
	var lost []string
	for _, r := range f.Routes {
		switch {
		case r.Failure != "":
			lost = append(lost, fmt.Sprintf("%s (%s)", r.Pod, r.Failure))
		case r.Default:
			lost = append(lost, fmt.Sprintf("%s (default route, %s)", r.Pod, r.Interface))
		}
	}
	if len(lost) == 0 {
		return nil
	}
	slices.Sort(lost)
	severity := Warning
	if len(lost) == len(f.Routes) {
		severity = Error
	}
	return []Finding{{
		Severity: severity,
		Found:    fmt.Sprintf("the Node has no route of its own to %d of %d Pod addresses: %s", len(lost), len(f.Routes), some(lost)),
		Meaning:  "Their node ports lead out of the Node instead of to the Pod. Pods on macvlan, ipvlan or SR-IOV networks are often like this: the Node cannot reach them.",
		Fix:      "Look at it with:\nip route get " + firstWord(lost[0]) + "\nand mend the CNI; give Pods that need node ports an interface that the Node reaches.",
	}}
}
