package onnode

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func machine(n int) *model.Node {
	a := netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})
	return &model.Node{Name: fmt.Sprint("node-", n), Addresses: []netip.Addr{a}, Internal: []netip.Addr{a}}
}

func TestOf(t *testing.T) {
	port := func(number uint16, kind providers.Kind, problem string, vips ...netip.Addr) loop.PortReport {
		return loop.PortReport{Key: providers.Key{Namespace: "shop", Service: "web", Port: number, Protocol: providers.TCP}, Kind: kind, Problem: problem, VIPs: vips}
	}
	one, two := addr("192.0.2.1"), addr("2001:db8::1")
	r := loop.Report{Wanted: true, Ports: []loop.PortReport{
		port(80, "", "", two), port(81, "", "", one, two), port(82, providers.Rejected, "in use"), port(83, providers.Unavailable, "no answer"),
		port(84, providers.Rejected, "a setting", one), port(85, providers.Misconfigured, "no directory"), port(86, "", ""),
	}}
	want := Served{At: []netip.Addr{one, two}, Failed: []Failure{{"82/TCP", providers.Rejected, "in use"}, {"85/TCP", providers.Misconfigured, "no directory"}}}
	if got := Of(r); !got.Equal(want) {
		t.Errorf("%+v", got)
	}
	if r.Wanted = false; !Of(r).Empty() {
		t.Errorf("of a Service that is not to be there %+v", Of(r))
	}
}

func TestAway(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		want string
		edit func(n **model.Node, p *Pod, silent *bool)
	}{
		{"", func(**model.Node, *Pod, *bool) {}},
		{"", func(_ **model.Node, p *Pod, _ *bool) { *p = Pod{} }},
		{"there is no Node node-1", func(n **model.Node, _ *Pod, _ *bool) { *n = nil }},
		{"Node node-1 is not ready", func(n **model.Node, _ *Pod, _ *bool) { (*n).NotReady = true }},
		{podGone, func(_ **model.Node, p *Pod, _ *bool) { p.Found = nil }},
		{podGone, func(n **model.Node, p *Pod, _ *bool) { *n, p.Found = nil, nil }},
		{podGone, func(_ **model.Node, p *Pod, _ *bool) { p.Found.UID = "another" }},
		{podGone, func(_ **model.Node, p *Pod, _ *bool) { p.Found.Finished = true }},
		{"its Pod is being stopped", func(_ **model.Node, p *Pod, _ *bool) { p.Found.Terminating = true }},
		{"", func(_ **model.Node, p *Pod, _ *bool) {
			p.Found.Ready, p.Found.ReadyChanged = false, now.Add(time.Second-Grace)
		}},
		{"its Pod is not ready", func(_ **model.Node, p *Pod, _ *bool) { p.Found.Ready, p.Found.ReadyChanged = false, now.Add(-Grace) }},
		{"nothing is heard of its lbsync", func(_ **model.Node, _ *Pod, silent *bool) { *silent = true }},
	} {
		n, p, silent := machine(1), Pod{"u", &model.Pod{UID: "u", Ready: true}}, false
		test.edit(&n, &p, &silent)
		got := Away(n, "node-1", p, silent, now)
		if got != test.want || (Share{Away: got}).PodGone() != (test.want == podGone) {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// The addresses of a Service are a sorted union of those of the Nodes that serve it best, whatever order they come in; each of them is one that
// somebody who counts has confirmed, and if anybody has, there is one.
func TestList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var shares []Share
		for i := range rapid.IntRange(0, 6).Draw(t, "processes") {
			n := rapid.IntRange(1, 4).Draw(t, "Node") // two on one Node while a Pod is replaced
			s := Share{Identity: fmt.Sprint(i), NodeName: fmt.Sprint("node-", n), Node: machine(n)}
			s.Away = rapid.SampledFrom([]string{"", "", "", "gone"}).Draw(t, "away")
			if s.Away != "" && rapid.Bool().Draw(t, "no Node") {
				s.Node = nil
			}
			if rapid.IntRange(0, 3).Draw(t, "confirmed") > 0 {
				s.At = []netip.Addr{machine(n).Internal[0]}
			}
			for f := range rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "failures") {
				s.Failed = append(s.Failed, Failure{Port: fmt.Sprintf("%d/TCP", f), Kind: providers.Rejected})
			}
			shares = append(shares, s)
		}
		got := List(shares)
		serving := slices.DeleteFunc(slices.Clone(shares), func(s Share) bool { return s.Away != "" || len(s.At) == 0 })
		if (len(got) > 0) != (len(serving) > 0) {
			t.Fatalf("%d serve, %d are listed", len(serving), len(got))
		}
		if !slices.IsSortedFunc(got, func(a, b Listed) int { return a.Addr.Compare(b.Addr) }) {
			t.Fatalf("not sorted: %v", got)
		}
		for i, l := range got {
			if i > 0 && got[i-1].Addr == l.Addr {
				t.Fatalf("twice: %v", got)
			}
			if !slices.ContainsFunc(serving, func(s Share) bool { return slices.Contains(s.At, l.Addr) && len(s.Failed) == len(l.Failed) }) {
				t.Fatalf("%v is listed, and nobody serves it so", l)
			}
			if slices.ContainsFunc(serving, func(s Share) bool { return len(s.Failed) < len(l.Failed) }) {
				t.Fatalf("%v is listed though another Node has more ports", l)
			}
		}
		for _, s := range serving {
			fewest := !slices.ContainsFunc(serving, func(o Share) bool { return len(o.Failed) < len(s.Failed) })
			if fewest && !slices.ContainsFunc(got, func(l Listed) bool { return l.Addr == s.At[0] }) {
				t.Fatalf("%s serves as well as any and is not listed", s.NodeName)
			}
		}
		shuffled := rapid.Permutation(shares).Draw(t, "order")
		if again := List(shuffled); !slices.EqualFunc(got, again, func(a, b Listed) bool { return a.Addr == b.Addr }) {
			t.Fatalf("in another order %v instead of %v", again, got)
		}
	})
}

func TestFailureSaysThePort(t *testing.T) {
	if got := (Failure{"80/TCP", providers.Rejected, "in use"}).String(); !strings.HasPrefix(got, "80/TCP: in use") {
		t.Error(got)
	}
}
