package agent

import (
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/nplbridge/nplbridge/agent/internal/model"
)

// noteLimit is the longest note of an Event that the API accepts, in bytes (events.k8s.io/v1).
const noteLimit = 1024

// reporter makes refusals into Events on the Pod, with the Service as the related object. The recorder joins repeated ones. What is
// about a Service alone is only logged: the agent of every Node with a Pod of that Service says it.
type reporter struct {
	recorder events.EventRecorder
	log      *zap.Logger
}

func (r *reporter) Refused(f model.Refusal) {
	if f.Pod == "" {
		r.log.Info(f.Message, zap.String("reason", string(f.Reason)), zap.String("service", f.Service))
		return
	}
	r.log.Warn(f.Message, zap.String("reason", string(f.Reason)), zap.String("pod", f.Pod), zap.String("service", f.Service))
	namespace, name := split(f.Pod)
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: types.UID(f.PodUID)}
	note := f.Message
	if len(note) > noteLimit {
		note = strings.ToValidUTF8(note[:noteLimit-3], "") + "..."
	}
	if f.Service == "" {
		r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, string(f.Reason), "AssignNodePort", "%s", note)
		return
	}
	namespace, name = split(f.Service)
	service := &corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: namespace, Name: name}
	r.recorder.Eventf(pod, service, corev1.EventTypeWarning, string(f.Reason), "AssignNodePort", "%s", note)
}

func (r *reporter) Withdrawn(f model.Refusal) {
	r.log.Info("no longer refused: "+f.Message, zap.String("reason", string(f.Reason)), zap.String("pod", f.Pod), zap.String("service", f.Service))
}

// split takes "namespace/name" apart.
func split(s string) (namespace, name string) {
	namespace, name, _ = strings.Cut(s, "/")
	return namespace, name
}
