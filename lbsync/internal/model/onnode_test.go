package model

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

func addrs(text string) (out []netip.Addr) {
	for field := range strings.FieldsSeq(text) {
		out = append(out, netip.MustParseAddr(field))
	}
	return out
}

func TestNodeAddresses(t *testing.T) {
	for _, test := range []struct {
		name, internal, external, local string
		listens                         string
		served, publishes               string
	}{
		{"internal", "192.0.2.1", "", "192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.1"},
		{"internal, whatever the interfaces are", "192.0.2.1", "", "", "192.0.2.1", "192.0.2.1", "192.0.2.1"},
		{"external behind a router", "192.0.2.1", "203.0.113.1", "192.0.2.1", "192.0.2.1", "192.0.2.1", "203.0.113.1"},
		{"external on an interface", "192.0.2.1", "203.0.113.1", "192.0.2.1 203.0.113.1", "192.0.2.1 203.0.113.1", "192.0.2.1 203.0.113.1", "203.0.113.1"},
		{"external in one family", "192.0.2.1 2001:db8::1", "2001:db8:1::1", "", "192.0.2.1 2001:db8::1", "192.0.2.1 2001:db8::1", "192.0.2.1 2001:db8:1::1"},
		{"one family is served", "192.0.2.1 2001:db8::1", "203.0.113.1", "", "192.0.2.1 2001:db8::1", "2001:db8::1", "2001:db8::1"},
		{"nothing is served", "192.0.2.1", "203.0.113.1", "", "192.0.2.1", "", ""},
		{"the same as internal and external", "192.0.2.1", "192.0.2.1", "", "192.0.2.1", "192.0.2.1", "192.0.2.1"},
		{"served elsewhere: the Node has another address now", "192.0.2.2", "203.0.113.1", "", "192.0.2.2", "192.0.2.1", ""},
		{"several of a family", "192.0.2.1 192.0.2.2", "", "", "192.0.2.1 192.0.2.2", "192.0.2.2", "192.0.2.2"},
	} {
		n := &Node{Internal: addrs(test.internal), Addresses: addrs(test.internal)}
		for _, a := range addrs(test.external) {
			if !n.Has(a) {
				n.Addresses = append(n.Addresses, a)
			}
		}
		local := addrs(test.local)
		got := fmt.Sprint(n.Listens(func(a netip.Addr) bool { return strings.Contains(fmt.Sprint(local), a.String()) }), n.Publishes(addrs(test.served)))
		if want := fmt.Sprint(addrs(test.listens), addrs(test.publishes)); got != want {
			t.Errorf("%s: got %s, want %s", test.name, got, want)
		}
	}
}

func TestServedAtANode(t *testing.T) {
	at := addrs("192.0.2.1 2001:db8::1")
	for _, test := range []struct {
		name    string
		edit    func(*world)
		vips    string
		reason  PortReason
		message string
	}{
		{name: "IPv4", edit: func(*world) {}, vips: "[192.0.2.1]"},
		{name: "both families", edit: func(w *world) { w.Service.Families = []npl.Family{npl.IPv6, npl.IPv4} }, vips: "[192.0.2.1 2001:db8::1]"},
		{name: "an address is asked for", edit: func(w *world) {
			w.Service.Wishes.Addresses, w.Service.VIPs = addrs("198.51.100.7"), map[string][]netip.Addr{w.Instance: addrs("198.51.100.7")}
		}, vips: "[198.51.100.7]"},
		{name: "a pool is asked for, and has not given one", edit: func(w *world) { w.Service.Wishes.AddressPool, w.Service.VIPs = "p", nil }},
		{name: "what is asked for cannot be read", edit: func(w *world) { w.Service.Wishes.Kept.Addresses = true }},
		{name: "not admitted", edit: func(w *world) { w.Service.Admitted = false }},
		{name: "no Node", edit: func(w *world) { w.OnNode.Addresses = nil }},
		{name: "of an older one", edit: func(w *world) {
			w.OnNode.Owner = func(asks ServiceKey, port uint16, protocol providers.Protocol) (ServiceKey, bool) {
				return ServiceKey{"shop", "older"}, asks == w.Service.ServiceKey && port == w.Service.Ports[0].Port && protocol == providers.TCP
			}
		}, reason: PortTaken, message: "belongs to Service shop/older, which is older"},
		{name: "reserved", edit: func(w *world) {
			w.OnNode.Reserved = []ReservedPorts{{PortRange{81, 90}, "others"}, {PortRange{80, 80}, "us"}}
		}, reason: PortReserved, message: "ports 80-80 are for us"},
		{name: "reserved, and an address is asked for", edit: func(w *world) {
			w.OnNode.Reserved = []ReservedPorts{{PortRange{80, 80}, "us"}}
			w.Service.Wishes.Addresses, w.Service.VIPs = addrs("198.51.100.7"), map[string][]netip.Addr{w.Instance: addrs("198.51.100.7")}
		}, vips: "[198.51.100.7]"},
		{name: "the protocol cannot be, and the port is reserved", edit: func(w *world) {
			w.OnNode.Reserved = []ReservedPorts{{PortRange{80, 80}, "us"}}
			w.Capabilities.Protocols = nil
		}, message: "cannot balance TCP"},
		{name: "members only", edit: func(w *world) {
			w.OnNode.Reserved = []ReservedPorts{{PortRange{80, 80}, "us"}}
			w.Service.Wishes.Attachments = []annotations.Attachment{{Port: "80", Instance: w.Instance, Pool: "theirs"}}
		}},
	} {
		w := newWorld().pod(1, nil)
		w.OnNode = &OnNode{Addresses: at}
		w.Service.VIPs = nil
		test.edit(w)
		out := Build(w.Input)
		vips := ""
		if len(out.State.VirtualServers) > 0 {
			vips = fmt.Sprint(out.State.VirtualServers[0].VIPs)
		}
		if vips != test.vips {
			t.Errorf("%s: at %s, want %s", test.name, vips, test.vips)
		}
		for _, p := range out.Ports {
			if p.Reason != test.reason || p.Unsupported != (test.message != "") || !strings.Contains(p.Cannot, test.message) {
				t.Errorf("%s: %+v", test.name, p)
			}
			if p.Unsupported && len(out.State.Pools) > 0 {
				t.Errorf("%s: a pool behind a port that is not served", test.name)
			}
		}
	}
}
