package vip

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
)

// Reason says why a Service got no address.
type Reason string

// The reasons.
const (
	Conflict     Reason = "AddressConflict"       // another Service has the requested address
	PortConflict Reason = "AddressPortConflict"   // another Service of the group has the same port
	Outside      Reason = "AddressNotInPool"      // the requested address is in none of the pools
	NotAllowed   Reason = "AddressPoolNotAllowed" // the pool is not for this Service
	Exhausted    Reason = "AddressPoolExhausted"  // no address is left
	NoPool       Reason = "NoAddressPool"         // no pool has that name, or addresses of the family
	Family       Reason = "AddressFamily"         // the requested address is of a family that the Service does not have
)

// Reasons lists every Reason.
func Reasons() []Reason {
	return []Reason{Conflict, PortConflict, Outside, NotAllowed, Exhausted, NoPool, Family}
}

// Error is a refusal.
type Error struct {
	Reason  Reason
	Message string
}

func (e *Error) Error() string { return e.Message }

// choose decides without changing anything that can be seen.
func (a *Allocator) choose(r Request) ([]netip.Addr, error) {
	if err := a.named(r); err != nil {
		return nil, err
	}
	var want []netip.Addr
	for _, addr := range r.Addresses {
		if err := a.grant(r, addr); err != nil {
			return nil, err
		}
		want = append(want, addr)
	}
	if len(r.Addresses) == 0 {
		for _, family := range r.Families {
			addr, err := a.pick(r, family)
			if err != nil {
				return nil, err
			}
			want = append(want, addr)
		}
	}
	slices.SortFunc(want, providers.CompareAddrs)
	return want, nil
}

// named checks the pool that the Service names.
func (a *Allocator) named(r Request) error {
	if r.Pool == "" {
		return nil
	}
	at := slices.IndexFunc(a.pools, func(p Pool) bool { return p.Name == r.Pool })
	if at < 0 {
		return &Error{NoPool, fmt.Sprintf("no address pool is named %s (%s)", r.Pool, list(a.pools))}
	}
	if why := a.pools[at].refuses(r); why != "" {
		return &Error{NotAllowed, fmt.Sprintf("the address pool %s %s", r.Pool, why)}
	}
	return nil
}

// grant checks an address that the Service asks for.
func (a *Allocator) grant(r Request, addr netip.Addr) error {
	if !slices.Contains(r.Families, npl.FamilyOf(addr)) {
		return &Error{Family, fmt.Sprintf("the requested address %s is %s, which is not among the Service's ipFamilies", addr, npl.FamilyOf(addr))}
	}
	if err := a.lies(r, addr); err != nil {
		return err
	}
	if err := a.conflict(r.holder(), addr); err != nil {
		return err
	}
	return nil
}

// lies checks that the Service may have an address as far as the pools are concerned. Pools may overlap: one that allows it is enough.
func (a *Allocator) lies(r Request, addr netip.Addr) error {
	refused := ""
	for _, p := range a.pools {
		if !p.Contains(addr) {
			continue
		}
		why := p.refuses(r)
		if why == "" && (r.Pool == "" || r.Pool == p.Name) {
			return nil
		}
		if refused == "" && why != "" {
			refused = fmt.Sprintf("the requested address %s is in the address pool %s, which %s", addr, p, why)
		}
	}
	mine := a.usable(r)
	switch {
	case refused != "":
		return &Error{NotAllowed, refused}
	case r.Pool != "":
		return &Error{Outside, fmt.Sprintf("the requested address %s is not in the address pool %s", addr, list(mine))}
	case len(mine) > 0 || slices.ContainsFunc(a.pools, func(p Pool) bool { return p.serves(r.Instance) }):
		return &Error{Outside, fmt.Sprintf("the requested address %s is in none of the address pools of the Service (%s)", addr, list(mine))}
	default:
		return nil // the load balancer has no pool of ours, so its addresses are somebody else's business
	}
}

// usable returns the pools that the Service may use, or the one that it names.
func (a *Allocator) usable(r Request) (out []Pool) {
	for _, p := range a.pools {
		if p.refuses(r) == "" && (r.Pool == "" || r.Pool == p.Name) {
			out = append(out, p)
		}
	}
	return out
}

// pick returns the address of the Service's group, or keeps the one that the Service has, or takes the lowest free one of the first pool
// that has any.
func (a *Allocator) pick(r Request, family npl.Family) (netip.Addr, error) {
	h, pools := r.holder(), a.usable(r)
	if addr, err := a.shared(r, family); err != nil {
		return netip.Addr{}, err
	} else if addr.IsValid() {
		if err := a.conflict(h, addr); err != nil {
			return netip.Addr{}, err
		}
		return addr, nil
	}
	for _, addr := range a.held[id{r.Instance, r.Service}] {
		if npl.FamilyOf(addr) == family && a.lies(r, addr) == nil && a.conflict(h, addr) == nil {
			return addr, nil
		}
	}
	var tried []Pool
	for _, p := range pools {
		if !p.has(family) || p.OnRequest && r.Pool != p.Name {
			continue
		}
		tried = append(tried, p)
		for _, span := range p.Ranges {
			if npl.FamilyOf(span.First) != family {
				continue
			}
			if addr, ok := a.free(span); ok {
				return addr, nil
			}
		}
	}
	if len(tried) > 0 {
		return netip.Addr{}, &Error{Exhausted, fmt.Sprintf("every %s address of the pools (%s) is taken; add addresses or free one", family, list(tried))}
	}
	return netip.Addr{}, &Error{NoPool, fmt.Sprintf("no address pool for the Service has %s addresses to give (%s); configure one or request "+
		"an address", family, list(pools))}
}

// free returns the lowest free address of a range, and remembers where that was.
func (a *Allocator) free(r Range) (netip.Addr, bool) {
	addr, known := a.lowest[r]
	if !known {
		addr = r.First
	}
	for ; addr.IsValid() && r.Contains(addr); addr = addr.Next() {
		if a.leases[addr] == nil {
			a.lowest[r] = addr
			return addr, true
		}
	}
	a.lowest[r] = addr
	return netip.Addr{}, false
}
