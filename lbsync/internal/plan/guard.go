package plan

import (
	"slices"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// leastSuspicious is the smallest number of members of which the loss of more than half is suspicious.
const leastSuspicious = 3

// Suspicious reports whether so much of the pool is lost at once that it is rather the picture of the cluster that is wrong: more than
// half of at least three members. Members that drain for good reason count neither way. Losses under other keys are ignored.
func Suspicious(before *providers.Pool, losses []model.Loss) bool {
	if before == nil {
		return false
	}
	lost := lostOf(before.Key, losses)
	members, gone := 0, 0
	for _, m := range before.Members {
		switch {
		case lost[m.ID()]:
			members++
			gone++
		case m.State == providers.Enabled:
			members++
		}
	}
	return members >= leastSuspicious && 2*gone > members
}

// Guard leaves the lost members of held pools as they are, or enabled where nothing better is. Everything else passes: what is new enters, what an event explains
// drains and leaves, and a member whose address another Pod has now is displaced, lost or not.
func Guard(losses []model.Loss, held map[providers.Key]bool) Policy {
	return func(c providers.Changes) providers.Changes {
		out := providers.Changes{VirtualServers: c.VirtualServers}
		for _, pool := range c.Pools {
			if held[pool.Key] && pool.Old != nil && pool.New != nil {
				var changed bool
				if pool, changed = guardMembers(pool, lostOf(pool.Key, losses)); !changed {
					continue
				}
			}
			out.Pools = append(out.Pools, pool)
		}
		return out
	}
}

// guardMembers puts lost members back into the new pool as they are in the old one, except where another Pod has their address.
func guardMembers(c providers.PoolChange, lost map[providers.MemberID]bool) (_ providers.PoolChange, changed bool) {
	held := *c.New
	held.Members = slices.Clone(held.Members)
	for _, m := range c.Old.Members {
		if !lost[m.ID()] {
			continue
		}
		at := slices.IndexFunc(held.Members, func(o providers.Member) bool { return o.Address == m.Address })
		switch {
		case at < 0:
			held.Members = append(held.Members, m)
		case held.Members[at].UID == m.UID && held.Members[at].State != providers.Enabled:
			held.Members[at] = m
		}
	}
	slices.SortFunc(held.Members, providers.CompareMembers)
	return poolChange(c.Key, c.Old, &held)
}

func lostOf(key providers.Key, losses []model.Loss) map[providers.MemberID]bool {
	out := map[providers.MemberID]bool{}
	for _, l := range losses {
		if l.Key == key {
			out[l.Member] = true
		}
	}
	return out
}
