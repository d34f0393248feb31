package model

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

// afterNodes is a Service whose members were Nodes until now.
func afterNodes() *world {
	w := newWorld()
	w.Service.Ports[0].NodePort = nodePort
	w.Capabilities.Features = nil // says nothing about health
	return w
}

func TestSwitchOfSources(t *testing.T) {
	const enabled, draining = providers.Enabled, providers.Draining
	checkMembers(t, []memberCase{
		{"new members enter, old ones stay", afterNodes().pod(1, nil).hasNode(1, enabled).hasNode(2, enabled),
			"n1:30080 Enabled, u1:61001 Enabled, n2:30080 Enabled", ""},
		{"one new member is still missing", afterNodes().pod(1, nil).pod(2, nil).hasNode(1, enabled).has(1, enabled),
			"n1:30080 Enabled, u1:61001 Enabled, u2:61002 Enabled", ""},
		{"one new member drains there", afterNodes().pod(1, nil).hasNode(1, enabled).has(1, draining), "n1:30080 Enabled, u1:61001 Enabled", ""},
		{"a ready Pod has no node port yet", afterNodes().pod(1, nil).pod(2, func(p *Pod) { p.Mappings = nil }).hasNode(1, enabled).has(1, enabled),
			"n1:30080 Enabled, u1:61001 Enabled", "web-2 NotPublished"},
		{"a Pod that is not ready holds nothing up", afterNodes().pod(1, nil).pod(2, both(unready(0), func(p *Pod) { p.Mappings = nil })).hasNode(1, enabled).has(1, enabled),
			"n1:30080 Draining, u1:61001 Enabled", ""},
		{"nor does one that is refused for good", afterNodes().pod(1, nil).pod(2, func(p *Pod) { p.Mappings[0].NodeIP = netip.MustParseAddr("192.0.2.99") }).
			hasNode(1, enabled).has(1, enabled), "n1:30080 Draining, u1:61001 Enabled", "web-2 ForeignNodeAddress"},
		{"unless all are", afterNodes().pod(1, func(p *Pod) { p.Mappings[0].NodeIP = netip.MustParseAddr("192.0.2.99") }).hasNode(1, enabled),
			"n1:30080 Enabled", "web-1 ForeignNodeAddress"},
		{"nor one whose Node was deleted", afterNodes().pod(1, nil).pod(2, nil).with(func(w *world) { w.Endpoints[1].Node, w.Endpoints[1].NodeGone = nil, true }).
			hasNode(1, enabled).has(1, enabled), "n1:30080 Draining, u1:61001 Enabled", "web-2 NodeGone"},
		{"all there: old ones drain", afterNodes().pod(1, nil).pod(2, nil).hasNode(1, enabled).has(1, enabled).has(2, enabled),
			"n1:30080 Draining, u1:61001 Enabled, u2:61002 Enabled", ""},
		{"a new Pod brings no draining one back", afterNodes().pod(1, nil).pod(2, nil).hasNode(1, draining).has(1, enabled),
			"n1:30080 Draining, u1:61001 Enabled, u2:61002 Enabled", ""},
		{"unless nothing else is left", afterNodes().pod(1, unready(0)).hasNode(1, draining).has(1, enabled), "n1:30080 Enabled, u1:61001 Draining", ""},
		{"no Pod serves: nothing to wait for", afterNodes().pod(1, unready(0)).hasNode(1, enabled).hasNode(2, draining),
			"n1:30080 Enabled, n2:30080 Enabled", ""},
		{"only terminating Pods serve: the old ones lead there, too", afterNodes().pod(1, terminating(0)).hasNode(1, enabled), "n1:30080 Enabled", ""},
		{"a Pod claims the node port", afterNodes().pod(1, func(p *Pod) { p.Mappings[0].NodePort = nodePort }).hasNode(1, enabled), "u1:30080 Enabled", ""},
		{"a member of a Pod that is gone is none of a former source", afterNodes().pod(1, nil).hasNode(1, enabled).has(1, enabled).has(9, enabled),
			"n1:30080 Draining, u1:61001 Enabled", ""},
		{"without a node port they lead nowhere", newWorld().pod(1, nil).hasNode(1, enabled), "u1:61001 Enabled", ""},
		{"drained", afterNodes().pod(1, nil).hasNode(1, draining).has(1, enabled).
			with(func(w *world) {
				w.Status[key] = map[providers.MemberID]providers.MemberStatus{{UID: "n1", Address: netip.AddrPortFrom(nodeIP, nodePort)}: {}}
			}), "u1:61001 Enabled", ""},
		{"at the limit", afterNodes().pod(1, nil).hasNode(1, draining).has(1, enabled).
			with(func(w *world) {
				w.DrainingSince = func(providers.Key, providers.MemberID) time.Time { return now.Add(-limit) }
			}), "u1:61001 Enabled", ""},
		{"just before the limit", afterNodes().pod(1, nil).hasNode(1, draining).has(1, enabled).
			with(func(w *world) {
				w.DrainingSince = func(providers.Key, providers.MemberID) time.Time { return now.Add(1 - limit) }
			}), "n1:30080 Draining, u1:61001 Enabled", ""},
		{"room for half of each where not all find room", afterNodes().pod(1, nil).pod(2, nil).pod(3, nil).hasNode(1, enabled).hasNode(2, enabled).hasNode(3, enabled).
			with(func(w *world) { w.Capabilities.MaxMembers = 3 }), "n1:30080 Enabled, u1:61001 Enabled, u2:61002 Enabled", "web-3 PoolFull"},
		{"and then for all", afterNodes().pod(1, nil).pod(2, nil).pod(3, nil).hasNode(1, enabled).has(1, enabled).has(2, enabled).
			with(func(w *world) { w.Capabilities.MaxMembers = 3 }), "u1:61001 Enabled, u2:61002 Enabled, u3:61003 Enabled", ""},

		{"back to Nodes: they enter, Pods stay", newWorld().pod(1, nil).onNodes(machine(1), machine(2)).has(1, enabled),
			"n1:30080 Enabled, u1:61001 Enabled, n2:30080 Enabled", ""},
		{"back to Nodes: Pods drain", newWorld().pod(1, nil).onNodes(machine(1)).has(1, enabled).hasNode(1, enabled).
			with(func(w *world) { w.Capabilities.Features = nil }), "n1:30080 Enabled, u1:61001 Draining", ""},
		{"back to Nodes: Pods terminate", newWorld().pod(1, terminating(limit)).pod(2, nil).onNodes(machine(1)).has(1, enabled).has(2, enabled),
			"n1:30080 Enabled, u2:61002 Enabled", ""},
		{"back to Nodes: nothing stays that does not check out", newWorld().pod(1, nil).onNode(machine(2)).onNodes(machine(2)).has(1, enabled), "n2:30080 Enabled", ""},
		{"back to Nodes: the annotation is withdrawn", newWorld().pod(1, withdrawn(time.Second)).onNodes(machine(1)).has(1, enabled), "n1:30080 Enabled, u1:61001 Draining", ""},
		{"back to Nodes: and its rule, too", newWorld().pod(1, withdrawn(WithdrawGrace)).onNodes(machine(1)).has(1, enabled), "n1:30080 Enabled", ""},
		{"back to Nodes, of which there are none: what is withdrawn is better than nothing", newWorld().pod(1, withdrawn(time.Second)).onNodes().has(1, enabled),
			"u1:61001 Enabled", ""},
		{"but not where it does not serve", newWorld().pod(1, both(unready(0), withdrawn(time.Second))).onNodes().has(1, enabled), "u1:61001 Draining", ""},
		{"back to Nodes without a node port", newWorld().pod(1, nil).onNodes(machine(1)).with(func(w *world) { w.Service.Ports[0].NodePort = 0 }).has(1, enabled),
			"u1:61001 Enabled", ""},

		{"addresses to node ports", newWorld().pod(1, withIP(1)).hasAddress(1, enabled), "u1:8080 Enabled, u1:61001 Enabled", ""},
		{"addresses to node ports: drains", newWorld().pod(1, withIP(1)).hasAddress(1, enabled).has(1, enabled).
			with(func(w *world) { w.Capabilities.Features = nil }), "u1:8080 Draining, u1:61001 Enabled", ""},
		{"node ports to addresses", newWorld().pod(1, withIP(1)).with(byAddress).has(1, enabled), "u1:8080 Enabled, u1:61001 Enabled", ""},
		{"node ports to addresses: drains", newWorld().pod(1, withIP(1)).with(byAddress).has(1, enabled).hasAddress(1, enabled).
			with(func(w *world) { w.Capabilities.Features = nil }), "u1:8080 Enabled, u1:61001 Draining", ""},
		{"node ports to addresses: no misroute meanwhile", newWorld().pod(1, withIP(1)).with(byAddress).has(1, enabled).with(func(w *world) {
			w.claim(&Pod{Namespace: "other", Name: "thief", UID: "x", Mappings: w.Endpoints[0].Pod.Mappings})
		}), "u1:8080 Enabled", ""},
		{"Nodes to addresses", afterNodes().pod(1, withIP(1)).with(byAddress).hasNode(1, enabled), "u1:8080 Enabled, n1:30080 Enabled", ""},
	})
}

