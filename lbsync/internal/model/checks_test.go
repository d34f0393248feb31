package model

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
)

func TestMappingChecks(t *testing.T) {
	const enabled = providers.Enabled
	checkMembers(t, []memberCase{
		{"no mapping yet", newWorld().pod(1, func(p *Pod) { p.Mappings = nil }), "", "web-1 NotPublished"},
		{"no mapping, not ready: nothing to say", newWorld().pod(1, both(unready(0), func(p *Pod) { p.Mappings = nil })), "", ""},
		{"another protocol", newWorld().pod(1, func(p *Pod) { p.Mappings[0].Protocol = npl.UDP }), "", "web-1 NotPublished"},
		{"another port", newWorld().pod(1, func(p *Pod) { p.Mappings[0].PodPort = 8081 }), "", "web-1 NotPublished"},
		{"another family", newWorld().pod(1, nil).with(func(w *world) { w.Service.Families = []npl.Family{npl.IPv6} }), "", "web-1 NotPublished"},
		{"both families", newWorld().pod(1, func(p *Pod) {
			p.Mappings = append(p.Mappings, npl.Mapping{PodPort: 8080, NodeIP: node.Addresses[1], NodePort: 61001, Protocol: npl.TCP, Family: npl.IPv6})
		}).with(func(w *world) { w.Service.Families = []npl.Family{npl.IPv6, npl.IPv4} }), "u1:61001 Enabled, u1:61001 Enabled", ""},
		{"named port, per Pod", newWorld().
			pod(1, func(p *Pod) { p.Ports = []ContainerPort{{"http", providers.TCP, 8080}} }).
			pod(2, func(p *Pod) {
				p.Ports, p.Mappings[0].PodPort = []ContainerPort{{"http", providers.UDP, 1}, {"http", providers.TCP, 9090}}, 9090
			}).
			pod(3, nil).
			with(func(w *world) { w.Service.Ports[0].TargetNumber, w.Service.Ports[0].TargetName = 0, "http" }),
			"u1:61001 Enabled, u2:61002 Enabled", "web-3 TargetPortUnresolved"},
		{"another Node's address", newWorld().pod(1, func(p *Pod) { p.Mappings[0].NodeIP = netip.MustParseAddr("192.0.2.99") }).has(1, enabled),
			"", "web-1 ForeignNodeAddress"},
		{"unknown Node: does not enter", newWorld().pod(1, nil).with(func(w *world) { w.Endpoints[0].Node = nil }), "", "web-1 NodeUnknown"},
		{"unknown Node: stays", newWorld().pod(1, nil).has(1, enabled).with(func(w *world) { w.Endpoints[0].Node = nil }), "u1:61001 Enabled", ""},
		{"contested: neither", newWorld().pod(1, nil).pod(2, func(p *Pod) { p.Mappings[0].NodePort = 61001 }).pod(3, nil).has(1, enabled),
			"u3:61003 Enabled", "web-1 Contested, web-2 Contested"},
		{"contested by a Pod of another Service", newWorld().pod(1, nil).has(1, enabled).with(func(w *world) {
			w.claim(&Pod{Namespace: "other", Name: "thief", UID: "x", Mappings: w.Endpoints[0].Pod.Mappings})
		}), "", "web-1 Contested"},
		{"contested by a finished Pod", newWorld().pod(1, nil).with(func(w *world) {
			w.claim(&Pod{Namespace: "other", Name: "old", UID: "x", Finished: true, Mappings: w.Endpoints[0].Pod.Mappings})
		}), "u1:61001 Enabled", ""},
		{"one node port for two of its own ports", newWorld().pod(1, func(p *Pod) {
			p.Mappings = append(p.Mappings, npl.Mapping{PodPort: 8081, NodeIP: nodeIP, NodePort: 61001, Protocol: npl.TCP, Family: npl.IPv4})
		}), "", "web-1 Contested"},
	})
}

