package dataplane

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// The chains of kube-proxy for one Service of type NodePort, as its two modes lay them out beside ours: same hooks, later
// priority, a mark for what it masquerades, and a filter that drops invalid packets.
const (
	kubeProxyIPTables = `*filter
:KUBE-FORWARD - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j KUBE-MARK-MASQ
-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j DNAT --to-destination %[1]s
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -j MASQUERADE
COMMIT
`
	kubeProxyNFTables = `table %[2]s kube-proxy {
	map service-nodeports {
		type inet_proto . inet_service : verdict
		elements = { tcp . 30080 : goto service }
	}
	chain filter-prerouting-pre-dnat { type filter hook prerouting priority dstnat - 10; }
	chain filter-forward {
		type filter hook forward priority -110;
		ct state invalid drop
	}
	chain service {
		meta mark set mark or 0x4000
		meta l4proto tcp dnat to %[1]s
	}
	chain nat-prerouting {
		type nat hook prerouting priority dstnat;
		fib daddr type local meta l4proto . th dport vmap @service-nodeports
	}
	chain nat-output {
		type nat hook output priority -100;
		fib daddr type local meta l4proto . th dport vmap @service-nodeports
	}
	chain nat-postrouting {
		type nat hook postrouting priority srcnat;
		meta mark & 0x4000 == 0x0 return
		meta mark set mark xor 0x4000
		masquerade fully-random
	}
}
`
)

// Beside kube-proxy, in either mode, node ports of both kinds work; ours show the client, kube-proxy's the Node.
func TestBesideKubeProxy(t *testing.T) {
	for _, mode := range []string{"iptables", "nftables"} {
		t.Run(mode, func(t *testing.T) {
			n := newNetwork(t, routed)
			for _, pod := range n.pods {
				serve(t, pod, podPort)
			}
			for _, f := range []*family{ipv4, ipv6} {
				to := netip.AddrPortFrom(podAddr[1][f.ip], podPort).String()
				if mode == "nftables" {
					n.node.nft(fmt.Sprintf(kubeProxyNFTables, to, f.name))
					continue
				}
				if out, err := in(n.node, shell(f.xtTool()+"-nft-restore <<'END'\n"+fmt.Sprintf(kubeProxyIPTables, to)+"END\n")); err != nil {
					t.Fatal(err, string(out))
				}
			}
			d := open(t, n.node, MasqueradeAuto)
			d.apply(Change{Set: allMappings()})
			for _, f := range bothFamilies {
				for _, who := range []struct {
					from *namespace
					seen netip.Addr
				}{{n.client, clientAddr[f]}, {n.node, nodeAddr[f]}} {
					got, err := request(who.from, npl.TCP, netip.AddrPortFrom(nodeAddr[f], nodePort(0)))
					if want := (answer{"pod-0", who.seen}); err != nil || got != want {
						t.Errorf("%s, our node port from %s: got %v (%v), want %v", f, who.from.name, got, err, want)
					}
					got, err = request(who.from, npl.TCP, netip.AddrPortFrom(nodeAddr[f], 30080))
					if err != nil || got.server != "pod-1" || got.peer == clientAddr[f] {
						t.Errorf("%s, kube-proxy's from %s: got %v (%v), want pod-1, masqueraded", f, who.from.name, got, err)
					}
				}
			}
		})
	}
}

