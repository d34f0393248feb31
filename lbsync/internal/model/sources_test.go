package model

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

const nodePort = 30080

// machine is Node n<n> at 192.0.2.<10+n>, which is Ready for an hour.
func machine(n int, edit ...func(*Node)) *Node {
	internal := []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + n)}), netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", 10+n))}
	out := &Node{
		Name: fmt.Sprintf("node-%d", n), UID: fmt.Sprintf("n%d", n), Labels: map[string]string{"pool": "edge"},
		Addresses: internal, Internal: internal, ReadyChanged: now.Add(-time.Hour),
	}
	for _, e := range edit {
		e(out)
	}
	return out
}

func notReady(ago time.Duration) func(*Node) {
	return func(n *Node) { n.NotReady, n.ReadyChanged = true, now.Add(-ago) }
}

func drainingNode(n *Node) { n.Draining = true }

func excludedNode(n *Node) { n.Excluded = true }

// onNodes makes Nodes the source.
func (w *world) onNodes(nodes ...*Node) *world {
	w.Service.Source, w.Service.Ports[0].NodePort, w.Nodes = annotations.NodePort, nodePort, nodes
	return w
}

// hasNode puts Node n's member into the pool as it is on the load balancer.
func (w *world) hasNode(n int, state providers.MemberState) *world {
	return w.hasMember(providers.Member{UID: fmt.Sprintf("n%d", n), Address: netip.AddrPortFrom(machine(n).Internal[0], nodePort), State: state})
}

// hasAddress puts Pod n's own address into the pool.
func (w *world) hasAddress(n int, state providers.MemberState) *world {
	return w.hasMember(providers.Member{UID: fmt.Sprintf("u%d", n), Address: netip.AddrPortFrom(podIP(n), 8080), State: state})
}

func (w *world) hasMember(m providers.Member) *world {
	if w.Current[key] == nil {
		w.Current[key] = &providers.Pool{Key: key, Settings: providers.PoolSettings{Algorithm: providers.RoundRobin}}
	}
	w.Current[key].Members = append(w.Current[key].Members, m)
	return w
}

func podIP(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}) }

func withIP(n int) func(*Pod) {
	return func(p *Pod) {
		p.IPs = []netip.Addr{podIP(n), netip.MustParseAddr(fmt.Sprintf("fd00::%d", n))}
	}
}

// byAddress makes the Pods' own addresses the source.
func byAddress(w *world) { w.Service.Source = annotations.ClusterIP }

func local(w *world) { w.Service.LocalOnly = true }

