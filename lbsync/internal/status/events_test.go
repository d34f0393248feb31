package status

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// What cannot be read on a Node is an Event there, once, and once more when it is another or comes back.
func TestNodes(t *testing.T) {
	d := newDesk(t, nil)
	node := &model.Node{Name: "node-1", UID: "n1"}
	d.Nodes = func() []*model.Node { return []*model.Node{node, {Name: "node-2", UID: "n2"}} }
	drain := func(value string) {
		node = &model.Node{Name: "node-1", UID: "n1"}
		if _, problem := annotations.ParseDrain(value); problem != nil {
			node.Problems = append(node.Problems, *problem)
		}
		d.tellNodes()
		d.tellNodes()
	}
	for _, test := range []struct {
		value string
		told  int
	}{{"true", 0}, {"perhaps", 1}, {"maybe", 1}, {"", 0}, {"maybe", 1}} {
		drain(test.value)
		told := d.events()
		if len(told) != test.told || test.told > 0 && (!strings.HasPrefix(told[0], "Warning InvalidAnnotation annotation nplbridge.io/drain: ") || !strings.Contains(told[0], test.value)) {
			t.Errorf("%q: Events %q", test.value, told)
		}
	}
}

// In one Namespace, all Events have different names, and a new Lease holder makes none twice.
func TestSink(t *testing.T) {
	client := fake.NewClientset()
	said := func() (out []string) {
		list, err := client.EventsV1().Events("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Regarding.FieldPath != "" {
				t.Errorf("field path %q", e.Regarding.FieldPath)
			}
			out = append(out, e.Note)
		}
		slices.Sort(out)
		return out
	}
	sink := Sink{&events.EventSinkImpl{Interface: client.EventsV1()}}
	service := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: strings.Repeat("w", 250), UID: "u"}}
	for range 2 {
		for _, note := range []string{"one", "two"} {
			event := &eventsv1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "random"}, Reason: "R", Note: note,
				Regarding: *Regarding("Service", service.Namespace, service.Name, service.UID, note),
			}
			if created, err := sink.Create(t.Context(), event); err != nil || len(created.Name) > 253 {
				t.Errorf("%v, %v", created, err)
			}
		}
	}
	if got := said(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("said %q", got)
	}

	// With the recorder: another note is another Event, at once.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	broadcaster := events.NewBroadcaster(sink)
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	c := &Controller{Recorder: broadcaster.NewRecorder(scheme.Scheme, "nplbridge.io/lbsync")}
	for _, note := range []string{"three", "three", "four"} {
		c.event(&service, corev1.EventTypeWarning, "R", note)
	}
	for deadline := time.Now().Add(30 * time.Second); len(said()) < 4 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if got := said(); !slices.Equal(got, []string{"four", "one", "three", "two"}) {
		t.Errorf("said %q", got)
	}
}

func TestNote(t *testing.T) {
	if got := note(strings.Repeat("ä", 2000)); len(got) > 1024 || !strings.HasSuffix(got, "ä...") {
		t.Errorf("%d bytes, ends in %q", len(got), got[len(got)-8:])
	}
}
