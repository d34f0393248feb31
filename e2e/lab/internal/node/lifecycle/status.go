package lifecycle

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Facts are what the Node knows of a Pod.
type Facts struct {
	HostIPs, PodIPs []netip.Addr
	StartTime       time.Time
	// Sandbox says that the Pod has its network, Initialized that its ordinary containers were started once, Stopped
	// that nothing of it runs nor will run again.
	Sandbox, Initialized, Stopped bool
	Containers                    []*Container
	// Image and ImageID say how a container's image is reported, by the name in its spec.
	ImageID func(image string) string
}

// Status computes the Pod's status. What others own in it, such as conditions of foreign types, stays.
func Status(pod *corev1.Pod, f Facts, now time.Time) corev1.PodStatus {
	s := *pod.Status.DeepCopy()
	s.ObservedGeneration = pod.Generation
	s.StartTime = new(stamp(f.StartTime))
	s.HostIP, s.HostIPs = "", nil
	for _, a := range f.HostIPs {
		s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: a.String()})
	}
	if len(f.HostIPs) > 0 {
		s.HostIP = f.HostIPs[0].String()
	}
	if len(f.PodIPs) > 0 {
		s.PodIP, s.PodIPs = f.PodIPs[0].String(), nil
		for _, a := range f.PodIPs {
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: a.String()})
		}
	}
	s.InitContainerStatuses, s.ContainerStatuses = nil, nil
	for _, c := range f.Containers {
		status := c.status(f.ImageID)
		if c.Kind == Main {
			s.ContainerStatuses = append(s.ContainerStatuses, status)
		} else {
			s.InitContainerStatuses = append(s.InitContainerStatuses, status)
		}
	}
	if terminal := s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed; !terminal {
		s.Phase = phase(pod.Spec.RestartPolicy, f)
	}
	setConditions(pod, &s, f, now)
	return s
}

func (c *Container) status(imageID func(string) string) corev1.ContainerStatus {
	s := corev1.ContainerStatus{
		Name: c.Spec.Name, Image: c.Spec.Image, State: *c.State.DeepCopy(), RestartCount: c.RestartCount,
		Ready: c.Ready, Started: new(c.Started),
	}
	if c.ID != "" {
		s.ContainerID, s.ImageID = c.ID, imageID(c.Spec.Image)
	}
	if c.Last != nil {
		s.LastTerminationState.Terminated = c.Last.DeepCopy()
	}
	if c.Kind == Init {
		s.Ready = c.succeeded()
	}
	return s
}

// phase follows a kubelet's getPhase.
func phase(policy corev1.RestartPolicy, f Facts) corev1.PodPhase {
	var running, neverRan, failed int
	for _, c := range f.Containers {
		switch ended := c.Ended(); {
		case c.Kind == Init:
			if ended != nil && ended.ExitCode != 0 && !c.restarts(policy, ended.ExitCode) && (f.Stopped || !anySidecarRuns(f.Containers)) {
				return corev1.PodFailed
			}
		case c.Kind == Sidecar:
		case c.Running():
			running++
		case ended == nil:
			neverRan++
		case c.restarts(policy, ended.ExitCode) && !f.Stopped:
			running++ // about to
		case ended.ExitCode != 0:
			failed++
		}
	}
	switch {
	case f.Stopped && neverRan > 0: // deleted before it ever ran
		return corev1.PodFailed
	case neverRan > 0 || !f.Initialized && !f.Stopped:
		return corev1.PodPending
	case running > 0:
		return corev1.PodRunning
	case anySidecarRuns(f.Containers) && !f.Stopped:
		return corev1.PodRunning
	case failed > 0:
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

func anySidecarRuns(all []*Container) bool {
	for _, c := range all {
		if c.Kind == Sidecar && c.Running() {
			return true
		}
	}
	return false
}

// stamp is a time as the API keeps it, to the second, so that what is computed compares equal to what comes back.
func stamp(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)).Rfc3339Copy() }
