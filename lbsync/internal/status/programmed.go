package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/providers"
)

// outcome is how a Service stands on one load balancer, in the words of Programmed.
type outcome struct {
	weight  int // the heaviest is the reason
	reason  string
	message string
	passing bool
	since   time.Time
	within  time.Duration // it may take so long; zero stands for grace
}

// The weights. Only with fine, Programmed is True.
const (
	fine = iota
	nothing
	pending
	held
	failed
)

func programmed(s *corev1.Service, f facts) (metav1.Condition, time.Duration) {
	c := metav1.Condition{Type: Programmed, Status: metav1.ConditionFalse}
	old := meta.FindStatusCondition(s.Status.Conditions, Programmed)
	var all []outcome
	for _, on := range f.on {
		if on.abandoned {
			continue
		}
		o := f.outcome(on)
		o.message = f.where(on) + o.message
		all = append(all, o)
	}
	some := slices.ContainsFunc(all, func(o outcome) bool { return o.weight != nothing })
	if some { // what cannot be there at all is told by Accepted
		all = slices.DeleteFunc(all, func(o outcome) bool { return o.weight == nothing })
	}
	if len(all) == 0 {
		c.Reason, c.Message = ReasonNotAccepted, "the Service is on no load balancer"
		return c, 0
	}
	worst := slices.MaxFunc(all, func(a, b outcome) int { return a.weight - b.weight })
	if wait := f.lenient(old, all, worst); wait > 0 {
		return *old, wait
	}
	if worst.weight == pending && old != nil && worst.since.IsZero() {
		return *old, 0 // for its turn, as planned
	}
	var messages []string
	for _, o := range all {
		if o.weight == worst.weight {
			messages = append(messages, o.message)
		}
	}
	c.Reason, c.Message = worst.reason, strings.Join(messages, "; ")
	if worst.weight == fine {
		c.Status = metav1.ConditionTrue
	}
	return c, 0
}

// Unserved reports whether the Service, as it is written now, was found to be on no load balancer.
func Unserved(s *corev1.Service) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, Programmed)
	return c != nil && c.Reason == ReasonNotAccepted && c.ObservedGeneration == s.Generation
}

// lenient returns how long a Service that was programmed still counts as that, although something is in the way that may be over in a
// moment.
func (f facts) lenient(old *metav1.Condition, all []outcome, worst outcome) time.Duration {
	if old == nil || old.Status != metav1.ConditionTrue {
		return 0
	}
	left := catchUp
	for _, o := range all {
		switch {
		case o.weight == fine || o.weight == nothing:
			continue
		case !o.passing:
			return 0
		}
		since := f.now
		if !o.since.IsZero() {
			since = o.since
		}
		left = min(left, cmp.Or(o.within, grace)-f.now.Sub(since))
	}
	if worst.weight <= nothing || worst.weight == pending && worst.since.IsZero() {
		return 0
	}
	return left
}

// outcome says how the Service stands on one load balancer.
func (f facts) outcome(on served) outcome {
	switch r := on.report; {
	case !on.wanted:
		return f.leaving(on)
	case !on.without(f) && len(on.assigned) == 0:
		return outcome{weight: nothing, reason: ReasonNotAccepted, message: "the Service has no address, see the condition " + Accepted}
	case !r.Wanted && on.refused != nil && on.gone():
		return outcome{weight: nothing, reason: ReasonNotAccepted, message: "the Service is not served, see the condition " + Accepted}
	case f.nowhere(on) && on.gone():
		return outcome{weight: nothing, reason: ReasonNotAccepted, message: "no port of it is to be there, see the condition " + Accepted}
	case on.nodes != nil && on.refused == nil && !(r.Wanted && !on.servable()):
		return f.outcomeAtNodes(on)
	case !r.Wanted && on.trouble != nil:
		return outcome{weight: failed, reason: reasonProviderPrefix + string(providers.KindOf(on.trouble)), message: on.trouble.Error()}
	case !r.Wanted && on.refused != nil:
		return f.leaving(on)
	case !r.Wanted:
		return outcome{weight: pending, reason: ReasonPending, message: "the load balancer has not confirmed it yet", passing: true}
	case !on.servable():
		return outcome{weight: nothing, reason: ReasonNotAccepted, message: "no port can be served, see the condition " + Accepted}
	}
	if o, bad := trouble(on); bad {
		return o
	}
	waits := func(p loop.PortReport) bool { return !p.Programmed && !p.Unsupported }
	if slices.ContainsFunc(on.report.Ports, waits) {
		return outcome{weight: pending, reason: ReasonPending, message: "the load balancer has not confirmed it yet", passing: true}
	}
	if len(on.pending) > 0 {
		return f.waitsFor(on)
	}
	if missing := on.unannounced(); len(missing) > 0 {
		return notAnnounced(missing)
	}
	return outcome{weight: fine, reason: ReasonProgrammed, message: f.fine(on)}
}

