package status

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// grace is how long a passing failure of a load balancer leaves Programmed as it is.
const grace = 5 * time.Second

// served is a Service on one load balancer, with what it has been given there.
type served struct {
	stand
	assigned addrs
	refused  *refusal // why it has no address, or not the one that it asks for
}

// facts is what the status of a Service follows from.
type facts struct {
	record   model.Service
	problems []annotations.Problem
	on       []served // what the Service asks for, in the order of the configuration, and what it has left and is still there
	had      addrs    // what the Service had, and a load balancer may still announce
	// membersOnly is true when the Service only puts members into pools of others.
	membersOnly bool
	// waiting is since when something that may be over in a moment stands between the Service and Programmed; zero is not at all.
	waiting time.Time
	now     time.Time
}

// where names a load balancer in front of a message when the Service is on several.
func (f facts) where(s served) string {
	if len(f.on) < 2 {
		return ""
	}
	return s.balancer.Name + ": "
}

// speak returns the Service with the status that follows from the facts, and when to look again though nothing happens;
// zero is never.
func speak(s *corev1.Service, f facts) (_ *corev1.Service, again time.Duration) {
	out := s.DeepCopy()
	setCondition(out, f.steady(s, accepted(s, f)), f.now)
	programmed, again := programmed(s, f)
	setCondition(out, programmed, f.now)
	publish(out, f)
	return out, again
}

func setCondition(s *corev1.Service, c metav1.Condition, now time.Time) {
	c.ObservedGeneration, c.Message = s.Generation, note(c.Message)
	c.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&s.Status.Conditions, c)
}

// accepted names everything that cannot be as the Service is written. Its reason is that of the first.
func accepted(s *corev1.Service, f facts) metav1.Condition {
	var all []refusal
	for _, p := range f.problems {
		all = append(all, refusal{ReasonInvalidAnnotation, p.String()})
	}
	for _, on := range f.on {
		if on.refused != nil && on.wanted {
			all = append(all, refusal{on.refused.reason, f.where(on) + on.refused.message})
		}
	}
	if value, set := s.Annotations[npl.EnabledAnnotation]; set && value != "true" && f.record.Source == annotations.NodePortLocal {
		all = append(all, refusal{ReasonDisabled, fmt.Sprintf(`annotation %s is %q, so this Service asks for no node ports, and only Pods that get them `+
			`through another Service are members; remove it or set it to "true"`, npl.EnabledAnnotation, value)})
	}
	for _, on := range f.on {
		if on.wanted && !on.abandoned {
			all = append(all, impossible(on, f)...)
		}
	}
	c := metav1.Condition{Type: Accepted, Status: metav1.ConditionFalse}
	if len(all) == 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonAccepted, "the Service is served"
		return c
	}
	var messages []string
	for _, r := range all {
		messages = append(messages, r.message)
	}
	c.Reason, c.Message = all[0].reason, strings.Join(messages, "; ")
	return c
}

// steady keeps saying what a load balancer cannot do until it was asked again: a new Lease holder does not know yet.
func (f facts) steady(s *corev1.Service, c metav1.Condition) metav1.Condition {
	known := !slices.ContainsFunc(f.on, func(on served) bool { return on.wanted && !on.abandoned && !on.reported })
	old := meta.FindStatusCondition(s.Status.Conditions, Accepted)
	if known || c.Status != metav1.ConditionTrue || old == nil || old.ObservedGeneration != s.Generation {
		return c
	}
	if old.Reason == ReasonUnsupportedProtocol || old.Reason == ReasonUnsupportedSetting || old.Reason == ReasonSourceRanges {
		return *old
	}
	return c
}

// impossible names what the load balancer cannot do for the Service's ports, those with the same trouble together.
func impossible(on served, f facts) (out []refusal) {
	ports := map[refusal][]string{}
	for _, p := range on.report.Ports {
		if p.Unsupported || p.Cannot != "" {
			r := cannot(on, p, f)
			ports[r] = append(ports[r], fmt.Sprintf("%d/%s", p.Key.Port, p.Key.Protocol))
		}
	}
	order := []string{ReasonSourceRanges, ReasonUnsupportedProtocol, ReasonUnsupportedSetting}
	for _, r := range slices.SortedFunc(maps.Keys(ports), func(a, b refusal) int {
		return strings.Compare(fmt.Sprint(slices.Index(order, a.reason))+a.message, fmt.Sprint(slices.Index(order, b.reason))+b.message)
	}) {
		consequence := "the rest is served"
		switch {
		case r.reason == ReasonUnsupportedSetting:
		case !on.servable():
			consequence = "no port is served"
		default:
			consequence = "the other ports are served"
		}
		out = append(out, refusal{r.reason, fmt.Sprintf("%s%s: %s; %s", f.where(on), strings.Join(ports[r], ", "), r.message, consequence)})
	}
	return out
}

// cannot says why a port is not served, or not as it asks.
func cannot(on served, p loop.PortReport, f facts) refusal {
	r := refusal{ReasonUnsupportedSetting, p.Cannot}
	switch {
	case !p.Unsupported:
	case !slices.Contains(on.balancer.Capabilities.Protocols, p.Key.Protocol):
		r.reason = ReasonUnsupportedProtocol
	case len(f.record.Wishes.Virtual.SourceRanges) > 0 && !on.balancer.Capabilities.Has(providers.SourceRanges):
		r.reason = ReasonSourceRanges
	}
	if r.message == "" {
		r.message = "the load balancer cannot balance " + string(p.Key.Protocol)
	}
	return r
}

