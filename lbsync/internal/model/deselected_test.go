package model

import (
	"fmt"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
)

// deselected takes the latest Pod out of the Service, so long ago.
func (w *world) deselected(ago time.Duration) *world {
	last := len(w.Endpoints) - 1
	w.Deselected = append(w.Deselected, Deselected{w.Endpoints[last], now.Add(-ago)})
	w.Endpoints = w.Endpoints[:last]
	return w
}

// A live Pod that an edit of labels or of the selector took out drains as any other that leaves, for as long as its member leads to it.
func TestDeselected(t *testing.T) {
	const enabled, draining = providers.Enabled, providers.Draining
	unmapped := func(p *Pod) { p.Mappings = nil }
	// one has a member, and the Service selects another Pod.
	one := func(edit func(*Pod), ago time.Duration) *world {
		return newWorld().pod(1, edit).deselected(ago).pod(2, nil).has(1, enabled).has(2, enabled)
	}
	const alone, beside = "u2:61002 Enabled", "u1:61001 Draining, u2:61002 Enabled"
	checkMembers(t, []memberCase{
		{"drains", one(nil, 0), beside, ""},
		{"drains, though it has no connection yet", one(nil, 0).connections(1, 0), beside, ""},
		{"one connection left", one(nil, 0).with(func(w *world) { w.Current[key].Members[0].State = draining }).connections(1, 1), beside, ""},
		{"drained", one(nil, 0).with(func(w *world) { w.Current[key].Members[0].State = draining }).connections(1, 0), alone, ""},
		{"just before the grace is over", one(nil, WithdrawGrace-1), beside, ""},
		{"the grace is over", one(nil, WithdrawGrace), alone, ""},
		{"the limit of the Service is shorter", one(nil, 5*time.Second).with(func(w *world) { w.DrainLimit = 5 * time.Second }), alone, ""},
		{"never enters", newWorld().pod(1, nil).deselected(0).pod(2, nil).has(2, enabled), alone, ""},
		{"not ready", one(unready(time.Hour), 0), beside, ""},
		{"terminating", one(terminating(time.Second), 0), beside, ""},
		{"finished", one(func(p *Pod) { p.Finished = true }, 0), alone, ""},
		{"no longer published", one(withdrawn(time.Second), 0), beside, ""},
		{"no longer published for as long as npl-agent forwards", one(withdrawn(WithdrawGrace), 0), alone, ""},
		{"nobody knows what became of its mapping", one(unmapped, 0), alone, ""},
		{"malformed", one(func(p *Pod) { p.Mappings, p.Malformed = nil, malformed }, 0), alone, ""},
		{"another node port", one(func(p *Pod) { p.Mappings[0].NodePort = 61005 }, 0), alone, ""},
		{"another node port, the old one withdrawn", one(moved(time.Second), 0), beside, ""},
		{"another Pod port", one(func(p *Pod) { p.Mappings[0].PodPort = 9090 }, 0), alone, ""},
		{"another Pod port at the same node port", one(func(p *Pod) {
			p.Withdrawn = []Withdrawal{{p.Mappings[0], now}}
			p.Mappings = []npl.Mapping{{PodPort: 9090, NodeIP: nodeIP, NodePort: 61001, Protocol: npl.TCP, Family: npl.IPv4}}
		}, 0), alone, ""},
		{"another targetPort", one(nil, 0).with(func(w *world) { w.Service.Ports[0].TargetNumber = 9090; w.Endpoints[0].Pod.Mappings[0].PodPort = 9090 }), alone, ""},
		{"a named targetPort that it does not have", one(nil, 0).with(func(w *world) {
			w.Service.Ports[0].TargetNumber, w.Service.Ports[0].TargetName = 0, "http"
			w.Endpoints[0].Pod.Ports = []ContainerPort{{"http", providers.TCP, 8080}}
		}), alone, ""},
		{"another protocol", one(func(p *Pod) { p.Mappings[0].Protocol = npl.UDP }, 0), alone, ""},
		{"another family", one(nil, 0).with(func(w *world) { w.Service.Families = []npl.Family{npl.IPv6} }), "", "web-2 NotPublished"},
		{"its Node has another address", one(nil, 0).with(func(w *world) { w.Deselected[0].Node = machine(2) }), alone, ""},
		{"its Node has another address, withdrawn", one(withdrawn(0), 0).with(func(w *world) { w.Deselected[0].Node = machine(2) }), alone, ""},
		{"its Node is not known", one(nil, 0).with(func(w *world) { w.Deselected[0].Node = nil }), alone, ""},
		{"its Node was deleted", one(nil, 0).with(func(w *world) { w.Deselected[0].NodeGone = true }), alone, ""},
		{"another Pod claims it", one(nil, 0).with(steal), alone, ""},
		{"another Pod claims it, withdrawn", one(withdrawn(0), 0).with(func(w *world) {
			w.claim(&Pod{Namespace: "other", Name: "next", UID: "x", Mappings: []npl.Mapping{w.Deselected[0].Pod.Withdrawn[0].Mapping}})
		}), alone, ""},
		{"the Service selects no Pod", newWorld().pod(1, nil).deselected(0).has(1, enabled), "u1:61001 Draining", ""},
		{"no room", one(nil, 0).with(func(w *world) { w.Capabilities.MaxMembers = 1 }), alone, ""},

		{"its own address", newWorld().pod(1, withIP(1)).deselected(0).pod(2, withIP(2)).with(byAddress).hasAddress(1, enabled).hasAddress(2, enabled),
			"u1:8080 Draining, u2:8080 Enabled", ""},
		{"not its own address any more", newWorld().pod(1, withIP(3)).deselected(0).pod(2, withIP(2)).with(byAddress).hasAddress(1, enabled).hasAddress(2, enabled),
			"u2:8080 Enabled", ""},
		{"its own address, and another port", newWorld().pod(1, withIP(1)).deselected(0).with(byAddress).hasAddress(1, enabled).
			with(func(w *world) { w.Service.Ports[0].TargetNumber = 9090 }), "", ""},
		{"its node port, where addresses are members", newWorld().pod(1, withIP(1)).deselected(0).pod(2, withIP(2)).with(byAddress).has(1, enabled),
			"u2:8080 Enabled", ""},
		{"its node port, where Nodes are members", newWorld().pod(1, nil).deselected(0).onNodes(machine(1)).has(1, enabled).hasNode(1, enabled),
			"n1:30080 Enabled, u1:61001 Draining", ""},
	})
}

