package vip

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
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

// unnamed makes one pool without a name, for everybody.
func unnamed(ranges ...Range) []Pool { return []Pool{{Ranges: ranges}} }

var (
	four = []npl.Family{npl.IPv4}
	six  = []npl.Family{npl.IPv6}
	dual = []npl.Family{npl.IPv6, npl.IPv4}

	http  = []Port{{80, providers.TCP}}
	https = []Port{{443, providers.TCP}}
	quic  = []Port{{443, providers.UDP}}
)

const balancer = "edge"

// ask makes the request of Service shop/me; what else it has comes from change.
func ask(families []npl.Family, change ...func(*Request)) Request {
	r := Request{Instance: balancer, Service: "shop/me", Namespace: "shop", Families: families, Ports: http}
	for _, f := range change {
		f(&r)
	}
	return r
}

func forAddr(list ...string) func(*Request) {
	return func(r *Request) { r.Addresses = addrs(list...) }
}

func from(pool string) func(*Request) { return func(r *Request) { r.Pool = pool } }

func in(group string, ports ...Port) func(*Request) {
	return func(r *Request) { r.Shared, r.Ports = group, ports }
}

func by(service string) func(*Request) {
	return func(r *Request) {
		r.Service = service
		r.Namespace, _, _ = strings.Cut(service, "/")
	}
}

func on(instance string) func(*Request) { return func(r *Request) { r.Instance = instance } }

// has loads addresses of a Service that shares with nobody; others has each taken by another one.
func has(service string, list ...string) func(*Allocator) {
	return func(a *Allocator) { a.Load(Holder{Instance: balancer, Service: service, Ports: http}, addrs(list...)) }
}

func others(list ...string) func(*Allocator) {
	return func(a *Allocator) {
		for _, addr := range list {
			has("shop/has-"+addr, addr)(a)
		}
	}
}

func shares(service, group string, ports []Port, list ...string) func(*Allocator) {
	return func(a *Allocator) {
		a.Load(Holder{Instance: balancer, Service: service, Shared: group, Ports: ports}, addrs(list...))
	}
}

func both(first, second func(*Allocator)) func(*Allocator) {
	return func(a *Allocator) { first(a); second(a) }
}

