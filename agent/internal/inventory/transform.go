package inventory

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// The transforms keep only what conversion reads, because a cache holds every object for as long as the agent runs. The
// reflector applies them twice to what it streams, so each must accept its own output: f(f(x)) == f(x). They build new
// objects and leave their input alone.

func slimMeta(o metav1.ObjectMeta, annotation string) metav1.ObjectMeta {
	slim := metav1.ObjectMeta{
		Name:              o.Name,
		Namespace:         o.Namespace,
		UID:               o.UID,
		ResourceVersion:   o.ResourceVersion,
		CreationTimestamp: o.CreationTimestamp,
	}
	if v, ok := o.Annotations[annotation]; ok {
		slim.Annotations = map[string]string{annotation: v}
	}
	return slim
}

func slimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil // a tombstone
	}
	slim := &corev1.Pod{
		ObjectMeta: slimMeta(pod.ObjectMeta, npl.Annotation),
		Spec:       corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status:     corev1.PodStatus{Phase: pod.Status.Phase, PodIPs: pod.Status.PodIPs},
	}
	slim.Labels, slim.DeletionTimestamp, slim.Finalizers = pod.Labels, pod.DeletionTimestamp, pod.Finalizers
	for _, c := range pod.Spec.Containers {
		if len(c.Ports) > 0 {
			slim.Spec.Containers = append(slim.Spec.Containers, corev1.Container{Ports: c.Ports})
		}
	}
	for _, c := range pod.Spec.InitContainers {
		if len(c.Ports) > 0 && isSidecar(c) {
			slim.Spec.InitContainers = append(slim.Spec.InitContainers, corev1.Container{Ports: c.Ports, RestartPolicy: c.RestartPolicy})
		}
	}
	return slim, nil
}

func isSidecar(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// slimService keeps nothing but the name of a Service that is not enabled: most are not.
func slimService(obj any) (any, error) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Service{ObjectMeta: slimMeta(svc.ObjectMeta, npl.EnabledAnnotation)}
	if !npl.Enabled(svc.Annotations) {
		slim.Annotations = nil
		return slim, nil
	}
	slim.Spec = corev1.ServiceSpec{Type: svc.Spec.Type, Selector: svc.Spec.Selector, IPFamilies: svc.Spec.IPFamilies}
	for _, p := range svc.Spec.Ports {
		slim.Spec.Ports = append(slim.Spec.Ports, corev1.ServicePort{Port: p.Port, Protocol: p.Protocol, TargetPort: p.TargetPort})
	}
	return slim, nil
}

func slimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Node{ObjectMeta: slimMeta(node.ObjectMeta, "")}
	slim.Status.Addresses = node.Status.Addresses
	return slim, nil
}