// outcome is how a Service stands on one load balancer, in the words of Programmed.
type outcome struct {
	weight  int // the heaviest is the reason
	reason  string
	message string
	passing bool
	since   time.Time
}

// The weights. From failed on, Programmed is False.
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
	since := f.now
	for _, o := range all {
		switch {
		case o.weight == fine || o.weight == nothing:
			continue
		case !o.passing:
			return 0
		}
		if !o.since.IsZero() && o.since.Before(since) {
			since = o.since
		}
	}
	if worst.weight == fine || worst.weight == pending && worst.since.IsZero() {
		return 0
	}
	return grace - f.now.Sub(since)
}

// outcome says how the Service stands on one load balancer.
func (f facts) outcome(on served) outcome {
	switch r := on.report; {
	case !on.wanted:
		return f.leaving(on)
	case !f.membersOnly && len(on.assigned) == 0:
		return outcome{weight: nothing, reason: ReasonNotAccepted, message: "the Service has no address, see the condition " + Accepted}
	case !r.Wanted && on.refused != nil && on.gone():
		return outcome{weight: nothing, reason: ReasonNotAccepted, message: "the Service is not served, see the condition " + Accepted}
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
		return outcome{weight: pending, reason: ReasonPending, passing: true, since: f.waiting,
			message: "not confirmed yet by the load balancer of " + strings.Join(on.pending, ", ")}
	}
	return outcome{weight: fine, reason: ReasonProgrammed, message: f.fine(on)}
}

// fine says what is there.
func (f facts) fine(on served) string {
	text := "the load balancer serves it at " + annotations.FormatAddresses(on.assigned)
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

// trouble is what stands between the Service and the load balancer: failures first, then what is held.
func trouble(on served) (outcome, bool) {
	var failing, holding []string
	o := outcome{weight: failed, passing: on.passing()}
	for _, p := range on.report.Ports {
		name := fmt.Sprintf("%d/%s: ", p.Key.Port, p.Key.Protocol)
		switch {
		case p.Problem != "" && p.Kind != "":
			if len(failing) == 0 {
				o.reason = reasonProviderPrefix + string(p.Kind)
			}
			failing = append(failing, name+p.Problem)
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

// publish lists the addresses that a load balancer has acknowledged for any port: those assigned, and those that were published until now
// and are still there, so that a Service whose address changes is reachable all the time. The ipMode is Proxy, because with VIP
// kube-proxy would answer in the load balancer's place.
func publish(s *corev1.Service, f facts) {
	before, ours := published(s), slices.Clone(f.had)
	var there addrs
	var out []corev1.LoadBalancerIngress
	known, pending := true, false
	for _, on := range f.on {
		ours = append(ours, on.assigned...)
		if on.abandoned {
			continue
		}
		known, pending = known && on.reported, pending || len(on.pending) > 0
		for _, addr := range announced(on) {
			if !slices.Contains(there, addr) && (slices.Contains(on.assigned, addr) || slices.Contains(before.addrs, addr)) {
				there = append(there, addr)
				out = append(out, entry(s, on, addr, f))
			}
		}
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		ip, err := netip.ParseAddr(i.IP)
		if err == nil && slices.Contains(there, ip) {
			continue
		}
		// Beside others' load balancers, what it had may still be served. What the Service publishes beside what it has of us is somebody else's,
		// where its virtual server is.
		if !known || pending && err == nil && slices.Contains(f.had, ip) || f.membersOnly && (err != nil || !slices.Contains(ours, ip)) {
			out = append(out, i)
		}
	}
	s.Status.LoadBalancer.Ingress = out
}

// announced returns the addresses that the load balancer has for any port, those assigned first.
func announced(on served) (out addrs) {
	for _, addr := range on.assigned {
		if slices.ContainsFunc(on.report.Ports, func(p loop.PortReport) bool { return slices.Contains(p.VIPs, addr) }) {
			out = append(out, addr)
		}
	}
	for _, p := range on.report.Ports {
		for _, addr := range p.VIPs {
			if !slices.Contains(out, addr) {
				out = append(out, addr)
			}
		}
	}
	return out
}

// entry publishes one address.
func entry(s *corev1.Service, on served, addr netip.Addr, f facts) corev1.LoadBalancerIngress {
	out := corev1.LoadBalancerIngress{IP: addr.String(), IPMode: ptr.To(corev1.LoadBalancerIPModeProxy)}
	for _, port := range s.Spec.Ports {
		status := corev1.PortStatus{Port: port.Port, Protocol: port.Protocol}
		at := slices.IndexFunc(on.report.Ports, func(p loop.PortReport) bool {
			return int32(p.Key.Port) == port.Port && string(p.Key.Protocol) == string(port.Protocol)
		})
		if at >= 0 {
			status.Error = portError(on, on.report.Ports[at], addr, f)
		}
		out.Ports = append(out.Ports, status)
	}
	return out
}

// portError says why a port does not answer at the address, if that is going to stay so.
func portError(on served, p loop.PortReport, addr netip.Addr, f facts) *string {
	switch {
	case p.Unsupported:
		return ptr.To(portErrorPrefix + cannot(on, p, f).reason)
	case p.Problem != "" && p.Kind != "" && !passes(p.Kind) && !slices.Contains(p.VIPs, addr):
		return ptr.To(portErrorPrefix + reasonProviderPrefix + string(p.Kind))
	}
	return nil
}
