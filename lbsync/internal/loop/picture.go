package loop

import (
	"cmp"
	"maps"
	"slices"

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

// acknowledge enters what the load balancer confirmed. What was known of members before a change says nothing after it.
func (p picture) acknowledge(c providers.Changes, confirmed func(providers.Key) bool) {
	for _, change := range c.Pools {
		if confirmed(change.Key) {
			h := p.of(model.ServiceKeyOf(change.Key))
			set(h.pools, change.Key, change.New)
			if len(change.Members) > 0 || change.New == nil {
				delete(h.status, change.Key)
			}
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

// members counts the Service's members by state.
func (p picture) members(key model.ServiceKey) (enabled, draining int) {
	h := p[key]
	if h == nil {
		return 0, 0
	}
	for _, pool := range h.pools {
		for _, m := range pool.Members {
			if m.State == providers.Draining {
				draining++
			} else {
				enabled++
			}
		}
	}
	return enabled, draining
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

func compareServices(a, b model.ServiceKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
