package agent

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
			(&reporter{recorder: recorder, serviceUID: noUID, log: zap.New(core)}).Refused(tt.in)
			close(recorder.Events)
			if got := <-recorder.Events; got != tt.event {
				t.Errorf("Event %q, want %q", got, tt.event)
			}
			if got := logs.All(); len(got) != 1 || got[0].Message != tt.in.Message || got[0].Level != tt.level {
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
	// On a Pod, every refusal is an Event of its own.
	for range 2 {
		say(model.Refusal{Reason: "R", PodUID: "u", Pod: "default/a", Message: "m"})
	}
	if got := len(list()); got != 5 {
		t.Errorf("%d Events, want two more on the Pod", got)
	}
}
