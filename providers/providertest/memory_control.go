package providertest

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// Op is one write that the load balancer made, with the state of the pool right after it.
type Op struct {
	Key     providers.Key
	What    string           // a providers.MemberOp, or CreatePool, SetSettings, DeletePool, WriteVirtualServer, DeleteVirtualServer
	Member  providers.Member // of a member step
	Enabled int              // Enabled members of the pool after it
	Members int              // all members of the pool after it
}

// faults is what a test can make go wrong, guarded by LoadBalancer.mu.
type faults struct {
	observe      error
	observations int
	applications int
	delay        time.Duration
	apply        map[providers.Key]error
	held         map[providers.Key]chan struct{} // closed when released
}

func newFaults() faults {
	return faults{apply: map[providers.Key]error{}, held: map[providers.Key]chan struct{}{}}
}

// pause takes the time of one request.
func (lb *LoadBalancer) pause(ctx context.Context) {
	lb.mu.Lock()
	delay := lb.faults.delay
	lb.mu.Unlock()
	if delay == 0 {
		return
	}
	select {
	case <-time.After(delay):
	case <-ctx.Done():
	}
}

// wait blocks for the time of one request, and while key is held.
func (lb *LoadBalancer) wait(ctx context.Context, key providers.Key) error {
	lb.pause(ctx)
	lb.mu.Lock()
	gate := lb.faults.held[key]
	lb.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// FailKey makes every change to key fail with err until it is called with nil. An error that is not a
// *providers.Error counts as Rejected.
func (lb *LoadBalancer) FailKey(key providers.Key, err error) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	if err == nil {
		delete(lb.faults.apply, key)
		return
	}
	lb.faults.apply[key] = err
}

// FailObserve makes every Observe fail with err until it is called with nil.
func (lb *LoadBalancer) FailObserve(err error) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	lb.faults.observe = err
}

// HoldKey makes changes to key wait until release is called or their context ends: a slow load balancer.
func (lb *LoadBalancer) HoldKey(key providers.Key) (release func()) {
	gate := make(chan struct{})
	lb.mu.Lock()
	defer lb.mu.Unlock()
	lb.faults.held[key] = gate
	return func() {
		lb.mu.Lock()
		defer lb.mu.Unlock()
		delete(lb.faults.held, key)
		close(gate)
	}
}

// SetDelay makes each write of a pool or a virtual server, and each Observe, take so long, as a request to a real load balancer does.
// Several Apply calls at once wait at the same time.
func (lb *LoadBalancer) SetDelay(delay time.Duration) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	lb.faults.delay = delay
}

// Journal returns every write so far, in order.
func (lb *LoadBalancer) Journal() []Op {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	return slices.Clone(lb.journal)
}

// Writes counts the writes so far.
func (lb *LoadBalancer) Writes() int {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	return len(lb.journal)
}

// Observations counts the calls of Observe so far, failed ones too.
func (lb *LoadBalancer) Observations() int {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	return lb.faults.observations
}

// Applications counts the calls of Apply so far.
func (lb *LoadBalancer) Applications() int {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	return lb.faults.applications
}

// State returns everything on the load balancer, whoever owns it.
func (lb *LoadBalancer) State() providers.State {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	var s providers.State
	for _, key := range sortedKeys(lb.pools) {
		s.Pools = append(s.Pools, lb.pools[key].export(key))
	}
	for _, key := range sortedKeys(lb.virtual) {
		s.VirtualServers = append(s.VirtualServers, lb.virtual[key].value)
	}
	return s
}

// SetConnections sets the number of connections that a member has.
func (lb *LoadBalancer) SetConnections(key providers.Key, id providers.MemberID, connections int) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	if pool := lb.pools[key]; pool != nil {
		pool.connections[id] = connections
	}
}

// PlantPool makes a pool of somebody else that members can be added to.
func (lb *LoadBalancer) PlantPool(name string) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	lb.foreign[name] = true
}

// Tamper puts pool and virtual server in place as owner, with no check and no entry in the journal: a person at the
// load balancer. A nil removes.
func (lb *LoadBalancer) Tamper(owner providers.Owner, key providers.Key, pool *providers.Pool, vs *providers.VirtualServer) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	delete(lb.pools, key)
	lb.take(key, nil)
	if pool != nil {
		lb.pools[key] = &memoryPool{
			owner: owner, attached: pool.Attached, settings: pool.Settings, members: slices.Clone(pool.Members),
			connections: map[providers.MemberID]int{},
		}
	}
	if vs != nil {
		lb.take(key, &memoryVirtualServer{owner: owner, value: *vs})
	}
}

// Restart tells every open provider that the load balancer was restarted. What it forgot over that is for Tamper to say.
func (lb *LoadBalancer) Restart() {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for p := range lb.open {
		lb.open[p] = true
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
}

func (lb *LoadBalancer) record(key providers.Key, what string, m providers.Member) {
	op := Op{Key: key, What: what, Member: m}
	if pool := lb.pools[key]; pool != nil {
		op.Members = len(pool.members)
		for _, member := range pool.members {
			if member.State == providers.Enabled {
				op.Enabled++
			}
		}
	}
	lb.journal = append(lb.journal, op)
}

func sortedKeys[V any](m map[providers.Key]V) []providers.Key {
	return slices.SortedFunc(maps.Keys(m), providers.Key.Compare)
}
