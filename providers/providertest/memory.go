package providertest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/nplbridge/nplbridge/providers"
)

// MemoryCapabilities are those of a LoadBalancer that was not told otherwise: a remote one that balances TCP and UDP.
func MemoryCapabilities() providers.Capabilities {
	return providers.Capabilities{
		Name: "memory", Protocols: []providers.Protocol{providers.TCP, providers.UDP},
		Algorithms:     []providers.Algorithm{providers.LeastConnections, providers.SourceHash},
		Persistence:    []providers.PersistenceKind{providers.SourceAddress},
		Monitors:       []providers.MonitorType{providers.MonitorNone, providers.MonitorTCP, providers.MonitorHTTP},
		ProxyProtocols: []providers.ProxyProtocol{providers.ProxyV2},
		Features: []providers.Feature{
			providers.Weights, providers.SlowStart, providers.MemberConnections, providers.SourceRanges, providers.IdleTimeout,
			providers.AcceptProxyProtocol, providers.SharedVIPs, providers.AttachedPools, providers.MemberHealth,
		},
	}
}

// LoadBalancer is a load balancer in memory that is as strict as a real one: it knows who owns what, refuses a member
// that is already there or absent, a virtual server without a pool, a pool that is still used, an address and port that
// is taken, and whatever its Capabilities exclude. It outlives the providers that are opened on it, so closing one and
// opening another is a restart of lbsync. All methods may be called by several goroutines.
type LoadBalancer struct {
	capabilities providers.Capabilities

	mu      sync.Mutex
	pools   map[providers.Key]*memoryPool
	virtual map[providers.Key]*memoryVirtualServer
	taken   map[listener]providers.Key // by virtual servers
	foreign map[string]bool            // names of pools to attach to
	journal []Op
	faults  faults
	open    map[*memoryProvider]bool // those not closed; true: restarted since its last Observe
}

type memoryPool struct {
	owner       providers.Owner
	attached    string
	settings    providers.PoolSettings
	members     []providers.Member
	connections map[providers.MemberID]int
}

type memoryVirtualServer struct {
	owner providers.Owner
	value providers.VirtualServer
}

// NewLoadBalancer returns an empty load balancer with these capabilities.
func NewLoadBalancer(capabilities providers.Capabilities) *LoadBalancer {
	return &LoadBalancer{
		capabilities: capabilities,
		pools:        map[providers.Key]*memoryPool{},
		virtual:      map[providers.Key]*memoryVirtualServer{},
		taken:        map[listener]providers.Key{},
		foreign:      map[string]bool{},
		faults:       newFaults(),
		open:         map[*memoryProvider]bool{},
	}
}

// Open returns a provider that works on this load balancer as owner.
func (lb *LoadBalancer) Open(owner providers.Owner) providers.Provider {
	p := &memoryProvider{lb: lb, owner: owner, changed: make(chan struct{}, 1)}
	lb.mu.Lock()
	defer lb.mu.Unlock()
	lb.open[p] = false
	return p
}

type memoryProvider struct {
	lb      *LoadBalancer
	owner   providers.Owner
	changed chan struct{}
}

var (
	_ providers.Provider = (*memoryProvider)(nil)
	_ providers.Notifier = (*memoryProvider)(nil)
)

func (p *memoryProvider) Capabilities() providers.Capabilities { return p.lb.capabilities }

// Changed receives after LoadBalancer.Restart.
func (p *memoryProvider) Changed() <-chan struct{} { return p.changed }

func (p *memoryProvider) Close() error {
	p.lb.mu.Lock()
	defer p.lb.mu.Unlock()
	delete(p.lb.open, p)
	return nil
}

