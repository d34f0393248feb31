package nodecheck

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/npl"
)

func subject() Subject {
	return Subject{
		Settings: Settings{PortRange: Ports{61000, 62000}, ClusterNodePortRange: Ports{30000, 32767}, Families: []npl.Family{npl.IPv4, npl.IPv6}, Masquerade: "auto"},
		Nodes:    []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		Pods:     []netip.Addr{netip.MustParseAddr("10.244.0.10"), netip.MustParseAddr("fd00:244::10")},
	}
}

// routedPods gives a host the two Pods of subject, routed over a link of their own.
const routedPods = `
	ip link add pod0 type veth peer name inpod0
	ip link set pod0 up
	ip link set inpod0 up
	ip route add 10.244.0.10/32 dev pod0
	ip -6 route add fd00:244::10/128 dev pod0`

// bridgedPods puts them on a bridge.
const bridgedPods = `
	ip link add cni0 type bridge
	ip addr add 10.244.0.1/24 dev cni0
	ip -6 addr add fd00:244::1/64 dev cni0
	ip link set cni0 up
	ip link add pod0 type veth peer name inpod0
	ip link set pod0 master cni0
	ip link set pod0 up
	ip link set inpod0 up`

// notFine returns "Check severity object: found" of what is not OK.
func notFine(f Facts) []string {
	var out []string
	for _, finding := range Findings(f) {
		if finding.Severity != OK && finding.Object != "unseen" {
			out = append(out, strings.Join([]string{string(finding.Check), string(finding.Severity), finding.Object}, " ")+": "+finding.Found)
		}
	}
	return out
}

