package providertest

import (
	"slices"

	"github.com/nplbridge/nplbridge/providers"
)

// Diff returns the changes from one state to another in a fixed, safe order: adds, enables, drains, removals. It is
// deliberately naive: lbsync has its own planner, and a provider is judged by this one.
func Diff(from, to providers.State) providers.Changes {
	var out providers.Changes
	for _, key := range unionKeys(from.Pools, to.Pools, func(p providers.Pool) providers.Key { return p.Key }) {
		before, after := find(from.Pools, key, poolKey), find(to.Pools, key, poolKey)
		c := providers.PoolChange{Key: key, Old: before, New: after}
		if before != nil && after != nil && Render(*before) == Render(*after) {
			continue
		}
		if after != nil {
			c.Members = steps(before, *after)
		}
		out.Pools = append(out.Pools, c)
	}
	for _, key := range unionKeys(from.VirtualServers, to.VirtualServers, virtualServerKey) {
		before, after := find(from.VirtualServers, key, virtualServerKey), find(to.VirtualServers, key, virtualServerKey)
		if before != nil && after != nil && Render(*before) == Render(*after) {
			continue
		}
		out.VirtualServers = append(out.VirtualServers, providers.VirtualServerChange{Key: key, Old: before, New: after})
	}
	return out
}

func steps(from *providers.Pool, to providers.Pool) []providers.MemberChange {
	var old []providers.Member
	if from != nil {
		old = from.Members
	}
	var add, enable, drain, remove []providers.MemberChange
	for _, m := range to.Members {
		before := find(old, m.ID(), providers.Member.ID)
		switch {
		case before == nil:
			add = append(add, providers.MemberChange{Op: providers.AddMember, Member: m})
		case before.State == m.State && before.Weight == m.Weight:
		case before.State == m.State:
			enable = append(enable, providers.MemberChange{Op: providers.WeighMember, Member: m})
		case m.State == providers.Enabled:
			enable = append(enable, providers.MemberChange{Op: providers.EnableMember, Member: m})
		default:
			drain = append(drain, providers.MemberChange{Op: providers.DrainMember, Member: m})
		}
	}
	for _, m := range old {
		if find(to.Members, m.ID(), providers.Member.ID) == nil {
			remove = append(remove, providers.MemberChange{Op: providers.RemoveMember, Member: m})
		}
	}
	return slices.Concat(add, enable, drain, remove)
}

func poolKey(p providers.Pool) providers.Key                   { return p.Key }
func virtualServerKey(v providers.VirtualServer) providers.Key { return v.Key }

func find[T any, K comparable](in []T, key K, keyOf func(T) K) *T {
	if at := slices.IndexFunc(in, func(v T) bool { return keyOf(v) == key }); at >= 0 {
		return &in[at]
	}
	return nil
}

func unionKeys[T any](a, b []T, keyOf func(T) providers.Key) []providers.Key {
	var keys []providers.Key
	for _, v := range slices.Concat(a, b) {
		keys = append(keys, keyOf(v))
	}
	slices.SortFunc(keys, providers.Key.Compare)
	return slices.Compact(keys)
}