// Where the load balancer tells health, new members must have come up; where it tells it of none, being there is enough.
func TestSwitchWaitsForHealth(t *testing.T) {
	up, down, unknown := providers.HealthUp, providers.HealthDown, providers.HealthUnknown
	for _, test := range []struct {
		name     string
		read     bool // since the new member is there
		old, now providers.Health
		blocked  bool
		want     providers.MemberState
	}{
		{name: "not read yet", want: providers.Enabled},
		{name: "up", read: true, old: up, now: up, want: providers.Draining},
		{name: "down", read: true, old: up, now: down, want: providers.Enabled},
		{name: "not known yet", read: true, old: up, now: unknown, want: providers.Enabled},
		{name: "down as the old one", read: true, old: down, now: down, want: providers.Enabled},
		{name: "of none known", read: true, old: unknown, now: unknown, want: providers.Draining},
		{name: "disabled by an operator", read: true, old: up, now: up, blocked: true, want: providers.Enabled},
	} {
		w := newWorld().pod(1, nil).hasNode(1, providers.Enabled).has(1, providers.Enabled)
		w.Service.Ports[0].NodePort = nodePort
		if test.read {
			w.Status[key] = map[providers.MemberID]providers.MemberStatus{
				w.Current[key].Members[0].ID(): {Health: test.old, Connections: 1},
				w.Current[key].Members[1].ID(): {Health: test.now, Blocked: test.blocked},
			}
		}
		out := Build(w.Input)
		if got := out.State.Pools[0].Members[0].State; got != test.want {
			t.Errorf("%s: the old member is %s, want %s", test.name, got, test.want)
		}
		if waits := test.want == providers.Enabled; out.Watch != waits || waits == out.Wake.IsZero() {
			t.Errorf("%s: watch %t, wake %s", test.name, out.Watch, out.Wake)
		}
	}
}

