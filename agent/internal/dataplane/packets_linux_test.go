package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

var transports = []npl.Protocol{npl.TCP, npl.UDP}

// allMappings leads port 61000+i of every protocol and family to Pod i.
func allMappings() map[Key]netip.AddrPort {
	out := map[Key]netip.AddrPort{}
	for i := range podAddr {
		for _, f := range bothFamilies {
			for _, p := range transports {
				out[Key{p, f, nodePort(i)}] = netip.AddrPortFrom(podAddr[i][f], podPort)
			}
		}
	}
	return out
}

func nodePort(pod int) uint16 { return uint16(61000 + pod) }

// Clients outside, on the Node, in another Pod and in the Pod itself, in every kind of Pod network: all are answered, and
// the Pod sees the client's own address wherever the reply finds back without our help. A strict rp_filter changes nothing.
func TestNPL62SameNodeClientsAndHairpin(t *testing.T) {
	for _, kind := range []podNetwork{routed, bridged, bridgedFiltered} {
		t.Run(kind.name, func(t *testing.T) {
			n := newNetwork(t, kind)
			for _, device := range []string{"all", "default", "eth0", "pod0", "pod1"} {
				n.node.sysctl("net/ipv4/conf/"+device+"/rp_filter", "1")
			}
			for _, pod := range n.pods {
				serve(t, pod, podPort)
			}
			d := open(t, n.node, MasqueradeAuto)
			d.apply(Change{Set: allMappings()})
			for k := range allMappings() { // a port held by its socket still works
				if err := d.reserve(k); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range bothFamilies {
				neighbour := podAddr[1][f]
				gateway := map[npl.Family]netip.Addr{npl.IPv4: netip.MustParseAddr("10.244.0.1"), npl.IPv6: netip.MustParseAddr("fd00:244::1")}[f]
				if kind == bridged { // the reply would go from Pod to Pod without passing the Node
					neighbour = gateway
				}
				itself := gateway
				if kind == routed {
					itself = nodeAddr[f]
				}
				for _, c := range []struct {
					who  string
					from *namespace
					seen netip.Addr // as the Pod sees its client
				}{
					{"client outside", n.client, clientAddr[f]},
					{"program on the Node", n.node, nodeAddr[f]},
					{"Pod on the same Node", n.pods[1], neighbour},
					{"the Pod itself", n.pods[0], itself},
				} {
					for _, p := range transports {
						t.Run(fmt.Sprintf("%s %s %s", c.who, p, f), func(t *testing.T) {
							got, err := request(c.from, p, netip.AddrPortFrom(nodeAddr[f], nodePort(0)))
							if err != nil {
								t.Fatalf("%v\n%s", err, n.node.ruleset())
							}
							if want := (answer{"pod-0", c.seen}); got != want {
								t.Errorf("got %v, want %v", got, want)
							}
						})
					}
				}
			}
		})
	}
}

func TestMasqueradeModes(t *testing.T) {
	n := newNetwork(t, routed)
	serve(t, n.pods[0], podPort)
	for _, c := range []struct {
		mode string
		seen map[npl.Family]netip.Addr
		// foreign is what the Pod sees of a client that came through a DNAT which is not ours.
		foreign map[npl.Family]netip.Addr
	}{
		{MasqueradeAuto, clientAddr, clientAddr},
		{MasqueradeNone, clientAddr, clientAddr},
		{MasqueradeAll, nodeAddr, clientAddr},
	} {
		t.Run(c.mode, func(t *testing.T) {
			d := open(t, n.node, c.mode)
			if got := d.repair(allMappings()); c.mode != MasqueradeAuto && got == 0 {
				t.Error("another mode changed no rule")
			}
			n.node.nft(`
				add table inet foreign
				delete table inet foreign
				table inet foreign {
					chain prerouting {
						type nat hook prerouting priority -100;
						meta nfproto ipv4 tcp dport 30000 dnat ip to 10.244.0.10:8080
						meta nfproto ipv6 tcp dport 30000 dnat ip6 to [fd00:244::10]:8080
					}
				}`)
			for _, f := range bothFamilies {
				for _, p := range transports {
					if got, err := request(n.client, p, netip.AddrPortFrom(nodeAddr[f], nodePort(0))); err != nil || got.peer != c.seen[f] {
						t.Errorf("%s %s: the Pod saw %v (%v), want %v", p, f, got.peer, err, c.seen[f])
					}
				}
				if got, err := request(n.client, npl.TCP, netip.AddrPortFrom(nodeAddr[f], 30000)); err != nil || got.peer != c.foreign[f] {
					t.Errorf("%s, DNAT of somebody else: the Pod saw %v (%v), want %v", f, got.peer, err, c.foreign[f])
				}
			}
		})
	}
}

// A port without its rule must refuse at once: a load balancer's check that times out, or even succeeds, is worse.
func TestNPL56MissingRuleFailsFast(t *testing.T) {
	n := newNetwork(t, routed)
	serve(t, n.pods[0], podPort)
	d := open(t, n.node, MasqueradeAuto)
	refused := func(t *testing.T, from *namespace, k Key) {
		t.Helper()
		// Pods answer "unreachable" at a limited rate, so one lost answer is allowed to be asked for again.
		eventually(t, k.String()+" refuses "+from.name, func() error {
			_, err := request(from, k.Protocol, netip.AddrPortFrom(nodeAddr[k.Family], k.NodePort))
			switch {
			case errors.Is(err, unix.ECONNREFUSED):
				return nil
			case err == nil:
				return errors.New("it answered")
			}
			return err
		})
	}
	for _, k := range sortedKeys(allMappings()) {
		t.Run(k.String(), func(t *testing.T) {
			if err := d.reserve(k); err != nil {
				t.Fatal(err)
			}
			refused(t, n.client, k)
			refused(t, n.node, k)
			to := netip.AddrPortFrom(podAddr[0][k.Family], podPort)
			d.apply(Change{Set: map[Key]netip.AddrPort{k: to}})
			if _, err := request(n.client, k.Protocol, netip.AddrPortFrom(nodeAddr[k.Family], k.NodePort)); err != nil {
				t.Errorf("with its rule: %v", err)
			}
			d.apply(Change{Delete: []Key{k}})
			refused(t, n.client, k)
			refused(t, n.node, k)
		})
	}
}

// A flow of datagrams goes on in spite of its port leading elsewhere: by a change of the mapping when its Pod is replaced, by a
// repair, or because it began before there was a mapping.
func TestNPL58UDPFlowFollowsItsPort(t *testing.T) {
	n := newNetwork(t, routed)
	for _, pod := range n.pods {
		serve(t, pod, podPort)
	}
	d := open(t, n.node, MasqueradeAuto)
	for _, f := range bothFamilies {
		t.Run(string(f), func(t *testing.T) {
			k, other := Key{npl.UDP, f, 61500}, Key{npl.UDP, f, 61501}
			if err := d.reserve(k); err != nil {
				t.Fatal(err)
			}
			talk := func(k Key) net.Conn {
				c, err := dial(n.client, npl.UDP, netip.AddrPortFrom(nodeAddr[f], k.NodePort))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
				return c
			}
			expect := func(c net.Conn, server string) {
				t.Helper()
				eventually(t, "answer of "+server, func() error {
					got, err := ask(c)
					if err == nil && got.server != server {
						err = fmt.Errorf("%s answered", got.server)
					}
					return err
				})
			}
			c := talk(k)
			if _, err := ask(c); !errors.Is(err, unix.ECONNREFUSED) {
				t.Fatalf("before the rule: got %v, want refused", err)
			}
			// The early datagram has pinned the flow to "no NAT"; it must not stay so.
			d.apply(Change{Set: map[Key]netip.AddrPort{k: netip.AddrPortFrom(podAddr[0][f], podPort), other: netip.AddrPortFrom(podAddr[0][f], podPort)}})
			expect(c, "pod-0")
			bystander := talk(other)
			expect(bystander, "pod-0")
			d.apply(Change{Set: map[Key]netip.AddrPort{k: netip.AddrPortFrom(podAddr[1][f], podPort)}})
			expect(c, "pod-1")
			expect(bystander, "pod-0")

			// The same after a repair: somebody led the port elsewhere, and a flow began.
			name := map[npl.Family]string{npl.IPv4: "ip", npl.IPv6: "ip6"}[f]
			n.node.nft(fmt.Sprintf("delete element %s nplbridge ports { udp . 61500 }\nadd element %[1]s nplbridge ports { udp . 61500 : %s . 8080 }", name, podAddr[0][f]))
			c = talk(k)
			expect(c, "pod-0")
			if got := d.repair(d.want(map[Key]netip.AddrPort{
				k: netip.AddrPortFrom(podAddr[1][f], podPort), other: netip.AddrPortFrom(podAddr[0][f], podPort)})); got != 1 {
				t.Errorf("repaired %d things, want 1", got)
			}
			expect(c, "pod-1")

			d.apply(Change{Delete: []Key{k}})
			eventually(t, "the flow ends with its port", func() error {
				if answer, err := ask(c); !errors.Is(err, unix.ECONNREFUSED) {
					return errors.Join(fmt.Errorf("got %+v, want refused", answer), err)
				}
				return nil
			})
			expect(bystander, "pod-0")
		})
	}
}

// An agent that is killed between its transaction and the flows leaves tables as they should be, and flows that are not: the
// first repair of the next one looks at them, too.
func TestFirstRepairLooksAtFlows(t *testing.T) {
	n := newNetwork(t, routed)
	for _, pod := range n.pods {
		serve(t, pod, podPort)
	}
	k := Key{npl.UDP, npl.IPv4, 61500}
	open(t, n.node, MasqueradeAuto).apply(Change{Set: map[Key]netip.AddrPort{k: netip.AddrPortFrom(podAddr[0][npl.IPv4], podPort)}})
	c, err := dial(n.client, npl.UDP, netip.AddrPortFrom(nodeAddr[npl.IPv4], k.NodePort))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers := func(server string) {
		t.Helper()
		if got, err := ask(c); err != nil || got.server != server {
			t.Errorf("got %v (%v), want an answer of %s", got, err, server)
		}
	}
	answers("pod-0")
	n.node.nft("delete element ip nplbridge ports { udp . 61500 }\nadd element ip nplbridge ports { udp . 61500 : 10.244.0.11 . 8080 }\n" +
		"add element ip nplbridge hairpin { 10.244.0.11 . 10.244.0.11 }\ndelete element ip nplbridge hairpin { 10.244.0.10 . 10.244.0.10 }")
	answers("pod-0")
	next := open(t, n.node, MasqueradeAuto)
	if got := next.repair(next.load().Mappings); got != 0 {
		t.Errorf("repaired %d things, so the tables were not right before", got)
	}
	answers("pod-1")
}

// want adds what else is mapped to a part of the mappings.
func (p *plane) want(part map[Key]netip.AddrPort) map[Key]netip.AddrPort {
	all := p.load().Mappings
	maps.Copy(all, part)
	return all
}

func TestTCPConnectionsOutliveTheirRuleUnlessThePodIsGone(t *testing.T) {
	n := newNetwork(t, routed)
	serve(t, n.pods[0], podPort)
	d := open(t, n.node, MasqueradeAuto)
	for _, f := range bothFamilies {
		t.Run(string(f), func(t *testing.T) {
			k := Key{npl.TCP, f, nodePort(0)}
			if err := d.reserve(k); err != nil {
				t.Fatal(err)
			}
			set := Change{Set: map[Key]netip.AddrPort{k: netip.AddrPortFrom(podAddr[0][f], podPort)}}
			d.apply(set)
			c, err := dial(n.client, npl.TCP, netip.AddrPortFrom(nodeAddr[f], k.NodePort))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, during := range []struct {
				what   string
				change Change
			}{{"with its rule", Change{}}, {"without its rule", Change{Delete: []Key{k}}}, {"with it again", set}} {
				d.apply(during.change)
				if _, err := ask(c); err != nil {
					t.Fatalf("%s: %v", during.what, err)
				}
			}
			d.apply(Change{Delete: []Key{k}, FlushTCP: []Key{k}})
			if _, err := ask(c); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("after the Pod is gone: got %v, want a reset", err)
			}
		})
	}
}
