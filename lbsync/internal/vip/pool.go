package vip

import (
	"fmt"
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

// String returns "first-last", or one address.
func (r Range) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// Pool is a set of addresses with who may have them.
type Pool struct {
	Name   string // what Request.Pool names
	Ranges []Range
	// Providers are the provider instances that may use it; empty is all.
	Providers []string
	// Namespaces and the labels of Services that may use it; empty is all.
	Namespaces []string
	Selector   map[string]string
	// OnRequest keeps it for Services that name it or an address in it.
	OnRequest bool
}

// Contains reports whether a lies in one of the pool's ranges.
func (p Pool) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(p.Ranges, func(r Range) bool { return r.Contains(a) })
}

// String returns its name and its ranges.
func (p Pool) String() string {
	var ranges []string
	for _, r := range p.Ranges {
		ranges = append(ranges, r.String())
	}
	if p.Name == "" {
		return strings.Join(ranges, ", ")
	}
	return p.Name + ": " + strings.Join(ranges, ", ")
}

// serves reports whether the pool is for an instance.
func (p Pool) serves(instance string) bool {
	return len(p.Providers) == 0 || slices.Contains(p.Providers, instance)
}

// refuses says why a Service may not use the pool; empty when it may.
func (p Pool) refuses(r Request) string {
	if !p.serves(r.Instance) {
		return fmt.Sprintf("is for the load balancers %s, not for %s", strings.Join(p.Providers, ", "), r.Instance)
	}
	if len(p.Namespaces) > 0 && !slices.Contains(p.Namespaces, r.Namespace) {
		return fmt.Sprintf("is for the Namespaces %s, not for %s", strings.Join(p.Namespaces, ", "), r.Namespace)
	}
	var missing []string
	for key, value := range p.Selector {
		if has, ok := r.Labels[key]; !ok || has != value {
			missing = append(missing, key+"="+value)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Sprintf("is for Services with the labels %s", strings.Join(missing, ", "))
	}
	return ""
}

// MayHave reports whether the Service may have an address as far as the pools are concerned.
func MayHave(pools []Pool, r Request, addr netip.Addr) bool {
	return (&Allocator{pools: pools}).lies(r, addr) == nil
}

// has reports whether the pool has addresses of the family at all.
func (p Pool) has(family npl.Family) bool {
	return slices.ContainsFunc(p.Ranges, func(r Range) bool { return npl.FamilyOf(r.First) == family })
}

// list describes pools for people.
func list(pools []Pool) string {
	if len(pools) == 0 {
		return "none is configured"
	}
	const most = 5
	var out []string
	for _, p := range pools[:min(most, len(pools))] {
		out = append(out, p.String())
	}
	if more := len(pools) - most; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}