func TestAssign(t *testing.T) {
	plain := unnamed(span("192.0.2.1", "192.0.2.2"), span("2001:db8::1", "2001:db8::1"), span("198.51.100.7", "198.51.100.7"))
	many := []Pool{
		{Name: "web", Ranges: []Range{span("192.0.2.1", "192.0.2.1")}},
		{Name: "spare", Ranges: []Range{span("192.0.2.8", "192.0.2.9")}},
		{Name: "gold", Ranges: []Range{span("203.0.113.1", "203.0.113.2")}, OnRequest: true},
		{Name: "bank", Ranges: []Range{span("198.51.100.1", "198.51.100.2")}, Namespaces: []string{"bank"}},
		{Name: "tier1", Ranges: []Range{span("198.51.100.11", "198.51.100.12")}, Selector: map[string]string{"tier": "1", "zone": "a"}},
		{Name: "avi", Ranges: []Range{span("198.51.100.21", "198.51.100.22")}, Providers: []string{"avi"}},
	}
	tier1 := func(r *Request) { r.Labels = map[string]string{"tier": "1", "zone": "a", "x": "y"} }
	for _, test := range []struct {
		name   string
		pools  []Pool
		before func(*Allocator)
		ask    Request
		want   string
		reason Reason
		says   string
	}{
		{name: "lowest free", pools: plain, ask: ask(four), want: "[192.0.2.1]"},
		{name: "one per family", pools: plain, ask: ask(dual), want: "[192.0.2.1 2001:db8::1]"},
		{name: "loaded is not given again", pools: plain, before: has("shop/other", "192.0.2.1"), ask: ask(four), want: "[192.0.2.2]"},
		{name: "loaded is kept", pools: plain, before: has("shop/me", "192.0.2.2"), ask: ask(four), want: "[192.0.2.2]"},
		{name: "next range", pools: plain, before: others("192.0.2.1", "192.0.2.2"), ask: ask(four), want: "[198.51.100.7]"},
		{name: "exhausted", pools: plain, before: has("shop/other", "2001:db8::1"), ask: ask(dual), want: "[]", reason: Exhausted, says: "every IPv6 address"},
		{name: "requested", pools: plain, ask: ask(four, forAddr("192.0.2.2")), want: "[192.0.2.2]"},
		{name: "request moves", pools: plain, before: has("shop/me", "192.0.2.1"), ask: ask(four, forAddr("192.0.2.2")), want: "[192.0.2.2]"},
		{name: "request withdrawn, stays", pools: plain, before: has("shop/me", "192.0.2.2"), ask: ask(four), want: "[192.0.2.2]"},
		{name: "request conflicts, keeps what it has", pools: plain, before: both(has("shop/me", "192.0.2.1"), has("shop/other", "192.0.2.2")),
			ask: ask(four, forAddr("192.0.2.2")), want: "[192.0.2.1]", reason: Conflict, says: "192.0.2.2 belongs to Service shop/other"},
		{name: "request outside", pools: plain, ask: ask(four, forAddr("203.0.113.1")), want: "[]", reason: Outside, says: "203.0.113.1"},
		{name: "request of another family", pools: plain, ask: ask(four, forAddr("2001:db8::1")), want: "[]", reason: Family, says: "ipFamilies"},
		{name: "request without pools", ask: ask(four, forAddr("203.0.113.1")), want: "[203.0.113.1]"},
		{name: "no pools", ask: ask(four), want: "[]", reason: NoPool, says: "none is configured"},
		{name: "no pool of the family", pools: unnamed(span("192.0.2.1", "192.0.2.2")), ask: ask(dual), want: "[]", reason: NoPool, says: "IPv6"},
		{name: "family dropped", pools: plain, before: has("shop/me", "192.0.2.2", "2001:db8::1"), ask: ask(four), want: "[192.0.2.2]"},
		{name: "pool taken away", pools: unnamed(span("198.51.100.7", "198.51.100.7")), before: has("shop/me", "192.0.2.2"), ask: ask(four), want: "[198.51.100.7]"},

		{name: "named pool", pools: many, ask: ask(four, from("spare")), want: "[192.0.2.8]"},
		{name: "another pool is named, moves", pools: many, before: has("shop/me", "192.0.2.1"), ask: ask(four, from("spare")), want: "[192.0.2.8]"},
		{name: "unknown pool", pools: many, before: has("shop/me", "192.0.2.1"), ask: ask(four, from("wbe")), want: "[192.0.2.1]", reason: NoPool, says: "wbe"},
		{name: "named pool of one family", pools: many, ask: ask(dual, from("spare")), want: "[]", reason: NoPool, says: "IPv6"},
		{name: "named pool is exhausted", pools: many, before: others("192.0.2.8", "192.0.2.9"), ask: ask(four, from("spare")), want: "[]",
			reason: Exhausted, says: "spare: 192.0.2.8-192.0.2.9"},
		{name: "address outside the named pool", pools: many, ask: ask(four, from("spare"), forAddr("192.0.2.1")), want: "[]", reason: Outside, says: "spare"},
		{name: "on request is not given unasked", pools: many, before: others("192.0.2.1", "192.0.2.8", "192.0.2.9"), ask: ask(four), want: "[]", reason: Exhausted},
		{name: "on request, named", pools: many, ask: ask(four, from("gold")), want: "[203.0.113.1]"},
		{name: "on request, an address in it", pools: many, ask: ask(four, forAddr("203.0.113.2")), want: "[203.0.113.2]"},
		{name: "on request, no longer named, stays", pools: many, before: has("shop/me", "203.0.113.2"), ask: ask(four), want: "[203.0.113.2]"},
		{name: "of another Namespace, named", pools: many, ask: ask(four, from("bank")), want: "[]", reason: NotAllowed, says: "Namespaces bank, not for shop"},
		{name: "of another Namespace, an address in it", pools: many, ask: ask(four, forAddr("198.51.100.1")), want: "[]", reason: NotAllowed, says: "bank"},
		{name: "of its Namespace", pools: many, ask: ask(four, by("bank/me"), from("bank")), want: "[198.51.100.1]"},
		{name: "without the labels", pools: many, ask: ask(four, from("tier1")), want: "[]", reason: NotAllowed, says: "tier=1, zone=a"},
		{name: "with the labels", pools: many, ask: ask(four, from("tier1"), tier1), want: "[198.51.100.11]"},
		{name: "labels were taken away, moves", pools: many, before: has("shop/me", "198.51.100.11"), ask: ask(four), want: "[192.0.2.1]"},
		{name: "of another load balancer, named", pools: many, ask: ask(four, from("avi")), want: "[]", reason: NotAllowed, says: "load balancers avi, not for edge"},
		{name: "of its load balancer", pools: many, ask: ask(four, on("avi"), from("avi")), want: "[198.51.100.21]"},
		{name: "a load balancer without pools, any address", pools: many[5:], ask: ask(four, forAddr("203.0.113.77")), want: "[203.0.113.77]"},
		{name: "a load balancer without pools, an address of another's", pools: many[5:], ask: ask(four, forAddr("198.51.100.21")), want: "[]", reason: NotAllowed},
		{name: "a load balancer without pools, no request", pools: many[5:], ask: ask(four), want: "[]", reason: NoPool},
		{name: "taken on another load balancer", pools: plain, before: func(a *Allocator) { a.Load(Holder{Instance: "avi", Service: "shop/me"}, addrs("192.0.2.1")) },
			ask: ask(four, forAddr("192.0.2.1")), want: "[]", reason: Conflict, says: "on load balancer avi"},

		{name: "shares", pools: plain, before: shares("shop/other", "web", https, "192.0.2.2"), ask: ask(four, in("web", http...)), want: "[192.0.2.2]"},
		{name: "shares the same port of another protocol", pools: plain, before: shares("shop/other", "web", https, "192.0.2.2"), ask: ask(four, in("web", quic...)), want: "[192.0.2.2]"},
		{name: "joins, gives up its own", pools: plain, before: both(has("shop/me", "192.0.2.1"), shares("shop/other", "web", https, "192.0.2.2")), ask: ask(four, in("web", http...)), want: "[192.0.2.2]"},
		{name: "first of a group keeps its own", pools: plain, before: has("shop/me", "192.0.2.2"), ask: ask(four, in("web", http...)), want: "[192.0.2.2]"},
		{name: "same port in a group", pools: plain, before: shares("shop/other", "web", http, "192.0.2.2"), ask: ask(four, in("web", http...)), want: "[]",
			reason: PortConflict, says: "port 80/TCP of the address 192.0.2.2, which the group web shares, belongs to Service shop/other"},
		{name: "same port, keeps what it has", pools: plain, before: both(has("shop/me", "192.0.2.1"), shares("shop/other", "web", http, "192.0.2.2")),
			ask: ask(four, in("web", http...)), want: "[192.0.2.1]", reason: PortConflict},
		{name: "another group", pools: plain, before: shares("shop/other", "api", https, "192.0.2.1"), ask: ask(four, in("web", http...)), want: "[192.0.2.2]"},
		{name: "a group of that name in another Namespace", pools: plain, before: shares("bank/other", "web", https, "192.0.2.1"), ask: ask(four, in("web", http...)), want: "[192.0.2.2]"},
		{name: "a group of that name on another load balancer", pools: plain, before: func(a *Allocator) {
			a.Load(Holder{Instance: "avi", Service: "shop/other", Shared: "web", Ports: https}, addrs("192.0.2.1"))
		}, ask: ask(four, in("web", http...)), want: "[192.0.2.2]"},
		{name: "asks for the address of a group it is not in", pools: plain, before: shares("shop/other", "web", https, "192.0.2.2"), ask: ask(four, forAddr("192.0.2.2")), want: "[]", reason: Conflict},
		{name: "leaves a group", pools: plain, before: both(shares("shop/other", "web", https, "192.0.2.2"), shares("shop/me", "web", http, "192.0.2.2")), ask: ask(four), want: "[192.0.2.1]"},
		{name: "leaves a group that was only itself", pools: plain, before: shares("shop/me", "web", http, "192.0.2.2"), ask: ask(four), want: "[192.0.2.2]"},
		{name: "of two addresses of a group the one that most have", pools: plain,
			before: both(shares("shop/other", "web", https, "192.0.2.1"), both(shares("shop/third", "web", quic, "192.0.2.2"), shares("shop/me", "web", http, "192.0.2.2"))),
			ask:    ask(four, in("web", http...)), want: "[192.0.2.2]"},
		{name: "of two addresses of a group the one that is asked for", pools: plain, before: both(shares("shop/me", "web", http, "192.0.2.1"), func(a *Allocator) {
			a.Assign(ask(four, by("shop/other"), in("web", https...), forAddr("192.0.2.2")))
		}), ask: ask(four, in("web", http...)), want: "[192.0.2.2]"},
		{name: "asks no longer for an address beside the group's", pools: plain, before: func(a *Allocator) {
			a.Assign(ask(four, by("shop/other"), in("web", http...), forAddr("192.0.2.2")))
			a.Assign(ask(four, in("web", http...), forAddr("192.0.2.1")))
		}, ask: ask(four, in("web", http...)), want: "[192.0.2.1]", reason: PortConflict},
		{name: "the group's address is in a pool that is not for it", pools: many, before: shares("shop/other", "web", https, "198.51.100.11"),
			ask: ask(four, in("web", http...)), want: "[]", reason: NotAllowed, says: "the group web has the address 198.51.100.11"},
		{name: "the group's address is in no pool any more", pools: plain, before: both(shares("shop/other", "web", https, "203.0.113.1"), shares("shop/me", "web", http, "203.0.113.1")),
			ask: ask(four, in("web", http...)), want: "[192.0.2.1]"},
		{name: "shares the family that the group has", pools: plain, before: shares("shop/other", "web", https, "192.0.2.2"), ask: ask(dual, in("web", http...)), want: "[192.0.2.2 2001:db8::1]"},
	} {
		a := New(test.pools)
		if test.before != nil {
			test.before(a)
		}
		got, err := a.Assign(test.ask)
		no, refused := errors.AsType[*Error](err)
		if fmt.Sprint(got) != test.want || refused != (test.reason != "") || refused && (no.Reason != test.reason || !strings.Contains(no.Message, test.says)) {
			t.Errorf("%s: %v, %v; want %s, %q %q", test.name, got, err, test.want, test.reason, test.says)
		}
		if of := a.Of(test.ask.Instance, test.ask.Service); fmt.Sprint(of) != test.want {
			t.Errorf("%s: answered %v and recorded %v", test.name, got, of)
		}
		if err := consistent(a); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		for _, addr := range test.ask.Addresses {
			if may := MayHave(test.pools, test.ask, addr); may == (test.reason == Outside || test.reason == NotAllowed) && test.reason != Family {
				t.Errorf("%s: may have %s: %t", test.name, addr, may)
			}
		}
	}
}