func TestNodesAsMembers(t *testing.T) {
	const enabled, draining = providers.Enabled, providers.Draining
	selector := func(w *world) { w.NodeSelector = map[string]string{"pool": "edge"} }
	unlabelled := func(n *Node) { n.Labels = nil }
	checkMembers(t, []memberCase{
		{"every Node, whatever the Pods", newWorld().pod(1, unready(0)).onNodes(machine(1), machine(2)), "n1:30080 Enabled, n2:30080 Enabled", ""},
		{"without any Pod", newWorld().onNodes(machine(1)), "n1:30080 Enabled", ""},
		{"the Pods' annotations do not matter", newWorld().pod(1, func(p *Pod) { p.Mappings, p.Malformed = nil, malformed }).onNodes(machine(1)), "n1:30080 Enabled", ""},
		{"nor does a name that a Pod does not have", newWorld().pod(1, nil).onNodes(machine(1)).
			with(func(w *world) { w.Service.Ports[0].TargetNumber, w.Service.Ports[0].TargetName = 0, "http" }), "n1:30080 Enabled", ""},
		{"selector", newWorld().onNodes(machine(1), machine(2, unlabelled)).with(selector), "n1:30080 Enabled", ""},
		{"label taken off: drains", newWorld().onNodes(machine(1), machine(2, unlabelled)).with(selector).hasNode(2, enabled),
			"n1:30080 Enabled, n2:30080 Draining", ""},
		{"label taken off: leaves at the limit", newWorld().onNodes(machine(1), machine(2, unlabelled)).with(selector).hasNode(2, draining).
			with(func(w *world) {
				w.DrainingSince = func(providers.Key, providers.MemberID) time.Time { return now.Add(-limit) }
			}), "n1:30080 Enabled", ""},
		{"excluded from load balancers", newWorld().onNodes(machine(1), machine(2, excludedNode)), "n1:30080 Enabled", ""},
		{"all excluded: that is what the user wants", newWorld().onNodes(machine(1, excludedNode)), "", ""},
		{"not ready never enters", newWorld().onNodes(machine(1), machine(2, notReady(0))), "n1:30080 Enabled", ""},
		{"not ready drains", newWorld().onNodes(machine(1), machine(2, notReady(0))).hasNode(2, enabled), "n1:30080 Enabled, n2:30080 Draining", ""},
		{"not ready for longer than the limit", newWorld().onNodes(machine(1), machine(2, notReady(limit))).hasNode(2, draining), "n1:30080 Enabled", ""},
		{"none ready: better than an empty pool", newWorld().onNodes(machine(1, notReady(0)), machine(2, notReady(0))).hasNode(1, draining),
			"n1:30080 Enabled, n2:30080 Enabled", ""},
		{"drained", newWorld().onNodes(machine(1), machine(2, drainingNode)).hasNode(1, enabled).hasNode(2, enabled), "n1:30080 Enabled, n2:30080 Draining", ""},
		{"deleted", newWorld().onNodes(machine(1)).hasNode(1, enabled).hasNode(2, enabled), "n1:30080 Enabled", ""},
		{"both families", newWorld().onNodes(machine(1)).with(func(w *world) { w.Service.Families = []npl.Family{npl.IPv6, npl.IPv4} }),
			"n1:30080 Enabled, n1:30080 Enabled", ""},
		{"a Node without an address of the family", newWorld().onNodes(machine(1, func(n *Node) { n.Internal = n.Internal[1:] }), machine(2)), "n2:30080 Enabled", ""},
		{"a Pod claims the node port", newWorld().onNodes(machine(1), machine(2)).hasNode(1, enabled).with(func(w *world) {
			w.claim(&Pod{Namespace: "other", Name: "thief", UID: "x", Mappings: []npl.Mapping{
				{PodPort: 1, NodeIP: nodeIP, NodePort: nodePort, Protocol: npl.TCP, Family: npl.IPv4},
			}})
		}), "n2:30080 Enabled", ""},
	})
}

func TestNodesWithLocalTraffic(t *testing.T) {
	const enabled, draining = providers.Enabled, providers.Draining
	checkMembers(t, []memberCase{
		{"only Nodes with a ready Pod", newWorld().pod(1, nil).pod(2, unready(0)).onNode(machine(2)).onNodes(machine(1), machine(2), machine(3)).with(local),
			"n1:30080 Enabled", ""},
		{"the last Pod terminates: drains", newWorld().pod(1, nil).pod(2, terminating(time.Second)).onNode(machine(2)).onNodes(machine(1), machine(2)).with(local).
			hasNode(1, enabled).hasNode(2, enabled), "n1:30080 Enabled, n2:30080 Draining", ""},
		{"a ready Pod beside one that terminates", newWorld().pod(1, terminating(0)).pod(2, nil).onNodes(machine(1)).with(local), "n1:30080 Enabled", ""},
		{"until the last of its Pods is over", newWorld().pod(1, nil).pod(2, terminating(limit)).onNode(machine(2)).pod(3, terminating(time.Second)).onNode(machine(2)).
			onNodes(machine(1), machine(2)).with(local).hasNode(2, draining), "n1:30080 Enabled, n2:30080 Draining", ""},
		{"the last Pod is gone: leads nowhere", newWorld().pod(1, nil).onNodes(machine(1), machine(2)).with(local).hasNode(2, draining), "n1:30080 Enabled", ""},
		{"all terminate: those that serve", newWorld().pod(1, terminating(0)).pod(2, both(unready(0), terminating(0))).onNode(machine(2)).
			onNodes(machine(1), machine(2)).with(local).hasNode(1, enabled).hasNode(2, enabled), "n1:30080 Enabled, n2:30080 Draining", ""},
		{"ready or not", newWorld().pod(1, unready(0)).onNodes(machine(1), machine(2)).with(local).
			with(func(w *world) { w.Service.PublishNotReady = true }), "n1:30080 Enabled", ""},
		{"its Node is not ready", newWorld().pod(1, nil).pod(2, nil).onNode(machine(2)).onNodes(machine(1, notReady(0)), machine(2)).with(local).hasNode(1, enabled),
			"n1:30080 Draining, n2:30080 Enabled", ""},
		{"its Node is excluded", newWorld().pod(1, nil).onNodes(machine(1, excludedNode)).with(local), "", ""},
	})
}

