package vip

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// consistent checks the Allocator's indexes against each other, and that nobody has what another has.
func consistent(a *Allocator) error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for addr, l := range a.leases {
		if len(l.services) == 0 || len(l.services) > 1 && l.group == (group{}) {
			wrong("%s has %d holders and the group %v", addr, len(l.services), l.group)
		}
		taken := map[Port]string{}
		for service, s := range l.services {
			if !slices.Contains(a.held[id{l.instance, service}], addr) {
				wrong("%s is held by %s, which does not know", addr, service)
			}
			if namespace, _, _ := strings.Cut(service, "/"); l.group != (group{}) && l.group.namespace != namespace {
				wrong("%s is shared by %s and the group %v", addr, service, l.group)
			}
			for _, p := range s.ports {
				if other := taken[p]; other != "" && len(l.services) > 1 {
					wrong("port %s of %s is of both %s and %s", p, addr, service, other)
				}
				taken[p] = service
			}
		}
		if l.group != (group{}) && !a.groups[l.group][addr] {
			wrong("%s is not among the addresses of %v", addr, l.group)
		}
	}
	for me, list := range a.held {
		families := map[npl.Family]int{}
		for _, addr := range list {
			families[npl.FamilyOf(addr)]++
			if l := a.leases[addr]; l == nil || l.instance != me.instance {
				wrong("%v has %s, which is not its own", me, addr)
			} else if _, ok := l.services[me.service]; !ok {
				wrong("%v has %s, which is not its own", me, addr)
			}
		}
		if len(list) == 0 || families[npl.IPv4] > 1 || families[npl.IPv6] > 1 || !slices.IsSortedFunc(list, netip.Addr.Compare) {
			wrong("%v has %v", me, list)
		}
	}
	for g, of := range a.groups {
		for addr := range of {
			if a.leases[addr] == nil || a.leases[addr].group != g {
				wrong("%v has %s, which is not its own", g, addr)
			}
		}
	}
	for r, from := range a.lowest {
		for addr := r.First; r.Contains(addr) && addr != from; addr = addr.Next() {
			if a.leases[addr] == nil {
				wrong("%s is free and below %s", addr, from)
			}
		}
	}
	return errors.Join(errs...)
}

// Whatever happens: an address has one holder, or several of one group on different ports; who asks again for the same keeps what it has;
// a refusal changes nothing; the same calls give the same answers; and after a restart, loaded in any order, everybody has what they had.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pools := []Pool{
			{Name: "a", Ranges: []Range{span("192.0.2.1", "192.0.2.4"), span("2001:db8::1", "2001:db8::3")}},
			{Name: "b", Ranges: []Range{span("192.0.2.4", "192.0.2.6")}, Providers: []string{"edge"}},
			{Name: "c", Ranges: []Range{span("198.51.100.1", "198.51.100.2")}, OnRequest: true, Namespaces: []string{"shop"}},
		}
		a, twin := New(pools), New(pools)
		last := map[id]Request{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			r := Request{
				Instance: rapid.SampledFrom([]string{"edge", "avi"}).Draw(t, "instance"),
				Service:  rapid.SampledFrom([]string{"shop/a", "shop/b", "shop/c", "bank/d", "bank/e"}).Draw(t, "service"),
				Families: rapid.SampledFrom([][]npl.Family{four, six, dual}).Draw(t, "families"),
				Shared:   rapid.SampledFrom([]string{"", "", "g", "h"}).Draw(t, "shared"),
				Pool:     rapid.SampledFrom([]string{"", "", "", "a", "b", "c", "x"}).Draw(t, "pool"),
				Ports:    rapid.SampledFrom([][]Port{http, https, quic, append(slices.Clone(http), https...)}).Draw(t, "ports"),
			}
			r.Namespace, _, _ = strings.Cut(r.Service, "/")
			me := id{r.Instance, r.Service}
			if rapid.IntRange(0, 4).Draw(t, "what") == 0 {
				had := len(a.Of(r.Instance, r.Service)) > 0
				if a.Release(r.Instance, r.Service) != had || len(a.Of(r.Instance, r.Service)) > 0 {
					t.Fatalf("%v was not released", me)
				}
				twin.Release(r.Instance, r.Service)
				delete(last, me)
				continue
			}
			if rapid.IntRange(0, 2).Draw(t, "asks") == 0 {
				r.Addresses = addrs(rapid.SampledFrom([]string{"192.0.2.2", "192.0.2.5", "2001:db8::2", "203.0.113.9", "198.51.100.1"}).Draw(t, "address"))
			}
			before, others := a.Of(r.Instance, r.Service), everybody(a)
			got, err := a.Assign(r)
			if same, sameErr := twin.Assign(r); !slices.Equal(got, same) || fmt.Sprint(err) != fmt.Sprint(sameErr) {
				t.Fatalf("%+v: %v, %v; and %v, %v", r, got, err, same, sameErr)
			}
			if err != nil && (!slices.Equal(got, before) || everybody(a) != others) {
				t.Fatalf("%v was refused (%v) and went from %v to %v", me, err, before, got)
			}
			if err == nil {
				last[me] = r
				if len(r.Addresses) > 0 && !slices.Equal(got, r.Addresses) || len(r.Addresses) == 0 && len(got) != len(r.Families) {
					t.Fatalf("%+v: %v", r, got)
				}
				if again, err := a.Assign(r); err != nil || !slices.Equal(got, again) {
					t.Fatalf("%+v asked twice: %v, then %v, %v", r, got, again, err)
				}
				twin.Assign(r)
			}
			if err := consistent(a); err != nil {
				t.Fatalf("after %+v: %v", r, err)
			}
		}
		restarted := New(pools)
		order := rapid.Permutation(slices.SortedFunc(maps.Keys(a.held), func(x, y id) int {
			return strings.Compare(x.instance+x.service, y.instance+y.service)
		})).Draw(t, "order")
		for _, me := range order {
			r := last[me]
			restarted.Load(r.holder(), a.held[me])
		}
		if got, want := everybody(restarted), everybody(a); got != want {
			t.Fatalf("after a restart %s, before %s", got, want)
		}
	})
}

// everybody says who has what.
func everybody(a *Allocator) string {
	var out []string
	for me, list := range a.held {
		out = append(out, fmt.Sprint(me, list))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Of plain Services, each gets the lowest free address of the first pool that has one: what a walk over the pools would find.
func TestLowestFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pools := unnamed(span("192.0.2.1", "192.0.2.5"), span("192.0.2.4", "192.0.2.8"))
		a, taken := New(pools), map[netip.Addr]string{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			service := "shop/" + rapid.StringMatching("[a-k]").Draw(t, "service")
			if rapid.Bool().Draw(t, "release") {
				a.Release(balancer, service)
				maps.DeleteFunc(taken, func(_ netip.Addr, s string) bool { return s == service })
				continue
			}
			had := a.Of(balancer, service)
			got, err := a.Assign(ask(four, by(service)))
			want := "[]"
			for addr := pools[0].Ranges[0].First; want == "[]" && pools[0].Contains(addr); addr = addr.Next() {
				if taken[addr] == "" {
					want = "[" + addr.String() + "]"
				}
			}
			if len(had) > 0 {
				want = fmt.Sprint(had)
			}
			if fmt.Sprint(got) != want || (err == nil) != (want != "[]") {
				t.Fatalf("%s: %v, %v; want %s", service, got, err, want)
			}
			for _, addr := range got {
				taken[addr] = service
			}
		}
	})
}
