// Package plan turns what is wanted and what is there into the changes between them. It is pure.
package plan

import (
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/providers"
)

// Between returns the changes that turn current into wanted; both are sorted by Key. Equal states give empty changes,
// and what is in neither is never touched.
//
// The steps on a pool's members come in the order in which each is safe:
//
//	removals of members whose address another Pod has now  (they would lead to that Pod)
//	adds, enables                                          (the pool grows before it shrinks)
//	new weights
//	drains
//	removals
//
// A pool whose Attached differs is another one: this time the old one is left, and what then follows from the acknowledged state enters
// the new one. A virtual server that gets other addresses is one change, never a deletion and a creation.
func Between(current, wanted providers.State) providers.Changes {
	var out providers.Changes
	left := map[providers.Key]bool{}
	eachPair(current.Pools, wanted.Pools, func(p *providers.Pool) providers.Key { return p.Key }, providers.Key.Compare,
		func(key providers.Key, before, after *providers.Pool) {
			if before != nil && after != nil && before.Attached != after.Attached {
				left[key], after = true, nil
			}
			if c, changed := poolChange(key, before, after); changed {
				out.Pools = append(out.Pools, c)
			}
		})
	eachPair(current.VirtualServers, wanted.VirtualServers, func(v *providers.VirtualServer) providers.Key { return v.Key }, providers.Key.Compare,
		func(key providers.Key, before, after *providers.VirtualServer) {
			if left[key] {
				after = nil
			}
			if !EqualVirtualServers(before, after) {
				out.VirtualServers = append(out.VirtualServers, providers.VirtualServerChange{Key: key, Old: before, New: after})
			}
		})
	return out
}

// eachPair calls visit with both sides of every key, in order; a side that lacks the key is nil. Both are sorted by key.
func eachPair[T, K any](a, b []T, keyOf func(*T) K, compare func(K, K) int, visit func(key K, a, b *T)) {
	for len(a) > 0 || len(b) > 0 {
		var order int
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = compare(keyOf(&a[0]), keyOf(&b[0]))
		}
		switch {
		case order < 0:
			visit(keyOf(&a[0]), &a[0], nil)
			a = a[1:]
		case order > 0:
			visit(keyOf(&b[0]), nil, &b[0])
			b = b[1:]
		default:
			visit(keyOf(&a[0]), &a[0], &b[0])
			a, b = a[1:], b[1:]
		}
	}
}

func poolChange(key providers.Key, before, after *providers.Pool) (providers.PoolChange, bool) {
	c := providers.PoolChange{Key: key, Old: before, New: after}
	if after == nil {
		return c, true
	}
	var old []providers.Member
	if before != nil {
		old = before.Members
	}
	c.Members = Steps(old, after.Members)
	return c, before == nil || !before.Settings.Equal(after.Settings) || len(c.Members) > 0
}

// Steps returns the steps from the members before to those after, in the order that Between explains. Both are sorted
// by providers.CompareMembers; within one kind of step that order is kept.
func Steps(before, after []providers.Member) []providers.MemberChange {
	var add, enable, weigh, drain, gone []providers.MemberChange
	itself := func(m *providers.Member) providers.Member { return *m }
	eachPair(before, after, itself, providers.CompareMembers, func(_ providers.Member, old, m *providers.Member) {
		switch {
		case m == nil:
			gone = append(gone, providers.MemberChange{Op: providers.RemoveMember, Member: *old})
			return
		case old == nil:
			add = append(add, providers.MemberChange{Op: providers.AddMember, Member: *m})
			return
		case old.State == m.State:
		case m.State == providers.Enabled:
			enable = append(enable, providers.MemberChange{Op: providers.EnableMember, Member: *m})
		default:
			drain = append(drain, providers.MemberChange{Op: providers.DrainMember, Member: *m})
		}
		if weight(*old) != weight(*m) {
			weigh = append(weigh, providers.MemberChange{Op: providers.WeighMember, Member: *m})
		}
	})
	displaced, removed := displacing(add, gone)
	return slices.Concat(displaced, add, enable, weigh, drain, removed)
}

// displacing divides what goes into that whose address somebody else gets, and the rest.
func displacing(add, gone []providers.MemberChange) (displaced, rest []providers.MemberChange) {
	if len(add) == 0 || len(gone) == 0 {
		return nil, gone
	}
	taken := make(map[netip.AddrPort]bool, len(add))
	for _, c := range add {
		taken[c.Member.Address] = true
	}
	for _, c := range gone {
		if taken[c.Member.Address] {
			displaced = append(displaced, c)
		} else {
			rest = append(rest, c)
		}
	}
	return displaced, rest
}

// weight returns what the weight of a member means.
func weight(m providers.Member) uint8 { return max(m.Weight, 1) }

// EqualPools compares what a load balancer knows of two pools; nil equals only nil. Member.Name is for people and does
// not count.
func EqualPools(a, b *providers.Pool) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Key == b.Key && a.Attached == b.Attached && a.Settings.Equal(b.Settings) &&
		slices.EqualFunc(a.Members, b.Members, func(x, y providers.Member) bool {
			return x.ID() == y.ID() && x.State == y.State && weight(x) == weight(y)
		})
}

// EqualVirtualServers compares two virtual servers; nil equals only nil.
func EqualVirtualServers(a, b *providers.VirtualServer) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Key == b.Key && a.Port == b.Port && slices.Equal(a.VIPs, b.VIPs) && a.Shared == b.Shared && a.Settings.Equal(b.Settings)
}
