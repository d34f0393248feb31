package loop

import (
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// occupants are the members in the picture, by where they lead. A node port that another Pod has now must have left the pool of the one
// before it when it enters the next one, whatever the order of pools in a call and of calls: invariant I3.
type occupants struct {
	at      map[place][]occupant                // nearly always one
	waiting map[place]map[model.ServiceKey]bool // Services that have a member for it
}

type place struct {
	address  netip.AddrPort
	protocol providers.Protocol
}

type occupant struct {
	key providers.Key
	uid string
}

// newOccupants returns those of a picture; the Services that waited are returned, too, since it may be another one.
func newOccupants(p picture, before *occupants) (o *occupants, waited []model.ServiceKey) {
	o = &occupants{at: map[place][]occupant{}, waiting: map[place]map[model.ServiceKey]bool{}}
	for _, h := range p {
		for _, pool := range h.pools {
			o.enter(pool)
		}
	}
	if before != nil {
		for _, services := range before.waiting {
			waited = append(waited, sortedServices(services)...)
		}
	}
	return o, waited
}

func (o *occupants) enter(pool *providers.Pool) {
	for _, m := range pool.Members {
		at, who := place{m.Address, pool.Key.Protocol}, occupant{pool.Key, m.UID}
		if !slices.Contains(o.at[at], who) {
			o.at[at] = append(o.at[at], who)
		}
	}
}

// replace enters what became of a pool; either may be nil. It returns the Services that waited for a place in it.
func (o *occupants) replace(before, after *providers.Pool) (waited []model.ServiceKey) {
	if before != nil {
		for _, m := range before.Members {
			at := place{m.Address, before.Key.Protocol}
			left := slices.DeleteFunc(o.at[at], func(who occupant) bool { return who == occupant{before.Key, m.UID} })
			if o.at[at] = left; len(left) == 0 {
				delete(o.at, at)
			}
			waited = append(waited, sortedServices(o.waiting[at])...)
			delete(o.waiting, at)
		}
	}
	if after != nil {
		o.enter(after)
	}
	return waited
}

// of returns the pools that have a member at an address for another Pod, sorted. The Service that asks is told when that has changed.
func (o *occupants) of(asks model.ServiceKey, address netip.AddrPort, protocol providers.Protocol, podUID string) (keys []providers.Key) {
	if o == nil {
		return nil // nothing was read yet
	}
	at := place{address, protocol}
	for _, there := range o.at[at] {
		if there.uid != podUID {
			keys = append(keys, there.key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if o.waiting[at] == nil {
		o.waiting[at] = map[model.ServiceKey]bool{}
	}
	o.waiting[at][asks] = true
	slices.SortFunc(keys, providers.Key.Compare)
	return keys
}
