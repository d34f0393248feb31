// Package vip gives addresses to Services. It is pure and deterministic: the same calls give the same addresses.
package vip

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
)

// Port is a port of a Service.
type Port struct {
	Number   uint16
	Protocol providers.Protocol
}

// String returns "number/PROTOCOL".
func (p Port) String() string { return fmt.Sprintf("%d/%s", p.Number, p.Protocol) }

// Holder is a Service on one load balancer.
type Holder struct {
	Instance string // the provider instance
	Service  string // "namespace/name"
	Shared   string // the group, within the Namespace, with which it shares its addresses; empty is none
	Ports    []Port // only of interest with Shared
}

// Request is what a Service asks for on one load balancer.
type Request struct {
	Instance  string // the provider instance
	Service   string // "namespace/name"
	Namespace string
	Labels    map[string]string // of the Service
	Families  []npl.Family      // of the Service, in its order
	Addresses []netip.Addr      // certain ones; at most one per family. Without any, one per family comes from the pools
	Pool      string            // name of the pool that they must come from; empty is any that the Service may use
	Shared    string            // see Holder
	Ports     []Port
}

func (r Request) holder() Holder { return Holder{r.Instance, r.Service, r.Shared, r.Ports} }

// Allocator knows who has which address, over all load balancers: an address has one holder, or several Services of one group on the same
// load balancer with different ports. The zero value is not usable, see New. Before the first Assign, Load must have been called with
// every address that is already given.
type Allocator struct {
	pools  []Pool
	leases map[netip.Addr]*lease
	held   map[id][]netip.Addr // sorted
	groups map[group]map[netip.Addr]bool
	// lowest is where to look for a free address: below it, every address of the range is taken.
	lowest map[Range]netip.Addr
}

// id names a Service on a load balancer.
type id struct{ instance, service string }

// group names Services that share addresses. Its zero value is none.
type group struct{ instance, namespace, name string }

// lease is an address that is taken.
type lease struct {
	instance string
	group    group
	services map[string]share
}

// share is what one Service has of an address.
type share struct {
	ports []Port
	asked bool // for this very address
}

// New returns an Allocator that takes addresses from pools in order of preference, in each from its ranges in their order. On a load
// balancer that no pool is for, it gives only what is requested: any address that is in no pool.
func New(pools []Pool) *Allocator {
	return &Allocator{
		pools: pools, leases: map[netip.Addr]*lease{}, held: map[id][]netip.Addr{}, groups: map[group]map[netip.Addr]bool{}, lowest: map[Range]netip.Addr{},
	}
}

// Load records what a Service has already. An address that somebody else has, with whom it does not share, is left to that one: load the
// older first.
func (a *Allocator) Load(h Holder, addrs []netip.Addr) {
	for _, addr := range addrs {
		if a.conflict(h, addr) == nil {
			a.take(h, addr, false)
		}
	}
}

// Assign returns the addresses of a Service on a load balancer, sorted, at most one per family. What it has and may keep it keeps. On an
// error it keeps everything that it had, and that is returned beside the *Error.
//
// A Service in a group gets the addresses that the group has already, rather than keep others of its own.
func (a *Allocator) Assign(r Request) ([]netip.Addr, error) {
	me := id{r.Instance, r.Service}
	want, err := a.choose(r)
	if err != nil {
		return slices.Clone(a.held[me]), err
	}
	for _, addr := range slices.Clone(a.held[me]) {
		if !slices.Contains(want, addr) {
			a.drop(me, addr)
		}
	}
	for _, addr := range want {
		a.take(r.holder(), addr, len(r.Addresses) > 0)
	}
	return slices.Clone(a.held[me]), nil
}

// Release frees what a Service has on a load balancer and reports whether there was anything.
func (a *Allocator) Release(instance, service string) bool {
	me := id{instance, service}
	had := slices.Clone(a.held[me])
	for _, addr := range had {
		a.drop(me, addr)
	}
	return len(had) > 0
}

// Of returns the addresses that a Service has on a load balancer, sorted.
func (a *Allocator) Of(instance, service string) []netip.Addr {
	return slices.Clone(a.held[id{instance, service}])
}

// Holders returns who has an address, sorted by Service; several when they share it.
func (a *Allocator) Holders(addr netip.Addr) []Holder {
	l := a.leases[addr]
	if l == nil {
		return nil
	}
	var out []Holder
	for _, service := range slices.Sorted(maps.Keys(l.services)) {
		out = append(out, Holder{l.instance, service, l.group.name, l.services[service].ports})
	}
	return out
}

