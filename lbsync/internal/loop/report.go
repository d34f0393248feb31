package loop

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/plan"
	"github.com/nplbridge/nplbridge/providers"
)

// Report says how one Service stands on the load balancer.
type Report struct {
	Wanted   bool         // the Service is to be there
	Gone     bool         // nothing of it is there, and nothing is in doubt
	Ports    []PortReport // of the Service, and whatever else of it cannot be removed; sorted by Key
	Refusals []model.Refusal
	Pools    []providers.Pool // as acknowledged by the load balancer
	// Health is what the load balancer last said of members; a member that is absent is not known.
	Health map[providers.Key]map[providers.MemberID]providers.MemberStatus
	// Seen is the resourceVersion of Pods that this rests on.
	Seen string
}

// PortReport is one port of the Service.
type PortReport struct {
	Key         providers.Key
	Unsupported bool             // the load balancer cannot do what this port asks for, see Cannot
	Cannot      string           // what it cannot do, in one sentence; it may do the rest
	Reason      model.PortReason // why it is not served, if that is another reason
	Attached    string           // the pool of somebody else that members are put into
	Guarded     int              // members that the guard holds
	Programmed  bool             // everything wanted is acknowledged
	VIPs        []netip.Addr     // of the virtual server that is there; empty when there is none
	Kind        providers.Kind
	Problem     string    // why it is not programmed; empty while it is about to be
	Since       time.Time // of the problem
}

// sameOutcome compares two reports except for their pools and what they rest on: what Kubernetes is told.
func sameOutcome(a, b Report) bool {
	return a.Wanted == b.Wanted && a.Gone == b.Gone && slices.EqualFunc(a.Ports, b.Ports, func(x, y PortReport) bool {
		vips := slices.Equal(x.VIPs, y.VIPs) && x.Since.Equal(y.Since)
		x.VIPs, y.VIPs, x.Since, y.Since = nil, nil, time.Time{}, time.Time{}
		return vips && reflect.DeepEqual(x, y)
	}) && slices.Equal(a.Refusals, b.Refusals)
}

// sameMembers compares the pools of two reports, and the health of their members.
func sameMembers(a, b Report) bool {
	return slices.EqualFunc(a.Pools, b.Pools, func(x, y providers.Pool) bool {
		return plan.EqualPools(&x, &y) && slices.EqualFunc(x.Members, y.Members, func(m, n providers.Member) bool {
			s, t := a.Health[x.Key][m.ID()], b.Health[y.Key][n.ID()]
			return m.Name == n.Name && s.Health == t.Health && s.Blocked == t.Blocked
		})
	})
}

// Report returns the report of a Service; ok is false before the first one.
func (l *Loop) Report(key model.ServiceKey) (r Report, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok = l.reports[key]
	return r, ok
}

// Reports returns all reports.
func (l *Loop) Reports() map[model.ServiceKey]Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[model.ServiceKey]Report, len(l.reports))
	maps.Copy(out, l.reports)
	return out
}

// Standing returns the resourceVersion of Pods up to which everything was taken up, and the Services that are not on the load balancer as
// they should be, with the problem, which is empty while it is about to be solved. Before the load balancer was read, seen is empty.
func (l *Loop) Standing() (seen string, pending map[model.ServiceKey]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pending = map[model.ServiceKey]string{}
	for key := range l.planned {
		pending[key] = ""
	}
	for key, r := range l.reports {
		for _, p := range r.Ports {
			if p.Problem != "" {
				pending[key] = p.Problem
				break
			}
		}
	}
	return l.standing, pending
}

// Health is how the loop itself is.
type Health struct {
	Ready       bool      // every Service was looked at since the load balancer was read first
	LastObserve time.Time // of the last success
	Observe     error     // of the last attempt
	Held        bool      // removals are held because the API server's answer cannot be believed
	Waiting     error     // why nothing has been written for a while, though the load balancer can be read
	Foreign     []string  // see providers.Observed
}

// Health returns how the loop is.
func (l *Loop) Health() Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.health
}

