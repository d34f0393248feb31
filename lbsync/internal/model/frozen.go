package model

import (
	"maps"
	"slices"

	"github.com/nplbridge/nplbridge/providers"
)

// frozen reports whether nobody can tell where the Service is to be and what its members are made of.
func (s Service) frozen() bool {
	return s.Wishes.Kept.Structure && s.Ours() && !s.ManagedByOther && !s.Deleting && !s.Wishes.Unservable
}

// keepFrozen returns what the Service has on the load balancer, whatever it is: settings, virtual servers and members stay as they are. Members
// still follow the state of their Pods, leave when their Pod or its Node is gone or another Pod claims their address, and none enters.
func keepFrozen(in *Input) (out Output) {
	keys := map[providers.Key]bool{}
	for key, current := range in.Current {
		keys[key] = true
		port := ServicePort{Port: key.Port, Protocol: key.Protocol}
		if at := slices.IndexFunc(in.Service.Ports, func(p ServicePort) bool { return in.Service.key(p) == key }); at >= 0 {
			port = in.Service.Ports[at]
		}
		b := newBuilder(in, port, current, current.Attached)
		pool := *current
		pool.Members = b.thaw()
		out.State.Pools = append(out.State.Pools, pool)
		b.report(&out)
	}
	for key, vs := range in.CurrentVS {
		keys[key] = true
		out.State.VirtualServers = append(out.State.VirtualServers, *vs)
	}
	for key := range maps.Keys(keys) {
		port := Port{Key: key}
		if current := in.Current[key]; current != nil {
			port.Attached = current.Attached
		}
		out.Ports = append(out.Ports, port)
	}
	return out
}

// thaw returns the members that may stay, in the state that their Pods call for.
func (b *builder) thaw() []providers.Member {
	for _, m := range b.current.Members {
		e, selected := b.pods[m.UID]
		if others := b.claimants(m.ID()); len(others) > 0 {
			continue
		}
		switch {
		case selected && (e.Pod.Finished || e.NodeGone):
		case selected:
			m.Name = e.Pod.ID()
			s := b.standing(e)
			if s.enabled {
				b.want(m, providers.Enabled)
				break
			}
			if s.spare != noSpare {
				b.spares[s.spare] = append(b.spares[s.spare], m)
			}
			b.want(m, providers.Draining)
		case b.in.Fate != nil && b.in.Fate(m.UID) != Gone, b.isNodePort(m):
			b.want(m, m.State)
		}
	}
	b.fallBack()
	return b.unique()
}