// Each mechanism is set up for real on a Node of its own; want are the starts of all findings that are not OK.
func TestCollect(t *testing.T) {
	for name, test := range map[string]struct {
		setUp func(*host)
		edit  func(*Subject)
		want  []string
	}{
		"nothing wrong": {setUp: func(h *host) { h.run(routedPods) }},
		"no forwarding": {
			setUp: func(h *host) {
				h.run(routedPods)
				h.sysctl("net/ipv4/ip_forward", "0")
				h.sysctl("net/ipv6/conf/all/forwarding", "0")
			},
			want: []string{"IPForwarding error IPv4: net.ipv4.ip_forward is 0", "IPForwarding error IPv6: net.ipv6.conf.all.forwarding is 0"},
		},
		"IPv6 disabled": {
			setUp: func(h *host) { h.run(routedPods); h.sysctl("net/ipv6/conf/all/disable_ipv6", "1") },
			want:  []string{"IPForwarding error IPv6: IPv6 is disabled on this Node", "PodRoutes warning : the Node has no route of its own to 1 of 2 Pod addresses: fd00:244::10 ("},
		},
		"FORWARD drops, iptables-nft": {
			setUp: func(h *host) { h.run(routedPods + "\niptables-nft -P FORWARD DROP\nip6tables-nft -P FORWARD DROP") },
			want: []string{
				"ForwardPolicy warning chain FORWARD of ip6tables-nft IPv6: chain FORWARD of ip6tables-nft: policy drop (IPv6)",
				"ForwardPolicy warning chain FORWARD of iptables-nft IPv4: chain FORWARD of iptables-nft: policy drop (IPv4)",
			},
		},
		"FORWARD drops, iptables-legacy": {
			setUp: func(h *host) {
				h.run(routedPods + "\niptables-legacy -P FORWARD DROP\nip6tables-legacy -P FORWARD DROP")
			},
			want: []string{
				"ForwardPolicy warning chain FORWARD of ip6tables-legacy IPv6: chain FORWARD of ip6tables-legacy: policy drop (IPv6)",
				"ForwardPolicy warning chain FORWARD of iptables-legacy IPv4: chain FORWARD of iptables-legacy: policy drop (IPv4)",
			},
		},
		"FORWARD drops and a rule opens it": {
			setUp: func(h *host) {
				h.run(routedPods + `
					iptables-nft -P FORWARD DROP
					iptables-nft -I FORWARD -m conntrack --ctstate DNAT -j ACCEPT
					iptables-legacy -P FORWARD DROP
					iptables-legacy -I FORWARD -m conntrack --ctstate DNAT -j ACCEPT`)
				h.nft(`table inet fw { chain forward { type filter hook forward priority 0; policy drop; ct status dnat accept; }; }`)
			},
		},
		"FORWARD drops and the rule is for something else": {
			setUp: func(h *host) {
				h.run(routedPods + `
					iptables-nft -P FORWARD DROP
					iptables-nft -I FORWARD -m conntrack --ctstate DNAT -p tcp -j ACCEPT
					iptables-legacy -P FORWARD DROP
					iptables-legacy -I FORWARD -i eth7 -m conntrack --ctstate DNAT -j ACCEPT`)
			},
			want: []string{"ForwardPolicy warning chain FORWARD of iptables-legacy", "ForwardPolicy warning chain FORWARD of iptables-nft"},
		},
		"native forward chains": {
			setUp: func(h *host) {
				h.run(routedPods)
				h.nft(`table inet fw { chain forward { type filter hook forward priority 0; ct state established accept; reject; }; }
					table ip other { chain f { type filter hook forward priority 5; policy drop; }; }
					table ip fine { chain f { type filter hook forward priority 5; tcp dport 22 drop; }; }`)
			},
			want: []string{
				"ForwardPolicy warning chain inet fw forward IPv4: chain inet fw forward: rule 2 drops all that comes so far (IPv4)",
				"ForwardPolicy warning chain inet fw forward IPv6: chain inet fw forward: rule 2 drops all that comes so far (IPv6)",
				"ForwardPolicy warning chain ip other f IPv4: chain ip other f: policy drop (IPv4)",
			},
		},
		"bridge with br_netfilter, no hairpin": {
			setUp: func(h *host) {
				h.run(bridgedPods)
				h.sysctl("net/bridge/bridge-nf-call-iptables", "1")
				h.sysctl("net/bridge/bridge-nf-call-ip6tables", "0")
			},
			want: []string{"Hairpin warning cni0: bridged packets pass netfilter, and 1 port of bridge cni0 lack hairpin mode: pod0"},
		},
		"bridge with br_netfilter and hairpin": {
			setUp: func(h *host) {
				h.run(bridgedPods + "\nbridge link set dev pod0 hairpin on")
				h.sysctl("net/bridge/bridge-nf-call-iptables", "1")
			},
		},
		"bridge without br_netfilter, no masquerade": {
			setUp: func(h *host) {
				h.run(bridgedPods)
				h.sysctl("net/bridge/bridge-nf-call-iptables", "0")
				h.sysctl("net/bridge/bridge-nf-call-ip6tables", "1")
			},
			edit: func(s *Subject) { s.Settings.Masquerade = "none"; s.Pods = s.Pods[:1] },
			want: []string{"BridgeNetfilter warning cni0 IPv4: IPv4 packets on bridge cni0 do not pass netfilter, and masquerade is none"},
		},
		"two networks, strict rp_filter": {
			setUp: func(h *host) {
				h.run(routedPods + `
					ip link add eth1 type veth peer name far1
					ip addr add 198.51.100.1/24 dev eth1
					ip link set eth1 up
					ip link set far1 up`)
				h.sysctl("net/ipv4/conf/all/rp_filter", "1")
			},
			want: []string{"ReversePath warning eth1: the Node has 2 networks, and rp_filter is strict on eth1"},
		},
		"two networks, loose rp_filter": {
			setUp: func(h *host) {
				h.run(routedPods + `
					ip link add eth1 type veth peer name far1
					ip addr add 198.51.100.1/24 dev eth1
					ip link set eth1 up
					ip link set far1 up`)
				h.sysctl("net/ipv4/conf/all/rp_filter", "1")
				h.sysctl("net/ipv4/conf/eth1/rp_filter", "2")
			},
		},
		"Pods only over the default route": {
			want: []string{"PodRoutes error : the Node has no route of its own to 2 of 2 Pod addresses: 10.244.0.10 (default route, eth0), fd00:244::10 (default route, eth0)"},
		},
		"Pods unreachable": {
			setUp: func(h *host) { h.run(routedPods + "\nip route replace unreachable 10.244.0.10") },
			want:  []string{"PodRoutes warning : the Node has no route of its own to 1 of 2 Pod addresses: 10.244.0.10 (no route to host)"},
		},
		"no tracking": {
			setUp: func(h *host) {
				h.run(routedPods + `
					iptables-nft -t raw -A PREROUTING -p udp --dport 61500 -j CT --notrack
					iptables-nft -t raw -A PREROUTING -d 169.254.20.10/32 -p udp --dport 53 -j CT --notrack
					iptables-nft -t raw -A OUTPUT -s 169.254.20.10/32 -p udp --sport 53 -j CT --notrack
					iptables-legacy -t raw -N MINE
					iptables-legacy -t raw -A MINE -s 10.244.0.0/16 -p tcp --sport 80 -j CT --notrack
					iptables-legacy -t raw -A MINE -s 10.245.0.0/16 -j CT --notrack
					iptables-legacy -t raw -A PREROUTING -j MINE
					ip6tables-legacy -t raw -A PREROUTING -p tcp --dport 443 -j CT --notrack
					ip6tables-legacy -t raw -A PREROUTING -d 2001:db8::1 -j CT --notrack`)
				h.nft(`table inet quick {
					chain pre { type filter hook prerouting priority raw; notrack; }
					chain late { type filter hook prerouting priority 0; udp dport 9 notrack; }
				}`)
			},
			want: []string{
				"NoTrack error nft inet quick pre: nft inet quick pre keeps packets out of connection tracking: all",
				"NoTrack warning ip6tables-legacy -t raw PREROUTING: ip6tables-legacy -t raw PREROUTING keeps packets out of connection tracking: --dport 443 and more conditions",
				"NoTrack warning ip6tables-legacy -t raw PREROUTING: ip6tables-legacy -t raw PREROUTING keeps packets out of connection tracking: -d 2001:db8::1/128",
				"NoTrack warning iptables-legacy -t raw MINE: iptables-legacy -t raw MINE keeps packets out of connection tracking: -s 10.244.0.0/16 --sport 80 and more conditions",
				"NoTrack warning iptables-legacy -t raw MINE: iptables-legacy -t raw MINE keeps packets out of connection tracking: -s 10.245.0.0/16 and more conditions",
				"NoTrack warning iptables-nft -t raw PREROUTING: iptables-nft -t raw PREROUTING keeps packets out of connection tracking: --dport 61500 and more conditions",
			},
		},
		"foreign NAT chains": {
			setUp: func(h *host) {
				h.run(routedPods)
				h.nft(`table ip early { chain pre { type nat hook prerouting priority -150; }; chain out { type nat hook output priority -111; }; }
					table ip late { chain pre { type nat hook prerouting priority -100; }; }
					table ip nplbridge { chain prerouting { type nat hook prerouting priority -150; }; }`)
			},
			want: []string{
				"ForeignNAT warning ip early out: NAT chain ip early out at hook output has priority -111",
				"ForeignNAT warning ip early pre: NAT chain ip early pre at hook prerouting has priority -150",
			},
		},
		"ephemeral ports overlap": {
			setUp: func(h *host) { h.run(routedPods); h.sysctl("net/ipv4/ip_local_port_range", "32768 61010") },
			want:  []string{"EphemeralPorts warning : portRange 61000-62000 overlaps the ports the kernel gives to outgoing connections, 32768-61010: 61000-61010"},
		},
		"ephemeral ports overlap, reserved": {
			setUp: func(h *host) {
				h.run(routedPods)
				h.sysctl("net/ipv4/ip_local_port_range", "32768 61010")
				h.sysctl("net/ipv4/ip_local_reserved_ports", "8080,61000-61010")
			},
		},
		"Antrea's chain left behind": {
			setUp: func(h *host) {
				h.run(routedPods + antreaChain("iptables-nft", "10.244.0.10") + antreaChain("ip6tables-nft", "[fd00:244::10]") +
					antreaChain("iptables-legacy", "10.244.0.10") + antreaChain("ip6tables-legacy", "[fd00:244::10]"))
			},
			want: []string{"Antrea warning leftover: chain ANTREA-NODE-PORT-LOCAL is left behind with 8 ports (iptables-nft, ip6tables-nft, iptables-legacy, ip6tables-legacy)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, s := newHost(t), subject()
			if test.setUp != nil {
				test.setUp(h)
			}
			if test.edit != nil {
				test.edit(&s)
			}
			got := notFine(h.collect(s))
			if len(got) != len(test.want) {
				t.Fatalf("findings:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			for i := range got {
				if !strings.HasPrefix(got[i], test.want[i]) {
					t.Errorf("finding %s\nwant     %s", got[i], test.want[i])
				}
			}
		})
	}
}

// Some kernels have no flowtables; reading them then finds none.
func TestFlowtable(t *testing.T) {
	h := newHost(t)
	h.run(routedPods)
	var want []string
	h.do(func() {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(`table inet fast { flowtable ft { hook ingress priority 0; devices = { eth0 }; }; }`)
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil:
			want = []string{"Flowtables warning inet fast ft: flowtable inet fast ft on eth0"}
		case strings.Contains(string(out), "No such file or directory"):
			t.Log("this kernel has no flowtables")
		default:
			t.Errorf("nft: %v: %s", err, out)
		}
	})
	if diff := cmp.Diff(want, notFine(h.collect(subject()))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// antreaChain is what Antrea's agent writes, as the rules are documented in its code.
func antreaChain(tool, pod string) string {
	return strings.NewReplacer("TOOL", tool, "POD", pod).Replace(`
		TOOL -t nat -N ANTREA-NODE-PORT-LOCAL
		TOOL -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j ANTREA-NODE-PORT-LOCAL
		TOOL -t nat -A OUTPUT -m addrtype --dst-type LOCAL -j ANTREA-NODE-PORT-LOCAL
		TOOL -t nat -A ANTREA-NODE-PORT-LOCAL -p tcp -m tcp --dport 61000 -j DNAT --to-destination POD:80
		TOOL -t nat -A ANTREA-NODE-PORT-LOCAL -p udp -m udp --dport 61001 -j DNAT --to-destination POD:53`)
}

// The commands of the finding really take the chain away.
func TestAntreaLeftoverIsRemovedByItsFix(t *testing.T) {
	h := newHost(t)
	h.run(routedPods + antreaChain("iptables-nft", "10.244.0.10") + antreaChain("ip6tables-legacy", "[fd00:244::10]"))
	for _, f := range Findings(h.collect(subject())) {
		if f.Check == Antrea && f.Severity == Warning {
			h.run(strings.ReplaceAll(f.Fix, " && ", "\n"))
		}
	}
	if got := notFine(h.collect(subject())); len(got) > 0 {
		t.Errorf("after the fix: %s", got)
	}
}

// Antrea holds a listening socket on each of its ports; that is how a chain in use is told from one left behind.
func TestAntreaAtWork(t *testing.T) {
	h := newHost(t)
	h.run(routedPods + antreaChain("iptables-nft", "10.244.0.10"))
	var socket net.Listener
	h.do(func() {
		var err error
		if socket, err = net.Listen("tcp4", ":61000"); err != nil {
			t.Error(err)
		}
	})
	got := notFine(h.collect(subject()))
	want := []string{
		"PortsInUse warning : 1 port of portRange 61000-62000 is already in use: 0.0.0.0:61000/tcp",
		"Antrea error agent: Antrea's NodePortLocal is at work: chain ANTREA-NODE-PORT-LOCAL has 2 ports, and its agent listens on 1 of them",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := socket.Close(); err != nil {
		t.Error(err)
	}
	if got := notFine(h.collect(subject())); len(got) != 1 || !strings.HasPrefix(got[0], "Antrea warning leftover") {
		t.Errorf("without its sockets: %s", got)
	}
}

// Only sockets that wait for clients count: not the agent's own kind, which are bound and do not listen, or are connected to
// themselves.
func TestListeners(t *testing.T) {
	h := newHost(t)
	h.run(routedPods)
	var sockets []interface{ Close() error }
	h.do(func() {
		bound := func(network, address string) {
			if network == "udp" || network == "udp4" {
				s, err := net.ListenPacket(network, address)
				if err != nil {
					t.Error(err)
					return
				}
				sockets = append(sockets, s)
				return
			}
			s, err := net.Listen(network, address)
			if err != nil {
				t.Error(err)
				return
			}
			sockets = append(sockets, s)
		}
		bound("tcp4", "127.0.0.1:61001")
		bound("tcp", "[::]:61002")
		bound("udp4", "192.0.2.1:61003")
		bound("udp", "[2001:db8::1]:61004")
		bound("tcp4", ":60999")
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrInet4{Port: 61005})
		}
		if err != nil {
			t.Error(err)
		}
		sockets = append(sockets, os.NewFile(uintptr(fd), "bound"))
		self := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 61006}
		connected, err := net.DialUDP("udp4", self, self)
		if err != nil {
			t.Error(err)
			return
		}
		sockets = append(sockets, connected)
	})
	want := []string{"PortsInUse warning : 4 ports of portRange 61000-62000 are already in use: 127.0.0.1:61001/tcp, 192.0.2.1:61003/udp, [2001:db8::1]:61004/udp, [::]:61002/tcp"}
	if diff := cmp.Diff(want, notFine(h.collect(subject()))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, s := range sockets {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A program on the interface by which clients come is found; the filter here drops nothing and needs no compiler.
func TestEBPF(t *testing.T) {
	h := newHost(t)
	h.run(routedPods + "\nip link add cilium_host type veth peer name cilium_net\ntc qdisc add dev eth0 clsact")
	want := "EBPF warning cilium: eBPF on the path of packets: interface cilium_host"
	h.do(func() {
		program, err := loadProgram()
		if errors.Is(err, unix.EPERM) {
			t.Log("this process may load no eBPF program; only the interface is there to be found")
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		want += ", tc ingress eth0 (cil_from_netdev)"
		defer func() { _ = unix.Close(program) }()
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.FilterAdd(&netlink.BpfFilter{
				FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
				Fd:          program, Name: "cil_from_netdev", DirectAction: true,
			})
		}
		if err != nil {
			t.Error(err)
		}
	})
	if diff := cmp.Diff([]string{want}, notFine(h.collect(subject()))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Collect leaves no trace: the transactions that try the kernel's features are never committed.
func TestCollectChangesNothing(t *testing.T) {
	h := newHost(t)
	h.run(routedPods)
	h.nft(`table ip someone { chain pre { type nat hook prerouting priority -100; }; }`)
	before := h.output("nft list ruleset")
	f := h.collect(subject())
	if after := h.output("nft list ruleset"); after != before || strings.Contains(after, trialTable) {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if len(f.Missing) > 0 {
		t.Errorf("missing: %s", f.Missing)
	}
	if names := h.output("cat /proc/thread-self/net/ip_tables_names"); names != "" {
		t.Errorf("tables of iptables-legacy appeared: %s", names)
	}
}

// Without NET_ADMIN the kernel tells next to nothing. Then nothing is called good that was not seen, and it is said what is missing.
func TestCollectWithoutRights(t *testing.T) {
	h := newHost(t)
	h.run(routedPods)
	var f Facts
	h.do(func() {
		var none [2]unix.CapUserData
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			t.Error(err)
			return
		}
		f = Collect(subject())
	})
	got := map[Check]Severity{}
	for _, finding := range Findings(f) {
		got[finding.Check] = finding.Severity
		if finding.Check == Kernel && (finding.Found != "the kernel refuses tables: operation not permitted" || !strings.Contains(finding.Fix, "NET_ADMIN")) && finding.Object == "tables" {
			t.Errorf("%+v", finding)
		}
	}
	for check, want := range map[Check]Severity{Kernel: Error, ForwardPolicy: Unknown, NoTrack: Unknown, ForeignNAT: Unknown, Flowtables: Unknown, Antrea: Unknown, EphemeralPorts: OK} {
		if got[check] != want {
			t.Errorf("%s is %s, want %s", check, got[check], want)
		}
	}
}

// The rule that the setting forwardAccept adds is recognised as what opens the chain.
func TestForwardAcceptCovers(t *testing.T) {
	h, s := newHost(t), subject()
	h.run(routedPods + "\niptables-nft -P FORWARD DROP\nip6tables-nft -P FORWARD DROP")
	s.Settings.ForwardAccept = true
	if got := notFine(h.collect(s)); len(got) != 2 || !strings.Contains(got[0], "forwardAccept is on, but its rule is not there") {
		t.Errorf("before the agent: %s", got)
	}
	h.do(func() {
		nft, err := dataplane.Open(dataplane.Config{ClusterUID: "u", ForwardAccept: true, NodePorts: dataplane.PortRange(s.Settings.PortRange)})
		if err != nil {
			t.Error(err)
			return
		}
		_, err = nft.Repair(map[dataplane.Key]netip.AddrPort{{Protocol: npl.TCP, Family: npl.IPv4, NodePort: 61000}: netip.MustParseAddrPort("10.244.0.10:80")})
		if err := errors.Join(err, nft.Close()); err != nil {
			t.Error(err)
		}
	})
	if got := notFine(h.collect(s)); len(got) > 0 {
		t.Errorf("with the agent's rule: %s", got)
	}
}