// steal has another Pod claim the node port of the first deselected one.
func steal(w *world) {
	w.claim(&Pod{Namespace: "other", Name: "thief", UID: "x", Mappings: w.Deselected[0].Pod.Mappings})
}

// Pods that have no node port yet take over from Pods that the Service does not select any more: until then the old ones stay, but not for
// ever, and only if there is anything to wait for.
func TestDeselectedAreBetterThanAnEmptyPool(t *testing.T) {
	const enabled, draining = providers.Enabled, providers.Draining
	unmapped := func(p *Pod) { p.Mappings = nil }
	// one has a member, and the Service selects another Pod, which has none.
	one := func(edit, next func(*Pod), ago time.Duration) *world {
		return newWorld().pod(1, edit).deselected(ago).pod(2, next).has(1, enabled)
	}
	const spare = WithdrawGrace - withdrawDrain
	checkMembers(t, []memberCase{
		{"the next has no node port yet", one(nil, unmapped, 0), "u1:61001 Enabled", "web-2 NotPublished"},
		{"the next enters", one(nil, nil, 0), "u1:61001 Draining, u2:61002 Enabled", ""},
		{"the old one's is withdrawn", one(withdrawn(time.Second), unmapped, 0), "u1:61001 Enabled", "web-2 NotPublished"},
		{"all the old ones", one(nil, unmapped, 0).pod(3, nil).deselected(0).has(3, enabled), "u1:61001 Enabled, u3:61003 Enabled", "web-2 NotPublished"},
		{"but none that is not ready", one(unready(0), unmapped, 0), "u1:61001 Draining", "web-2 NotPublished"},
		{"unless it is wanted so", one(unready(0), both(unready(0), unmapped), 0).with(func(w *world) { w.Service.PublishNotReady = true }),
			"u1:61001 Enabled", "web-2 NotPublished"},
		{"it terminates, and still answers", one(terminating(time.Second), unmapped, 0), "u1:61001 Enabled", "web-2 NotPublished"},
		{"nor one that drains already", newWorld().pod(1, nil).deselected(0).pod(2, unmapped).has(1, draining), "u1:61001 Draining", "web-2 NotPublished"},
		{"nor one that another Pod claims", one(nil, unmapped, 0).with(steal), "", "web-2 NotPublished"},
		{"the next is not ready: kube-proxy would have nobody, either", one(nil, both(unready(0), unmapped), 0), "u1:61001 Draining", ""},
		{"the next is not ready, and has a node port", one(nil, unready(0), 0), "u1:61001 Draining", ""},
		{"the next has finished", one(nil, func(p *Pod) { p.Finished = true }, 0), "u1:61001 Draining", ""},
		{"just before the last seconds", one(nil, unmapped, spare-1), "u1:61001 Enabled", "web-2 NotPublished"},
		{"the last seconds are for its connections", one(nil, unmapped, spare), "u1:61001 Draining", "web-2 NotPublished"},
		{"the last seconds of what is withdrawn", one(withdrawn(spare), unmapped, 0), "u1:61001 Draining", "web-2 NotPublished"},
		{"the grace is over", one(nil, unmapped, WithdrawGrace), "", "web-2 NotPublished"},
		{"of a short limit a quarter", one(nil, unmapped, 3*time.Second).with(func(w *world) { w.DrainLimit = 4 * time.Second }), "u1:61001 Draining", "web-2 NotPublished"},
		{"what is selected and terminates is better", one(nil, terminating(0), 0).has(2, enabled), "u1:61001 Draining, u2:61002 Enabled", ""},
		{"what is selected and withdrawn is better", one(nil, withdrawn(0), 0).has(2, enabled), "u1:61001 Draining, u2:61002 Enabled", "web-2 NotPublished"},
		{"what is of the source before is better", afterNodes().pod(1, nil).deselected(0).pod(2, unmapped).has(1, enabled).hasNode(1, enabled),
			"n1:30080 Enabled, u1:61001 Draining", "web-2 NotPublished"},
		{"where Nodes are members, and there is none", newWorld().pod(1, nil).deselected(0).pod(2, nil).onNodes().has(1, enabled), "u1:61001 Enabled", ""},
		{"its own address", newWorld().pod(1, withIP(1)).deselected(0).pod(2, nil).with(byAddress).hasAddress(1, enabled), "u1:8080 Enabled", "web-2 NoAddress"},
	})
}

