package inventory

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// A Node costs the Services whose Pods it carries, and those whose members are Nodes; labels cost only the latter.
func TestDirtyByNode(t *testing.T) {
	x := NewIndex().Feed(now)
	for _, name := range []string{"a", "b"} {
		x.SetService(testService(name, name), now)
	}
	onNodes := testService("nodes", "z")
	onNodes.Source = annotations.NodePort
	x.SetService(onNodes, now)
	x.SetPod(testPod("p1", "a", "n1", 1), now)
	x.SetPod(testPod("p2", "b", "n2", 1), now)
	n := *testNode("n1")
	set := func(edit func(*model.Node)) func() {
		return func() {
			edit(&n)
			next := n
			x.SetNode(&next, now)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"it comes", set(func(*model.Node) {}), "a nodes"},
		{"the same again", set(func(*model.Node) {}), ""},
		{"labels", set(func(n *model.Node) { n.Labels = map[string]string{"zone": "a"} }), "nodes"},
		{"not ready", set(func(n *model.Node) { n.NotReady, n.ReadyChanged = true, now }), "a nodes"},
		{"excluded", set(func(n *model.Node) { n.Excluded = true }), "a nodes"},
		{"drained", set(func(n *model.Node) { n.Draining = true }), "a nodes"},
		{"an address", set(func(n *model.Node) { n.Addresses = []netip.Addr{address("n7")} }), "a nodes"},
		{"an internal address", set(func(n *model.Node) { n.Internal = n.Addresses }), "a nodes"},
		{"replaced", set(func(n *model.Node) { n.UID = "new" }), "a nodes"},
		{"a Node without Pods", func() { x.SetNode(testNode("n3"), now) }, "nodes"},
		{"it goes", func() { x.DeleteNode("n3", true, now) }, "nodes"},
		{"the Service has Pods for members", func() {
			onPods := onNodes
			onPods.Source = annotations.NodePortLocal
			x.SetService(onPods, now)
		}, "nodes"},
		{"labels, which no Service cares for", set(func(n *model.Node) { n.Labels = nil }), ""},
	} {
		x.TakeDirty()
		step.do()
		if got := dirty(x); got != step.want {
			t.Errorf("%s: dirty %q, want %q", step.name, got, step.want)
		}
	}
}

// Of a Service whose members are Nodes, the View has all of them.
func TestViewOfNodes(t *testing.T) {
	x := NewIndex()
	onNodes := testService("nodes", "z")
	onNodes.Source = annotations.NodePort
	x.SetService(onNodes, now)
	x.SetService(testService("pods", "z"), now)
	x.SetPod(testPod("p1", "z", "unknown", 0), now)
	names := func(service string) (out []string) {
		v, _ := x.View(model.ServiceKey{Namespace: "shop", Name: service})
		for _, n := range v.Nodes {
			out = append(out, n.Name)
		}
		return out
	}
	for _, n := range []string{"n2", "n1", "n3"} {
		x.SetNode(testNode(n), now)
	}
	if got := names("nodes"); !slices.Equal(got, []string{"n1", "n2", "n3"}) || names("pods") != nil {
		t.Errorf("%v and %v, want the three, and none", got, names("pods"))
	}
	x.DeleteNode("n2", true, now)
	if got := names("nodes"); !slices.Equal(got, []string{"n1", "n3"}) {
		t.Errorf("%v after n2 went", got)
	}
}

