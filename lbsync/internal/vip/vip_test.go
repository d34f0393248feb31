package vip

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/npl"
)

func addrs(in ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range in {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func span(first, last string) Range {
	return Range{netip.MustParseAddr(first), netip.MustParseAddr(last)}
}

var (
	four = []npl.Family{npl.IPv4}
	dual = []npl.Family{npl.IPv6, npl.IPv4}
)

func TestAssign(t *testing.T) {
	pools := []Range{span("192.0.2.1", "192.0.2.2"), span("2001:db8::1", "2001:db8::1"), span("198.51.100.7", "198.51.100.7")}
	for _, test := range []struct {
		name   string
		pools  []Range
		before func(*Allocator)
		ask    Request
		want   string
		reason Reason
	}{
		{"lowest free", pools, nil, Request{Families: four}, "[192.0.2.1]", ""},
		{"one per family", pools, nil, Request{Families: dual}, "[192.0.2.1 2001:db8::1]", ""},
		{"loaded is not given again", pools, func(a *Allocator) { a.Load("other", addrs("192.0.2.1")) }, Request{Families: four}, "[192.0.2.2]", ""},
		{"loaded is kept", pools, func(a *Allocator) { a.Load("me", addrs("192.0.2.2")) }, Request{Families: four}, "[192.0.2.2]", ""},
		{"next pool", pools, func(a *Allocator) { a.Load("other", addrs("192.0.2.1", "192.0.2.2")) }, Request{Families: four}, "[198.51.100.7]", ""},
		{"exhausted", pools, func(a *Allocator) { a.Load("other", addrs("2001:db8::1")) }, Request{Families: dual}, "[]", Exhausted},
		{"requested", pools, nil, Request{four, addrs("192.0.2.2")}, "[192.0.2.2]", ""},
		{"request moves", pools, func(a *Allocator) { a.Load("me", addrs("192.0.2.1")) }, Request{four, addrs("192.0.2.2")}, "[192.0.2.2]", ""},
		{"request conflicts, keeps what it has", pools, func(a *Allocator) { a.Load("me", addrs("192.0.2.1")); a.Load("other", addrs("192.0.2.2")) },
			Request{four, addrs("192.0.2.2")}, "[192.0.2.1]", Conflict},
		{"request outside", pools, nil, Request{four, addrs("203.0.113.1")}, "[]", Outside},
		{"request of another family", pools, nil, Request{four, addrs("2001:db8::1")}, "[]", Family},
		{"request without pools", nil, nil, Request{four, addrs("203.0.113.1")}, "[203.0.113.1]", ""},
		{"no pools", nil, nil, Request{Families: four}, "[]", NoPool},
		{"no pool of the family", pools[:1], nil, Request{Families: dual}, "[]", NoPool},
		{"family dropped", pools, func(a *Allocator) { a.Load("me", addrs("192.0.2.2", "2001:db8::1")) }, Request{Families: four}, "[192.0.2.2]", ""},
		{"pool taken away", pools[2:], func(a *Allocator) { a.Load("me", addrs("192.0.2.2")) }, Request{Families: four}, "[198.51.100.7]", ""},
	} {
		a := New(test.pools)
		if test.before != nil {
			test.before(a)
		}
		got, err := a.Assign("me", test.ask)
		var refused *Error
		errors.As(err, &refused)
		if fmt.Sprint(got) != test.want || (err == nil) != (test.reason == "") || refused != nil && refused.Reason != test.reason {
			t.Errorf("%s: %v, %v; want %s, %q", test.name, got, err, test.want, test.reason)
		}
	}
}

// Whatever happens: an address has one holder, and a Service that asks again for the same keeps what it has. After a
// restart, loaded in any order, everybody has what they had.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pools := []Range{span("192.0.2.1", "192.0.2.4"), span("2001:db8::1", "2001:db8::3")}
		a, has := New(pools), map[string][]netip.Addr{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			who := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "who")
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				a.Release(who)
				delete(has, who)
				continue
			}
			ask := Request{Families: rapid.SampledFrom([][]npl.Family{four, {npl.IPv6}, dual}).Draw(t, "families")}
			if rapid.IntRange(0, 2).Draw(t, "asks") == 0 {
				ask.Addresses = addrs(rapid.SampledFrom([]string{"192.0.2.2", "192.0.2.3", "2001:db8::2", "203.0.113.9"}).Draw(t, "address"))
			}
			got, err := a.Assign(who, ask)
			if err != nil && !slices.Equal(got, has[who]) {
				t.Fatalf("%s was refused and went from %v to %v", who, has[who], got)
			}
			again, _ := a.Assign(who, ask)
			if !slices.Equal(got, again) {
				t.Fatalf("%s asked twice: %v, then %v", who, got, again)
			}
			has[who] = got
		}
		holder := map[netip.Addr]string{}
		for who, list := range has {
			for _, addr := range list {
				if other := holder[addr]; other != "" {
					t.Fatalf("%s has two holders, %s and %s", addr, who, other)
				}
				holder[addr] = who
			}
		}
		if fmt.Sprint(a.Held()) != fmt.Sprint(holder) {
			t.Fatalf("the allocator says %v, its answers %v", a.Held(), holder)
		}
		restarted := New(pools)
		for who, list := range has {
			restarted.Load(who, list)
		}
		if fmt.Sprint(restarted.Held()) != fmt.Sprint(holder) {
			t.Fatalf("after a restart %v, before %v", restarted.Held(), holder)
		}
	})
}