// conflict says why h cannot have an address beside those who have it; nil when it can.
func (a *Allocator) conflict(h Holder, addr netip.Addr) *Error {
	l := a.leases[addr]
	if l == nil {
		return nil
	}
	for _, other := range slices.Sorted(maps.Keys(l.services)) {
		if other == h.Service && l.instance == h.Instance {
			continue
		}
		if g := groupOf(h); g == (group{}) || g != l.group {
			where := ""
			if l.instance != h.Instance {
				where = " on load balancer " + l.instance
			}
			return &Error{Conflict, fmt.Sprintf("the address %s belongs to Service %s%s", addr, other, where)}
		}
		for _, p := range l.services[other].ports {
			if slices.Contains(h.Ports, p) {
				return &Error{PortConflict, fmt.Sprintf("port %s of the address %s, which the group %s shares, belongs to Service %s; change "+
					"the port or leave the group", p, addr, l.group.name, other)}
			}
		}
	}
	return nil
}

func (a *Allocator) take(h Holder, addr netip.Addr, asked bool) {
	l := a.leases[addr]
	if l == nil {
		l = &lease{services: map[string]share{}}
		a.leases[addr] = l
	}
	a.regroup(l, addr, groupOf(h))
	l.instance = h.Instance
	l.services[h.Service] = share{slices.Clone(h.Ports), asked}
	me := id{h.Instance, h.Service}
	if !slices.Contains(a.held[me], addr) {
		a.held[me] = append(a.held[me], addr)
		slices.SortFunc(a.held[me], providers.CompareAddrs)
	}
}

func (a *Allocator) drop(me id, addr netip.Addr) {
	a.held[me] = slices.DeleteFunc(a.held[me], func(o netip.Addr) bool { return o == addr })
	if len(a.held[me]) == 0 {
		delete(a.held, me)
	}
	l := a.leases[addr]
	if delete(l.services, me.service); len(l.services) > 0 {
		return
	}
	a.regroup(l, addr, group{})
	delete(a.leases, addr)
	for r, from := range a.lowest {
		if r.Contains(addr) && (!from.IsValid() || addr.Less(from)) { // not valid: past the last address that there is
			a.lowest[r] = addr
		}
	}
}

func (a *Allocator) regroup(l *lease, addr netip.Addr, g group) {
	if l.group == g {
		return
	}
	if delete(a.groups[l.group], addr); len(a.groups[l.group]) == 0 {
		delete(a.groups, l.group)
	}
	if l.group = g; g != (group{}) {
		if a.groups[g] == nil {
			a.groups[g] = map[netip.Addr]bool{}
		}
		a.groups[g][addr] = true
	}
}

func groupOf(h Holder) group {
	if h.Shared == "" {
		return group{}
	}
	namespace, _, _ := strings.Cut(h.Service, "/")
	return group{h.Instance, namespace, h.Shared}
}

// shared returns the address of a family that the Service's group has and that the Service may have: of several one that a Service asks
// for, then the one that most have, then the lowest.
func (a *Allocator) shared(r Request, family npl.Family) (netip.Addr, error) {
	g := groupOf(r.holder())
	var may []netip.Addr
	var refused error
	for _, addr := range slices.SortedFunc(maps.Keys(a.groups[g]), providers.CompareAddrs) {
		if npl.FamilyOf(addr) != family {
			continue
		}
		err := a.lies(r, addr)
		if _, has := a.leases[addr].services[r.Service]; err == nil {
			may = append(may, addr)
		} else if no, ok := errors.AsType[*Error](err); ok && no.Reason == NotAllowed && !has {
			refused = &Error{NotAllowed, fmt.Sprintf("the group %s has the address %s, which this Service may not have: %s", g.name, addr, no.Message)}
		}
	}
	if len(may) == 0 {
		return netip.Addr{}, refused
	}
	return slices.MinFunc(may, func(x, y netip.Addr) int {
		return cmp.Or(cmp.Compare(a.askers(y, r), a.askers(x, r)), cmp.Compare(len(a.leases[y].services), len(a.leases[x].services)), x.Compare(y))
	}), nil
}

// askers counts the Services other than the one of r that ask for the very address that they have.
func (a *Allocator) askers(addr netip.Addr, r Request) (n int) {
	for service, s := range a.leases[addr].services {
		if s.asked && service != r.Service {
			n++
		}
	}
	return n
}
