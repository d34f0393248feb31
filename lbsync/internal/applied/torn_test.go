package applied

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/onnode"
)

// leader returns a Group that has heard nothing yet.
func leader(clk *clocktesting.FakeClock, reached string) *Group {
	return &Group{
		Instance: "ns/lbsync", Identity: "one", Clock: clk, Log: zap.NewNop(), Tell: func(model.ServiceKey) {},
		Keys: func() []model.ServiceKey { return []model.ServiceKey{web} }, Reached: func() map[string]string { return map[string]string{"haproxy": reached} },
	}
}

// A heartbeat and a content that do not go together.
func TestTorn(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	content := func(version string, where netip.Addr) (m *corev1.ConfigMap, digest string) {
		packed, digest := NewContent("ns/lbsync", "two", "haproxy", map[string]onnode.Served{web.String(): at(where)}, []netip.Addr{where}).Pack()
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}, BinaryData: map[string][]byte{ContentKey: packed}}, digest
	}
	beat := func(version, seen, digest string, changes map[string]onnode.Served) *corev1.ConfigMap {
		s := Standing{Instance: "ns/lbsync", Identity: "two", Provider: "haproxy", Node: "node-2", Seen: seen, Content: digest, Changes: changes}
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}, Data: map[string]string{DataKey: Encode(s)}}
	}
	old, oldDigest := content("10", here)
	newer, newDigest := content("20", there)
	type claims struct {
		caughtUp bool // with 101
		has      onnode.Served
		held     netip.Addr // nothing is held where this is zero
	}
	check := func(t *testing.T, g *Group, when string, want claims) {
		t.Helper()
		p := g.Peers("haproxy", web, "101")
		if len(p) != 1 || p[0].CaughtUp != want.caughtUp || p[0].Pending == want.caughtUp || !p[0].Served.Equal(want.has) || p[0].Node != "node-2" {
			t.Errorf("%s: %+v, want %+v", when, p, want)
		}
		for _, addr := range []netip.Addr{here, there} {
			if held := g.Held("haproxy", addr); held != (addr == want.held) {
				t.Errorf("%s: %s is held %v", when, addr, held)
			}
		}
	}
	nothing := claims{}

	t.Run("the content is older than the heartbeat", func(t *testing.T) {
		g := leader(clk, "101")
		g.set(published(t, old))
		if len(g.Peers("haproxy", web, "")) > 0 {
			t.Error("a content alone is nobody")
		}
		g.tick()
		for n := range 10 { // as long as it lasts: the patience with a quiet cluster is not for this
			g.set(published(t, beat("21", "101", newDigest, map[string]onnode.Served{web.String(): at(here)})))
			check(t, g, "before the content", nothing)
			if p := g.Peers("haproxy", web, ""); p[0].Unsaid != (n < 3) {
				t.Errorf("after %d s it is still to say what it has: %v", 10*n, p[0].Unsaid)
			}
			clk.Step(Interval)
			g.tick()
		}
		if pending, silent := g.Others("haproxy", web, "101"); len(pending) != 1 || len(silent) > 0 || !g.Behind("haproxy", web, "101") {
			t.Errorf("pending %v, silent %v, behind %v", pending, silent, g.Behind("haproxy", web, "101"))
		}
		g.set(published(t, newer))
		check(t, g, "with the content", claims{true, at(here), there})
		if g.Peers("haproxy", web, "")[0].Unsaid {
			t.Error("it has said what it has")
		}
	})
	t.Run("the content is newer than the heartbeat", func(t *testing.T) {
		g := leader(clk, "101")
		g.set(published(t, newer))
		g.set(published(t, beat("11", "100", oldDigest, map[string]onnode.Served{web.String(): {}})))
		check(t, g, "it died between the two", nothing)
		g.set(published(t, beat("21", "101", newDigest, nil)))
		check(t, g, "started anew", claims{true, at(there), there})
	})
	t.Run("the heartbeat overtakes its content", func(t *testing.T) {
		g := leader(clk, "100")
		g.set(published(t, old))
		g.set(published(t, beat("11", "100", oldDigest, nil)))
		check(t, g, "one event behind", claims{false, at(here), here})
		want := claims{false, at(here), here}
		for n := range 4 { // what was known stays, and grows old
			g.tick()
			clk.Step(Interval)
			g.set(published(t, beat("21", "101", newDigest, nil)))
			if n == 2 {
				want.held = netip.Addr{} // by somebody of whom nothing is heard
			}
			check(t, g, "overtaken", want)
		}
		g.tick()
		if _, silent := g.Others("haproxy", web, "101"); len(silent) != 1 {
			t.Errorf("who says for long what cannot be read is silent: %v", silent)
		}
		g.set(published(t, newer))
		check(t, g, "and its content", claims{true, at(there), there})
		if _, silent := g.Others("haproxy", web, "101"); len(silent) > 0 {
			t.Errorf("silent %v", silent)
		}
	})
	t.Run("deleted", func(t *testing.T) {
		g := leader(clk, "101")
		g.set(published(t, newer))
		g.set(published(t, beat("21", "101", newDigest, nil)))
		g.drop(published(t, newer))
		check(t, g, "the content", claims{true, at(there), there})
		g.set(published(t, beat("22", "102", newDigest, map[string]onnode.Served{web.String(): at(here)})))
		check(t, g, "the content, as long as it is named", claims{true, at(here), there})
		g.set(published(t, beat("23", "103", oldDigest, nil)))
		check(t, g, "another one is named", claims{true, at(here), there})
		g.drop(published(t, beat("21", "101", newDigest, nil)))
		if len(g.Peers("haproxy", web, "")) > 0 || len(g.others) > 0 {
			t.Errorf("%+v", g.others)
		}
	})
	t.Run("listed anew", func(t *testing.T) {
		g := leader(clk, "101")
		told := 0
		g.Tell = func(model.ServiceKey) { told++ }
		g.set(published(t, newer))
		g.set(published(t, beat("21", "101", newDigest, nil)))
		told = 0
		g.set(published(t, newer))
		g.set(published(t, beat("21", "101", newDigest, nil)))
		if told > 0 {
			t.Errorf("told of %d Services that have not changed", told)
		}
	})
}