// Two Nodes with an overlay between their Pod networks: a Pod calls a node port of the other Node. CNIs of this kind
// masquerade what leaves the Pod network, so the packets come over the underlay and the answers go back the same way. Where
// one does not, the answers come over the overlay, from an address that a strict rp_filter does not expect there.
func TestOverlay(t *testing.T) {
	n := newNetwork(t, routed)
	serve(t, n.pods[0], podPort)
	other := n.client // the second Node
	pod := newNamespace(t, "far-pod")
	plug(other, "pod0", pod, "eth0")
	far := map[npl.Family]netip.Addr{npl.IPv4: netip.MustParseAddr("10.244.9.10"), npl.IPv6: netip.MustParseAddr("fd00:244:9::10")}
	other.run("ip addr add 10.244.9.1/24 dev pod0\nip addr add fd00:244:9::1/64 dev pod0 nodad")
	pod.run("ip addr add 10.244.9.10/24 dev eth0\nip addr add fd00:244:9::10/64 dev eth0 nodad\n" +
		"ip route add default via 10.244.9.1\nip route add default via fd00:244:9::1")
	n.node.run(`ip link add vx0 type vxlan id 1 dstport 8472 local 192.0.2.1 remote 192.0.2.2 dev eth0
		ip link set vx0 up
		ip addr add 10.254.0.1/24 dev vx0
		ip addr add fd00:254::1/64 dev vx0 nodad
		ip route add 10.244.9.0/24 via 10.254.0.2
		ip route add fd00:244:9::/64 via fd00:254::2`)
	other.run(`ip link add vx0 type vxlan id 1 dstport 8472 local 192.0.2.2 remote 192.0.2.1 dev eth0
		ip link set vx0 up
		ip addr add 10.254.0.2/24 dev vx0
		ip addr add fd00:254::2/64 dev vx0 nodad
		ip route add 10.244.0.0/24 via 10.254.0.1
		ip route add fd00:244::/64 via fd00:254::1`)
	awaitReachable(t, pod, n.pods[0], podAddr[0][npl.IPv4])
	awaitReachable(t, pod, n.pods[0], podAddr[0][npl.IPv6])
	d := open(t, n.node, MasqueradeAuto)
	d.apply(Change{Set: allMappings()})
	strict := func(value string) {
		for _, device := range []string{"all", "eth0", "vx0", "pod0"} {
			other.sysctl("net/ipv4/conf/"+device+"/rp_filter", value)
			n.node.sysctl("net/ipv4/conf/"+device+"/rp_filter", value)
		}
	}
	expect := func(what string, seen map[npl.Family]netip.Addr) {
		t.Helper()
		for _, f := range bothFamilies {
			for _, p := range transports {
				got, err := request(pod, p, netip.AddrPortFrom(nodeAddr[f], nodePort(0)))
				if want := (answer{"pod-0", seen[f]}); err != nil || got != want {
					t.Errorf("%s, %s %s: got %v (%v), want %v", what, p, f, got, err, want)
				}
			}
		}
	}
	strict("0")
	expect("not masqueraded by the CNI", far)
	strict("1")
	if connects(pod, far[npl.IPv4], netip.AddrPortFrom(nodeAddr[npl.IPv4], nodePort(0))) {
		t.Error("not masqueraded by the CNI, strict rp_filter: connected, want no answer")
	}
	other.nft(`table inet cni { chain postrouting { type nat hook postrouting priority 100; oifname "eth0" masquerade; }; }`)
	expect("masqueraded by the CNI, strict rp_filter", clientAddr)
}

