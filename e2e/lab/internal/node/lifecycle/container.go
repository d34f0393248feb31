// Package lifecycle decides what a Pod's containers should do next and what the Pod's status says, as a kubelet does.
// It is pure: it is told how the containers are and what time it is.
package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Kind is the part a container plays in its Pod.
type Kind int

const (
	// Init runs to its end before the next container starts.
	Init Kind = iota
	// Sidecar is an init container with restartPolicy Always: it is waited for until it has started, then stays.
	Sidecar
	// Main is an ordinary container.
	Main
)

// Container is one container of a Pod and how it is.
type Container struct {
	Spec  corev1.Container
	Kind  Kind
	State corev1.ContainerState // exactly one of its fields is set
	// Last is how the run before this one ended.
	Last         *corev1.ContainerStateTerminated
	RestartCount int32
	// Started says that the startup probe, if there is one, has succeeded; Ready the same of the readiness probe.
	// Both are about the present run.
	Started, Ready bool
	// NotBefore is when a container that is not running may be started (again).
	NotBefore time.Time
	// ID names the present or last run.
	ID string
}

// Containers lists a Pod's containers in the order they start, all waiting.
func Containers(pod *corev1.Pod) []*Container {
	var out []*Container
	add := func(spec corev1.Container, kind Kind, reason string) {
		out = append(out, &Container{Spec: spec, Kind: kind, State: waiting(reason, "")})
	}
	reason := "ContainerCreating"
	for _, spec := range pod.Spec.InitContainers {
		kind := Init
		if spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			kind = Sidecar
		}
		reason = "PodInitializing"
		add(spec, kind, reason)
	}
	for _, spec := range pod.Spec.Containers {
		add(spec, Main, reason)
	}
	return out
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// Wait records why the container is not started yet.
func (c *Container) Wait(reason, message string) { c.State = waiting(reason, message) }

// Run records that the container runs now. Without a probe it has started, and is ready, at once.
func (c *Container) Run(id string, now time.Time) {
	c.ID = id
	c.Started = c.Spec.StartupProbe == nil
	c.Ready = c.Started && c.Spec.ReadinessProbe == nil
	c.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: stamp(now)}}
}

// End records how the present run ended, which must be running.
func (c *Container) End(t corev1.ContainerStateTerminated, now time.Time) {
	t.ContainerID, t.StartedAt, t.FinishedAt = c.ID, c.State.Running.StartedAt, stamp(now)
	c.Started, c.Ready = false, false
	c.State = corev1.ContainerState{Terminated: &t}
}

// BackOff makes a container that ended wait for its next run; why it waits is in the message.
func (c *Container) BackOff(message string) {
	c.Last = c.State.Terminated
	c.Wait("CrashLoopBackOff", message)
}

// GoesOn tells whether the container, having ended, is to be run again.
func (c *Container) GoesOn(policy corev1.RestartPolicy) bool {
	t := c.Ended()
	return t != nil && c.restarts(policy, t.ExitCode)
}

// Restart counts a further run; what ended becomes the last one. Call it before the new run is recorded.
func (c *Container) Restart() {
	if c.State.Terminated != nil {
		c.Last = c.State.Terminated
	}
	c.RestartCount++
}

// Running tells whether the container runs.
func (c *Container) Running() bool { return c.State.Running != nil }

// succeeded tells whether the present run ended well.
func (c *Container) succeeded() bool {
	return c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
}

// Ended is how the newest run that is over ended, also while the next one waits for its turn; nil for none.
func (c *Container) Ended() *corev1.ContainerStateTerminated {
	if c.State.Terminated != nil {
		return c.State.Terminated
	}
	if c.State.Waiting != nil {
		return c.Last
	}
	return nil
}

// Restarts tells whether the container is run again after it ended so.
func (c *Container) restarts(policy corev1.RestartPolicy, exitCode int32) bool {
	switch {
	case c.Kind == Sidecar:
		return true
	case policy == corev1.RestartPolicyNever:
		return false
	case policy == corev1.RestartPolicyOnFailure || c.Kind == Init:
		return exitCode != 0
	}
	return true
}

// Find returns the container of that name, or nil.
func Find(all []*Container, name string) *Container {
	if i := slices.IndexFunc(all, func(c *Container) bool { return c.Spec.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}