// A loss is known as one for an hour; what was seen to go, and what was never there, is gone.
func TestFate(t *testing.T) {
	x := NewIndex()
	fates := func() (out []model.Fate) {
		for _, uid := range []string{"kept", "deleted", "lost", "replaced", "never"} {
			out = append(out, x.Fate(uid))
		}
		return out
	}
	pods := podTarget{x, fixed(now), func(PodKey) {}}
	list := func(names ...string) map[string]*model.Pod {
		out := map[string]*model.Pod{}
		for _, name := range names {
			out[name] = testPod(name, "a", "n1", 0)
		}
		return out
	}
	replace := func(at time.Time, pods map[string]*model.Pod) {
		podTarget{x, fixed(at), func(PodKey) {}}.replace(named(pods), "2")
	}
	pods.replace(named(list("kept", "deleted", "lost", "replaced")), "1")
	pods.gone(nameOf("deleted"), "2")
	again := list("kept", "replaced")
	again["replaced"].UID = "another"
	replace(now, again)
	const gone, present, lost = model.Gone, model.Present, model.Lost
	if got := fates(); !slices.Equal(got, []model.Fate{present, gone, lost, gone, gone}) {
		t.Errorf("fates %v", got)
	}
	later := podTarget{x, fixed(now.Add(memory - time.Second)), func(PodKey) {}}
	if later.reached("3"); x.Fate("lost") != lost {
		t.Error("forgotten before the hour is over")
	}
	later.clock = fixed(now.Add(memory))
	if later.reached("4"); x.Fate("lost") != gone {
		t.Error("not forgotten after an hour")
	}
	replace(now.Add(memory), list("lost"))
	replace(now.Add(memory), list())
	replace(now.Add(memory), list("lost"))
	if got := x.Fate("lost"); got != present {
		t.Errorf("%v though it is back", got)
	}
	if len(x.lost.at) != 2 { // kept, and replaced's successor
		t.Errorf("losses %v", x.lost.at)
	}
}

// Only a deletion that was seen says that a Node is gone.
func TestNodeGone(t *testing.T) {
	x := NewIndex()
	x.SetService(testService("a", "a"), now)
	x.SetPod(testPod("p1", "a", "n1", 1), now)
	endpoint := func() model.Endpoint {
		v, _ := x.View(model.ServiceKey{Namespace: "shop", Name: "a"})
		return v.Endpoints[0]
	}
	nodes := nodeTarget{x, fixed(now)}
	for _, step := range []struct {
		name        string
		do          func()
		known, gone bool
	}{
		{"not there yet", func() {}, false, false},
		{"there", func() { nodes.set(testNode("n1"), "1") }, true, false},
		{"missing from a list", func() { nodes.replace(nil, "2") }, false, false},
		{"there again", func() { nodes.set(testNode("n1"), "3") }, true, false},
		{"without addresses", func() { nodes.set(&model.Node{Name: "n1"}, "4") }, false, false},
		{"deleted", func() { nodes.gone(nameOf("n1"), "5") }, false, true},
		{"still, after a list", func() { nodes.replace(nil, "6") }, false, true},
		{"its Pod moves on", func() { x.SetPod(testPod("p1", "a", "n2", 1), now) }, false, false},
		{"a Pod says it is on it, which we hear late", func() { x.SetPod(testPod("p1", "a", "n1", 1), now) }, false, true},
		{"a new one of that name", func() { nodes.set(testNode("n1"), "7") }, true, false},
	} {
		step.do()
		if e := endpoint(); (e.Node != nil) != step.known || e.NodeGone != step.gone {
			t.Errorf("%s: Node %v, gone %t; want known %t, gone %t", step.name, e.Node, e.NodeGone, step.known, step.gone)
		}
	}
}

// What is written wrong leaves what was right.
func TestProblemsKeepWhatWas(t *testing.T) {
	x := NewIndex()
	x.SetService(testService("a", "a"), now)
	problem := []annotations.Problem{{Key: "k"}}
	pod := func(uid string, weight uint8, problems []annotations.Problem) uint8 {
		p := testPod("p1", "a", "n1", 1)
		p.UID, p.Weight, p.Problems = uid, weight, problems
		x.SetPod(p, now)
		v, _ := x.View(model.ServiceKey{Namespace: "shop", Name: "a"})
		return v.Endpoints[0].Pod.Weight
	}
	node := func(draining bool, problems []annotations.Problem) bool {
		n := testNode("n1")
		n.Draining, n.Problems = draining, problems
		x.SetNode(n, now)
		v, _ := x.View(model.ServiceKey{Namespace: "shop", Name: "a"})
		return v.Endpoints[0].Node.Draining
	}
	if pod("u", 0, problem) != 0 || pod("u", 5, nil) != 5 || pod("u", 0, problem) != 5 || pod("u", 0, nil) != 0 {
		t.Error("a weight that cannot be read does not leave the last one")
	}
	if pod("u", 5, nil) != 5 || pod("new", 0, problem) != 0 {
		t.Error("another Pod has the weight of one that had its name")
	}
	if node(false, problem) || !node(true, nil) || !node(false, problem) || node(false, nil) {
		t.Error("a drain that cannot be read does not leave the last one")
	}
}

