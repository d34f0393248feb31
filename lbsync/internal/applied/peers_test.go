package applied

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
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

func TestFormatOfWhatIsServed(t *testing.T) {
	long := strings.Repeat("x", 1000)
	in := stand
	in.Node, in.Holds = "node-2", []netip.Addr{netip.MustParseAddr("192.0.2.10")}
	in.Serves = map[string]onnode.Served{
		"shop/web": {At: []netip.Addr{netip.MustParseAddr("198.51.100.12")}},
		"shop/api": {Failed: []onnode.Failure{{Port: "80/TCP", Kind: providers.Rejected, Problem: long}}},
	}
	out, err := Decode(Encode(in))
	if err != nil || out.Node != in.Node || !slices.Equal(out.Holds, in.Holds) || !reflect.DeepEqual(out.Serves["shop/web"], in.Serves["shop/web"]) ||
		len(out.Serves["shop/api"].Failed[0].Problem) != 256 {
		t.Errorf("%+v, %v", out, err)
	}
	if in.Serves["shop/api"].Failed[0].Problem != long {
		t.Error("Encode changes its argument")
	}
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
		s := Standing{}
		(&Publisher{Node: test.node, Holds: test.holds}).addServed(&s, source)
		if s.Node != test.node || len(s.Serves) != test.serves || !slices.Equal(s.Holds, test.has) {
			t.Errorf("%+v: %+v", test, s)
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
	say := func(identity, podUID string, edit func(*Standing)) {
		s := Standing{Instance: "ns/lbsync", Identity: identity, Provider: "haproxy", Seen: "100", Node: "node-" + identity}
		edit(&s)
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "applied-" + identity}, Data: map[string]string{DataKey: Encode(s)}}
		if podUID != "" {
			m.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: identity, UID: types.UID(podUID)}}
		}
		g.set(m)
	}
	g.tick()
	vip, here := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("198.51.100.12")
	serves := func(s *Standing) { s.Serves = map[string]onnode.Served{web.String(): {At: []netip.Addr{here}}} }

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
	say("two", "other", func(s *Standing) { s.Holds = []netip.Addr{vip} })
	if !g.Held("haproxy", vip) || g.Held("other", vip) || told[web] != 2 || told[api] != 1 {
		t.Errorf("an address that moved is held %v, told %v", g.Held("haproxy", vip), told)
	}

	say("two", "other", func(s *Standing) { s.Pending = []Pending{{web.String(), ""}} })
	if g.Behind("haproxy", web, "100") || !g.Behind("haproxy", api, "100") {
		t.Error("who names a Service is not only behind")
	}
	say("two", "other", func(s *Standing) { s.Seen = "99" })
	if pending, _ := g.Others("haproxy", web, "100"); len(pending) != 1 || !g.Behind("haproxy", web, "100") {
		t.Errorf("who has not seen as much is behind: %v", pending)
	}

	// What the process before us said counts, if it was in the same Pod; what comes after it is our own.
	say("one", "another", serves)
	if !g.Before("haproxy", web).Empty() {
		t.Error("of another Pod")
	}
	say("one", "uid-one", serves)
	say("one", "uid-one", func(*Standing) {})
	if got := g.Before("haproxy", web); !slices.Equal(got.At, []netip.Addr{here}) {
		t.Errorf("before us %+v", got)
	}
	if len(g.Peers("haproxy", web, "")) != 1 {
		t.Error("we are a peer of ours")
	}
	was := told[web]
	say("two", "other", serves)
	g.drop("applied-two")
	if told[web] != was+2 || len(g.Peers("haproxy", web, "")) > 0 {
		t.Errorf("gone: told %d times, left %v", told[web]-was, g.Peers("haproxy", web, ""))
	}
	for range 4 {
		say("three", "", func(s *Standing) { s.Holds = []netip.Addr{vip} })
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