// Whatever breaks, and in whatever order it is received: what a leader believes of a process is what was true when that process had seen as
// much as the leader believes, or later.
func TestNeverMoreThanIsApplied(t *testing.T) {
	type truth map[string]onnode.Served
	names := []string{"shop/a", "shop/b", "shop/c"}
	rapid.Check(t, func(rt *rapid.T) {
		clk := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
		s := newServer()
		p, g := s.publisher(clk), leader(clk, "")
		now := truth{}
		truths := []truth{{}} // at 1, 2, ...
		delivered := map[string]int{}
		objects := []string{"applied-two", "served-two"}
		deliver := func(name string, upTo int) {
			if upTo > delivered[name] {
				delivered[name] = upTo
				g.set(published(t, s.history[name][upTo-1]))
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"change": func(rt *rapid.T) {
				name := rapid.SampledFrom(names).Draw(rt, "service")
				now = maps.Clone(now)
				now[name] = at(rapid.SampledFrom([]netip.Addr{here, there}).Draw(rt, "at"))
				if rapid.Bool().Draw(rt, "gone") {
					delete(now, name)
				}
				truths = append(truths, now)
			},
			"publish": func(rt *rapid.T) {
				r := &reporting{}
				*r = *serving(fmt.Sprint(len(truths)), 0, here)
				for name, has := range now {
					r.serve(name[len("shop/"):], has.At[0])
				}
				for _, name := range objects {
					s.fates[name] = rapid.SampledFrom([]fate{done, done, done, refused, unheard, onItsWay}).Draw(rt, name)
				}
				p.publish(t.Context(), r)
			},
			"much later": func(*rapid.T) { clk.Step(again) },
			"restart":    func(*rapid.T) { p = s.publisher(clk) },
			"land":       func(*rapid.T) { s.land() },
			"deliver": func(rt *rapid.T) {
				name := rapid.SampledFrom(objects).Draw(rt, "object")
				deliver(name, rapid.IntRange(0, len(s.history[name])).Draw(rt, "up to"))
			},
			"another leader": func(rt *rapid.T) {
				g, delivered = leader(clk, ""), map[string]int{}
				for _, name := range rapid.Permutation(objects).Draw(rt, "order") {
					deliver(name, len(s.history[name]))
				}
			},
			"": func(rt *rapid.T) {
				var has truth
				seen := 0
				for n := len(truths); n > 0 && seen == 0; n-- {
					if p := g.Peers("haproxy", web, fmt.Sprint(n)); len(p) > 0 && p[0].CaughtUp {
						seen = n
					}
				}
				if seen == 0 {
					return
				}
				has = truth{}
				for _, name := range names {
					key := model.ServiceKey{Namespace: "shop", Name: name[len("shop/"):]}
					if served := g.Peers("haproxy", key, "")[0].Served; !served.Empty() {
						has[name] = served
					}
				}
				if !slices.ContainsFunc(truths[seen-1:], func(t truth) bool { return maps.EqualFunc(t, has, onnode.Served.Equal) }) {
					rt.Fatalf("believed to have seen %d and to have %v, which was never so since", seen, has)
				}
			},
		})
	})
}
