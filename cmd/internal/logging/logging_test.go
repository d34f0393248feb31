package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

func TestJSONFieldsAndLevel(t *testing.T) {
	var out bytes.Buffer
	level := zap.NewAtomicLevelAt(zap.InfoLevel)
	log := New(zapcore.AddSync(&out), false, level)
	log.Debug("hidden")
	log.Info("shown", zap.String("pod", "shop/web-1"), zap.Duration("after", 90*time.Second))
	level.SetLevel(zap.DebugLevel)
	log.Debug("now shown")

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("want 2 lines, got:\n%s", &out)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse(time.RFC3339Nano, got["ts"].(string)); err != nil {
		t.Error(err)
	}
	for field, want := range map[string]string{"level": "info", "msg": "shown", "pod": "shop/web-1", "after": "1m30s"} {
		if got[field] != want {
			t.Errorf("%s = %v, want %s", field, got[field], want)
		}
	}
}

func TestConsoleIsForPeople(t *testing.T) {
	var out bytes.Buffer
	New(zapcore.AddSync(&out), true, zap.NewAtomicLevel()).Info("ready", zap.Int("pods", 3))
	if got := out.String(); !strings.Contains(got, `INFO ready {"pods": 3}`) {
		t.Errorf("got %q", got)
	}
}

func TestKlogGoesThrough(t *testing.T) {
	var out bytes.Buffer
	Klog(New(zapcore.AddSync(&out), false, zap.NewAtomicLevel()))
	t.Cleanup(klog.ClearLogger)
	klog.ErrorS(errors.New("refused"), "Watch failed")
	if got := out.String(); !strings.Contains(got, `"logger":"client-go"`) || !strings.Contains(got, "Watch failed") {
		t.Errorf("got %q", got)
	}
}

func TestParse(t *testing.T) {
	for _, level := range Levels {
		if got, err := ParseLevel(level); err != nil || got.String() != level {
			t.Errorf("ParseLevel(%q) = %v, %v", level, got, err)
		}
	}
	if _, err := ParseLevel("loud"); err == nil || !strings.Contains(err.Error(), "debug, info, warn, error") {
		t.Errorf("got %v", err)
	}
	for text, want := range map[string]bool{"auto": false, "console": true, "json": false} {
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseFormat(text, file); err != nil || got != want {
			t.Errorf("ParseFormat(%q) = %v, %v", text, got, err)
		}
	}
	if _, err := ParseFormat("xml", os.Stderr); err == nil {
		t.Error("xml accepted")
	}
}
