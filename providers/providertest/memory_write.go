package providertest

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/providers"
)

// writePool creates a pool or walks it from Old to New, one member step at a time.
func (lb *LoadBalancer) writePool(owner providers.Owner, c providers.PoolChange) error {
	if c.New.Key != c.Key || (c.Old != nil && c.Old.Key != c.Key) {
		return fmt.Errorf("the change is for %s but holds another pool", c.Key)
	}
	if err := lb.capabilities.CheckPool(*c.New); err != nil {
		return err
	}
	if err := checkPool(*c.New); err != nil {
		return err
	}
	pool := lb.pools[c.Key]
	switch {
	case pool != nil && pool.owner != owner:
		return fmt.Errorf("a pool of this name belongs to %s", pool.owner)
	case pool != nil && Render(*c.New) == Render(pool.export(c.Key)):
		return nil
	case c.New.Attached != "" && !lb.foreign[c.New.Attached]:
		return fmt.Errorf("there is no pool %q", c.New.Attached)
	case pool == nil && c.Old != nil && c.New.Attached == "":
		return conflict("the pool is gone")
	case pool != nil && c.Old == nil:
		return conflict("the pool exists already")
	case pool != nil && Render(*c.Old) != Render(pool.export(c.Key)):
		return conflict("the pool is not what the change starts from")
	}
	if pool == nil {
		pool = &memoryPool{owner: owner, attached: c.New.Attached, connections: map[providers.MemberID]int{}}
		lb.pools[c.Key] = pool
		lb.record(c.Key, "CreatePool", providers.Member{})
	}
	if !pool.settings.Equal(c.New.Settings) {
		pool.settings = c.New.Settings
		lb.record(c.Key, "SetSettings", providers.Member{})
	}
	for _, step := range c.Members {
		if err := pool.step(step); err != nil {
			return err
		}
		lb.record(c.Key, string(step.Op), step.Member)
	}
	if Render(*c.New) != Render(pool.export(c.Key)) {
		return fmt.Errorf("the steps do not lead to what the change says: %s", Render(pool.export(c.Key)))
	}
	return nil
}

func (p *memoryPool) step(s providers.MemberChange) error {
	at := slices.IndexFunc(p.members, func(m providers.Member) bool { return m.ID() == s.Member.ID() })
	if s.Op == providers.AddMember {
		if slices.ContainsFunc(p.members, func(m providers.Member) bool { return m.Address == s.Member.Address }) {
			return fmt.Errorf("member %s exists already", s.Member.Address)
		}
		p.members = append(p.members, s.Member)
		return nil
	}
	if at < 0 {
		return fmt.Errorf("member %s with UID %s is absent", s.Member.Address, s.Member.UID)
	}
	switch {
	case s.Op == providers.RemoveMember:
		p.members = slices.Delete(p.members, at, at+1)
		delete(p.connections, s.Member.ID())
	case s.Op == providers.EnableMember && p.members[at].State == providers.Draining:
		p.members[at].State = providers.Enabled
	case s.Op == providers.WeighMember && p.members[at].Weight != s.Member.Weight:
		p.members[at].Weight = s.Member.Weight
	case s.Op == providers.DrainMember && p.members[at].State == providers.Enabled:
		p.members[at].State = providers.Draining
	default:
		return fmt.Errorf("step %q on member %s that is %s", s.Op, s.Member.Address, p.members[at].State)
	}
	return nil
}

func (lb *LoadBalancer) deletePool(owner providers.Owner, c providers.PoolChange) error {
	pool := lb.pools[c.Key]
	switch {
	case pool == nil:
		return nil
	case pool.owner != owner:
		return fmt.Errorf("the pool belongs to %s", pool.owner)
	case lb.virtual[c.Key] != nil:
		return fmt.Errorf("the pool is used by the virtual server %s", c.Key)
	}
	delete(lb.pools, c.Key)
	lb.record(c.Key, "DeletePool", providers.Member{})
	return nil
}

func (lb *LoadBalancer) writeVirtualServer(owner providers.Owner, c providers.VirtualServerChange) error {
	if c.New.Key != c.Key {
		return fmt.Errorf("the change is for %s but holds another virtual server", c.Key)
	}
	if len(c.New.VIPs) == 0 || c.New.Port == 0 {
		return fmt.Errorf("a virtual server needs an address and a port")
	}
	if err := lb.capabilities.CheckVirtualServer(*c.New); err != nil {
		return err
	}
	current := lb.virtual[c.Key]
	switch {
	case current != nil && current.owner != owner:
		return fmt.Errorf("a virtual server of this name belongs to %s", current.owner)
	case current != nil && Render(*c.New) == Render(current.value):
		return nil
	case current == nil && c.Old != nil:
		return conflict("the virtual server is gone")
	case current != nil && (c.Old == nil || Render(*c.Old) != Render(current.value)):
		return conflict("the virtual server is not what the change starts from")
	}
	if pool := lb.pools[c.Key]; pool == nil || pool.owner != owner || pool.attached != "" {
		return fmt.Errorf("its pool does not exist")
	}
	for _, vip := range c.New.VIPs {
		if other, taken := lb.taken[listener{vip, c.New.Port, c.Key.Protocol}]; taken && other != c.Key {
			return fmt.Errorf("its address and port are those of the virtual server %s", other)
		}
	}
	value := *c.New
	value.VIPs = slices.Clone(value.VIPs)
	lb.take(c.Key, &memoryVirtualServer{owner: owner, value: value})
	lb.record(c.Key, "WriteVirtualServer", providers.Member{})
	return nil
}

// listener is what only one virtual server can have.
type listener struct {
	address  netip.Addr
	port     uint16
	protocol providers.Protocol
}

// take puts a virtual server in place of the one under key, or of nothing; nil removes it.
func (lb *LoadBalancer) take(key providers.Key, v *memoryVirtualServer) {
	if old := lb.virtual[key]; old != nil {
		for _, vip := range old.value.VIPs {
			if at := (listener{vip, old.value.Port, key.Protocol}); lb.taken[at] == key {
				delete(lb.taken, at)
			}
		}
		delete(lb.virtual, key)
	}
	if v == nil {
		return
	}
	lb.virtual[key] = v
	for _, vip := range v.value.VIPs {
		lb.taken[listener{vip, v.value.Port, key.Protocol}] = key
	}
}

func (lb *LoadBalancer) deleteVirtualServer(owner providers.Owner, c providers.VirtualServerChange) error {
	current := lb.virtual[c.Key]
	switch {
	case current == nil:
		return nil
	case current.owner != owner:
		return fmt.Errorf("the virtual server belongs to %s", current.owner)
	}
	lb.take(c.Key, nil)
	lb.record(c.Key, "DeleteVirtualServer", providers.Member{})
	return nil
}

// checkPool refuses what no load balancer accepts.
func checkPool(p providers.Pool) error {
	if p.Attached == "" && p.Settings.Algorithm == "" {
		return fmt.Errorf("there is no algorithm")
	}
	seen := map[netip.AddrPort]bool{}
	for _, m := range p.Members {
		switch {
		case !m.Address.IsValid() || m.Address.Port() == 0 || m.Address.Addr() != m.Address.Addr().Unmap():
			return fmt.Errorf("member address %s is not usable", m.Address)
		case m.UID == "":
			return fmt.Errorf("member %s has no UID", m.Address)
		case m.State != providers.Enabled && m.State != providers.Draining:
			return fmt.Errorf("member %s has the unknown state %q", m.Address, m.State)
		case seen[m.Address]:
			return fmt.Errorf("two members at %s", m.Address)
		}
		seen[m.Address] = true
	}
	return nil
}
