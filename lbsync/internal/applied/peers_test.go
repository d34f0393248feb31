package applied

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/onnode"
	"github.com/nplbridge/nplbridge/providers"
)

// said is all that a process says at once.
type said struct {
	Standing
	serves map[string]onnode.Served
	holds  []netip.Addr
}

// hear has g receive what a process says, the content first, written at a resourceVersion.
func hear(t *testing.T, g *Group, version string, s said, podUID string) {
	t.Helper()
	receive := func(m *corev1.ConfigMap) {
		m.ObjectMeta = metav1.ObjectMeta{ResourceVersion: version}
		if podUID != "" {
			m.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: s.Identity, UID: types.UID(podUID)}}
		}
		g.set(published(t, m))
	}
	if len(s.serves)+len(s.holds) > 0 {
		packed, digest := NewContent(s.Instance, s.Identity, s.Provider, s.serves, s.holds).Pack()
		s.Content = digest
		receive(&corev1.ConfigMap{BinaryData: map[string][]byte{ContentKey: packed}})
	}
	receive(&corev1.ConfigMap{Data: map[string]string{DataKey: Encode(s.Standing)}})
}

func published(t *testing.T, m *corev1.ConfigMap) *publication {
	t.Helper()
	p, err := read(m)
	if again, _ := read(p); err != nil || again != p {
		t.Fatalf("%v, read twice %v", err, again)
	}
	return p.(*publication)
}

// reporting is a loop with reports.
type reporting struct {
	standing
	reports map[model.ServiceKey]loop.Report
}

func (r *reporting) Reports() map[model.ServiceKey]loop.Report { return r.reports }

func TestWhatIsPublishedOfAPlace(t *testing.T) {
	held, other := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")
	port := func(vip netip.Addr) []loop.PortReport {
		return []loop.PortReport{{Key: providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP}, VIPs: []netip.Addr{vip}}}
	}
	source := &reporting{reports: map[model.ServiceKey]loop.Report{web: {Wanted: true, Ports: port(held)}, api: {Wanted: true, Ports: port(other)}, {Namespace: "a", Name: "b"}: {}}}
	for _, test := range []struct {
		node   string
		holds  func(netip.Addr) bool
		serves int
		has    []netip.Addr
	}{
		{"", nil, 0, nil},
		{"node-1", nil, 2, nil},
		{"", func(a netip.Addr) bool { return a == held }, 0, []netip.Addr{held}},
	} {
		serves, holds := (&Publisher{Node: test.node, Holds: test.holds}).confirmed(source)
		if len(serves) != test.serves || !slices.Equal(holds, test.has) {
			t.Errorf("%+v: %v, %v", test, serves, holds)
		}
	}
}

func TestPeers(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	told := map[model.ServiceKey]int{}
	g := &Group{
		Instance: "ns/lbsync", Identity: "one", Clock: clk, Log: zap.NewNop(), Tell: func(key model.ServiceKey) { told[key]++ },
		Keys:    func() []model.ServiceKey { return []model.ServiceKey{web, api} },
		Reached: func() map[string]string { return map[string]string{"haproxy": "100"} },
		Pod:     &metav1.OwnerReference{Kind: "Pod", Name: "one", UID: "uid-one"},
	}
	say := func(identity, podUID string, edit func(*said)) {
		t.Helper()
		s := said{Standing: Standing{Instance: "ns/lbsync", Identity: identity, Provider: "haproxy", Seen: "100", Node: "node-" + identity}}
		edit(&s)
		hear(t, g, "1", s, podUID)
	}
	g.tick()
	vip, here := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("198.51.100.12")
	serves := func(s *said) { s.serves = map[string]onnode.Served{web.String(): {At: []netip.Addr{here}}} }

	say("two", "other", serves)
	if told[web] != 1 || told[api] != 0 {
		t.Errorf("told %v, want web", told)
	}
	say("two", "other", serves)
	if told[web] != 1 {
		t.Errorf("told of nothing new: %v", told)
	}
	p := g.Peers("haproxy", web, "100")
	if len(p) != 1 || p[0].Node != "node-two" || p[0].Pod == nil || p[0].Pod.UID != "other" || p[0].Pending || !slices.Equal(p[0].Served.At, []netip.Addr{here}) {
		t.Errorf("%+v", p)
	}
	if g.Held("haproxy", vip) || len(g.Peers("other", web, "")) > 0 {
		t.Error("of nobody")
	}
	say("two", "other", func(s *said) { s.holds = []netip.Addr{vip} })
	if !g.Held("haproxy", vip) || g.Held("other", vip) || told[web] != 2 || told[api] != 1 {
		t.Errorf("an address that moved is held %v, told %v", g.Held("haproxy", vip), told)
	}

	say("two", "other", func(s *said) { s.Pending = []Pending{{web.String(), ""}} })
	if g.Behind("haproxy", web, "100") || !g.Behind("haproxy", api, "100") {
		t.Error("who names a Service is not only behind")
	}
	say("two", "other", func(s *said) { s.Seen = "99" })
	if pending, _ := g.Others("haproxy", web, "100"); len(pending) != 1 || !g.Behind("haproxy", web, "100") {
		t.Errorf("who has not seen as much is behind: %v", pending)
	}

	// What the process before us said counts, if it was in the same Pod; what comes after it is our own.
	say("one", "another", serves)
	if !g.Before("haproxy", web).Empty() {
		t.Error("of another Pod")
	}
	say("one", "uid-one", serves)
	say("one", "uid-one", func(*said) {})
	if got := g.Before("haproxy", web); !slices.Equal(got.At, []netip.Addr{here}) {
		t.Errorf("before us %+v", got)
	}
	if len(g.Peers("haproxy", web, "")) != 1 {
		t.Error("we are a peer of ours")
	}
	was := told[web]
	say("two", "other", serves)
	g.drop(g.others[process{"haproxy", "two"}].beat)
	if told[web] != was+2 || len(g.Peers("haproxy", web, "")) > 0 {
		t.Errorf("gone: told %d times, left %v", told[web]-was, g.Peers("haproxy", web, ""))
	}
	for range 4 {
		say("three", "", func(s *said) { s.holds = []netip.Addr{vip} })
		clk.Step(Interval)
		g.tick()
	}
	for range 3 {
		clk.Step(Interval)
		g.tick()
	}
	if g.Held("haproxy", vip) {
		t.Error("held by somebody of whom nothing is heard")
	}
}
