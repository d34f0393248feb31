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

// announce makes an Event of every condition that has changed its mind.
func (c *Controller) announce(at, before, after *corev1.Service) {
	for _, kind := range []string{Accepted, Programmed} {
		old, now := meta.FindStatusCondition(before.Status.Conditions, kind), meta.FindStatusCondition(after.Status.Conditions, kind)
		if now == nil || old != nil && old.Status == now.Status && old.Reason == now.Reason {
			continue
		}
		good := now.Status == metav1.ConditionTrue
		if now.Reason == ReasonPending || now.Reason == ReasonNotAccepted || good && kind == Accepted && old == nil {
			continue // nothing that anybody has to know
		}
		level := corev1.EventTypeWarning
		if good {
			level = corev1.EventTypeNormal
		}
		c.Recorder.Eventf(reference("Service", at.Namespace, at.Name, at.UID), nil, level, now.Reason, actionServe, "%s", note(now.Message))
	}
}

// yield says, once, that the Service is left to another lbsync. It is no condition: two that both think the Service is
// theirs would overwrite each other's for ever.
func (c *Controller) yield(s *corev1.Service, key model.ServiceKey, other string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.yielded[key] == other {
		return
	}
	c.yielded[key] = other
	c.Recorder.Eventf(reference("Service", s.Namespace, s.Name, s.UID), nil, corev1.EventTypeWarning, ReasonManagedByOther, actionServe,
		"%s", note(fmt.Sprintf("lbsync %q manages this Service; if that one is gone for good, remove the annotation %s", other, annotations.ManagedBy)))
}

// tell makes an Event, on the Pod, of every refusal that has not been told yet.
func (c *Controller) tell(s *corev1.Service, key model.ServiceKey, refusals []model.Refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, now := c.told[key], map[model.Refusal]bool{}
	for _, r := range refusals {
		if r.Reason.Passing() {
			continue
		}
		now[r] = true
		if !before[r] {
			pod := reference("Pod", key.Namespace, r.PodName(), types.UID(r.PodUID))
			c.Recorder.Eventf(pod, reference("Service", s.Namespace, s.Name, s.UID), corev1.EventTypeWarning, string(r.Reason), actionAdmit,
				"%s", note(r.Sentence()))
		}
	}
	if c.told[key] = now; len(now) == 0 {
		delete(c.told, key)
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
