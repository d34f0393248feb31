package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/nplbridge/nplbridge/agent/internal/model"
)

func TestRefusalIsAnEvent(t *testing.T) {
	for _, tt := range []struct {
		name  string
		in    model.Refusal
		event string
		level zapcore.Level
	}{
		{"Pod", model.Refusal{Reason: "R", PodUID: "u", Pod: "default/a", Message: "100% m"}, "Warning R 100% m", zap.WarnLevel},
		{"Pod and Service", model.Refusal{Reason: "R", PodUID: "u", Pod: "default/a", Service: "default/s", Message: "m"}, "Warning R m", zap.WarnLevel},
		{"Service alone", model.Refusal{Reason: "R", Service: "default/s", Message: "m"}, "Warning R m", zap.InfoLevel},
		{"too long", model.Refusal{Reason: "R", Pod: "default/a", Message: strings.Repeat("ä", 600)}, "Warning R " + strings.Repeat("ä", 510) + "...", zap.WarnLevel},
	} {
		t.Run(tt.name, func(t *testing.T) {
			core, logs := observer.New(zap.DebugLevel)
			recorder := events.NewFakeRecorder(2)
			r := &reporter{recorder: recorder, serviceUID: noUID, log: zap.New(core)}
			r.Refused(tt.in)
			r.Changed(tt.in)
			close(recorder.Events)
			for e := range recorder.Events {
				if e != tt.event {
					t.Errorf("Event %q, want %q", e, tt.event)
				}
			}
			if got := logs.All(); len(got) != 2 || got[0].Message != tt.in.Message || got[0].Level != tt.level || got[1].Message != tt.in.Message || got[1].Level != zap.DebugLevel {
				t.Errorf("log %v", got)
			}
		})
	}
}

func noUID(string, string) types.UID { return "" }

// Every Node's agent finds the same fault with a Service. What they say is one Event, told apart by what it says and by the Service's UID.
func TestOneEventOnAServiceFromAllNodes(t *testing.T) {
	client := fake.NewClientset()
	uid := types.UID("first")
	say := func(f model.Refusal) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		broadcaster := events.NewBroadcaster(sink{&events.EventSinkImpl{Interface: client.EventsV1()}})
		defer broadcaster.Shutdown()
		if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
			t.Fatal(err)
		}
		before := len(client.Actions())
		r := &reporter{recorder: broadcaster.NewRecorder(scheme.Scheme, "npl-agent"), serviceUID: func(string, string) types.UID { return uid }, log: zap.NewNop()}
		r.Refused(f)
		eventually(t, "the agent has written", func() bool { return len(client.Actions()) > before })
	}
	list := func() []eventsv1.Event {
		got, err := client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Items
	}
	fault := model.Refusal{Reason: model.ServiceTypeUnsupported, Service: "default/s", Message: "Service default/s has type NodePort"}
	for range 3 {
		say(fault)
	}
	if got := list(); len(got) != 1 || got[0].Regarding.Kind != "Service" || got[0].Regarding.Name != "s" || got[0].Regarding.UID != "first" || got[0].Reason != "ServiceTypeUnsupported" {
		t.Errorf("Events %+v", got)
	}
	other := fault
	other.Message = "Service default/s has type ExternalName"
	say(other)
	uid = "second"
	say(fault)
	if got := len(list()); got != 3 {
		t.Errorf("%d Events, want one more for another type, and one for another Service of that name", got)
	}
}

// What is refused for a Pod is an Event for each thing that was said about it. The recorder alone drops what differs in the note only.
func TestChangedMessageIsAnotherEventOnThePod(t *testing.T) {
	client := fake.NewClientset()
	broadcaster := events.NewBroadcaster(sink{&events.EventSinkImpl{Interface: client.EventsV1()}})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := &reporter{recorder: broadcaster.NewRecorder(scheme.Scheme, "npl-agent"), serviceUID: noUID, log: zap.NewNop()}
	list := func() map[string]eventsv1.Event {
		got, err := client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		notes := map[string]eventsv1.Event{}
		for _, e := range got.Items {
			notes[string(e.Regarding.UID)+" "+e.Related.Name+" "+e.Note] = e
			if e.Regarding.FieldPath != "" {
				t.Errorf("the Event is about %q of the Pod", e.Regarding.FieldPath)
			}
		}
		if len(notes) != len(got.Items) {
			t.Errorf("an Event is there twice: %v", got.Items)
		}
		return notes
	}
	written := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d Events", n), func() bool { return len(list()) == n })
	}
	f := model.Refusal{Reason: "R", PodUID: "u", Pod: "default/" + strings.Repeat("a", 251) + ".b", Service: "default/s", Message: "one"}
	r.Refused(f)
	written(1)
	f.Message = "two"
	r.Changed(f)
	written(2)
	f.Service = "default/t"
	r.Refused(f)
	written(3)
	f.PodUID = "v"
	r.Refused(f)
	written(4)
	r.Refused(f) // ended, and began again
	eventually(t, "the Event is counted up", func() bool { e := list()["v t two"]; return e.Series != nil && e.Series.Count == 2 })
	for name, e := range list() {
		if len(validation.IsDNS1123Subdomain(e.Name)) > 0 {
			t.Errorf("%s: name %q", name, e.Name)
		}
	}
	s := model.Refusal{Reason: "R", Service: "other/s", Message: "one"}
	r.Refused(s)
	s.Message = "two"
	r.Changed(s)
	eventually(t, "two Events on the Service", func() bool {
		got, err := client.EventsV1().Events("other").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(got.Items) == 2
	})
	// Another process, which says the same again.
	broadcaster = events.NewBroadcaster(sink{&events.EventSinkImpl{Interface: client.EventsV1()}})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := len(client.Actions())
	r.recorder = broadcaster.NewRecorder(scheme.Scheme, "npl-agent")
	r.Refused(f)
	creations := func() (n int) {
		for _, a := range client.Actions()[before:] {
			if a.GetVerb() == "create" {
				n++
			}
		}
		return n
	}
	eventually(t, "the agent has written", func() bool { return creations() > 0 })
	written(4)
}