// The first moment of a Pod that is not selected is a date that nobody else keeps, so it decides when to look again.
func TestDeselectedWakes(t *testing.T) {
	w := newWorld().pod(1, nil).deselected(time.Second).pod(2, func(p *Pod) { p.Mappings = nil }).has(1, providers.Enabled)
	if got, want := Build(w.Input).Wake, now.Add(WithdrawGrace-withdrawDrain-time.Second); !got.Equal(want) {
		t.Errorf("Wake %s, want %s, when it begins to drain", got, want)
	}
	w = newWorld().pod(1, nil).deselected(time.Second).pod(2, nil).has(1, providers.Draining).has(2, providers.Enabled)
	if got, want := Build(w.Input).Wake, now.Add(WithdrawGrace-time.Second); !got.Equal(want) {
		t.Errorf("Wake %s, want %s, when it leaves", got, want)
	}
}

// Whatever becomes of it, an edit explains it: the guard holds none.
func TestDeselectedAreNoLosses(t *testing.T) {
	unmapped := func(p *Pod) { p.Mappings = nil }
	for name, w := range map[string]*world{
		"drains":     newWorld().pod(1, nil).deselected(0).pod(2, nil),
		"stays":      newWorld().pod(1, nil).deselected(0).pod(2, unmapped),
		"withdrawn":  newWorld().pod(1, withdrawn(0)).deselected(0).pod(2, unmapped),
		"vanished":   newWorld().pod(1, unmapped).deselected(0).pod(2, unmapped),
		"leaves":     newWorld().pod(1, nil).deselected(WithdrawGrace).pod(2, nil),
		"of nothing": newWorld().pod(1, nil).deselected(0),
	} {
		if out := Build(w.has(1, providers.Enabled).fate(map[string]Fate{"u1": Present}).Input); len(out.Losses) > 0 {
			t.Errorf("%s: %+v", name, out.Losses)
		}
	}
}

// From blue to green and, before blue has left, back again, one step at a time.
func TestBlueGreenStepByStep(t *testing.T) {
	published := func(n int) []npl.Mapping {
		return []npl.Mapping{{PodPort: 8080, NodeIP: nodeIP, NodePort: uint16(61000 + n), Protocol: npl.TCP, Family: npl.IPv4}}
	}
	w := newWorld().pod(1, nil).pod(2, nil)
	blue := w.Endpoints
	green := newWorld().pod(3, nil).pod(4, nil).Endpoints
	for _, e := range green {
		e.Pod.Mappings = nil
	}
	var got []string
	step := func() { got = append(got, members(w.apply())) }
	turn := func(to, from []Endpoint) {
		w.Endpoints, w.Deselected = to, nil
		for _, e := range from {
			w.Deselected = append(w.Deselected, Deselected{e, w.Now})
		}
	}
	step()
	turn(green, blue)
	step()
	for _, e := range blue { // npl-agent finds out
		e.Pod.Withdrawn, e.Pod.Mappings = []Withdrawal{{e.Pod.Mappings[0], w.Now}}, nil
	}
	step()
	green[1].Pod.Mappings = published(4)
	step()
	green[0].Pod.Mappings = published(3)
	step()
	turn(blue, green)
	step() // blue has no node ports now, and npl-agent still forwards
	for n, e := range blue {
		e.Pod.Mappings, e.Pod.Withdrawn = published(n+1), nil
	}
	step()
	w.Now = w.Now.Add(WithdrawGrace)
	step()
	want := []string{
		"u1:61001 Enabled, u2:61002 Enabled",
		"u1:61001 Enabled, u2:61002 Enabled",
		"u1:61001 Enabled, u2:61002 Enabled",
		"u1:61001 Draining, u2:61002 Draining, u4:61004 Enabled",
		"u1:61001 Draining, u2:61002 Draining, u3:61003 Enabled, u4:61004 Enabled",
		"u1:61001 Enabled, u2:61002 Enabled, u3:61003 Draining, u4:61004 Draining",
		"u1:61001 Enabled, u2:61002 Enabled, u3:61003 Draining, u4:61004 Draining",
		"u1:61001 Enabled, u2:61002 Enabled",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}
