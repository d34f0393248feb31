package status

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// Actions of our Events.
const (
	actionServe  = "Serve" // on Services
	actionAdmit  = "Admit" // on Services and Pods: a Pod into a pool
	maxNoteBytes = 1000    // the API server takes 1 kB
)

// announce makes an Event of every condition that has changed its mind, and of one that refuses something else than before.
func (c *Controller) announce(at, before, after *corev1.Service) {
	for _, kind := range []string{Accepted, Programmed} {
		old, now := meta.FindStatusCondition(before.Status.Conditions, kind), meta.FindStatusCondition(after.Status.Conditions, kind)
		if now == nil || old != nil && old.Status == now.Status && old.Reason == now.Reason && (kind == Programmed || old.Message == now.Message) {
			continue
		}
		good := now.Status == metav1.ConditionTrue
		if now.Reason == ReasonPending || now.Reason == ReasonNotAccepted || good && kind == Accepted && (old == nil || old.Status == now.Status) {
			continue // nothing that anybody has to know
		}
		level := corev1.EventTypeWarning
		if good {
			level = corev1.EventTypeNormal
		}
		c.event(at, level, now.Reason, now.Message)
	}
}

// event makes an Event on a Service.
func (c *Controller) event(s *corev1.Service, level, reason, message string) {
	text := note(message)
	c.Recorder.Eventf(Regarding("Service", s.Namespace, s.Name, s.UID, text), nil, level, reason, actionServe, "%s", text)
}

// once makes an Event on a Service of what is so, unless it was told already. What stopped being so, for which the message is empty, is
// told again when it comes back. The first word of cause is the Event's reason.
func (c *Controller) once(s *corev1.Service, cause, message string) {
	key := keyOf(s)
	c.mu.Lock()
	was := c.said[key][cause]
	switch {
	case message == "":
		delete(c.said[key], cause)
	case c.said[key] == nil:
		c.said[key] = map[string]string{cause: message}
	default:
		c.said[key][cause] = message
	}
	c.mu.Unlock()
	if message != "" && message != was {
		reason, _, _ := strings.Cut(cause, " ")
		c.event(s, corev1.EventTypeWarning, reason, message)
	}
}

// yield says, once, that the Service is left to another lbsync. It is no condition: two that both think the Service is
// theirs would overwrite each other's for ever.
func (c *Controller) yield(s *corev1.Service, other string) {
	c.once(s, ReasonManagedByOther, fmt.Sprintf("lbsync %q manages this Service; if that one is gone for good, remove the annotation %s",
		other, annotations.ManagedBy))
}

// remark says, once, why a Service that asks for us in some way is not served, or will have no members.
func (c *Controller) remark(s *corev1.Service, r model.Service) {
	pool, asks := s.Annotations[annotations.Pool], ""
	if s.Annotations[annotations.Providers] != "" {
		asks = annotations.Providers
	}
	if pool != "" {
		asks = annotations.Pool
	}
	ours, unsupported, selectorless := r.Ours() && !r.Deleting, "", ""
	switch {
	case asks == "" || r.Deleting || r.ManagedByOther || ours:
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		unsupported = fmt.Sprintf("annotation %s: a Service of type ExternalName has no Pods to put into a pool, so it is left alone; remove the annotation", asks)
	case s.Spec.Type == corev1.ServiceTypeNodePort && r.Source == annotations.NodePortLocal:
		unsupported = fmt.Sprintf("annotation %s: the Pods of a Service of type NodePort get no node ports of their own, so it is left alone; make it a "+
			"ClusterIP, or set %s: NodePort", asks, annotations.ServiceType)
	}
	if ours && !r.ManagedByOther && len(r.Selector) == 0 && r.Source != annotations.NodePort {
		selectorless = "the Service has no selector, so no Pod is a member and nothing answers behind it; give it one, or set " + annotations.ServiceType + ": NodePort"
	}
	c.once(s, ReasonUnsupportedType, unsupported)
	c.once(s, ReasonNoSelector, selectorless)
}

// told is an Event on a Pod.
type told struct{ uid, reason, text string }

// tell makes an Event, on the Pod, of every refusal that has not been told yet.
func (c *Controller) tell(s *corev1.Service, key model.ServiceKey, refusals []model.Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, now := c.told[key], map[told]bool{}
	for _, r := range refusals {
		what := told{r.PodUID, string(r.Reason), note(r.Sentence())}
		if r.Reason.Passing() || now[what] {
			continue
		}
		now[what] = true
		if !before[what] {
			c.Recorder.Eventf(Regarding("Pod", key.Namespace, r.PodName(), types.UID(r.PodUID), what.text), reference("Service", s.Namespace, s.Name, s.UID),
				corev1.EventTypeWarning, what.reason, actionAdmit, "%s", what.text)
		}
	}
	if c.told[key] = now; len(now) == 0 {
		delete(c.told, key)
	}
}

// tellNodes makes an Event, on the Node, of every annotation of ours there that cannot be read and that has not been told yet.
func (c *Controller) tellNodes() {
	now := map[told]bool{}
	for _, n := range c.Nodes() {
		for _, p := range n.Problems {
			what := told{n.UID, ReasonInvalidAnnotation, note(p.String() + "; what it said last stays")}
			if now[what] = true; !c.onNodes[what] {
				c.Recorder.Eventf(Regarding("Node", "", n.Name, types.UID(n.UID), what.text), nil, corev1.EventTypeWarning, what.reason, actionAdmit, "%s", what.text)
			}
		}
	}
	c.onNodes = now
}

// rest drops what was told about a Service that nothing is left of; what is wrong with a Service that is still there was told already.
func (c *Controller) rest(key model.ServiceKey, there bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.told, key)
	delete(c.since, key)
	if !there {
		delete(c.said, key)
	}
}

func reference(kind, namespace, name string, uid types.UID) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: namespace, Name: name, UID: uid}
}

// note shortens what may hold somebody else's words to what an Event or a condition should hold.
func note(s string) string {
	if len(s) <= maxNoteBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxNoteBytes], "") + "..."
}