func TestMalformedAnnotation(t *testing.T) {
	const enabled = providers.Enabled
	checkMembers(t, []memberCase{
		{"malformed: the last good member stays", newWorld().pod(1, func(p *Pod) { p.Mappings, p.Malformed = nil, malformed }).has(1, enabled),
			"u1:61001 Enabled", "web-1 MalformedAnnotation"},
		{"malformed: and drains", newWorld().pod(1, both(terminating(0), unready(0), func(p *Pod) { p.Mappings, p.Malformed = nil, malformed })).has(1, enabled),
			"u1:61001 Draining", "web-1 MalformedAnnotation"},
		{"malformed: nothing to keep", newWorld().pod(1, func(p *Pod) { p.Mappings, p.Malformed = nil, malformed }), "", "web-1 MalformedAnnotation"},
		{"malformed: until another Pod claims the port", newWorld().pod(1, func(p *Pod) { p.Mappings, p.Malformed = nil, malformed }).
			has(1, enabled).pod(2, func(p *Pod) { p.Mappings[0].NodePort = 61001 }), "u2:61001 Enabled", "web-1 MalformedAnnotation"},
		{"malformed: what can be read counts", newWorld().pod(1, func(p *Pod) { p.Malformed, p.Mappings[0].NodePort = malformed, 61005 }).has(1, enabled),
			"u1:61005 Enabled", "web-1 MalformedAnnotation"},
		{"malformed: disturbs nobody else", newWorld().pod(1, func(p *Pod) { p.Mappings, p.Malformed = nil, malformed }).pod(2, nil),
			"u2:61002 Enabled", "web-1 MalformedAnnotation"},
	})
}

func TestPortRange(t *testing.T) {
	const enabled = providers.Enabled
	narrow := func(w *world) { w.PortRange = PortRange{61000, 61001} }
	declares := func(protocol providers.Protocol, port uint16) func(*Pod) {
		return func(p *Pod) { p.HostPorts = []HostPort{{protocol, port}} }
	}
	checkMembers(t, []memberCase{
		{"in", newWorld().pod(0, nil).pod(1, nil).with(narrow), "u0:61000 Enabled, u1:61001 Enabled", ""},
		{"out", newWorld().pod(1, nil).pod(2, nil).with(narrow), "u1:61001 Enabled", "web-2 PortOutOfRange"},
		{"out, and leaves", newWorld().pod(1, nil).pod(2, nil).has(2, enabled).with(narrow), "u1:61001 Enabled", "web-2 PortOutOfRange"},
		{"out, and a host port", newWorld().pod(2, declares(providers.TCP, 61002)).with(narrow), "u2:61002 Enabled", ""},
		{"out, and a host port of another protocol", newWorld().pod(2, declares(providers.UDP, 61002)).with(narrow), "", "web-2 PortOutOfRange"},
		{"out, and a host port of the same protocol, which is another", newWorld().pod(2, both(declares(providers.UDP, 61002), func(p *Pod) { p.Mappings[0].Protocol = npl.UDP })).
			with(narrow).with(func(w *world) { w.Service.Ports[0].Protocol = providers.UDP }), "u2:61002 Enabled", ""},
		{"out, and an address of the Pod that is its Node's", newWorld().pod(1, func(p *Pod) {
			p.IPs, p.Mappings[0].NodePort = []netip.Addr{nodeIP}, 8080
		}).hasMember(providers.Member{UID: "u1", Address: netip.AddrPortFrom(nodeIP, 8080), State: enabled}).with(narrow), "", "web-1 PortOutOfRange"},
		{"out, and another host port", newWorld().pod(2, declares(providers.TCP, 8080)).with(narrow), "", "web-2 PortOutOfRange"},
		{"any, when there is no range", newWorld().pod(1, func(p *Pod) { p.Mappings[0].NodePort = 22 }), "u1:22 Enabled", ""},
	})
}

// A refusal says what is wrong with which object, and what to do.
func TestCheckMessages(t *testing.T) {
	for _, test := range []struct {
		world *world
		want  []string
	}{
		{newWorld().pod(1, func(p *Pod) { p.Mappings[0].NodePort = 22 }).with(func(w *world) { w.PortRange = PortRange{61000, 62000} }),
			[]string{"node port 22", "61000-62000", "hostPort 22/TCP", "portRange"}},
		{newWorld().pod(1, nil).with(func(w *world) { w.Endpoints[0].Node = nil }), []string{`Node "node-1"`, "192.0.2.11:61001", "InternalIP"}},
		{newWorld().pod(1, nil).pod(2, func(p *Pod) { p.Mappings[0].NodePort = 61001 }), []string{"192.0.2.11:61001", "claimed by shop/web-2", "remove the annotation"}},
		{newWorld().pod(1, nil).with(func(w *world) { w.Service.Ports[0].TargetNumber, w.Service.Ports[0].TargetName = 0, "http" }),
			[]string{`named "http"`, "targetPort", "port 80"}},
		{newWorld().pod(1, nil).with(byAddress), []string{"no IPv4 address", "ipFamilies"}},
		{newWorld().pod(1, nil).with(func(w *world) { w.Endpoints[0].NodeGone = true }), []string{"Node node-1 was deleted", "delete the Pod"}},
	} {
		got := Build(test.world.Input).Refusals[0].Sentence()
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%q does not say %q", got, want)
			}
		}
		if !strings.Contains(got, "shop/web:80/TCP") {
			t.Errorf("%q does not name the pool", got)
		}
	}
}
