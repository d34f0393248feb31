package nodecheck

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

func firstWord(s string) string { word, _, _ := strings.Cut(s, " "); return word }

func judgeNoTrack(f Facts) []Finding {
	var out []Finding
	for _, r := range f.NoTrack {
		request, reply := r.Match.request(f), r.Match.reply(f)
		if !request && !reply {
			continue
		}
		finding := Finding{
			Severity: Warning, Object: r.Where,
			Found:   fmt.Sprintf("%s keeps packets out of connection tracking: %s", r.Where, r.Match),
			Meaning: "NAT works on tracked connections only. Node ports whose packets this rule takes do not answer.",
			Fix:     "Restrict the rule to the packets it is meant for, or put before it a rule that returns for the ports of portRange. Its rules are listed by:\n" + listCommand(r.Where),
		}
		if r.Match == (Match{}) {
			finding.Severity = Error
			finding.Meaning = "NAT works on tracked connections only. This rule takes every packet: node ports do not answer."
		}
		out = append(out, finding)
	}
	return out
}

// listCommand returns the command that lists a chain named as in NoTrackRule.Where.
func listCommand(where string) string {
	words := strings.Fields(where)
	if words[0] == string(NFT) {
		return "nft list chain " + strings.Join(words[1:], " ")
	}
	return strings.Join(slices.Insert(words, len(words)-1, "-S"), " ")
}

// String describes the match as iptables would.
func (m Match) String() string {
	var parts []string
	for _, p := range []struct {
		flag  string
		value fmt.Stringer
		given bool
	}{
		{"-s", m.Source, m.Source.IsValid()}, {"-d", m.Destination, m.Destination.IsValid()},
		{"--sport", m.SourcePort, m.SourcePort != Ports{}}, {"--dport", m.DestinationPort, m.DestinationPort != Ports{}},
	} {
		if p.given {
			parts = append(parts, p.flag+" "+p.value.String())
		}
	}
	if m.Other {
		parts = append(parts, "and more conditions")
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, " ")
}

// request reports whether the rule may take a client's packet to a node port. A client is not one fixed address.
func (m Match) request(f Facts) bool {
	_, ours := m.DestinationPort.common(f.Settings.PortRange)
	return !m.Source.IsSingleIP() && (ours || m.DestinationPort == Ports{}) && holds(m.Destination, f.Nodes)
}

// reply reports whether the rule may take a Pod's answer. It goes to any client and comes from a port the Pod chose.
func (m Match) reply(f Facts) bool { return !m.Destination.IsSingleIP() && holds(m.Source, f.Pods) }

// holds reports whether the prefix may be that of one of the addresses; of any where none is known.
func holds(p netip.Prefix, addresses []netip.Addr) bool {
	return !p.IsValid() || len(addresses) == 0 && !p.IsSingleIP() || slices.ContainsFunc(addresses, p.Contains)
}

func judgeFlowtables(f Facts) []Finding {
	var out []Finding
	for _, name := range slices.Sorted(maps.Keys(f.Flowtables)) {
		out = append(out, Finding{
			Severity: Warning, Object: name,
			Found:   fmt.Sprintf("flowtable %s on %s", name, some(f.Flowtables[name])),
			Meaning: "Established connections that a rule puts into it go past netfilter's other hooks. Their translation goes on, but counters and later rules miss them, and a connection to a Pod that is gone may last up to a minute longer.",
			Fix:     "Nothing, if that is wanted. Otherwise keep node ports out of it, with a rule before the one that says `flow add`:\nct status dnat accept",
		})
	}
	return out
}

func judgeEBPF(f Facts) []Finding {
	var out []Finding
	kinds := map[string][]string{}
	for _, p := range f.Programs {
		where := strings.TrimSpace(p.Hook + " " + p.Device)
		if p.Name != "" {
			where += " (" + p.Name + ")"
		}
		kinds[p.Kind] = append(kinds[p.Kind], where)
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		list := slices.Compact(slices.Sorted(slices.Values(kinds[kind])))
		finding := Finding{
			Severity: Warning, Object: kind,
			Found:   fmt.Sprintf("eBPF on the path of packets: %s", some(list)),
			Meaning: "A program that answers, forwards or drops a packet before netfilter sees it takes node ports away, or sends a Pod's reply out without the translation.",
			Fix:     "Test a node port from another machine. The programs are listed by:\nbpftool net show",
		}
		switch kind {
		case "cilium":
			finding.Meaning = "With eBPF host routing Cilium sends a Pod's reply straight to the network card, past netfilter, which had translated the address: connections hang."
			finding.Fix = "Let replies pass the host's stack (Helm value bpf.hostLegacyRouting=true), and check that \"Host Routing\" is \"Legacy\":\nkubectl -n kube-system exec ds/cilium -- cilium-dbg status --verbose"
		case "calico":
			finding.Meaning = "In Calico's eBPF mode its programs carry Pods' packets past netfilter; node ports may not answer."
			finding.Fix = "Test a node port from another machine. If it does not answer, use Calico's iptables or nftables mode:\nkubectl patch installation.operator.tigera.io default --type merge -p '{\"spec\":{\"calicoNetwork\":{\"linuxDataplane\":\"Iptables\"}}}'"
		}
		out = append(out, finding)
	}
	if len(f.Unseen) > 0 {
		out = append(out, Finding{
			Severity: Unknown, Object: "unseen",
			Found:   "could not look for " + strings.Join(f.Unseen, "; "),
			Meaning: "Programs there are not noticed. Whoever may ask the kernel sees them.",
			Fix:     "As root on the Node:\nbpftool net show; bpftool cgroup tree",
		})
	}
	return out
}

func judgeForeignNAT(f Facts) []Finding {
	var out []Finding
	for _, c := range f.NATChains {
		name := fmt.Sprintf("%s %s %s", c.Family, c.Table, c.Chain)
		out = append(out, Finding{
			Severity: Warning, Object: name,
			Found:   fmt.Sprintf("NAT chain %s at hook %s has priority %d, ahead of npl-agent's (-110)", name, c.Hook, c.Priority),
			Meaning: "The first NAT chain that has an answer wins: where a rule of this one takes a connection to a node port, it does not reach its Pod.",
			Fix:     "Nothing, if its rules leave portRange alone. They are listed by:\nnft list chain " + name,
		})
	}
	return out
}