// A switch that waits for an agent costs nothing meanwhile: an event will come.
func TestSwitchWaitsForEvents(t *testing.T) {
	w := afterNodes().pod(1, func(p *Pod) { p.Mappings = nil }).hasNode(1, providers.Enabled)
	if out := Build(w.Input); out.Watch || !out.Wake.IsZero() {
		t.Errorf("watch %t, wake %s", out.Watch, out.Wake)
	}
}

// Live from Nodes to node ports and back, one step at a time.
func TestSwitchStepByStep(t *testing.T) {
	w := newWorld().pod(1, nil).pod(2, func(p *Pod) { p.Mappings = nil }).onNodes(machine(1))
	w.Capabilities.Features = nil
	var got []string
	step := func() { got = append(got, members(w.apply())) }
	step()
	w.Service.Source = annotations.NodePortLocal
	step()
	step()
	w.Endpoints[1].Pod.Mappings = []npl.Mapping{{PodPort: 8080, NodeIP: nodeIP, NodePort: 61002, Protocol: npl.TCP, Family: npl.IPv4}}
	step()
	step()
	w.Status[key] = map[providers.MemberID]providers.MemberStatus{{UID: "n1", Address: netip.AddrPortFrom(nodeIP, nodePort)}: {}}
	step()
	w.Service.Source = annotations.NodePort
	step()
	step()
	want := []string{
		"n1:30080 Enabled",
		"n1:30080 Enabled, u1:61001 Enabled",
		"n1:30080 Enabled, u1:61001 Enabled",
		"n1:30080 Enabled, u1:61001 Enabled, u2:61002 Enabled",
		"n1:30080 Draining, u1:61001 Enabled, u2:61002 Enabled",
		"u1:61001 Enabled, u2:61002 Enabled",
		"n1:30080 Enabled, u1:61001 Enabled, u2:61002 Enabled",
		"n1:30080 Enabled, u1:61001 Draining, u2:61002 Draining",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}
