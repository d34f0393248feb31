package agent

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/nplbridge/nplbridge/agent/internal/loop"
	"github.com/nplbridge/nplbridge/agent/internal/model"
)

// noteLimit is the longest note of an Event that the API accepts, in bytes (events.k8s.io/v1).
const noteLimit = 1024

// action is what the agent was about to do when it had something to tell.
const action = "AssignNodePort"

// EventReason explains one reason for which the agent sends Events: what it means, and what to do about it.
type EventReason struct {
	Reason  string
	Object  string // the kind that the Event is on: "Pod" or "Service"
	Meaning string
	Remedy  string
}

// EventReasons returns all of them. Each is also a label of the metric npl_agent_refusals, and the reason of a row in the status document.
func EventReasons() []EventReason {
	var out []EventReason
	for _, e := range loop.Explanations() {
		out = append(out, EventReason{string(e.Reason), e.Object, e.Meaning, e.Remedy})
	}
	return out
}

// reporter makes refusals into Events: on the Pod, with the Service as the related object, or on the Service if it is about that alone.
// The recorder joins repeated ones.
type reporter struct {
	recorder   events.EventRecorder
	serviceUID func(namespace, name string) types.UID
	log        *zap.Logger
}

func (r *reporter) Refused(f model.Refusal) {
	log := r.log.Warn
	if f.Pod == "" {
		log = r.log.Info // the agent of every Node with a Pod of that Service says it
	}
	log(f.Message, zap.String("reason", string(f.Reason)), zap.String("pod", f.Pod), zap.String("service", f.Service))
	r.event(f)
}

func (r *reporter) event(f model.Refusal) {
	note := f.Message
	if len(note) > noteLimit {
		note = strings.ToValidUTF8(note[:noteLimit-3], "") + "..."
	}
	pod, service := object("Pod", f.Pod, types.UID(f.PodUID)), object("Service", f.Service, "")
	if service != nil {
		service.UID = r.serviceUID(service.Namespace, service.Name)
	}
	switch {
	case pod == nil && service == nil:
	case pod == nil:
		r.recorder.Eventf(service, nil, corev1.EventTypeWarning, string(f.Reason), action, "%s", note)
	case service == nil: // not a nil reference inside an interface
		r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, string(f.Reason), action, "%s", note)
	default:
		r.recorder.Eventf(pod, service, corev1.EventTypeWarning, string(f.Reason), action, "%s", note)
	}
}

// Changed is about one that lasts. Its end and its beginning are what the log is about.
func (r *reporter) Changed(f model.Refusal) {
	r.log.Debug(f.Message, zap.String("reason", string(f.Reason)), zap.String("pod", f.Pod), zap.String("service", f.Service))
	r.event(f)
}

func (r *reporter) Withdrawn(f model.Refusal) {
	r.log.Info("no longer refused: "+f.Message, zap.String("reason", string(f.Reason)), zap.String("pod", f.Pod), zap.String("service", f.Service))
}

// object refers to "namespace/name", or is nil for "".
func object(kind, s string, uid types.UID) *corev1.ObjectReference {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok {
		return nil
	}
	return &corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: namespace, Name: name, UID: uid}
}

// sink writes Events to the API server. What is about a Service alone is found by the agent of every Node that runs a Pod of it, a
// thousand perhaps, and nothing elects one of them. So the name of such an Event is made of what it says: the first agent creates it,
// and to the others it is there already. It is never counted up: that would be a write per Node again.
type sink struct{ events.EventSink }

func (s sink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	if event.Regarding.Kind != "Service" {
		return s.EventSink.Create(ctx, event)
	}
	sum := fnv.New64a()
	for _, part := range []string{string(event.Regarding.UID), event.Reason, event.Note} {
		_, _ = sum.Write([]byte(part + "\x00")) // a hash never fails
	}
	event = event.DeepCopy()
	event.Name = fmt.Sprintf("%s.%016x", event.Regarding.Name, sum.Sum64())
	created, err := s.EventSink.Create(ctx, event)
	if apierrors.IsAlreadyExists(err) {
		return event, nil
	}
	return created, err
}

func (s sink) Patch(ctx context.Context, event *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	if event.Regarding.Kind != "Service" {
		return s.EventSink.Patch(ctx, event, data)
	}
	return event, nil
}
