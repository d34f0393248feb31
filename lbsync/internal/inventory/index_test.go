package inventory

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func testService(name, app string) model.Service {
	return model.Service{ServiceKey: model.ServiceKey{Namespace: "shop", Name: name}, UID: name, On: []string{"lb"}, Admitted: true,
		Selector: map[string]string{"app": app}}
}

func testPod(name, app, node string, port uint16) *model.Pod {
	p := &model.Pod{Namespace: "shop", Name: name, UID: name, Node: node, Labels: map[string]string{"app": app, "pod": name}}
	if port > 0 {
		p.Mappings = []npl.Mapping{{PodPort: 80, NodeIP: address(node), NodePort: port, Protocol: npl.TCP, Family: npl.IPv4}}
	}
	return p
}

func address(node string) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 0, 2, node[len(node)-1]})
}

func testNode(name string) *model.Node {
	return &model.Node{Name: name, Addresses: []netip.Addr{address(name)}}
}

func dirty(x *Feed) string {
	var out []string
	changed, _ := x.TakeDirty()
	for key := range changed {
		out = append(out, key.Name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// I8: a change costs the Services it concerns and no others.
func TestDirty(t *testing.T) {
	x := NewIndex().Feed(now)
	for _, name := range []string{"a", "b", "c"} {
		x.SetService(testService(name, name), now)
	}
	x.SetService(testService("a2", "a"), now)
	foreign := testService("foreign", "a")
	foreign.On, foreign.Admitted = nil, false
	x.SetService(foreign, now)
	x.SetNode(testNode("n1"), now)
	x.SetNode(testNode("n2"), now)
	x.TakeDirty()
	malformed := testPod("p4", "c", "n1", 0)
	malformed.Malformed = "nonsense"
	moved := testService("c", "b")
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"a Pod", func() { x.SetPod(testPod("p1", "a", "n1", 1), now) }, "a a2"},
		{"the same again", func() { x.SetPod(testPod("p1", "a", "n1", 1), now) }, ""},
		{"a Pod nobody selects", func() { x.SetPod(testPod("p9", "z", "n1", 9), now) }, ""},
		{"another Pod", func() { x.SetPod(testPod("p2", "b", "n2", 1), now) }, "b"},
		{"the same port on the same Node", func() { x.SetPod(testPod("p3", "c", "n1", 1), now) }, "a a2 c"},
		{"and gone again", func() { x.DeletePod("shop", "p3", true, now) }, "a a2 c"},
		{"its annotation changed", func() { x.SetPod(testPod("p1", "a", "n1", 2), now) }, "a a2"},
		{"its labels changed", func() { x.SetPod(testPod("p1", "b", "n1", 2), now) }, "a a2 b"},
		{"a Node's address changed", func() { x.SetNode(&model.Node{Name: "n1", Addresses: []netip.Addr{address("n7")}}, now) }, "b"},
		{"the same Node again", func() { x.SetNode(&model.Node{Name: "n1", Addresses: []netip.Addr{address("n7")}}, now) }, ""},
		{"a Node gone", func() { x.DeleteNode("n1", true, now) }, "b"},
		{"a Node back", func() { x.SetNode(testNode("n1"), now) }, "b"},
		{"a malformed Pod", func() { x.SetPod(malformed, now) }, "c"},
		{"a claim beside it", func() { x.SetPod(testPod("p1", "b", "n1", 3), now) }, "b c"},
		{"a selector changed", func() { x.SetService(moved, now) }, "c"},
		{"a Pod of the new selector", func() { x.DeletePod("shop", "p2", true, now) }, "b c"},
		{"a Service gone", func() { x.DeleteService(moved.ServiceKey, true, now) }, "c"},
		{"a foreign Service", func() { x.SetService(foreign, now) }, ""},
	} {
		step.do()
		if got := dirty(x); got != step.want {
			t.Errorf("%s: dirty %q, want %q", step.name, got, step.want)
		}
	}
}

func TestSharedVIP(t *testing.T) {
	x := NewIndex().Feed(now)
	vip := []netip.Addr{netip.MustParseAddr("198.51.100.1")}
	older, newer := testService("older", "a"), testService("newer", "b")
	older.VIPs, newer.VIPs, newer.Created = map[string][]netip.Addr{"lb": vip}, map[string][]netip.Addr{"lb": vip}, now
	x.SetService(newer, now)
	if v, _ := x.View(newer.ServiceKey); len(v.Service.VIPs["lb"]) != 1 {
		t.Error("alone, it does not have its address")
	}
	x.TakeDirty()
	x.SetService(older, now)
	if got := dirty(x); got != "newer older" {
		t.Errorf("dirty %q, want both", got)
	}
	if v, _ := x.View(newer.ServiceKey); len(v.Service.VIPs["lb"]) != 0 {
		t.Error("the newer Service has the older one's address")
	}
	if v, _ := x.View(older.ServiceKey); len(v.Service.VIPs["lb"]) != 1 {
		t.Error("the older Service lost its address")
	}
}

// I6: an emptiness that nobody saw come about is not believed.
func TestBelievable(t *testing.T) {
	x := NewIndex().Feed(now)
	if x.Believable() {
		t.Error("nothing at all is believed")
	}
	x.SetService(testService("a", "a"), now)
	x.SetNode(testNode("n1"), now)
	if x.Believable() {
		t.Error("a cluster without Pods is believed, though nobody saw them go")
	}
	x.SetPod(testPod("p1", "a", "n1", 1), now)
	if !x.Believable() {
		t.Error("a whole cluster is not believed")
	}
	x.DeletePod("shop", "p1", false, now)
	if x.Believable() {
		t.Error("the last Pod was missing from a list, and that is believed")
	}
	x.SetPod(testPod("p1", "a", "n1", 1), now)
	x.DeletePod("shop", "p1", true, now)
	if !x.Believable() {
		t.Error("the last Pod was seen to be deleted, and that is not believed")
	}
}

// What an annotation had is remembered for as long as its members may stay, and no longer.
func TestWithdrawn(t *testing.T) {
	x := NewIndex().Feed(now)
	x.SetService(testService("a", "a"), now)
	x.SetNode(testNode("n1"), now)
	withdrawn := func(at time.Time, p *model.Pod) int {
		x.SetPod(p, at)
		v, _ := x.View(model.ServiceKey{Namespace: "shop", Name: "a"})
		return len(v.Endpoints[0].Pod.Withdrawn)
	}
	for _, step := range []struct {
		name string
		at   time.Duration
		pod  *model.Pod
		want int
	}{
		{"published", 0, testPod("p1", "a", "n1", 61001), 0},
		{"moved", time.Second, testPod("p1", "a", "n1", 61002), 1},
		{"withdrawn", 2 * time.Second, testPod("p1", "a", "n1", 0), 2},
		{"the second is back", 3 * time.Second, testPod("p1", "a", "n1", 61002), 1},
		{"too long ago", model.WithdrawGrace + time.Second, testPod("p1", "a", "n1", 61002), 0},
		{"withdrawn again", 2 * model.WithdrawGrace, testPod("p1", "a", "n1", 0), 1},
		{"another Pod of that name", 2*model.WithdrawGrace + 1, &model.Pod{Namespace: "shop", Name: "p1", UID: "new", Node: "n1", Labels: map[string]string{"app": "a"}}, 0},
	} {
		if got := withdrawn(now.Add(step.at), step.pod); got != step.want {
			t.Errorf("%s: %d withdrawn mappings, want %d", step.name, got, step.want)
		}
	}
}