// waitsFor is the outcome where other processes have not applied the Service yet.
func (f facts) waitsFor(on served) outcome {
	o := outcome{
		weight: pending, reason: ReasonPending, passing: true, since: f.waiting,
		message: "not confirmed yet by the load balancer of " + strings.Join(on.pending, ", "),
	}
	if on.behind {
		o.within = catchUp
	}
	return o
}

// nowhere reports whether nothing can come of the Service on the load balancer as it is written: what it has there stays, and it has nothing,
// or none of the attachments there means a port of it.
func (f facts) nowhere(on served) bool {
	return f.record.Wishes.Kept.Structure || len(f.record.Misattached()) > 0 && len(f.record.Pools(on.balancer.Name)) == 0
}

// fine says what is there.
func (f facts) fine(on served) string {
	at := on.assigned
	if on.nodes != nil {
		at = on.nodes.addrs()
	}
	text := "the load balancer serves it at " + annotations.FormatAddresses(at)
	if f.membersOnly {
		var pools []string
		for _, p := range on.report.Ports {
			if p.Attached != "" && !slices.Contains(pools, p.Attached) {
				pools = append(pools, p.Attached)
			}
		}
		text = "its members are in the pool " + strings.Join(pools, ", ")
	}
	if len(on.silent) > 0 {
		text += "; nothing is heard of " + strings.Join(on.silent, ", ") + ", so what its load balancer has is not known"
	}
	return text
}

// leaving is the outcome where the Service is not to be any more.
func (f facts) leaving(on served) outcome {
	if o, bad := trouble(on); bad {
		o.message = "waiting to remove it: " + o.message
		return o
	}
	if on.trouble != nil && !on.gone() {
		return outcome{weight: failed, reason: reasonProviderPrefix + string(providers.KindOf(on.trouble)), message: "waiting to remove it: " + on.trouble.Error()}
	}
	if !on.gone() {
		message := "waiting to remove it from the load balancer"
		if len(on.pending) > 0 {
			message += " of " + strings.Join(on.pending, ", ")
		}
		return outcome{weight: pending, reason: ReasonPending, message: message, passing: true, since: f.waiting}
	}
	return outcome{weight: nothing, reason: ReasonNotAccepted, message: "nothing of it is left"}
}

// trouble is what stands between the Service and the load balancer: failures first, then what is held. A failure is tried again only once the
// load balancer was read, so where that fails it says why, in the place of what was only to be tried again.
func trouble(on served) (outcome, bool) {
	var failing, lasting, holding []string
	o := outcome{weight: failed, passing: on.passing()}
	for _, p := range on.report.Ports {
		name := fmt.Sprintf("%d/%s: ", p.Key.Port, p.Key.Protocol)
		switch {
		case p.Problem != "" && p.Kind != "":
			if len(failing) == 0 {
				o.reason = reasonProviderPrefix + string(p.Kind)
			}
			failing = append(failing, name+p.Problem)
			if !passes(p.Kind) {
				lasting = append(lasting, name+p.Problem)
			}
			if o.since.IsZero() || p.Since.Before(o.since) {
				o.since = p.Since
			}
		case p.Guarded > 0:
			holding = append(holding, fmt.Sprintf(`%s%d members are kept, whose loss nothing explains; to let them go, set the annotation %s: "true"`,
				name, p.Guarded, annotations.AllowRemoval))
		case p.Problem != "":
			holding = append(holding, name+p.Problem)
		}
	}
	switch {
	case len(failing) > 0 && on.trouble != nil && (o.passing || !passes(providers.KindOf(on.trouble))):
		kind := providers.KindOf(on.trouble)
		o.reason, o.passing = reasonProviderPrefix+string(kind), passes(kind)
		o.message = strings.Join(append([]string{on.trouble.Error()}, lasting...), "; ")
		return o, true
	case len(failing) > 0:
		o.message = strings.Join(failing, "; ")
		return o, true
	case len(holding) > 0:
		o.weight, o.reason, o.message, o.passing = held, ReasonHeld, strings.Join(holding, "; "), false
		if slices.ContainsFunc(on.report.Ports, func(p loop.PortReport) bool { return p.Guarded > 0 }) {
			o.reason = ReasonGuarded
		}
		return o, true
	}
	return outcome{}, false
}