// Services of a group have an address together as long as their ports differ.
func TestSharedVIPGroup(t *testing.T) {
	vip := netip.MustParseAddr("198.51.100.1")
	for _, test := range []struct {
		name string
		edit func(older, newer *model.Service)
		kept bool
	}{
		{"of one group", func(_, _ *model.Service) {}, true},
		{"of no group", func(a, b *model.Service) { a.Wishes.SharedVIP, b.Wishes.SharedVIP = "", "" }, false},
		{"of two groups", func(_, b *model.Service) { b.Wishes.SharedVIP = "h" }, false},
		{"of two Namespaces", func(_, b *model.Service) { b.Namespace = "bank" }, false},
		{"on the same port", func(_, b *model.Service) { b.Ports[0].Port = 80 }, false},
		{"on the same port with another protocol", func(_, b *model.Service) { b.Ports[0].Port, b.Ports[0].Protocol = 80, "UDP" }, true},
		{"on two load balancers", func(a, _ *model.Service) { a.VIPs = map[string][]netip.Addr{"other": {vip}} }, false},
		{"and the other is not ours", func(a, b *model.Service) { a.On, b.Wishes.SharedVIP = nil, "" }, true},
	} {
		older, newer := testService("older", "a"), testService("newer", "b")
		for i, s := range []*model.Service{&older, &newer} {
			s.VIPs, s.Wishes.SharedVIP = map[string][]netip.Addr{"lb": {vip}}, "g"
			s.Ports = []model.ServicePort{{Port: uint16(80 + i), Protocol: "TCP"}}
		}
		newer.Created = now
		test.edit(&older, &newer)
		x := NewIndex()
		x.SetService(older, now)
		x.SetService(newer, now)
		if v, _ := x.View(newer.ServiceKey); (len(v.Service.VIPs["lb"]) == 1) != test.kept {
			t.Errorf("%s: the newer has %v", test.name, v.Service.VIPs)
		}
	}
}

// The Pods that wait for our readiness gate are known, with the Services of ours that select them, and each event about them is told.
func TestGated(t *testing.T) {
	x := NewIndex()
	var told []string
	pods := podTarget{x, fixed(now), func(k PodKey) { told = append(told, k.Name) }}
	foreign := testService("foreign", "a")
	foreign.On, foreign.Admitted = nil, false
	for _, s := range []model.Service{testService("b", "a"), testService("a", "a"), foreign} {
		x.SetService(s, now)
	}
	gated := func(name string, is bool) *model.Pod {
		p := testPod(name, "a", "n1", 1)
		p.Gated = is
		return p
	}
	for _, step := range []struct {
		name string
		do   func()
		told []string
		want []PodKey
	}{
		{"one without the gate", func() { pods.set(gated("p0", false), "1") }, nil, []PodKey{}},
		{"one that waits", func() { pods.set(gated("p2", true), "2") }, []string{"p2"}, []PodKey{{"shop", "p2"}}},
		{"the same again", func() { pods.set(gated("p2", true), "3") }, []string{"p2"}, []PodKey{{"shop", "p2"}}},
		{"another", func() { pods.set(gated("p1", true), "4") }, []string{"p1"}, []PodKey{{"shop", "p1"}, {"shop", "p2"}}},
		{"the gate is True", func() { pods.set(gated("p2", false), "5") }, []string{"p2"}, []PodKey{{"shop", "p1"}}},
		{"deleted", func() { pods.gone(nameOf("p1"), "6") }, []string{"p1"}, []PodKey{}},
		{"deleted without a gate", func() { pods.gone(nameOf("p0"), "7") }, nil, []PodKey{}},
		{"a list", func() { pods.replace(named(map[string]*model.Pod{"p3": gated("p3", true)}), "8") }, []string{"p3"}, []PodKey{{"shop", "p3"}}},
		{"an empty list", func() { pods.replace(nil, "9") }, []string{"p3"}, []PodKey{}},
	} {
		told = nil
		step.do()
		if got := x.GatedPods(); !slices.Equal(told, step.told) || !slices.Equal(got, step.want) {
			t.Errorf("%s: told %v, waiting %v; want %v and %v", step.name, told, got, step.told, step.want)
		}
	}
	pods.set(gated("p2", true), "10")
	g, ok := x.GatedPod(PodKey{"shop", "p2"})
	if !ok || g.Pod.Name != "p2" || len(g.Services) != 2 || g.Services[0].Name != "a" || g.Services[1].Name != "b" {
		t.Errorf("%v, %t", g, ok)
	}
	if _, ok := x.GatedPod(PodKey{"shop", "p0"}); ok {
		t.Error("a Pod that is not there waits")
	}
}

