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

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// grace is how long a passing failure of a load balancer leaves Programmed as it is.
const grace = 5 * time.Second

// catchUp is how long other processes may take to say that they have seen what we have: in a quiet cluster nothing tells them before.
const catchUp = 30 * time.Second

// served is a Service on one load balancer, with what it has been given there.
type served struct {
	stand
	assigned addrs
	refused  *refusal // why it has no address, or not the one that it asks for
	former   addrs    // see facts.had
	nodes    *nodesOf // where it is served at addresses of Nodes; nil where it is not
}

// without reports whether the Service is there without addresses of its own.
func (s served) without(f facts) bool { return f.membersOnly || s.nodes != nil }

// keeps returns the addresses that the load balancer may have for the Service as it is now.
func (s served) keeps() (out addrs) {
	out = s.assigned
	if s.nodes != nil {
		for _, p := range s.report.Ports {
			out = append(out, p.VIPs...)
		}
		out = slices.DeleteFunc(out, func(a netip.Addr) bool { return slices.Contains(s.former, a) })
	}
	return out
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
	if slices.Contains(model.PortReasons(), model.PortReason(old.Reason)) || old.Reason == ReasonUnsupportedProtocol || old.Reason == ReasonUnsupportedSetting || old.Reason == ReasonSourceRanges {
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
	order := []string{string(model.PortTaken), string(model.PortReserved), ReasonSourceRanges, ReasonUnsupportedProtocol, ReasonUnsupportedSetting}
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
	reason, refused := portReason(p)
	switch {
	case !p.Unsupported:
	case refused:
		r.reason = reason
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
