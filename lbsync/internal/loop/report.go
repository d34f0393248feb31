package loop

import (
	"maps"
	"net/netip"
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
	Unsupported bool         // the load balancer cannot do what this port asks for, see Cannot
	Cannot      string       // what it cannot do, in one sentence; it may do the rest
	Attached    string       // the pool of somebody else that members are put into
	Guarded     int          // members that the guard holds
	Programmed  bool         // everything wanted is acknowledged
	VIPs        []netip.Addr // of the virtual server that is there; empty when there is none
	Kind        providers.Kind
	Problem     string    // why it is not programmed; empty while it is about to be
	Since       time.Time // of the problem
}

// sameOutcome compares two reports except for their pools: what Kubernetes is told.
func sameOutcome(a, b Report) bool {
	return a.Wanted == b.Wanted && a.Gone == b.Gone &&
		slices.EqualFunc(a.Ports, b.Ports, func(x, y PortReport) bool {
			return x.Key == y.Key && x.Unsupported == y.Unsupported && x.Programmed == y.Programmed &&
				slices.Equal(x.VIPs, y.VIPs) && x.Kind == y.Kind && x.Problem == y.Problem && x.Since.Equal(y.Since)
		}) && slices.Equal(a.Refusals, b.Refusals)
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

// Health is how the loop itself is.
type Health struct {
	Ready       bool      // a whole cycle has been made on a load balancer that was read
	LastObserve time.Time // of the last success
	Observe     error     // of the last attempt
	Held        bool      // removals are held because the API server's answer cannot be believed
}

// Health returns how the loop is.
func (l *Loop) Health() Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.health
}

// report enters the reports of the Services that were looked at and tells who listens what has changed.
func (l *Loop) report(todo []model.ServiceKey, wanted map[model.ServiceKey]model.Output, held map[providers.Key]bool) {
	var news []model.ServiceKey
	l.mu.Lock()
	for _, key := range todo {
		before, had := l.reports[key]
		view, exists := wanted[key]
		r := l.reportOf(key, view, held)
		l.metrics.replace(before, r)
		if exists || !r.Gone {
			l.reports[key] = r
		} else {
			delete(l.reports, key)
		}
		if !had || !sameOutcome(before, r) {
			news = append(news, key)
		}
	}
	l.mu.Unlock()
	for _, key := range news {
		l.onReport(key)
	}
}

func (l *Loop) reportOf(key model.ServiceKey, out model.Output, held map[providers.Key]bool) Report {
	r := Report{Wanted: len(out.Ports) > 0, Refusals: out.Refusals}
	there := l.picture.state(key)
	r.Pools = there.Pools
	for i, pool := range r.Pools {
		if want := findPool(out.State, pool.Key); plan.EqualPools(want, &pool) {
			r.Pools[i] = *want // it knows the Pods' names, which a load balancer need not
		}
	}
	r.Gone = !r.Wanted && len(there.Pools) == 0 && len(there.VirtualServers) == 0 && len(l.failures[key]) == 0
	for _, port := range out.Ports {
		p := PortReport{Key: port.Key, Unsupported: port.Unsupported}
		if h := l.picture[key]; h != nil && h.virtual[port.Key] != nil {
			p.VIPs = h.virtual[port.Key].VIPs
		}
		switch f := l.failures[key][port.Key]; {
		case f != nil && f.waits:
			// It is about to be programmed.
		case f != nil:
			p.Kind, p.Problem, p.Since = f.kind, f.err.Error(), f.since
		case held[port.Key]:
			p.Problem = "removals wait until the API server's answers can be believed again"
		default:
			p.Programmed = !port.Unsupported
		}
		r.Ports = append(r.Ports, p)
	}
	for k, f := range l.failures[key] { // what is to go and does not
		if !slices.ContainsFunc(out.Ports, func(p model.Port) bool { return p.Key == k }) {
			r.Ports = append(r.Ports, PortReport{Key: k, Kind: f.kind, Problem: f.err.Error(), Since: f.since})
		}
	}
	slices.SortFunc(r.Ports, func(a, b PortReport) int { return a.Key.Compare(b.Key) })
	return r
}