// requestFrom is request over TCP from one of several addresses.
func requestFrom(ns *namespace, from netip.Addr, to netip.AddrPort) (answer, error) {
	return in(ns, func() (answer, error) {
		dialer := net.Dialer{Timeout: answerTime, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
		c, err := dialer.Dial("tcp", to.String())
		if err != nil {
			return answer{}, err
		}
		defer c.Close()
		return ask(c)
	})
}

// A Node with a second network, whose own replies leave by a routing rule for their source address. Packets that are
// forwarded are routed by the Pod's address instead, before the DNAT is undone, whoever masquerades: no mode of ours helps, and
// a strict rp_filter drops them on the way in. What helps is to route by a mark of the connection, set by the network they
// came from, and rp_filter that honours marks.
func TestSecondNetworkOfTheNode(t *testing.T) {
	n := newNetwork(t, routed)
	serve(t, n.pods[0], podPort)
	second := map[npl.Family]netip.Addr{npl.IPv4: netip.MustParseAddr("198.51.100.1"), npl.IPv6: netip.MustParseAddr("2001:db8:51::1")}
	remote := map[npl.Family]netip.Addr{npl.IPv4: netip.MustParseAddr("203.0.113.5"), npl.IPv6: netip.MustParseAddr("2001:db8:113::5")}
	router := newNamespace(t, "router")
	plug(n.node, "eth1", router, "eth0")
	n.node.run(`ip addr add 198.51.100.1/24 dev eth1
		ip addr add 2001:db8:51::1/64 dev eth1 nodad
		ip route add default via 192.0.2.2
		ip -6 route add default via 2001:db8::2
		ip route add default via 198.51.100.2 table 51
		ip -6 route add default via 2001:db8:51::2 table 51
		ip rule add from 198.51.100.1 lookup 51
		ip -6 rule add from 2001:db8:51::1 lookup 51`)
	router.run(`ip addr add 198.51.100.2/24 dev eth0
		ip addr add 2001:db8:51::2/64 dev eth0 nodad
		ip addr add 203.0.113.5/32 dev lo
		ip addr add 2001:db8:113::5/128 dev lo nodad`)
	for _, f := range bothFamilies {
		awaitReachable(t, router, n.node, second[f])
	}
	for _, device := range []string{"all", "eth0", "eth1"} {
		n.node.sysctl("net/ipv4/conf/"+device+"/rp_filter", "1")
	}
	serve(t, n.node, 9000) // what runs on the Node itself is reached: the network is as it should be
	for _, f := range bothFamilies {
		if _, err := requestFrom(router, remote[f], netip.AddrPortFrom(second[f], 9000)); err != nil {
			t.Fatalf("%s: a program on the Node: %v", f, err)
		}
	}
	for _, mode := range []string{MasqueradeAuto, MasqueradeAll} {
		d := open(t, n.node, mode)
		d.repair(allMappings())
		for _, f := range bothFamilies {
			if connects(router, remote[f], netip.AddrPortFrom(second[f], nodePort(0))) {
				t.Errorf("%s, masquerade %s: connected, want no answer: then the documentation is wrong", f, mode)
			}
			// A client in that network itself needs no default route, and so no help.
			if _, err := request(router, npl.TCP, netip.AddrPortFrom(second[f], nodePort(0))); err != nil {
				t.Errorf("%s, masquerade %s, a neighbour: %v", f, mode, err)
			}
		}
	}
	open(t, n.node, MasqueradeAuto).repair(allMappings())
	n.node.nft(`table inet by-network {
		chain prerouting {
			type filter hook prerouting priority -150;
			iifname "eth1" ct mark set 0x51
			meta mark set ct mark
		}
	}`)
	for _, version := range []string{"", "-6 "} {
		n.node.run("ip " + version + "rule add pref 100 lookup main suppress_prefixlength 0\n" +
			"ip " + version + "rule add pref 101 fwmark 0x51 lookup 51")
	}
	n.node.sysctl("net/ipv4/conf/all/src_valid_mark", "1")
	for _, f := range bothFamilies {
		got, err := requestFrom(router, remote[f], netip.AddrPortFrom(second[f], nodePort(0)))
		if want := (answer{"pod-0", remote[f]}); err != nil || got != want {
			t.Errorf("%s, routed by mark: got %v (%v), want %v", f, got, err, want)
		}
	}
}

// A Pod with a second network, in which the client is: its reply would go there directly, from an address that the client has
// not called. This is what "masquerade: all" is for.
func TestSecondNetworkOfThePod(t *testing.T) {
	n := newNetwork(t, routed)
	serve(t, n.pods[0], podPort)
	away := map[npl.Family]netip.Addr{npl.IPv4: netip.MustParseAddr("198.51.100.9"), npl.IPv6: netip.MustParseAddr("2001:db8:51::9")}
	plug(n.pods[0], "net1", n.client, "eth1")
	n.pods[0].run("ip addr add 198.51.100.8/24 dev net1\nip addr add 2001:db8:51::8/64 dev net1 nodad")
	n.client.run("ip addr add 198.51.100.9/24 dev eth1\nip addr add 2001:db8:51::9/64 dev eth1 nodad")
	n.node.run("ip route add 198.51.100.0/24 via 192.0.2.2\nip route add 2001:db8:51::/64 via 2001:db8::2")
	for _, device := range []string{"all", "default", "eth0", "net1"} { // strict: the Pod would not even take the packets
		n.pods[0].sysctl("net/ipv4/conf/"+device+"/rp_filter", "1")
	}
	open(t, n.node, MasqueradeAuto).repair(allMappings())
	for _, f := range bothFamilies {
		if connects(n.client, away[f], netip.AddrPortFrom(nodeAddr[f], nodePort(0))) {
			t.Errorf("%s, masquerade auto: connected, want no answer", f)
		}
	}
	open(t, n.node, MasqueradeAll).repair(allMappings())
	for _, f := range bothFamilies {
		got, err := requestFrom(n.client, away[f], netip.AddrPortFrom(nodeAddr[f], nodePort(0)))
		if want := (answer{"pod-0", nodeAddr[f]}); err != nil || got != want {
			t.Errorf("%s, masquerade all: got %v (%v), want %v", f, got, err, want)
		}
	}
}