// report enters the report of a Service and tells who listens what has changed.
func (l *Loop) report(key model.ServiceKey, out outcome) {
	r := l.reportOf(key, out)
	l.mu.Lock()
	before, had := l.reports[key]
	keeps := out.exists || !r.Gone
	if keeps {
		l.reports[key] = r
	} else {
		delete(l.reports, key)
	}
	if keeps && slices.ContainsFunc(r.Refusals, func(f model.Refusal) bool { return f.Reason == model.NotPublished }) {
		l.unpublished[key] = true
	} else {
		delete(l.unpublished, key)
	}
	l.mu.Unlock()
	if !keeps {
		r.Ports, r.Refusals, r.Pools = nil, nil, nil
	}
	l.metrics.replace(before, r)
	if !had || !sameOutcome(before, r) {
		l.links.OnReport(key)
	}
	if !had || !sameMembers(before, r) {
		l.links.OnMembers(key)
	}
}

func (l *Loop) reportOf(key model.ServiceKey, out outcome) Report {
	r := Report{Wanted: len(out.Ports) > 0, Refusals: out.Refusals, Seen: out.seen}
	there := l.picture.state(key)
	r.Pools = there.Pools
	for i, pool := range r.Pools {
		r.Pools[i].Members = named(pool.Members, findPool(out.State, pool.Key))
	}
	if h := l.picture[key]; h != nil {
		r.Health = maps.Clone(h.status)
	}
	r.Gone = !r.Wanted && len(there.Pools) == 0 && len(there.VirtualServers) == 0 && len(l.failures[key]) == 0
	for _, port := range out.Ports {
		p := PortReport{Key: port.Key, Unsupported: port.Unsupported, Cannot: port.Cannot, Reason: port.Reason, Attached: port.Attached, Guarded: out.guarded[port.Key]}
		if h := l.picture[key]; h != nil && h.virtual[port.Key] != nil {
			p.VIPs = h.virtual[port.Key].VIPs
		}
		switch f := l.failures[key][port.Key]; {
		case f != nil && f.waits:
			// It is about to be programmed.
		case f != nil:
			p.Kind, p.Problem, p.Since = f.kind, f.err.Error(), f.since
		case out.kept[port.Key]:
			p.Problem = "removals wait until the API server's answers can be believed again"
		case out.blocked && l.intends(port.Key):
			if l.blocked.why != nil {
				p.Problem = "waiting to write: " + l.blocked.why.Error()
			}
		case l.cfg.DryRun && l.intends(port.Key):
			p.Problem = "this is a dry run: nothing is written"
		default:
			p.Programmed = !port.Unsupported
		}
		r.Ports = append(r.Ports, p)
	}
	for k, f := range l.failures[key] { // what is to go and does not
		if !f.waits && !slices.ContainsFunc(out.Ports, func(p model.Port) bool { return p.Key == k }) {
			r.Ports = append(r.Ports, PortReport{Key: k, Kind: f.kind, Problem: f.err.Error(), Since: f.since})
		}
	}
	slices.SortFunc(r.Ports, func(a, b PortReport) int { return a.Key.Compare(b.Key) })
	return r
}

// intends reports whether something is wanted under key and not there.
func (l *Loop) intends(key providers.Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return steps(l.planned[model.ServiceKeyOf(key)])[key] > 0
}

// named fills in the Pods' names, which a load balancer need not know.
func named(members []providers.Member, wanted *providers.Pool) []providers.Member {
	if wanted == nil || !slices.ContainsFunc(members, func(m providers.Member) bool { return m.Name == "" }) {
		return members
	}
	names := make(map[providers.MemberID]string, len(wanted.Members))
	for _, m := range wanted.Members {
		names[m.ID()] = m.Name
	}
	out := slices.Clone(members)
	for i, m := range out {
		if m.Name == "" {
			out[i].Name = names[m.ID()]
		}
	}
	return out
}

// tellHealth enters what was read of members' health, and tells who listens.
func (l *Loop) tellHealth() {
	var news []model.ServiceKey
	l.mu.Lock()
	for key, before := range l.reports {
		h := l.picture[key]
		if h == nil {
			continue
		}
		r := before
		r.Health = maps.Clone(h.status)
		l.reports[key] = r
		if !sameMembers(before, r) {
			news = append(news, key)
		}
	}
	l.mu.Unlock()
	slices.SortFunc(news, compareServices)
	for _, key := range news {
		l.links.OnMembers(key)
	}
}