// Observe returns what p's owner has on the load balancer.
func (p *memoryProvider) Observe(ctx context.Context, scope providers.Scope) (providers.Observed, error) {
	lb := p.lb
	lb.pause(ctx)
	lb.mu.Lock()
	defer lb.mu.Unlock()
	lb.faults.observations++
	if err := errors.Join(ctx.Err(), lb.faults.observe); err != nil {
		return providers.Observed{}, &providers.Error{Kind: providers.KindOf(err), What: "observe", Err: err}
	}
	out := providers.Observed{Members: map[providers.Key]map[providers.MemberID]providers.MemberStatus{}, Restarted: lb.open[p]}
	if out.Restarted {
		lb.open[p] = false
	}
	for _, key := range sortedKeys(lb.pools) {
		pool := lb.pools[key]
		if pool.owner != p.owner || pool.attached != scope.Attached[key] {
			continue
		}
		out.State.Pools = append(out.State.Pools, pool.export(key))
		for _, m := range pool.members {
			if out.Members[key] == nil {
				out.Members[key] = map[providers.MemberID]providers.MemberStatus{}
			}
			out.Members[key][m.ID()] = providers.MemberStatus{Connections: pool.connections[m.ID()]}
		}
	}
	for key, name := range scope.Attached {
		if lb.foreign[name] && lb.pools[key] == nil {
			out.State.Pools = append(out.State.Pools, providers.Pool{Key: key, Attached: name})
		}
	}
	slices.SortFunc(out.State.Pools, func(a, b providers.Pool) int { return a.Key.Compare(b.Key) })
	for _, key := range sortedKeys(lb.virtual) {
		if v := lb.virtual[key]; v.owner == p.owner {
			out.State.VirtualServers = append(out.State.VirtualServers, v.value)
		}
	}
	return out, nil
}

// Apply makes the changes one object after the other: pools, then virtual servers, then deletions in reverse.
func (p *memoryProvider) Apply(ctx context.Context, changes providers.Changes) providers.Results {
	results := providers.Results{}
	p.lb.mu.Lock()
	p.lb.faults.applications++
	p.lb.mu.Unlock()
	attempt := func(key providers.Key, what string, do func() error) {
		if results[key] != nil {
			return // its first step failed
		}
		if err := p.lb.wait(ctx, key); err != nil {
			results[key] = &providers.Error{Kind: providers.Unavailable, What: what + " " + key.String(), Err: err}
			return
		}
		p.lb.mu.Lock()
		defer p.lb.mu.Unlock()
		err := p.lb.faults.apply[key]
		if err == nil {
			err = do()
		}
		if err != nil {
			err = &providers.Error{
				Kind: kindOr(err, providers.Rejected), What: what + " " + key.String(), Err: err,
				RetryAfter: providers.RetryAfter(err), RetryWithin: providers.RetryWithin(err),
			}
		}
		results[key] = err
	}
	for _, c := range changes.Pools {
		if c.New != nil {
			attempt(c.Key, "write pool", func() error { return p.lb.writePool(p.owner, c) })
		}
	}
	for _, c := range changes.VirtualServers {
		if c.New != nil {
			attempt(c.Key, "write virtual server", func() error { return p.lb.writeVirtualServer(p.owner, c) })
		} else {
			attempt(c.Key, "delete virtual server", func() error { return p.lb.deleteVirtualServer(p.owner, c) })
		}
	}
	for _, c := range changes.Pools {
		if c.New == nil {
			attempt(c.Key, "delete pool", func() error { return p.lb.deletePool(p.owner, c) })
		}
	}
	return results
}

func (p *memoryPool) export(key providers.Key) providers.Pool {
	members := slices.Clone(p.members)
	slices.SortFunc(members, providers.CompareMembers)
	return providers.Pool{Key: key, Attached: p.attached, Settings: p.settings, Members: members}
}

func kindOr(err error, kind providers.Kind) providers.Kind {
	if e, ok := errors.AsType[*providers.Error](err); ok {
		return e.Kind
	}
	return kind
}

func conflict(what string) error {
	return &providers.Error{Kind: providers.Conflict, What: what}
}
