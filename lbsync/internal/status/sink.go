package status

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
)

// Regarding refers to the object of an Event with this note. The recorder takes two Events about one object for the same when only
// their notes differ; the field path makes them two, and Sink takes it off again.
func Regarding(kind, namespace, name string, uid types.UID, note string) *corev1.ObjectReference {
	out := reference(kind, namespace, name, uid)
	out.FieldPath = digest(note)
	return out
}

// Sink writes Events to the API server. The name of each is made of what it says: a changed message is an Event of its own, and a new
// Lease holder finds that it was said already.
type Sink struct{ events.EventSink }

// Create writes a new Event.
func (s Sink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	event = rename(event)
	created, err := s.EventSink.Create(ctx, event)
	if apierrors.IsAlreadyExists(err) {
		return event, nil
	}
	return created, err
}

// Patch counts an Event up.
func (s Sink) Patch(ctx context.Context, event *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	return s.EventSink.Patch(ctx, rename(event), data)
}

func rename(event *eventsv1.Event) *eventsv1.Event {
	event = event.DeepCopy()
	event.Regarding.FieldPath = ""
	said := []string{event.Regarding.Kind, string(event.Regarding.UID), event.Reason, event.Note}
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
