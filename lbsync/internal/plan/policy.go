package plan

import (
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/providers"
)

// Policy takes out of the changes what is too dangerous to do unasked. What remains is a valid set of changes.
type Policy func(providers.Changes) providers.Changes

// HoldRemovals keeps everything that would be removed, except under keys whose removal is explained: by a Service that
// is being deleted, say. It is for the time while the picture of the cluster may be incomplete (invariant I6). Adds,
// enables and drains pass, because each rests on an object that is there. A member whose address another Pod has now is
// removed nevertheless: that Pod is the explanation.
func HoldRemovals(explained func(providers.Key) bool) Policy {
	return func(c providers.Changes) providers.Changes {
		var out providers.Changes
		for _, pool := range c.Pools {
			if !explained(pool.Key) {
				var changed bool
				if pool, changed = holdMembers(pool); !changed {
					continue
				}
			}
			out.Pools = append(out.Pools, pool)
		}
		for _, vs := range c.VirtualServers {
			if vs.New != nil || explained(vs.Key) {
				out.VirtualServers = append(out.VirtualServers, vs)
			}
		}
		return out
	}
}

func holdMembers(c providers.PoolChange) (_ providers.PoolChange, changed bool) {
	if c.New == nil {
		return c, false
	}
	if c.Old == nil {
		return c, true
	}
	taken := map[netip.AddrPort]bool{}
	for _, m := range c.New.Members {
		taken[m.Address] = true
	}
	held := *c.New
	held.Members = slices.Clone(held.Members)
	for _, step := range c.Members {
		if step.Op == providers.RemoveMember && !taken[step.Member.Address] {
			held.Members = append(held.Members, step.Member)
		}
	}
	slices.SortFunc(held.Members, providers.CompareMembers)
	return poolChange(c.Key, c.Old, &held)
}
