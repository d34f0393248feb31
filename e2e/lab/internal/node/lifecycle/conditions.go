package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// setConditions computes the conditions that belong to the Node, leaving all others.
func setConditions(pod *corev1.Pod, s *corev1.PodStatus, f Facts, now time.Time) {
	set := func(c corev1.PodCondition) {
		c.ObservedGeneration = pod.Generation
		c.LastTransitionTime = stamp(now)
		i := slices.IndexFunc(s.Conditions, func(old corev1.PodCondition) bool { return old.Type == c.Type })
		if i < 0 {
			s.Conditions = append(s.Conditions, c)
			return
		}
		if old := s.Conditions[i]; old.Status == c.Status {
			c.LastTransitionTime, c.LastProbeTime = old.LastTransitionTime, old.LastProbeTime
		}
		s.Conditions[i] = c
	}
	set(corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: boolean(f.Sandbox && !f.Stopped)})
	set(initialized(s.Phase, f))
	containersReady := ready(s.Phase, f)
	set(withGates(pod, s, containersReady))
	set(containersReady)
	set(corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
}

func boolean(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

func initialized(phase corev1.PodPhase, f Facts) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if f.Initialized {
		return c
	}
	if phase == corev1.PodSucceeded {
		c.Reason = "PodCompleted"
		return c
	}
	var incomplete []string
	for _, container := range f.Containers {
		if (container.Kind == Init && !container.succeeded()) || (container.Kind == Sidecar && !container.Started) {
			incomplete = append(incomplete, container.Spec.Name)
		}
	}
	if len(incomplete) > 0 {
		c.Status, c.Reason = corev1.ConditionFalse, "ContainersNotInitialized"
		c.Message = fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(incomplete, " "))
	}
	return c
}

// ready says whether all containers that serve are ready.
func ready(phase corev1.PodPhase, f Facts) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}
	switch phase {
	case corev1.PodSucceeded:
		c.Status, c.Reason = corev1.ConditionFalse, "PodCompleted"
		return c
	case corev1.PodFailed:
		c.Status, c.Reason = corev1.ConditionFalse, "PodFailed"
		return c
	default: // its containers decide
	}
	var unready []string
	for _, container := range f.Containers {
		if container.Kind != Init && !container.Ready {
			unready = append(unready, container.Spec.Name)
		}
	}
	if len(unready) > 0 {
		c.Status, c.Reason = corev1.ConditionFalse, "ContainersNotReady"
		c.Message = fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " "))
	}
	return c
}

// withGates is the Pod's Ready condition: its containers are ready, and so says every readiness gate.
func withGates(pod *corev1.Pod, s *corev1.PodStatus, containersReady corev1.PodCondition) corev1.PodCondition {
	c := containersReady
	c.Type = corev1.PodReady
	if c.Status != corev1.ConditionTrue {
		return c
	}
	var closed []string
	for _, gate := range pod.Spec.ReadinessGates {
		i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate.ConditionType })
		if i < 0 {
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		} else if got := s.Conditions[i].Status; got != corev1.ConditionTrue {
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %s", gate.ConditionType, got))
		}
	}
	if len(closed) > 0 {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(closed, ", ")
	}
	return c
}
