package nodecheck

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// fine are the facts of a Node on which nothing is wrong.
func fine() Facts {
	return Facts{
		Subject: Subject{
			Settings: Settings{PortRange: Ports{61000, 62000}, ClusterNodePortRange: Ports{30000, 32767}, Families: []npl.Family{npl.IPv4, npl.IPv6}, Masquerade: "auto"},
			Nodes:    []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
			Pods:     []netip.Addr{netip.MustParseAddr("10.244.0.10"), netip.MustParseAddr("fd00:244::10")},
		},
		TrackedLimit: 262144,
		Forwarding:   map[npl.Family]bool{npl.IPv4: true, npl.IPv6: true},
		Routes:       []PodRoute{{Pod: netip.MustParseAddr("10.244.0.10"), Interface: "cni0"}},
		Ephemeral:    Ports{32768, 60999},
	}
}

func TestFindings(t *testing.T) {
	prefix := netip.MustParsePrefix
	for name, test := range map[string]struct {
		edit func(*Facts)
		// want is "severity object" of each finding of the check, in order; contains is a part of the first one's text.
		check    Check
		want     []string
		contains string
	}{
		"nothing missing":    {nil, Kernel, []string{"ok "}, "nf_tables"},
		"no NAT":             {func(f *Facts) { f.Missing = []string{"NAT chains: no such file or directory"} }, Kernel, []string{"error NAT chains"}, "modprobe -a nf_tables nft_chain_nat"},
		"conntrack roomy":    {func(f *Facts) { f.Tracked = 200000 }, Conntrack, []string{"ok "}, "200000 of 262144"},
		"conntrack full":     {func(f *Facts) { f.Tracked = 250000 }, Conntrack, []string{"warning "}, "nf_conntrack_max=524288"},
		"conntrack not used": {func(f *Facts) { f.TrackedLimit = 0 }, Conntrack, []string{"ok "}, ""},

		"no IPv4 forwarding":             {func(f *Facts) { f.Forwarding[npl.IPv4] = false }, IPForwarding, []string{"error IPv4"}, "sysctl -w net.ipv4.ip_forward=1"},
		"no IPv6 forwarding":             {func(f *Facts) { f.Forwarding[npl.IPv6] = false }, IPForwarding, []string{"error IPv6"}, "sysctl -w net.ipv6.conf.all.forwarding=1"},
		"IPv6 disabled":                  {func(f *Facts) { delete(f.Forwarding, npl.IPv6) }, IPForwarding, []string{"error IPv6"}, "disable_ipv6=0"},
		"IPv6 disabled, not wanted":      {func(f *Facts) { delete(f.Forwarding, npl.IPv6); f.Settings.Families = f.Settings.Families[:1] }, IPForwarding, []string{"ok "}, ""},
		"no IPv6 Pods":                   {func(f *Facts) { f.Forwarding[npl.IPv6] = false; f.Pods = f.Pods[:1] }, IPForwarding, []string{"ok "}, ""},
		"no Pods yet, Node of both":      {func(f *Facts) { f.Forwarding[npl.IPv6] = false; f.Pods = nil }, IPForwarding, []string{"error IPv6"}, ""},
		"nothing known: IPv4 is assumed": {func(f *Facts) { f.Forwarding = nil; f.Pods, f.Nodes = nil, nil }, IPForwarding, []string{"error IPv4"}, ""},

		"FORWARD of iptables-nft": {
			func(f *Facts) {
				f.ForwardChains = []ForwardChain{{npl.IPv4, "chain FORWARD of iptables-nft", "policy drop", false, "iptables-nft -A FORWARD"}}
			}, ForwardPolicy, []string{"warning chain FORWARD of iptables-nft IPv4"}, "Set forwardAccept: true, or let them through by hand:\niptables-nft -A FORWARD",
		},
		"FORWARD, forwardAccept set and not there": {
			func(f *Facts) {
				f.Settings.ForwardAccept = true
				f.ForwardChains = []ForwardChain{{npl.IPv4, "chain FORWARD of iptables-nft", "policy drop", false, ""}}
			}, ForwardPolicy, []string{"warning chain FORWARD of iptables-nft IPv4"}, "its rule is not there",
		},
		"FORWARD, opened": {
			func(f *Facts) {
				f.ForwardChains = []ForwardChain{{npl.IPv4, "chain FORWARD of iptables-nft", "policy drop", true, ""}}
			}, ForwardPolicy, []string{"ok chain FORWARD of iptables-nft IPv4"}, "lets node ports through",
		},
		"FORWARD of iptables-legacy, which forwardAccept does not reach": {
			func(f *Facts) {
				f.Settings.ForwardAccept = true
				f.ForwardChains = []ForwardChain{{npl.IPv4, "chain FORWARD of iptables-legacy", "policy drop", false, "iptables-legacy -A FORWARD"}}
			}, ForwardPolicy, []string{"warning chain FORWARD of iptables-legacy IPv4"}, "where this firewall's rules are kept:\niptables-legacy -A FORWARD",
		},
		"FORWARD of a family without Pods": {
			func(f *Facts) {
				f.Pods = f.Pods[:1]
				f.ForwardChains = []ForwardChain{{npl.IPv6, "chain FORWARD of ip6tables-nft", "policy drop", false, ""}}
			}, ForwardPolicy, []string{"ok "}, "",
		},

		"no bridge":                {nil, BridgeNetfilter, []string{"ok "}, "no Pod sits on a bridge"},
		"bridge, packets pass":     {func(f *Facts) { f.bridge(true, true) }, BridgeNetfilter, []string{"ok "}, "IPv4 packets on the Pods' bridge pass netfilter; IPv6 packets on the Pods' bridge pass netfilter"},
		"bridge, masqueraded":      {func(f *Facts) { f.bridge(false, true) }, BridgeNetfilter, []string{"ok "}, "replies between Pods of one bridge are masqueraded"},
		"bridge, not masqueraded":  {func(f *Facts) { f.bridge(false, true); f.Settings.Masquerade = "none" }, BridgeNetfilter, []string{"warning cni0 IPv4", "warning cni0 IPv6"}, "sysctl -w net.bridge.bridge-nf-call-iptables=1"},
		"hairpin, packets pass":    {func(f *Facts) { f.bridge(true, false) }, Hairpin, []string{"warning cni0"}, "bridge link set dev veth1 hairpin on"},
		"hairpin set":              {func(f *Facts) { f.bridge(true, true) }, Hairpin, []string{"ok "}, ""},
		"hairpin does not matter":  {func(f *Facts) { f.bridge(false, false) }, Hairpin, []string{"ok "}, ""},
		"hairpin, one family only": {func(f *Facts) { f.bridge(false, false); f.BridgedPass[npl.IPv6] = true }, Hairpin, []string{"warning cni0"}, "7 ports of bridge cni0 lack hairpin mode: veth1, veth2, veth3, veth4, veth5 and 2 more"},

		"one network, strict":                    {func(f *Facts) { f.Uplinks = []Uplink{{"eth0", true, true}} }, ReversePath, []string{"ok "}, ""},
		"two networks, loose":                    {func(f *Facts) { f.Uplinks = []Uplink{{"eth0", false, true}, {"eth1", false, false}} }, ReversePath, []string{"ok "}, ""},
		"two networks, strict":                   {func(f *Facts) { f.Uplinks = []Uplink{{"eth0", true, true}, {"eth1", true, false}} }, ReversePath, []string{"warning eth1"}, "sysctl -w net.ipv4.conf.eth1.rp_filter=2"},
		"two networks, strict, no default route": {func(f *Facts) { f.Uplinks = []Uplink{{"eth1", true, false}, {"eth0", true, false}} }, ReversePath, []string{"warning eth0", "warning eth1"}, ""},

		"no Pods":     {func(f *Facts) { f.Routes = nil }, PodRoutes, []string{"ok "}, "no Pod"},
		"Pod reached": {nil, PodRoutes, []string{"ok "}, "(1 tested)"},
		"one Pod lost": {
			func(f *Facts) {
				f.Routes = append(f.Routes, PodRoute{Pod: netip.MustParseAddr("10.9.9.9"), Interface: "eth0", Default: true})
			}, PodRoutes, []string{"warning "}, "1 of 2 Pod addresses: 10.9.9.9 (default route, eth0)",
		},
		"all Pods lost": {
			func(f *Facts) {
				f.Routes = []PodRoute{{Pod: netip.MustParseAddr("10.9.9.9"), Failure: "network is unreachable"}}
			}, PodRoutes, []string{"error "}, "ip route get 10.9.9.9\n",
		},

		"everything untracked":    {func(f *Facts) { f.untracked(Match{}) }, NoTrack, []string{"error w"}, "takes every packet"},
		"something untracked":     {func(f *Facts) { f.untracked(Match{Other: true}) }, NoTrack, []string{"warning w"}, ""},
		"node ports untracked":    {func(f *Facts) { f.untracked(Match{DestinationPort: Ports{61500, 61500}}) }, NoTrack, []string{"warning w"}, "--dport 61500"},
		"the Node untracked":      {func(f *Facts) { f.untracked(Match{Destination: prefix("192.0.2.0/24")}) }, NoTrack, []string{"warning w"}, "-d 192.0.2.0/24"},
		"Pods untracked":          {func(f *Facts) { f.untracked(Match{Source: prefix("10.244.0.0/16"), SourcePort: Ports{80, 80}}) }, NoTrack, []string{"warning w"}, "-s 10.244.0.0/16 --sport 80"},
		"another network's reply": {func(f *Facts) { f.untracked(Match{Source: prefix("10.99.0.0/16"), DestinationPort: Ports{53, 53}}) }, NoTrack, []string{"ok "}, ""},
		"node-local DNS, request": {func(f *Facts) {
			f.untracked(Match{Destination: prefix("169.254.20.10/32"), DestinationPort: Ports{53, 53}})
		}, NoTrack, []string{"ok "}, ""},
		"node-local DNS, reply": {func(f *Facts) { f.untracked(Match{Source: prefix("169.254.20.10/32"), SourcePort: Ports{53, 53}}) }, NoTrack, []string{"ok "}, ""},
		"no Node known, other": {func(f *Facts) {
			f.Nodes, f.Pods = nil, nil
			f.untracked(Match{Destination: prefix("169.254.20.10/32")})
		}, NoTrack, []string{"ok "}, ""},

		"flowtables": {func(f *Facts) {
			f.Flowtables = map[string][]string{"inet b ft": {"eth0"}, "inet a ft": {"eth0", "eth1"}}
		}, Flowtables, []string{"warning inet a ft", "warning inet b ft"}, "on eth0, eth1"},

		"XDP":         {func(f *Facts) { f.Programs = []Program{{Hook: "xdp", Device: "eth0"}} }, EBPF, []string{"warning "}, "xdp eth0"},
		"Cilium":      {func(f *Facts) { f.Programs = []Program{{"tc ingress", "eth0", "cil_from_netdev", "cilium"}} }, EBPF, []string{"warning cilium"}, "bpf.hostLegacyRouting=true"},
		"Calico eBPF": {func(f *Facts) { f.Programs = []Program{{"interface", "bpfin.cali", "", "calico"}} }, EBPF, []string{"warning calico"}, "linuxDataplane"},
		"not all seen": {func(f *Facts) {
			f.Programs = []Program{{Hook: "xdp", Device: "eth0"}}
			f.Unseen = []string{"tcx programs (operation not permitted)"}
		}, EBPF, []string{"warning ", "unknown unseen"}, "xdp eth0"},
		"nothing seen": {func(f *Facts) { f.Unseen = []string{"tcx programs (operation not permitted)"} }, EBPF, []string{"unknown unseen"}, "could not look for tcx"},

		"foreign NAT": {func(f *Facts) { f.NATChains = []NATChain{{"ip", "x", "pre", "prerouting", -150}} }, ForeignNAT, []string{"warning ip x pre"}, "nft list chain ip x pre"},

		"ephemeral apart":           {nil, EphemeralPorts, []string{"ok "}, "apart"},
		"ephemeral overlaps":        {func(f *Facts) { f.Ephemeral.Last = 61010 }, EphemeralPorts, []string{"warning "}, "ip_local_reserved_ports=61000-62000"},
		"ephemeral reserved":        {func(f *Facts) { f.Ephemeral.Last = 61010; f.Reserved = []Ports{{61000, 61004}, {61005, 61020}} }, EphemeralPorts, []string{"ok "}, "reserved"},
		"ephemeral partly reserved": {func(f *Facts) { f.Ephemeral.Last = 61010; f.Reserved = []Ports{{8080, 8080}, {61002, 61008}} }, EphemeralPorts, []string{"warning "}, "32768-61010: 61000-61001,61009-61010"},
		"reserved ones are kept":    {func(f *Facts) { f.Ephemeral.Last = 61010; f.Reserved = []Ports{{8080, 8080}} }, EphemeralPorts, []string{"warning "}, "ip_local_reserved_ports=8080,61000-62000"},

		"NodePort range apart":    {nil, NodePortRange, []string{"ok "}, "30000-32767"},
		"NodePort range overlaps": {func(f *Facts) { f.Settings.ClusterNodePortRange.Last = 61000 }, NodePortRange, []string{"error "}, "30000-61000: 61000"},

		"a listener inside": {func(f *Facts) { f.listen("[::]:61005") }, PortsInUse, []string{"warning "}, "1 port of portRange 61000-62000 is already in use: [::]:61005/tcp"},
		"listeners outside": {func(f *Facts) { f.listen("0.0.0.0:60999"); f.listen("0.0.0.0:62001") }, PortsInUse, []string{"ok "}, ""},

		"no Antrea":                          {nil, Antrea, []string{"ok "}, "not on this Node"},
		"Antrea without NPL":                 {func(f *Facts) { f.AntreaPod = "kube-system/antrea-agent-x" }, Antrea, []string{"ok agent"}, "without NodePortLocal"},
		"Antrea reports none":                {func(f *Facts) { f.antrea("kube-system/a", ""); f.chain() }, Antrea, []string{"warning leftover"}, "with 1 port ("},
		"Antrea reports a range":             {func(f *Facts) { f.antrea("kube-system/a", "61000-62000") }, Antrea, []string{"unknown agent"}, "cannot be told"},
		"chain alone":                        {func(f *Facts) { f.chain() }, Antrea, []string{"warning leftover"}, "iptables-nft -t nat -F ANTREA-NODE-PORT-LOCAL"},
		"chain and Pod, no sockets":          {func(f *Facts) { f.chain(); f.AntreaPod = "kube-system/a" }, Antrea, []string{"warning leftover"}, ""},
		"chain and sockets":                  {func(f *Facts) { f.chain(); f.listen("0.0.0.0:61000") }, Antrea, []string{"error agent"}, "its agent listens on all of them"},
		"chain and a socket on one address":  {func(f *Facts) { f.chain(); f.listen("127.0.0.1:61000") }, Antrea, []string{"warning leftover"}, ""},
		"chain, sockets of others, NPL off":  {func(f *Facts) { f.antrea("kube-system/a", ""); f.chain(); f.listen("0.0.0.0:61000") }, Antrea, []string{"warning leftover"}, ""},
		"empty chain and Pod":                {func(f *Facts) { f.AntreaChains = []AntreaChain{{Tool: IPTables}}; f.AntreaPod = "kube-system/a" }, Antrea, []string{"error agent"}, "is on, or was"},
		"empty chain and Pod that is off":    {func(f *Facts) { f.antrea("kube-system/a", ""); f.AntreaChains = []AntreaChain{{Tool: IPTables}} }, Antrea, []string{"warning leftover"}, ""},
		"empty chain, no Pod":                {func(f *Facts) { f.AntreaChains = []AntreaChain{{Tool: IPTablesLegacy}} }, Antrea, []string{"warning leftover"}, "iptables-legacy -t nat -X"},
		"a check whose facts are not known":  {func(f *Facts) { f.chain(); f.Unread = map[Check]string{Antrea: "permission denied"} }, Antrea, []string{"unknown "}, "permission denied"},
		"another check's facts are not read": {func(f *Facts) { f.Unread = map[Check]string{Kernel: "permission denied"} }, Antrea, []string{"ok "}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := fine()
			if test.edit != nil {
				test.edit(&f)
			}
			var got []string
			var text strings.Builder
			for _, finding := range Findings(f) {
				if finding.Check == test.check {
					got = append(got, fmt.Sprintf("%s %s", finding.Severity, finding.Object))
					fmt.Fprintln(&text, finding.Found, finding.Meaning, finding.Fix)
				}
			}
			if strings.Join(got, "|") != strings.Join(test.want, "|") || !strings.Contains(text.String(), test.contains) {
				t.Errorf("got %q, want %q with %q in\n%s", got, test.want, test.contains, &text)
			}
		})
	}
}