// What is loaded first counts: an address of one Service is not another's, whatever that one's annotation says.
func TestLoad(t *testing.T) {
	for name, test := range map[string]struct {
		second func(*Allocator)
		want   string
	}{
		"another":                          {has("shop/me", "192.0.2.1", "2001:db8::1"), "[2001:db8::1]"},
		"the group, another port":          {shares("shop/me", "web", http, "192.0.2.1"), "[192.0.2.1]"},
		"the group, the same port":         {shares("shop/me", "web", https, "192.0.2.1"), "[]"},
		"another group":                    {shares("shop/me", "api", http, "192.0.2.1"), "[]"},
		"twice":                            {both(shares("shop/me", "web", http, "192.0.2.1"), shares("shop/me", "web", http, "192.0.2.1")), "[192.0.2.1]"},
		"a group on another load balancer": {func(a *Allocator) { a.Load(Holder{"avi", "shop/me", "web", http}, addrs("192.0.2.1")) }, "[]"},
	} {
		a := New(nil)
		shares("shop/first", "web", https, "192.0.2.1")(a)
		test.second(a)
		if got := fmt.Sprint(append(a.Of(balancer, "shop/me"), a.Of("avi", "shop/me")...)); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if err := consistent(a); err != nil || a.Holders(addrs("192.0.2.1")[0])[0].Service != "shop/first" {
			t.Errorf("%s: %v, %v", name, a.Holders(addrs("192.0.2.1")[0]), err)
		}
	}
}

