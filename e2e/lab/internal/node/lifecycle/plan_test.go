package lifecycle

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// kinds by the letter that stands for them in these tests.
var kinds = map[byte]Kind{'i': Init, 's': Sidecar, 'm': Main}

// build makes containers from words such as "i1:ok m2:run s3:wait m4:fail m5:back" (back: fails, waits for its turn).
func build(words string) []*Container {
	var all []*Container
	for word := range strings.FieldsSeq(words) {
		name, state, _ := strings.Cut(word, ":")
		c := &Container{Spec: corev1.Container{Name: name}, Kind: kinds[name[0]], State: waiting("ContainerCreating", "")}
		switch state {
		case "run":
			c.Run("id", now)
		case "starting":
			c.Run("id", now)
			c.Started, c.Ready = false, false
		case "ok", "fail", "back":
			c.Run("id", now)
			code := int32(0)
			if state != "ok" {
				code = 1
			}
			c.End(corev1.ContainerStateTerminated{ExitCode: code}, now)
			if state == "back" {
				c.NotBefore = now.Add(time.Second)
				c.BackOff("back-off")
			}
		}
		all = append(all, c)
	}
	return all
}

func TestNext(t *testing.T) {
	const always, onFailure, never = corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	for _, tc := range []struct {
		name        string
		policy      corev1.RestartPolicy
		containers  string
		initialized bool
		start       string
		finished    bool
		wake        bool
	}{
		{"all main containers at once", always, "m1:wait m2:wait", false, "m1 m2", false, false},
		{"the first init container alone", always, "i1:wait i2:wait m1:wait", false, "i1", false, false},
		{"wait for it", always, "i1:run i2:wait m1:wait", false, "", false, false},
		{"the next after it succeeded", always, "i1:ok i2:wait m1:wait", false, "i2", false, false},
		{"main after all init", always, "i1:ok i2:ok m1:wait", false, "m1", false, false},
		{"init is retried", always, "i1:fail m1:wait", false, "i1", false, false},
		{"init is retried on failure", onFailure, "i1:fail m1:wait", false, "i1", false, false},
		{"init fails for good", never, "i1:fail m1:wait", false, "", true, false},
		{"init waits for its turn", always, "i1:back m1:wait", false, "", false, true},
		{"sidecar is waited for", always, "s1:starting m1:wait", false, "", false, false},
		{"sidecar has started", always, "s1:run m1:wait", false, "m1", false, false},
		{"sidecar restarts even with Never", never, "s1:ok m1:run", true, "s1", false, false},
		{"sidecar does not hold up main later", always, "s1:fail m1:fail", true, "s1 m1", false, false},
		{"main restarts always", always, "m1:ok", true, "m1", false, false},
		{"main in its turn", always, "m1:back m2:run", true, "", false, true},
		{"on failure: success is final", onFailure, "m1:ok m2:fail", true, "m2", false, false},
		{"never", never, "m1:fail m2:ok", true, "", true, false},
		{"one still runs", never, "m1:ok m2:run", true, "", false, false},
		{"sidecars do not keep the Pod", never, "s1:run m1:ok", true, "", true, false},
		{"nor are they restarted then", never, "s1:fail m1:ok", true, "", true, false},
		{"nor when an init container failed", never, "s1:ok i1:fail m1:wait", false, "", true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Next(tc.policy, build(tc.containers), tc.initialized, now)
			var start []string
			for _, c := range got.Start {
				start = append(start, c.Spec.Name)
			}
			if s := strings.Join(start, " "); s != tc.start || got.Finished != tc.finished || got.Wake.IsZero() == tc.wake {
				t.Errorf("got start %q, finished %v, wake %s; want %q, %v, %v", s, got.Finished, got.Wake, tc.start, tc.finished, tc.wake)
			}
		})
	}
}

// However containers end, a Pod always has something to wait for: it runs, will start something, or is finished.
func TestAPodNeverGetsStuck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var words []string
		for _, kind := range rapid.SliceOfN(rapid.SampledFrom([]string{"i", "s"}), 0, 3).Draw(t, "init") {
			words = append(words, kind+":wait")
		}
		for range rapid.IntRange(1, 3).Draw(t, "mains") {
			words = append(words, "m:wait")
		}
		all := build(strings.Join(words, " "))
		policy := rapid.SampledFrom([]corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}).Draw(t, "policy")
		at, initialized := now, false
		for range 30 {
			plan := Next(policy, all, initialized, at)
			running := 0
			for _, c := range plan.Start {
				if c.Running() {
					t.Fatal("starts what runs")
				}
				if c.Ended() != nil {
					c.Restart()
				}
				c.Run("id", at)
				initialized = initialized || c.Kind == Main
			}
			for _, c := range all {
				if c.Running() {
					running++
				}
			}
			if plan.Finished {
				if len(plan.Start) > 0 {
					t.Fatal("finished, but starts something")
				}
				return
			}
			if running == 0 && plan.Wake.IsZero() {
				t.Fatalf("stuck: %v", all)
			}
			at = at.Add(time.Second)
			c := rapid.SampledFrom(all).Draw(t, "ends")
			if c.Running() {
				c.End(corev1.ContainerStateTerminated{ExitCode: rapid.Int32Range(0, 1).Draw(t, "code")}, at)
				c.NotBefore = at.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "delay")) * time.Second)
			}
		}
	})
}

func TestBackoff(t *testing.T) {
	b := Backoff{Initial: time.Second, Max: 5 * time.Second, Reset: time.Minute}
	for streak, want := range []time.Duration{0, 0, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		if got := b.Delay(streak); got != want {
			t.Errorf("after %d short runs: got %s, want %s", streak, got, want)
		}
	}
	if got := b.Delay(1 << 30); got != b.Max {
		t.Errorf("after very many: got %s", got)
	}
	if got := b.Streak(7, time.Second); got != 8 {
		t.Errorf("a short run: got %d, want 8", got)
	}
	if got := b.Streak(7, time.Minute); got != 1 {
		t.Errorf("a long run: got %d, want 1", got)
	}
}
