package loop

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// freed returns the addresses that a virtual server has left, on its port at least; either may be nil.
func freed(before, after *providers.VirtualServer) (out []netip.Addr) {
	if before == nil {
		return nil
	}
	for _, vip := range before.VIPs {
		if after == nil || after.Port != before.Port || !slices.Contains(after.VIPs, vip) {
			out = append(out, vip)
		}
	}
	return out
}

// freed returns the addresses that confirmed changes leave.
func (p picture) freed(c *call) (out []netip.Addr) {
	for _, change := range c.changes.VirtualServers {
		if h := p[model.ServiceKeyOf(change.Key)]; h != nil && c.confirmed(change.Key) {
			out = append(out, freed(h.virtual[change.Key], change.New)...)
		}
	}
	return out
}

// freedIn returns the addresses that these Services have in p, and not in q.
func (p picture) freedIn(q picture, services []model.ServiceKey) (out []netip.Addr) {
	for _, service := range services {
		if p[service] == nil {
			continue
		}
		for key, before := range p[service].virtual {
			var after *providers.VirtualServer
			if q[service] != nil {
				after = q[service].virtual[key]
			}
			out = append(out, freed(before, after)...)
		}
	}
	return out
}

// offer has those tried again at once that were refused and want one of these addresses: it may have been refused because of who had it.
func (l *Loop) offer(addrs []netip.Addr, now time.Time) {
	if len(addrs) == 0 {
		return
	}
	wants := func(f *failure) bool {
		return f.virtual != nil && slices.ContainsFunc(f.virtual.VIPs, func(vip netip.Addr) bool { return slices.Contains(addrs, vip) })
	}
	for _, service := range sortedServices(l.failures) {
		for _, f := range l.failures[service] {
			if f.kind == providers.Rejected && wants(f) {
				f.forgive(now)
				l.appoint(service)
				l.enqueue(service)
			}
		}
	}
}