func TestNodePortNotes(t *testing.T) {
	for _, test := range []struct {
		name  string
		world *world
		want  string
	}{
		{"nothing to say", newWorld().onNodes(machine(1)), ""},
		{"no node port", newWorld().onNodes(machine(1)).with(func(w *world) { w.Service.Ports[0].NodePort = 0 }), "allocateLoadBalancerNodePorts"},
		{"nothing selected", newWorld().onNodes(machine(1)).with(func(w *world) { w.NodeSelector = map[string]string{"pool": "core"} }), "nodePortSelector"},
		{"no address", newWorld().onNodes(machine(1, func(n *Node) { n.Internal = nil })), "InternalIP in IPv4"},
		{"claimed", newWorld().pod(1, func(p *Pod) { p.Mappings[0].NodePort = nodePort }).onNodes(machine(1)), "192.0.2.11:30080 of Node node-1 is also claimed by shop/web-1"},
		{"full", newWorld().onNodes(machine(1), machine(2)).with(func(w *world) { w.Capabilities.MaxMembers = 1 }), "Node node-2: 192.0.2.12:30080 finds no room"},
	} {
		out := Build(test.world.Input)
		if got := cannot(out); !strings.Contains(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
		if len(out.Refusals) > 0 || out.Ports[0].Unsupported {
			t.Errorf("%s: refusals %v, unsupported %t", test.name, out.Refusals, out.Ports[0].Unsupported)
		}
	}
}

func TestPodAddressesAsMembers(t *testing.T) {
	const enabled, draining = providers.Enabled, providers.Draining
	ip := func(n int, edits ...func(*Pod)) func(*Pod) { return both(append(edits, withIP(n))...) }
	checkMembers(t, []memberCase{
		{"ready", newWorld().pod(1, ip(1)).with(byAddress), "u1:8080 Enabled", ""},
		{"annotations do not matter", newWorld().pod(1, ip(1, func(p *Pod) { p.Mappings, p.Malformed = nil, malformed })).with(byAddress), "u1:8080 Enabled", ""},
		{"nor whether its Node is known", newWorld().pod(1, ip(1)).onNode(&Node{Name: "x"}).with(byAddress).
			with(func(w *world) { w.Endpoints[0].Node = nil }), "u1:8080 Enabled", ""},
		{"both families", newWorld().pod(1, ip(1)).with(byAddress).with(func(w *world) { w.Service.Families = []npl.Family{npl.IPv6, npl.IPv4} }),
			"u1:8080 Enabled, u1:8080 Enabled", ""},
		{"no address yet", newWorld().pod(1, nil).with(byAddress), "", "web-1 NoAddress"},
		{"none of the family", newWorld().pod(1, func(p *Pod) { p.IPs = []netip.Addr{podIP(1)} }).with(byAddress).
			with(func(w *world) { w.Service.Families = []npl.Family{npl.IPv6} }), "", "web-1 NoAddress"},
		{"not ready drains", newWorld().pod(1, ip(1, unready(0))).pod(2, ip(2)).with(byAddress).hasAddress(1, enabled), "u1:8080 Draining, u2:8080 Enabled", ""},
		{"terminating drains", newWorld().pod(1, ip(1, terminating(0))).pod(2, ip(2)).with(byAddress).hasAddress(1, draining), "u1:8080 Draining, u2:8080 Enabled", ""},
		{"an address that the next Pod has already", newWorld().pod(1, ip(1, terminating(0))).pod(2, ip(1)).with(byAddress).hasAddress(1, draining), "u2:8080 Enabled", ""},
		{"named port", newWorld().pod(1, ip(1, func(p *Pod) { p.Ports = []ContainerPort{{"http", providers.TCP, 9090}} })).pod(2, ip(2)).with(byAddress).
			with(func(w *world) { w.Service.Ports[0].TargetNumber, w.Service.Ports[0].TargetName = 0, "http" }), "u1:9090 Enabled", "web-2 TargetPortUnresolved"},
		{"on the Node's network, where another Pod claims the port", newWorld().pod(1, func(p *Pod) { p.IPs, p.Mappings = []netip.Addr{nodeIP}, nil }).with(byAddress).
			with(func(w *world) {
				w.claim(&Pod{Namespace: "other", Name: "thief", UID: "x", Mappings: []npl.Mapping{
					{PodPort: 1, NodeIP: nodeIP, NodePort: 8080, Protocol: npl.TCP, Family: npl.IPv4},
				}})
			}), "", "web-1 Contested"},
	})
}

func TestNodesOfPods(t *testing.T) {
	const enabled, draining = providers.Enabled, providers.Draining
	gone := func(w *world) { w.Endpoints[0].Node, w.Endpoints[0].NodeGone = nil, true }
	checkMembers(t, []memberCase{
		{"deleted: its members leave though the Pod lingers", newWorld().pod(1, nil).pod(2, nil).has(1, enabled).has(2, enabled).with(gone), "u2:61002 Enabled", "web-1 NodeGone"},
		{"deleted: even the last", newWorld().pod(1, nil).has(1, enabled).with(gone), "", "web-1 NodeGone"},
		{"deleted: by address, too", newWorld().pod(1, withIP(1)).with(byAddress).hasAddress(1, enabled).with(gone), "", "web-1 NodeGone"},
		{"not ready: drains", newWorld().pod(1, nil).onNode(machine(1, notReady(0))).pod(2, nil).has(1, enabled), "u1:61001 Draining, u2:61002 Enabled", ""},
		{"not ready: never enters", newWorld().pod(1, nil).onNode(machine(1, notReady(0))).pod(2, nil), "u2:61002 Enabled", ""},
		{"not ready: leaves at the limit", newWorld().pod(1, nil).onNode(machine(1, notReady(limit))).pod(2, nil).has(1, draining), "u2:61002 Enabled", ""},
		{"none ready: better than an empty pool", newWorld().pod(1, nil).onNode(machine(1, notReady(limit))), "u1:61001 Enabled", ""},
		{"not ready, and the Service wants them ready or not", newWorld().pod(1, unready(0)).onNode(machine(1, notReady(0))).pod(2, nil).
			with(func(w *world) { w.Service.PublishNotReady = true }), "u1:61001 Enabled, u2:61002 Enabled", ""},
		{"being drained", newWorld().pod(1, nil).onNode(machine(1, drainingNode)).pod(2, nil).has(1, enabled), "u1:61001 Draining, u2:61002 Enabled", ""},
		{"being drained: leaves when idle", newWorld().pod(1, nil).onNode(machine(1, drainingNode)).pod(2, nil).has(1, draining).connections(1, 0), "u2:61002 Enabled", ""},
		{"being drained: before those that terminate", newWorld().pod(1, nil).onNode(machine(1, drainingNode)).pod(2, terminating(0)).has(1, enabled).has(2, enabled),
			"u1:61001 Enabled, u2:61002 Draining", ""},
		{"being drained, ready or not", newWorld().pod(1, nil).onNode(machine(1, drainingNode)).pod(2, nil).has(1, enabled).
			with(func(w *world) { w.Service.PublishNotReady = true }), "u1:61001 Draining, u2:61002 Enabled", ""},
	})
}

func TestWeights(t *testing.T) {
	heavy := func(p *Pod) { p.Weight = 7 }
	w := newWorld().pod(1, heavy).pod(2, func(p *Pod) { p.Weight = 1 })
	out := Build(w.Input)
	if members := out.State.Pools[0].Members; members[0].Weight != 7 || members[1].Weight != 0 || cannot(out) != "" {
		t.Errorf("%+v, %q", members, cannot(out))
	}
	w.Capabilities.Features = nil
	out = Build(w.Input)
	if members := out.State.Pools[0].Members; members[0].Weight != 0 || cannot(out) != "memory cannot weigh members" {
		t.Errorf("without weights: %+v, %q", members, cannot(out))
	}
}
