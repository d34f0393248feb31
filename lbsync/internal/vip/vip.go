// Package vip gives addresses to Services. It is pure and deterministic: the same calls give the same addresses.
package vip

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// Range is an inclusive range of addresses of one family, First <= Last.
type Range struct{ First, Last netip.Addr }

// Contains reports whether a lies in the range.
func (r Range) Contains(a netip.Addr) bool {
	return a.Is4() == r.First.Is4() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

// Reason says why a Service got no address.
type Reason string

// The reasons.
const (
	Conflict  Reason = "AddressConflict"      // another Service has the requested address
	Outside   Reason = "AddressNotInPool"     // the requested address is in none of the pools
	Exhausted Reason = "AddressPoolExhausted" // no address is left
	NoPool    Reason = "NoAddressPool"        // no pool has addresses of the family
	Family    Reason = "AddressFamily"        // the requested address is of a family that the Service does not have
)

// Error is a refusal.
type Error struct {
	Reason  Reason
	Message string
}

func (e *Error) Error() string { return e.Message }

// Request is what a Service asks for.
type Request struct {
	Families  []npl.Family // of the Service, in its order
	Addresses []netip.Addr // requested; at most one per family. Without any, one per family comes from the pools
}

// Allocator knows who has which address. The zero value is not usable, see New. Before the first Assign, Load must have
// been called with every address that is already given.
type Allocator struct {
	pools  []Range
	holder map[netip.Addr]string
	held   map[string][]netip.Addr
}

// New returns an Allocator that takes addresses from pools in order of preference. With no pools it gives only what is
// requested, any address.
func New(pools []Range) *Allocator {
	return &Allocator{pools: pools, holder: map[netip.Addr]string{}, held: map[string][]netip.Addr{}}
}

// Load records what service has already. An address that somebody else has is left to that one: load the older first.
func (a *Allocator) Load(service string, addrs []netip.Addr) {
	for _, addr := range addrs {
		if a.holder[addr] == "" {
			a.take(service, addr)
		}
	}
}

// Assign returns the addresses of service, sorted, at most one per family. What it has and may keep it keeps. On an error
// it keeps everything that it had, and that is returned beside the *Error.
func (a *Allocator) Assign(service string, r Request) ([]netip.Addr, error) {
	want, err := a.choose(service, r)
	if err != nil {
		return slices.Clone(a.held[service]), err
	}
	for _, addr := range a.held[service] {
		if !slices.Contains(want, addr) {
			delete(a.holder, addr)
		}
	}
	delete(a.held, service)
	for _, addr := range want {
		a.take(service, addr)
	}
	return slices.Clone(a.held[service]), nil
}

// Release frees what service has and reports whether there was anything.
func (a *Allocator) Release(service string) bool {
	had := len(a.held[service]) > 0
	for _, addr := range a.held[service] {
		delete(a.holder, addr)
	}
	delete(a.held, service)
	return had
}

// Of returns the addresses that service has, sorted.
func (a *Allocator) Of(service string) []netip.Addr { return slices.Clone(a.held[service]) }

// Held returns who has which address.
func (a *Allocator) Held() map[netip.Addr]string { return maps.Clone(a.holder) }

// choose decides without changing anything.
func (a *Allocator) choose(service string, r Request) ([]netip.Addr, error) {
	var want []netip.Addr
	for _, addr := range r.Addresses {
		switch other := a.holder[addr]; {
		case !slices.Contains(r.Families, npl.FamilyOf(addr)):
			return nil, &Error{Family, fmt.Sprintf("the requested address %s is %s, which is not among the Service's ipFamilies", addr, npl.FamilyOf(addr))}
		case len(a.pools) > 0 && !a.inPool(addr):
			return nil, &Error{Outside, fmt.Sprintf("the requested address %s is in none of the address pools (%s)", addr, a.describe())}
		case other != "" && other != service:
			return nil, &Error{Conflict, fmt.Sprintf("the requested address %s belongs to Service %s", addr, other)}
		}
		want = append(want, addr)
	}
	if len(r.Addresses) == 0 {
		for _, family := range r.Families {
			addr, err := a.pick(service, family)
			if err != nil {
				return nil, err
			}
			want = append(want, addr)
		}
	}
	slices.SortFunc(want, netip.Addr.Compare)
	return want, nil
}

// pick keeps the address that service has, or takes the lowest free one of the first pool that has any.
func (a *Allocator) pick(service string, family npl.Family) (netip.Addr, error) {
	for _, addr := range a.held[service] {
		if npl.FamilyOf(addr) == family && (len(a.pools) == 0 || a.inPool(addr)) {
			return addr, nil
		}
	}
	some := false
	for _, pool := range a.pools {
		if npl.FamilyOf(pool.First) != family {
			continue
		}
		some = true
		for addr := pool.First; ; addr = addr.Next() {
			if a.holder[addr] == "" {
				return addr, nil
			}
			if addr == pool.Last {
				break
			}
		}
	}
	if some {
		return netip.Addr{}, &Error{Exhausted, fmt.Sprintf("every %s address of the pools (%s) is taken", family, a.describe())}
	}
	return netip.Addr{}, &Error{NoPool, fmt.Sprintf("no address pool has %s addresses (%s); configure one or request an address", family, a.describe())}
}

func (a *Allocator) take(service string, addr netip.Addr) {
	a.holder[addr] = service
	a.held[service] = append(a.held[service], addr)
	slices.SortFunc(a.held[service], netip.Addr.Compare)
}

func (a *Allocator) inPool(addr netip.Addr) bool {
	return slices.ContainsFunc(a.pools, func(r Range) bool { return r.Contains(addr) })
}

func (a *Allocator) describe() string {
	if len(a.pools) == 0 {
		return "none configured"
	}
	var out []string
	for _, p := range a.pools {
		out = append(out, p.First.String()+"-"+p.Last.String())
	}
	return strings.Join(out, ", ")
}
