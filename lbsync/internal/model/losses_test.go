package model

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

// What an event explains is no loss. Each case has Pod 2 beside, so that nothing falls back.
func TestLosses(t *testing.T) {
	const enabled, draining = providers.Enabled, providers.Draining
	unmapped := func(p *Pod) { p.Mappings = nil }
	with := func(edits ...func(*Pod)) *world {
		return newWorld().pod(1, both(edits...)).pod(2, nil).has(1, enabled).has(2, enabled)
	}
	on := func(n *Node, edits ...func(*Pod)) *world {
		return newWorld().pod(1, both(edits...)).onNode(n).pod(2, nil).has(1, enabled).has(2, enabled)
	}
	back := func(ago time.Duration) func(*Node) { return func(n *Node) { n.ReadyChanged = now.Add(-ago) } }
	for _, test := range []struct {
		name  string
		world *world
		want  string
		why   string
	}{
		{"nothing", with(), "", ""},
		{"annotation vanished, rule still there", with(withdrawn(time.Second)), "u1:61001", "names 192.0.2.11:61001 no more"},
		{"annotation vanished", with(unmapped), "u1:61001", "annotation nodeportlocal.antrea.io of Pod shop/web-1"},
		{"annotation vanished, drains already", newWorld().pod(1, withdrawn(time.Second)).pod(2, nil).has(1, draining).has(2, enabled), "u1:61001", ""},
		{"annotation vanished, better than an empty pool", newWorld().pod(1, withdrawn(time.Second)).has(1, enabled), "u1:61001", "names 192.0.2.11:61001 no more"},
		{"annotation vanished from a Pod that is not ready", with(unmapped, unready(time.Second)), "", ""},
		{"annotation vanished from a Pod that terminates", with(unmapped, terminating(time.Second)), "", ""},
		{"annotation vanished: the user disabled it", with(unmapped).with(func(w *world) { w.Service.Wishes.Enabled = annotations.Disabled }), "", ""},
		{"annotation malformed: stays", with(func(p *Pod) { p.Mappings, p.Malformed = nil, malformed }), "", ""},
		{"another node port", with(moved(time.Second)), "", ""},
		{"another targetPort, not published yet", with().with(func(w *world) { w.Service.Ports[0].TargetNumber = 9090 }), "", ""},
		{"another targetPort, the old one withdrawn", with(withdrawn(time.Second)).with(func(w *world) { w.Service.Ports[0].TargetNumber = 9090 }), "", ""},
		{"another family", with().with(func(w *world) { w.Service.Families = []npl.Family{npl.IPv6} }), "", ""},
		{"one family vanished", with(func(p *Pod) {
			p.Mappings = []npl.Mapping{{PodPort: 8080, NodeIP: node.Addresses[1], NodePort: 61001, Protocol: npl.TCP, Family: npl.IPv6}}
		}).with(func(w *world) { w.Service.Families = []npl.Family{npl.IPv4, npl.IPv6} }), "u1:61001", ""},
		{"outside of the range", with().with(func(w *world) { w.PortRange = PortRange{61002, 61008} }), "u1:61001", "outside of the range"},
		{"moved to a port outside of the range", with(moved(time.Second)).with(func(w *world) { w.PortRange = PortRange{61001, 61004} }), "u1:61001", "no more"},
		{"not on its Node", with(func(p *Pod) { p.Mappings[0].NodeIP = netip.MustParseAddr("192.0.2.99") }), "u1:61001", ""},

		{"terminating", with(terminating(0)), "", ""},
		{"not ready", with(unready(0)), "", ""},
		{"not ready with its Node", on(machine(1, notReady(time.Second)), unready(time.Second)), "u1:61001", "together with its Node node-1"},
		{"not ready after its Node", on(machine(1, notReady(time.Minute)), unready(time.Second)), "u1:61001", ""},
		{"not ready before its Node", on(machine(1, notReady(time.Second)), unready(time.Minute)), "", ""},
		{"not ready with its Node, which is back", on(machine(1, back(time.Second)), unready(time.Minute)), "u1:61001", ""},
		{"not ready with its Node, which is back for long", on(machine(1, back(recovery)), unready(2*time.Minute)), "", ""},
		{"not ready since its Node is back", on(machine(1, back(time.Minute)), unready(time.Second)), "", ""},
		{"only its Node is not ready", on(machine(1, notReady(0))), "u1:61001", "Node node-1 is not ready"},
		{"terminating on a Node that is not ready", on(machine(1, notReady(0)), terminating(0)), "", ""},
		{"its Node is being drained", on(machine(1, drainingNode)), "", ""},
		{"its Node was deleted", with().with(func(w *world) { w.Endpoints[0].Node, w.Endpoints[0].NodeGone = nil, true }), "", ""},
		{"finished", with(func(p *Pod) { p.Finished = true }), "", ""},

		{"deleted", with().has(3, enabled).fate(map[string]Fate{"u3": Gone}), "", ""},
		{"not selected any more", with().has(3, enabled).fate(map[string]Fate{"u3": Present}), "", ""},
		{"missing from a list", with().has(3, enabled).fate(map[string]Fate{"u3": Lost}), "u3:61003", "nobody saw it being deleted"},
		{"nobody knows", with().has(3, enabled), "", ""},
		{"missing from a list, and another Pod claims the port", with().has(3, enabled).fate(map[string]Fate{"u3": Lost}).with(func(w *world) {
			w.claim(&Pod{Namespace: "other", Name: "next", UID: "x", Mappings: []npl.Mapping{
				{PodPort: 1, NodeIP: nodeIP, NodePort: 61003, Protocol: npl.TCP, Family: npl.IPv4},
			}})
		}), "", ""},
		{"missing from a list, by address: soon another Pod's", newWorld().pod(2, withIP(2)).hasAddress(3, enabled).with(byAddress).fate(map[string]Fate{"u3": Lost}), "", ""},
		{"the removal is allowed", with(unmapped).with(func(w *world) { w.Service.Wishes.AllowRemoval = true }), "", ""},

		{"Node not ready", newWorld().onNodes(machine(1, notReady(0)), machine(2)).hasNode(1, enabled).hasNode(2, enabled), "n1:30080", "Node node-1 is not ready"},
		{"Node deleted", newWorld().onNodes(machine(2)).hasNode(1, enabled).hasNode(2, enabled), "", ""},
		{"Node missing from a list", newWorld().onNodes(machine(2)).hasNode(1, enabled).hasNode(2, enabled).fate(map[string]Fate{"n1": Lost}), "n1:30080", ""},
		{"Node excluded", newWorld().onNodes(machine(1, excludedNode), machine(2)).hasNode(1, enabled), "", ""},
		{"of a former source", afterNodes().pod(1, nil).hasNode(1, enabled).has(1, enabled), "", ""},
	} {
		out := Build(test.world.Input)
		if got := lost(out); got != test.want {
			t.Errorf("%s: %q, want %q; members %q", test.name, got, test.want, members(out))
		}
		if test.why != "" && (len(out.Losses) != 1 || !strings.Contains(out.Losses[0].Why, test.why)) {
			t.Errorf("%s: %+v, want %q", test.name, out.Losses, test.why)
		}
	}
}

