package loop

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/plan"
	"github.com/nplbridge/nplbridge/providers"
)

// picture is what the load balancer has, as far as we know: the last Observe and every acknowledged change since.
type picture map[model.ServiceKey]*holding

// holding is what one Service has on the load balancer.
type holding struct {
	pools   map[providers.Key]*providers.Pool
	virtual map[providers.Key]*providers.VirtualServer
	status  map[providers.Key]map[providers.MemberID]providers.MemberStatus // as of the last Observe
	drains  map[drain]time.Time                                             // when a member began to, as far as we saw it
}

// drain is one member that drains.
type drain struct {
	key    providers.Key
	member providers.MemberID
}

// drainingSince returns when a member began to drain; zero when it does not.
func (h *holding) drainingSince(key providers.Key, member providers.MemberID) time.Time {
	return h.drains[drain{key, member}]
}

// date notes when members begin to drain.
func (h *holding) date(before *holding, now time.Time) {
	had := map[drain]time.Time{}
	if before != nil {
		had = before.drains
	}
	h.drains = map[drain]time.Time{}
	for key, pool := range h.pools {
		for _, m := range pool.Members {
			if d := (drain{key, m.ID()}); m.State == providers.Draining {
				h.drains[d] = now
				if since, known := had[d]; known {
					h.drains[d] = since
				}
			}
		}
	}
}

func newHolding() *holding {
	return &holding{
		pools:   map[providers.Key]*providers.Pool{},
		virtual: map[providers.Key]*providers.VirtualServer{},
		status:  map[providers.Key]map[providers.MemberID]providers.MemberStatus{},
	}
}

func newPicture(o providers.Observed) picture {
	p := picture{}
	for i := range o.State.Pools {
		pool := &o.State.Pools[i]
		p.of(model.ServiceKeyOf(pool.Key)).pools[pool.Key] = pool
	}
	for i := range o.State.VirtualServers {
		vs := &o.State.VirtualServers[i]
		p.of(model.ServiceKeyOf(vs.Key)).virtual[vs.Key] = vs
	}
	for key, status := range o.Members {
		p.of(model.ServiceKeyOf(key)).status[key] = status
	}
	return p
}

// of returns the holding of a Service, making it if need be.
func (p picture) of(key model.ServiceKey) *holding {
	if p[key] == nil {
		p[key] = newHolding()
	}
	return p[key]
}

// keepDates takes over from the picture before when members began to drain.
func (p picture) keepDates(before picture, now time.Time) {
	for key, h := range p {
		h.date(before[key], now)
	}
}

// services returns the Services that have something, sorted.
func (p picture) services() []model.ServiceKey { return sortedServices(p) }

// state returns what the Service has, sorted by Key.
func (p picture) state(key model.ServiceKey) (s providers.State) {
	h := p[key]
	if h == nil {
		return s
	}
	for _, k := range slices.SortedFunc(maps.Keys(h.pools), providers.Key.Compare) {
		s.Pools = append(s.Pools, *h.pools[k])
	}
	for _, k := range slices.SortedFunc(maps.Keys(h.virtual), providers.Key.Compare) {
		s.VirtualServers = append(s.VirtualServers, *h.virtual[k])
	}
	return s
}

// acknowledge enters what the load balancer confirmed. How many connections members had before a change says nothing after it, nor does
// the health of the members that were changed.
func (p picture) acknowledge(c providers.Changes, confirmed func(providers.Key) bool, now time.Time) {
	for _, change := range c.Pools {
		if !confirmed(change.Key) {
			continue
		}
		h := p.of(model.ServiceKeyOf(change.Key))
		set(h.pools, change.Key, change.New)
		h.date(h, now)
		if len(change.Members) == 0 && change.New != nil {
			continue
		}
		status := maps.Clone(h.status[change.Key])
		for _, step := range change.Members {
			delete(status, step.Member.ID())
		}
		for id, s := range status {
			s.Connections = -1
			status[id] = s
		}
		if len(status) == 0 || change.New == nil {
			delete(h.status, change.Key)
		} else {
			h.status[change.Key] = status
		}
	}
	for _, change := range c.VirtualServers {
		if confirmed(change.Key) {
			set(p.of(model.ServiceKeyOf(change.Key)).virtual, change.Key, change.New)
		}
	}
	for _, key := range changed(c) {
		service := model.ServiceKeyOf(key)
		if h := p[service]; h != nil && len(h.pools) == 0 && len(h.virtual) == 0 {
			delete(p, service)
		}
	}
}

// members yields what the pools of the Service have.
func (p picture) members(key model.ServiceKey) iter.Seq[inventory.Member] {
	return func(yield func(inventory.Member) bool) {
		h := p[key]
		if h == nil {
			return
		}
		for _, pool := range h.pools {
			protocol := protocolOf(pool.Key)
			for _, m := range pool.Members {
				if !yield(inventory.Member{UID: m.UID, Claim: model.Claim{Address: m.Address, Protocol: protocol}}) {
					return
				}
			}
		}
	}
}

// drains reports whether any member of the Service does.
func (p picture) drains(key model.ServiceKey) bool { return p[key] != nil && len(p[key].drains) > 0 }

// healthy reports whether every enabled member of the Service is known to be up.
func (p picture) healthy(key model.ServiceKey) bool {
	if p[key] == nil {
		return true
	}
	for k, pool := range p[key].pools {
		for _, m := range pool.Members {
			if m.State == providers.Enabled && p[key].status[k][m.ID()].Health != providers.HealthUp {
				return false
			}
		}
	}
	return true
}

// differ returns the Services that have something else in p than in q, sorted.
func (p picture) differ(q picture) []model.ServiceKey {
	var out []model.ServiceKey
	for key := range p {
		if !plan.Between(p.state(key), q.state(key)).Empty() {
			out = append(out, key)
		}
	}
	for key := range q {
		if p[key] == nil {
			out = append(out, key)
		}
	}
	slices.SortFunc(out, compareServices)
	return out
}

// changed returns the keys of changes, sorted, each once.
func changed(c providers.Changes) []providers.Key {
	keys := make([]providers.Key, 0, len(c.Pools)+len(c.VirtualServers))
	for _, p := range c.Pools {
		keys = append(keys, p.Key)
	}
	for _, v := range c.VirtualServers {
		keys = append(keys, v.Key)
	}
	slices.SortFunc(keys, providers.Key.Compare)
	return slices.Compact(keys)
}

func set[V any](m map[providers.Key]*V, key providers.Key, v *V) {
	if v == nil {
		delete(m, key)
		return
	}
	m[key] = v
}

// sortChanges orders both slices by Key, as a provider expects them.
func sortChanges(c providers.Changes) {
	slices.SortFunc(c.Pools, func(a, b providers.PoolChange) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(c.VirtualServers, func(a, b providers.VirtualServerChange) int { return a.Key.Compare(b.Key) })
}

// without leaves out the changes under some keys.
func without(c providers.Changes, leave func(providers.Key) bool) (out providers.Changes) {
	for _, p := range c.Pools {
		if !leave(p.Key) {
			out.Pools = append(out.Pools, p)
		}
	}
	for _, v := range c.VirtualServers {
		if !leave(v.Key) {
			out.VirtualServers = append(out.VirtualServers, v)
		}
	}
	return out
}

func sortedServices[M ~map[model.ServiceKey]V, V any](m M) []model.ServiceKey {
	return slices.SortedFunc(maps.Keys(m), compareServices)
}

func compareServices(a, b model.ServiceKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
