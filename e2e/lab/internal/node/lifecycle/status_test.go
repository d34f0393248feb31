package lifecycle

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func facts(containers string, initialized, stopped bool) Facts {
	return Facts{
		HostIPs:   []netip.Addr{netip.MustParseAddr("172.30.0.11")},
		PodIPs:    []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
		StartTime: now, Sandbox: true, Initialized: initialized, Stopped: stopped, Containers: build(containers),
		ImageID: func(image string) string { return "id:" + image },
	}
}

func get(s corev1.PodStatus, kind corev1.PodConditionType) corev1.PodCondition {
	i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return corev1.PodCondition{}
	}
	return s.Conditions[i]
}

func TestPhaseAndReadiness(t *testing.T) {
	const always, onFailure, never = corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	for _, tc := range []struct {
		name                 string
		policy               corev1.RestartPolicy
		containers           string
		initialized, stopped bool
		phase                corev1.PodPhase
		ready, initCondition string // reason, "" for True
	}{
		{"new", always, "m1:wait", false, false, corev1.PodPending, "ContainersNotReady", ""},
		{"initializing", always, "i1:run m1:wait", false, false, corev1.PodPending, "ContainersNotReady", "ContainersNotInitialized"},
		{"running", always, "i1:ok m1:run", true, false, corev1.PodRunning, "", ""},
		{"one of two runs", always, "m1:run m2:wait", true, false, corev1.PodPending, "ContainersNotReady", ""},
		{"not started yet", always, "m1:starting", true, false, corev1.PodRunning, "ContainersNotReady", ""},
		{"sidecar not ready", always, "s1:starting m1:run", true, false, corev1.PodRunning, "ContainersNotReady", ""},
		{"between restarts", always, "m1:back", true, false, corev1.PodRunning, "ContainersNotReady", ""},
		{"succeeded", never, "m1:ok m2:ok", true, true, corev1.PodSucceeded, "PodCompleted", ""},
		{"failed", never, "m1:ok m2:fail", true, true, corev1.PodFailed, "PodFailed", ""},
		{"one done, one runs", never, "m1:fail m2:run", true, false, corev1.PodRunning, "ContainersNotReady", ""},
		{"retried", onFailure, "m1:fail", true, false, corev1.PodRunning, "ContainersNotReady", ""},
		{"sidecar still to be stopped", never, "s1:run m1:ok", true, false, corev1.PodRunning, "ContainersNotReady", ""},
		{"init failed for good", never, "i1:fail m1:wait", false, true, corev1.PodFailed, "PodFailed", "ContainersNotInitialized"},
		{"that, a sidecar still runs", never, "s1:run i2:fail m1:wait", false, false, corev1.PodPending, "ContainersNotReady", "ContainersNotInitialized"},
		{"init is retried", always, "i1:back m1:wait", false, false, corev1.PodPending, "ContainersNotReady", "ContainersNotInitialized"},
		{"deleted while running", always, "m1:fail", true, true, corev1.PodFailed, "PodFailed", ""},
		{"deleted, ended well", always, "m1:ok", true, true, corev1.PodSucceeded, "PodCompleted", ""},
		{"deleted before it ran", always, "m1:wait", false, true, corev1.PodFailed, "PodFailed", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: tc.policy}}
			s := Status(pod, facts(tc.containers, tc.initialized, tc.stopped), now)
			if s.Phase != tc.phase {
				t.Errorf("phase %s, want %s", s.Phase, tc.phase)
			}
			for kind, reason := range map[corev1.PodConditionType]string{corev1.PodReady: tc.ready, corev1.ContainersReady: tc.ready, corev1.PodInitialized: tc.initCondition} {
				if c := get(s, kind); c.Reason != reason || (c.Status == corev1.ConditionTrue) != (reason == "") {
					t.Errorf("%s: got %s, reason %q; want reason %q", kind, c.Status, c.Reason, reason)
				}
			}
		})
	}
}

func TestGates(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "a"}, {ConditionType: "b"}}}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: "a", Status: corev1.ConditionFalse, Message: "mine"}}
	f := facts("m1:run", true, false)
	s := Status(pod, f, now)
	want := `the status of pod readiness gate "a" is not "True", but False, corresponding condition of pod readiness gate "b" does not exist.`
	if c := get(s, corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" || c.Message != want {
		t.Errorf("got %+v", c)
	}
	if get(s, corev1.ContainersReady).Status != corev1.ConditionTrue || get(s, "a").Message != "mine" {
		t.Errorf("got %+v", s.Conditions)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: "a", Status: corev1.ConditionTrue}, {Type: "b", Status: corev1.ConditionTrue}}
	if c := get(Status(pod, f, now), corev1.PodReady); c.Status != corev1.ConditionTrue {
		t.Errorf("with open gates: got %+v", c)
	}
}

func TestStatusIsStable(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	f := facts("m1:run m2:back", true, false)
	pod.Status = Status(pod, f, now)
	again := Status(pod, f, now.Add(time.Hour))
	if get(again, corev1.PodReady).LastTransitionTime != get(pod.Status, corev1.PodReady).LastTransitionTime {
		t.Error("a condition that did not change has a new transition time")
	}
	f.Containers[1].Run("id2", now)
	changed := Status(pod, f, now.Add(time.Hour))
	if c := get(changed, corev1.PodReady); c.LastTransitionTime == get(pod.Status, corev1.PodReady).LastTransitionTime || c.ObservedGeneration != 3 {
		t.Errorf("a condition that changed: got %+v", c)
	}
	if changed.PodIP != "10.0.0.1" || len(changed.PodIPs) != 2 || changed.HostIP != "172.30.0.11" || changed.ContainerStatuses[0].ImageID != "id:" {
		t.Errorf("got %+v", changed)
	}
	f.PodIPs, f.Sandbox = nil, false
	if last := Status(&corev1.Pod{Status: changed}, f, now); last.PodIP != "10.0.0.1" {
		t.Error("a Pod that gave up its network forgot its address")
	}
	ended := pod.DeepCopy()
	ended.Status.Phase = corev1.PodFailed
	if got := Status(ended, f, now).Phase; got != corev1.PodFailed {
		t.Errorf("a final phase became %s", got)
	}
}