// Who may be held keeps his room: a pool with him and his successors would be one that the load balancer refuses.
func TestRoomForLosses(t *testing.T) {
	w := newWorld().pod(1, func(p *Pod) { p.Mappings = nil }).pod(2, nil).pod(3, nil).has(1, providers.Enabled).has(2, providers.Enabled)
	w.Capabilities.MaxMembers = 2
	out := Build(w.Input)
	if members(out) != "u2:61002 Enabled" || lost(out) != "u1:61001" || refused(out) != "web-1 NotPublished, web-3 PoolFull" {
		t.Errorf("%q, lost %q, refused %q", members(out), lost(out), refused(out))
	}
	w.apply()
	if got := members(Build(w.Input)); got != "u2:61002 Enabled, u3:61003 Enabled" {
		t.Errorf("once it is gone: %q", got)
	}
}

// But the last room is for who serves.
func TestLastRoom(t *testing.T) {
	unmapped := func(p *Pod) { p.Mappings = nil }
	w := newWorld().pod(1, unmapped).pod(2, unmapped).pod(3, nil).has(1, providers.Enabled).has(2, providers.Enabled)
	w.Capabilities.MaxMembers = 2
	if out := Build(w.Input); members(out) != "u3:61003 Enabled" || lost(out) != "u1:61001" {
		t.Errorf("%q, lost %q", members(out), lost(out))
	}
}

func TestRecoveryEnds(t *testing.T) {
	w := newWorld().pod(1, unready(time.Minute)).onNode(machine(1, func(n *Node) { n.ReadyChanged = now.Add(-time.Second) })).pod(2, nil).
		has(1, providers.Enabled).has(2, providers.Enabled)
	if got, want := Build(w.Input).Wake, now.Add(recovery-time.Second); !got.Equal(want) {
		t.Errorf("wake %s, want %s, when the Pod is to be ready again", got, want)
	}
}