// A group moves as a whole when its pool is taken away, one Service after the other.
func TestGroupMovesTogether(t *testing.T) {
	a := New(unnamed(span("192.0.2.1", "192.0.2.9")))
	for service, ports := range map[string][]Port{"shop/a": http, "shop/b": https, "shop/c": quic} {
		shares(service, "web", ports, "203.0.113.1")(a)
	}
	for _, service := range []string{"shop/a", "shop/b", "shop/c"} {
		ports := map[string][]Port{"shop/a": http, "shop/b": https, "shop/c": quic}[service]
		if got, err := a.Assign(ask(four, by(service), in("web", ports...))); err != nil || fmt.Sprint(got) != "[192.0.2.1]" {
			t.Errorf("%s: %v, %v", service, got, err)
		}
	}
	if holders := a.Holders(addrs("192.0.2.1")[0]); len(holders) != 3 || holders[0].Service != "shop/a" || holders[0].Shared != "web" {
		t.Errorf("holders: %v", holders)
	}
	if holders := a.Holders(addrs("203.0.113.1")[0]); holders != nil {
		t.Errorf("holders of the old address: %v", holders)
	}
}

func TestEndsOfTheAddressSpace(t *testing.T) {
	last4, last6 := "255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	a := New(unnamed(span(last4, last4), span(last6, last6)))
	for range 2 {
		if got, err := a.Assign(ask(dual)); err != nil || fmt.Sprint(got) != "["+last4+" "+last6+"]" {
			t.Fatalf("%v, %v", got, err)
		}
		if _, err := a.Assign(ask(dual, by("shop/other"))); err == nil {
			t.Fatal("the pool is exhausted")
		}
		if !a.Release(balancer, "shop/me") || a.Release(balancer, "shop/me") {
			t.Fatal("Release does not tell whether there was anything")
		}
	}
}

func BenchmarkAssign(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			a := New(unnamed(span("10.0.0.1", "10.0.255.254")))
			for i := range n {
				if _, err := a.Assign(ask(four, by(fmt.Sprintf("shop/s%d", i)))); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if _, err := a.Assign(ask(four)); err != nil {
					b.Fatal(err)
				}
				a.Release(balancer, "shop/me")
			}
		})
	}
}
