package agent

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/client-go/tools/events"

	"github.com/nplbridge/nplbridge/agent/internal/model"
)

func TestRefusalIsAnEventOnThePodIfItIsAboutOne(t *testing.T) {
	for _, tt := range []struct {
		name  string
		in    model.Refusal
		event string
		level zapcore.Level
	}{
		{"Pod", model.Refusal{Reason: "R", PodUID: "u", Pod: "default/a", Message: "100% m"}, "Warning R 100% m", zap.WarnLevel},
		{"Pod and Service", model.Refusal{Reason: "R", PodUID: "u", Pod: "default/a", Service: "default/s", Message: "m"}, "Warning R m", zap.WarnLevel},
		{"Service alone", model.Refusal{Reason: "R", Service: "default/s", Message: "m"}, "", zap.InfoLevel},
	} {
		t.Run(tt.name, func(t *testing.T) {
			core, logs := observer.New(zap.DebugLevel)
			recorder := events.NewFakeRecorder(2)
			(&reporter{recorder: recorder, log: zap.New(core)}).Refused(tt.in)
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
