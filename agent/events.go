package agent

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
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
// The recorder counts repeated ones up.
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
	if regarding := cmp.Or(pod, service); regarding != nil { // else the recorder takes what differs in its note only for the same; sink takes it off again
		regarding.FieldPath = digest(note)
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

// sink writes Events to the API server. The name of one on a Pod or a Service is made of what it says: a changed message is an Event of
// its own, and an agent that starts again finds that it has said it.
//
// What is about a Service alone is found by the agent of every Node that runs a Pod of it, a thousand perhaps, and nothing elects one of
// them. The first agent creates that Event, and to the others it is there already. It is never counted up: that would be a write per Node
// again.
type sink struct{ events.EventSink }

func (s sink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	if !named(event) {
		return s.EventSink.Create(ctx, event)
	}
	event = rename(event)
	created, err := s.EventSink.Create(ctx, event)
	if apierrors.IsAlreadyExists(err) {
		return event, nil
	}
	return created, err
}

func (s sink) Patch(ctx context.Context, event *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	switch {
	case event.Regarding.Kind == "Service":
		return event, nil
	case named(event):
		event = rename(event)
	}
	return s.EventSink.Patch(ctx, event, data)
}

// named reports whether an Event gets its name from what it says.
func named(event *eventsv1.Event) bool {
	return event.Regarding.Kind == "Service" || event.Regarding.Kind == "Pod"
}

func rename(event *eventsv1.Event) *eventsv1.Event {
	event = event.DeepCopy()
	event.Regarding.FieldPath = ""
	said := []string{string(event.Regarding.UID), event.Reason, event.Note}
	if event.Related != nil {
		said = append(said, event.Related.Name)
	}
	name := event.Regarding.Name
	if longest := validation.DNS1123SubdomainMaxLength - 17; len(name) > longest {
		name = strings.TrimRight(name[:longest], ".-")
	}
	event.Name = name + "." + digest(said...)
	return event
}

// digest returns 16 hexadecimal digits.
func digest(parts ...string) string {
	sum := fnv.New64a()
	for _, part := range parts {
		_, _ = sum.Write([]byte(part + "\x00")) // a hash never fails
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}