func (f *Facts) bridge(pass, hairpin bool) {
	f.BridgedPass = map[npl.Family]bool{npl.IPv4: pass, npl.IPv6: pass}
	b := Bridge{Name: "cni0", Families: []npl.Family{npl.IPv4, npl.IPv6}}
	if !hairpin {
		b.NoHairpin = []string{"veth1", "veth2", "veth3", "veth4", "veth5", "veth6", "veth7"}
	}
	f.PodBridges = []Bridge{b}
}

func (f *Facts) untracked(m Match) { f.NoTrack = []NoTrackRule{{"w", m}} }

func (f *Facts) listen(at string) {
	f.Listeners = append(f.Listeners, Listener{npl.TCP, netip.MustParseAddrPort(at)})
}

func (f *Facts) chain() {
	f.AntreaChains = []AntreaChain{{IPTables, []AntreaPort{{npl.TCP, 61000}}}}
}

func (f *Facts) antrea(pod, ports string) {
	f.AntreaPod, f.AntreaRange, f.AntreaRangeKnown = pod, ports, true
}

// A Node on which nothing is wrong has one finding of each check, all OK; whatever is wrong or unread, each check says something, in
// order, and what is not OK says what it means.
func TestEveryCheckSpeaks(t *testing.T) {
	for i, f := range Findings(fine()) {
		if f.Severity != OK || f.Found == "" || f.Check != Checks()[i].Check {
			t.Errorf("finding %d: %+v", i, f)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		f := fine()
		pods := rapid.SliceOf(rapid.SampledFrom(f.Pods)).Draw(t, "pods")
		f.Pods = pods
		f.bridge(rapid.Bool().Draw(t, "pass"), rapid.Bool().Draw(t, "hairpin"))
		f.Settings.Masquerade = rapid.SampledFrom([]string{"auto", "all", "none"}).Draw(t, "masquerade")
		f.Uplinks = rapid.SliceOf(rapid.SampledFrom([]Uplink{{"eth0", true, true}, {"eth1", true, false}, {"eth2", false, false}})).Draw(t, "uplinks")
		f.Reserved = rapid.SliceOf(rapid.SampledFrom([]Ports{{1, 61500}, {61000, 61000}, {61400, 65535}})).Draw(t, "reserved")
		f.Ephemeral = Ports{32768, rapid.Uint16Range(32768, 65535).Draw(t, "ephemeral")}
		f.untracked(Match{Other: rapid.Bool().Draw(t, "other"), DestinationPort: Ports{0, rapid.Uint16().Draw(t, "dport")}})
		f.AntreaPod = rapid.SampledFrom([]string{"", "kube-system/a"}).Draw(t, "antrea")
		if rapid.Bool().Draw(t, "chain") {
			f.chain()
		}
		f.Unread = map[Check]string{}
		for _, c := range rapid.SliceOf(rapid.SampledFrom(Checks())).Draw(t, "unread") {
			f.Unread[c.Check] = "denied"
		}
		findings, next := Findings(f), 0
		for i, finding := range findings {
			if i > 0 && finding.Check == findings[i-1].Check {
				if rank(finding.Severity) > rank(findings[i-1].Severity) {
					t.Fatalf("%v comes after %v", finding, findings[i-1])
				}
			} else if finding.Check != Checks()[next].Check {
				t.Fatalf("finding %d is of %s, want %s", i, finding.Check, Checks()[next].Check)
			} else {
				next++
			}
			if finding.Found == "" || finding.Severity != OK && finding.Meaning == "" || (finding.Severity == Error || finding.Severity == Warning) && finding.Fix == "" {
				t.Fatalf("says too little: %+v", finding)
			}
			for line := range strings.Lines(finding.Fix) {
				// What prints findings tells sentences from commands by this.
				if line = strings.TrimSpace(line); unicode.IsUpper(rune(line[0])) && !strings.HasSuffix(line, ".") && !strings.HasSuffix(line, ":") {
					t.Fatalf("a sentence without an end: %q", line)
				}
			}
		}
		if next != len(Checks()) {
			t.Fatalf("%d checks spoke, want %d", next, len(Checks()))
		}
		if fmt.Sprint(Findings(f)) != fmt.Sprint(findings) {
			t.Fatal("not deterministic")
		}
	})
}
