package bigip

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nplbridge/nplbridge/providers"
)

// splitOption is the name under which settings differ when independent devices do not have the same.
const splitOption = "differs-between-devices"

// merge makes one state of what independent devices have. What is not the same on all of them differs from anything that can be wanted, and
// a member that one of them has counts as there.
func merge(devices []providers.Observed) providers.Observed {
	if len(devices) == 1 {
		return devices[0]
	}
	out := providers.Observed{Members: map[providers.Key]map[providers.MemberID]providers.MemberStatus{}}
	pools, virtuals := map[providers.Key][]providers.Pool{}, map[providers.Key][]providers.VirtualServer{}
	for _, d := range devices {
		for _, p := range d.State.Pools {
			pools[p.Key] = append(pools[p.Key], p)
		}
		for _, v := range d.State.VirtualServers {
			virtuals[v.Key] = append(virtuals[v.Key], v)
		}
		for k, members := range d.Members {
			if out.Members[k] == nil {
				out.Members[k] = map[providers.MemberID]providers.MemberStatus{}
			}
			for id, status := range members {
				before, known := out.Members[k][id]
				out.Members[k][id] = mergeStatus(before, status, known)
			}
		}
		out.Foreign = append(out.Foreign, d.Foreign...)
		out.Restarted = out.Restarted || d.Restarted
	}
	for _, k := range slices.SortedFunc(maps.Keys(pools), providers.Key.Compare) {
		out.State.Pools = append(out.State.Pools, mergePools(pools[k], len(devices)))
	}
	for _, k := range slices.SortedFunc(maps.Keys(virtuals), providers.Key.Compare) {
		out.State.VirtualServers = append(out.State.VirtualServers, mergeVirtuals(virtuals[k], len(devices)))
	}
	slices.Sort(out.Foreign)
	out.Foreign = slices.Compact(out.Foreign)
	return out
}

func mergeStatus(a, b providers.MemberStatus, known bool) providers.MemberStatus {
	if !known {
		return b
	}
	if a.Connections < 0 || b.Connections < 0 {
		a.Connections = -1
	} else {
		a.Connections += b.Connections
	}
	if b.Health == providers.HealthDown || a.Health == providers.HealthUnknown {
		a.Health = b.Health
	}
	a.Blocked = a.Blocked || b.Blocked
	return a
}

func mergePools(on []providers.Pool, devices int) providers.Pool {
	out := on[0]
	same := len(on) == devices
	for _, p := range on[1:] {
		same = same && p.Attached == out.Attached && p.Settings.Equal(out.Settings) && slices.EqualFunc(p.Members, out.Members, func(a, b providers.Member) bool {
			return a.ID() == b.ID() && a.State == b.State && max(a.Weight, 1) == max(b.Weight, 1)
		})
	}
	if same {
		return out
	}
	members := map[providers.MemberID]providers.Member{}
	for _, p := range on {
		for _, m := range p.Members {
			if before, known := members[m.ID()]; !known || before.State == providers.Draining {
				members[m.ID()] = m
			}
		}
	}
	out.Members = slices.SortedFunc(maps.Values(members), providers.CompareMembers)
	out.Settings.Options = map[string]string{splitOption: "true"}
	return out
}

func mergeVirtuals(on []providers.VirtualServer, devices int) providers.VirtualServer {
	out := on[0]
	for _, v := range on[1:] {
		if encodeVirtual(v) != encodeVirtual(out) {
			devices = -1
		}
	}
	if len(on) != devices {
		out.Settings.Options = map[string]string{splitOption: "true"}
	}
	return out
}

// overlay is what Apply did to a device since it was observed last.
type overlay struct {
	pools    map[providers.Key]*providers.Pool // nil is deleted
	virtuals map[providers.Key]*providers.VirtualServer
}

// note enters what came of changes. Where that is not known, the state differs from anything that can be wanted.
func (o *overlay) note(changes providers.Changes, results providers.Results) {
	if o.pools == nil {
		o.pools, o.virtuals = map[providers.Key]*providers.Pool{}, map[providers.Key]*providers.VirtualServer{}
	}
	for _, c := range changes.Pools {
		o.pools[c.Key] = c.New
		if results[c.Key] == nil {
			continue
		}
		var on []providers.Pool
		for _, p := range []*providers.Pool{c.Old, c.New} {
			if p != nil {
				on = append(on, *p)
			}
		}
		if len(on) > 0 {
			unsure := mergePools(on, -1)
			o.pools[c.Key] = &unsure
		}
	}
	for _, c := range changes.VirtualServers {
		o.virtuals[c.Key] = c.New
		if v := cmp.Or(c.New, c.Old); results[c.Key] != nil && v != nil {
			unsure := mergeVirtuals([]providers.VirtualServer{*v}, -1)
			o.virtuals[c.Key] = &unsure
		}
	}
}

// over returns what was observed with what was done since.
func (o overlay) over(seen providers.Observed) providers.Observed {
	var state providers.State
	pools, virtuals := maps.Clone(o.pools), maps.Clone(o.virtuals)
	for _, p := range seen.State.Pools {
		if _, later := pools[p.Key]; !later {
			state.Pools = append(state.Pools, p)
		}
	}
	for _, v := range seen.State.VirtualServers {
		if _, later := virtuals[v.Key]; !later {
			state.VirtualServers = append(state.VirtualServers, v)
		}
	}
	for _, p := range pools {
		if p != nil {
			state.Pools = append(state.Pools, *p)
		}
	}
	for _, v := range virtuals {
		if v != nil {
			state.VirtualServers = append(state.VirtualServers, *v)
		}
	}
	slices.SortFunc(state.Pools, func(a, b providers.Pool) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(state.VirtualServers, func(a, b providers.VirtualServer) int { return a.Key.Compare(b.Key) })
	seen.State = state
	return seen
}
