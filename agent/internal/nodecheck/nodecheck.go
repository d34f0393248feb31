// Package nodecheck says what on a Node keeps node ports from working, and how to mend it. Findings is pure: it judges Facts. Collect
// gathers them from the kernel of the Node it runs on, and changes nothing.
package nodecheck

import (
	"cmp"
	"slices"
)

// Check names one thing that is tested. It is also the reason of the Event about it, and a value of a metric's label.
type Check string

// The checks, in the order in which they are shown.
const (
	Kernel          Check = "Kernel"
	Conntrack       Check = "Conntrack"
	IPForwarding    Check = "IPForwarding"
	ForwardPolicy   Check = "ForwardPolicy"
	BridgeNetfilter Check = "BridgeNetfilter"
	Hairpin         Check = "Hairpin"
	ReversePath     Check = "ReversePath"
	PodRoutes       Check = "PodRoutes"
	NoTrack         Check = "NoTrack"
	Flowtables      Check = "Flowtables"
	EBPF            Check = "EBPF"
	ForeignNAT      Check = "ForeignNAT"
	EphemeralPorts  Check = "EphemeralPorts"
	NodePortRange   Check = "NodePortRange"
	PortsInUse      Check = "PortsInUse"
	Antrea          Check = "Antrea"
)

// Severity says how bad a finding is.
type Severity string

// The severities. Unknown is a check that could not be made, which proves nothing.
const (
	OK      Severity = "ok"
	Unknown Severity = "unknown"
	Warning Severity = "warning" // some traffic is or may be lost, or needs a setting
	Error   Severity = "error"   // node ports do not work
)

// Severities returns those of findings that somebody should look at.
func Severities() []Severity { return []Severity{Unknown, Warning, Error} }

// Finding is what one check found. Its JSON form is stable.
type Finding struct {
	Check    Check    `json:"check"`
	Severity Severity `json:"severity"`
	// Object is what it is about, where a check looks at several: a chain, an interface, a family.
	Object string `json:"object,omitempty"`
	// Found is what was seen.
	Found string `json:"found"`
	// Meaning is what follows from that for node ports. Findings that are OK have none.
	Meaning string `json:"meaning,omitempty"`
	// Fix is what to do about it; a command stands on a line of its own.
	Fix string `json:"fix,omitempty"`
}

// ID is what stays the same of a finding while its numbers change.
type ID struct {
	Check    Check
	Severity Severity
	Object   string
}

// ID returns the identity of f.
func (f Finding) ID() ID { return ID{f.Check, f.Severity, f.Object} }

// Description is what a check looks at.
type Description struct {
	Check Check
	Looks string
}

type check struct {
	Description
	fine  func(Facts) string // what to say when there is nothing to say
	judge func(Facts) []Finding
}

func says(s string) func(Facts) string { return func(Facts) string { return s } }

func checks() []check {
	return []check{
		{Description{Kernel, "whether the kernel takes the tables, NAT chains, maps, sets with timeouts and conntrack rules that the agent writes: it is asked with a transaction that is never committed"}, says("nf_tables has NAT, maps, sets with timeouts and conntrack"), judgeKernel},
		{Description{Conntrack, "how full the connection tracking table is"}, conntrackFine, judgeConntrack},
		{Description{IPForwarding, "whether the Node forwards packets, for each family its Pods have"}, says("the Node forwards packets"), judgeForwarding},
		{Description{ForwardPolicy, "chains at the forward hook that drop what no rule of theirs accepts, of iptables (nft and legacy), ip6tables and native nftables, and whether `forwardAccept` opens them"}, says("no chain at the forward hook drops by default"), judgeForwardPolicy},
		{Description{BridgeNetfilter, "where Pods sit on a bridge: whether bridged packets pass netfilter (`br_netfilter`), and whether `masquerade` fits"}, bridgeFine, judgeBridgeNetfilter},
		{Description{Hairpin, "hairpin mode of the Pods' bridge ports, which matters only while bridged packets pass netfilter"}, says("no Pod's bridge port needs hairpin mode and lacks it"), judgeHairpin},
		{Description{ReversePath, "strict `rp_filter` on a Node with several networks"}, says("no interface drops clients that would be answered over another one"), judgeReversePath},
		{Description{PodRoutes, "whether the Node reaches its Pods by routes of its own, not over the default gateway"}, podRoutesFine, judgePodRoutes},
		{Description{NoTrack, "rules that keep packets of node ports out of connection tracking, in nftables and iptables (nft and legacy)"}, says("no rule keeps node ports out of connection tracking"), judgeNoTrack},
		{Description{Flowtables, "nftables flowtables, which carry established connections past the other hooks"}, says("no flowtables"), judgeFlowtables},
		{Description{EBPF, "eBPF programs that see packets before netfilter (XDP, tc, tcx, cgroup), and the interfaces of Cilium and of Calico's eBPF mode"}, says("no eBPF program sees packets before netfilter"), judgeEBPF},
		{Description{ForeignNAT, "NAT chains of others that see packets before the agent's, at priority -110"}, says("no NAT chain comes before npl-agent's"), judgeForeignNAT},
		{Description{EphemeralPorts, "overlap of `portRange` with the ports the kernel gives to outgoing connections, less the reserved ones"}, ephemeralFine, judgeEphemeral},
		{Description{NodePortRange, "overlap of `portRange` with `clusterNodePortRange`"}, nodePortRangeFine, judgeNodePortRange},
		{Description{PortsInUse, "programs that listen on ports of `portRange`"}, says("no program listens on a port of portRange"), judgePortsInUse},
		{Description{Antrea, "Antrea's own NodePortLocal on this Node, and what it leaves behind"}, says("Antrea's NodePortLocal is not on this Node"), judgeAntrea},
	}
}

// Checks describes all checks, in their order.
func Checks() []Description {
	var out []Description
	for _, c := range checks() {
		out = append(out, c.Description)
	}
	return out
}

// Findings judges f. Each check gives at least one finding; they come in the order of the checks, the worst of a check first.
func Findings(f Facts) []Finding {
	var out []Finding
	for _, c := range checks() {
		var found []Finding
		if why, ok := f.Unread[c.Check]; ok {
			found = []Finding{{Severity: Unknown, Found: why, Meaning: "This could not be checked; nothing is known about it."}}
		} else {
			found = c.judge(f)
		}
		if len(found) == 0 {
			found = []Finding{{Severity: OK, Found: c.fine(f)}}
		}
		for i := range found {
			found[i].Check = c.Check
		}
		slices.SortStableFunc(found, func(a, b Finding) int {
			return cmp.Or(cmp.Compare(rank(b.Severity), rank(a.Severity)), cmp.Compare(a.Object, b.Object))
		})
		out = append(out, found...)
	}
	return out
}

// rank orders severities, the worst last.
func rank(s Severity) int { return slices.Index([]Severity{OK, Unknown, Warning, Error}, s) }

// Failed reports whether any finding is an Error.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Severity == Error })
}