// What is dirty and the resourceVersion that it rests on are one answer.
func TestSeen(t *testing.T) {
	x := NewIndex().Feed(now)
	x.SetService(testService("a", "a"), now)
	x.TakeDirty()
	pods := podTarget{x.Index, fixed(now), func(PodKey) {}}
	pod := func(port uint16) *model.Pod { return testPod("p1", "a", "n1", port) }
	list := named(map[string]*model.Pod{"p1": pod(1)})
	for _, step := range []struct {
		name        string
		do          func()
		dirty, seen string
	}{
		{"an event before the first list", func() { pods.set(pod(1), "5") }, "a", ""},
		{"a list", func() { pods.replace(list, "10") }, "", "10"},
		{"an event", func() { pods.set(pod(2), "11") }, "a", "11"},
		{"an event that changes nothing", func() { pods.set(pod(2), "12") }, "", "12"},
		{"a bookmark", func() { pods.reached("100") }, "", "100"},
		{"an older one", func() { pods.reached("99") }, "", "100"},
		{"a deletion", func() { pods.gone(nameOf("p1"), "101") }, "a", "101"},
		{"no version", func() { pods.reached("") }, "", "101"},
		{"nonsense", func() { pods.reached("x") }, "", "101"},
		{"a list from a backup", func() { pods.replace(list, "50") }, "a", "50"},
		{"a list without a version", func() { pods.replace(list, "") }, "", ""},
		{"the watch after it, which begins with what there is", func() { pods.set(pod(3), "40") }, "a", ""},
		{"and is through", func() { pods.reached("60") }, "", "60"},
	} {
		step.do()
		changed, seen := x.TakeDirty()
		got := ""
		for key := range changed {
			got += key.Name
		}
		if got != step.dirty || seen != step.seen {
			t.Errorf("%s: dirty %q, seen %q; want %q, %q", step.name, got, seen, step.dirty, step.seen)
		}
	}
}

// A Pod that gets one more port keeps its claim on the one it has, and nobody who shares that is bothered.
func TestClaimsThatStay(t *testing.T) {
	x := NewIndex().Feed(now)
	x.SetNode(testNode("n1"), now)
	for _, app := range []string{"a", "b"} {
		x.SetService(testService(app, app), now)
		x.SetPod(testPod("p-"+app, app, "n1", 1), now)
	}
	more := testPod("p-a", "a", "n1", 1)
	second := more.Mappings[0]
	second.PodPort, second.NodePort = 81, 2
	more.Mappings = append(more.Mappings, second)
	claim := model.Claims(more, testNode("n1"))[0]
	x.TakeDirty()
	for _, p := range []*model.Pod{more, testPod("p-a", "a", "n1", 1)} {
		x.SetPod(p, now)
		if got := dirty(x); got != "a" {
			t.Errorf("dirty %q, want a", got)
		}
		if a, b := x.Claimants(claim, "p-b"), x.Claimants(claim, "p-a"); !slices.Equal(a, []string{"shop/p-a"}) || !slices.Equal(b, []string{"shop/p-b"}) {
			t.Errorf("claimed by %v and %v", a, b)
		}
	}
}
