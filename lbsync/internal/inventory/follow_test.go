package inventory

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// memberOf is the member of a Pod that testPod made.
func memberOf(p *model.Pod) Member {
	return Member{p.UID, model.Claim{Address: netip.AddrPortFrom(p.Mappings[0].NodeIP, p.Mappings[0].NodePort), Protocol: npl.TCP}}
}

// follow has a Service follow members, and prints the Pods that it is told of, with for how long.
func follow(x *Feed, service string, at time.Time, members ...Member) string {
	v, _ := x.Follow(model.ServiceKey{Namespace: "shop", Name: service}, slices.Values(members), at)
	var out []string
	for _, d := range v.Deselected {
		out = append(out, fmt.Sprintf("%s %s", d.Pod.UID, at.Sub(d.Since)))
	}
	return strings.Join(out, ", ")
}

// The Service of a member hears of everything that happens to a Pod which it does not select any more, and nobody else does (I3, I8).
func TestFollowersAreDirty(t *testing.T) {
	pod := func(edit func(*model.Pod)) *model.Pod {
		p := testPod("p", "elsewhere", "n1", 1)
		if edit != nil {
			edit(p)
		}
		return p
	}
	// claims makes another Pod that claims what p does.
	claims := func(name string) *model.Pod { return testPod(name, "thief", "n1", 1) }
	for name, do := range map[string]func(*Feed){
		"deleted":                 func(x *Feed) { x.DeletePod("shop", "p", true, now) },
		"missing from a list":     func(x *Feed) { x.DeletePod("shop", "p", false, now) },
		"replaced under its name": func(x *Feed) { x.SetPod(pod(func(p *model.Pod) { p.UID = "next" }), now) },
		"terminates":              func(x *Feed) { x.SetPod(pod(func(p *model.Pod) { p.Terminating = true }), now) },
		"has finished":            func(x *Feed) { x.SetPod(pod(func(p *model.Pod) { p.Finished = true }), now) },
		"is ready":                func(x *Feed) { x.SetPod(pod(func(p *model.Pod) { p.Ready = true }), now) },
		"loses its mapping":       func(x *Feed) { x.SetPod(pod(func(p *model.Pod) { p.Mappings = nil }), now) },
		"gets another mapping":    func(x *Feed) { x.SetPod(pod(func(p *model.Pod) { p.Mappings[0].NodePort = 2 }), now) },
		"gets other labels again": func(x *Feed) { x.SetPod(pod(func(p *model.Pod) { p.Labels = nil }), now) },
		"is selected again":       func(x *Feed) { x.SetPod(pod(func(p *model.Pod) { p.Labels = map[string]string{"app": "a"} }), now) },
		"another Pod claims it":   func(x *Feed) { x.SetPod(claims("q"), now) },
		"another lets go of it":   func(x *Feed) { x.DeletePod("shop", "rival", true, now) },
		"its Node is not ready":   func(x *Feed) { n := testNode("n1"); n.NotReady = true; x.SetNode(n, now) },
		"its Node has moved":      func(x *Feed) { x.SetNode(&model.Node{Name: "n1", Addresses: []netip.Addr{address("n9")}}, now) },
		"its Node goes":           func(x *Feed) { x.DeleteNode("n1", true, now) },
		"a whole list without it": func(x *Feed) { podTarget{x.Index, fixed(now), func(PodKey) {}}.replace(nil, "2") },
		"deleted, and it claimed nothing": func(x *Feed) {
			x.SetPod(pod(func(p *model.Pod) { p.Mappings = nil }), now)
			follow(x, "a", now, memberOf(pod(nil)))
			x.TakeDirty()
			x.DeletePod("shop", "p", true, now)
		},
		"claimed after a withdrawal": func(x *Feed) {
			x.SetPod(pod(func(p *model.Pod) { p.Mappings = nil }), now)
			follow(x, "a", now, memberOf(pod(nil)))
			x.TakeDirty()
			x.SetPod(claims("q"), now)
		},
	} {
		x := NewIndex().Feed(now)
		other := x.Index.Feed(now)
		x.SetNode(testNode("n1"), now)
		for _, service := range []string{"a", "b", "c"} {
			x.SetService(testService(service, service), now)
		}
		x.SetPod(pod(nil), now)
		if name == "another lets go of it" {
			x.SetPod(claims("rival"), now)
		}
		if got := follow(x, "a", now, memberOf(pod(nil))); got != "p 0s" {
			t.Fatalf("it follows %q", got)
		}
		follow(x, "b", now)
		dirty(x)
		dirty(other)
		do(x)
		if got := dirty(x); got != "a" {
			t.Errorf("%s: dirty %q, want a", name, got)
		}
		if got := dirty(other); got != "" && name != "is selected again" {
			t.Errorf("%s: dirty %q for a load balancer that has no such member", name, got)
		}
	}
}

// What a Service follows is what it was told last, dated from when it was first.
func TestFollow(t *testing.T) {
	x := NewIndex().Feed(now)
	x.SetService(testService("a", "a"), now)
	pods := map[string]*model.Pod{}
	for n, name := range []string{"own", "p", "q"} {
		pods[name] = testPod(name, map[string]string{"own": "a"}[name], "n1", uint16(n+1))
		x.SetPod(pods[name], now)
	}
	own, p, q := memberOf(pods["own"]), memberOf(pods["p"]), memberOf(pods["q"])
	twice := Member{p.UID, model.Claim{Address: netip.MustParseAddrPort("[2001:db8::1]:1"), Protocol: npl.TCP}}
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	for _, step := range []struct {
		name    string
		do      func()
		at      int
		members []Member
		want    string
	}{
		{"none", nil, 0, nil, ""},
		{"one that it selects, one that it does not, one of a Pod that is gone, and a Node", nil, 1, []Member{own, p, {UID: "gone"}, {UID: "n1"}}, "p 0s"},
		{"one more", nil, 3, []Member{own, q, p, twice}, "p 2s, q 0s"},
		{"one less", nil, 4, []Member{own, q}, "q 1s"},
		{"which is back", nil, 5, []Member{q, p}, "p 0s, q 2s"},
		{"which is selected", func() { x.SetPod(testPod("q", "a", "n1", 3), now) }, 6, []Member{q, p}, "p 1s"},
		{"and is not", func() { x.SetPod(pods["q"], now) }, 7, []Member{q, p}, "p 2s, q 0s"},
		{"which is gone", func() { x.DeletePod("shop", "q", true, now) }, 8, []Member{q, p}, "p 3s"},
		{"the Service is let go", func() {
			s := testService("a", "a")
			s.On = nil
			x.SetService(s, now)
		}, 9, []Member{p, own}, ""},
		{"and taken back", func() { x.SetService(testService("a", "a"), now) }, 10, []Member{p, own}, "p 0s"},
		{"it is gone", func() { x.DeleteService(model.ServiceKey{Namespace: "shop", Name: "a"}, true, now) }, 11, []Member{p, own}, ""},
	} {
		if step.do != nil {
			step.do()
		}
		if got := follow(x, "a", at(step.at), step.members...); got != step.want {
			t.Errorf("%s: %q, want %q", step.name, got, step.want)
		}
		if step.want == "" && len(x.by)+len(x.ofPod)+len(x.ofClaim) > 0 {
			t.Errorf("%s: left %v %v %v", step.name, x.by, x.ofPod, x.ofClaim)
		}
	}
	if names := slices.Sorted(maps.Keys(x.ofPod)); len(names) > 0 {
		t.Errorf("%v are followed by nobody", names)
	}
}
