package gate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// The reasons of the condition.
const (
	Confirmed     = "Confirmed"     // every load balancer that is to have the Pod has it
	NotApplicable = "NotApplicable" // no load balancer is to have it
	TimedOut      = "GateTimedOut"  // also of an Event: it waited for too long
)

// Reasons lists the reasons.
func Reasons() []string { return []string{Confirmed, NotApplicable, TimedOut} }

// claim is a Service of ours that selects a Pod.
type claim struct {
	service model.Service
	// unserved is true when the Service as it is now is known to be on no load balancer: nothing is to be waited for.
	unserved bool
	at       []place // its load balancers, those given up for good left out
}

// place is how a Service stands on one load balancer.
type place struct {
	name     string
	reported bool
	report   loop.Report
	pending  []string // processes that have not applied what the report says
}

// judge says whether every pool that is to have the Pod has it: for what reason, or else what is waited for.
func judge(p *model.Pod, claims []claim) (reason, waitingFor string) {
	pools := 0
	for _, c := range claims {
		if c.unserved || c.service.Source == annotations.NodePort { // there, Nodes are the members
			continue
		}
		for _, at := range c.at {
			n, waitingFor := at.confirmed(p, c.service)
			if waitingFor != "" {
				return "", waitingFor
			}
			pools += n
		}
	}
	if pools == 0 {
		return NotApplicable, ""
	}
	return Confirmed, ""
}

// confirmed returns in how many pools of the Service the load balancer has the Pod, if that is all of them, or what is waited for.
func (at place) confirmed(p *model.Pod, s model.Service) (pools int, waitingFor string) {
	keys := s.Pools(at.name)
	if len(keys) == 0 {
		return 0, ""
	}
	if !at.reported {
		return 0, fmt.Sprintf("the load balancer %s to be read", at.name)
	}
	for _, key := range keys {
		port := slices.IndexFunc(at.report.Ports, func(r loop.PortReport) bool { return r.Key == key })
		if port >= 0 && at.report.Ports[port].Unsupported {
			continue // it is served without this port
		}
		refusal, refused := at.refusal(p, key)
		if refused && refusal.Reason == model.TargetPortUnresolved {
			continue // the Pod has no such port
		}
		in, waitingFor := at.in(p, key)
		switch {
		case port < 0:
			waitingFor = fmt.Sprintf("the pool %s to be made on load balancer %s", key, at.name)
		case !in && refused:
			waitingFor = fmt.Sprintf("the pool %s on load balancer %s: %s", key, at.name, refusal.Message)
		case in && len(at.pending) > 0:
			waitingFor = fmt.Sprintf("the load balancer %s of %s", at.name, strings.Join(at.pending, ", "))
		}
		if waitingFor != "" {
			return 0, waitingFor
		}
		pools++
	}
	return pools, ""
}

// in reports whether the Pod is in the pool with everything that it has there, or what is waited for.
func (at place) in(p *model.Pod, key providers.Key) (in bool, waitingFor string) {
	pool := slices.IndexFunc(at.report.Pools, func(o providers.Pool) bool { return o.Key == key })
	if pool >= 0 {
		for _, m := range at.report.Pools[pool].Members {
			switch {
			case m.UID != p.UID:
				continue
			case m.State != providers.Enabled:
				return false, fmt.Sprintf("the member %s of the pool %s to be enabled on load balancer %s", m.Address, key, at.name)
			case at.report.Health[key][m.ID()].Health == providers.HealthDown:
				return false, fmt.Sprintf("the load balancer %s, which finds %s of the pool %s down", at.name, m.Address, key)
			}
			in = true
		}
	}
	if !in {
		return false, fmt.Sprintf("the Pod to be in the pool %s on load balancer %s", key, at.name)
	}
	return true, ""
}

func (at place) refusal(p *model.Pod, key providers.Key) (model.Refusal, bool) {
	i := slices.IndexFunc(at.report.Refusals, func(r model.Refusal) bool { return r.Key == key && r.PodUID == p.UID })
	if i < 0 {
		return model.Refusal{}, false
	}
	return at.report.Refusals[i], true
}
