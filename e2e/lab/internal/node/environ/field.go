package environ

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Facts are what the Node knows of a Pod before the Pod's status says it.
type Facts struct {
	PodIPs, HostIPs []netip.Addr
	// ServiceHost and ServicePort are where a Pod finds the API server.
	ServiceHost string
	ServicePort int
	// Allocatable is what a container without a limit is told as its limit.
	Allocatable corev1.ResourceList
}

// Field is the value of a field of the Pod, by the paths that the downward API allows.
func Field(pod *corev1.Pod, facts Facts, path string) (string, error) {
	if inner, key, ok := subscript(path); ok {
		switch inner {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
		return "", unsupported(path)
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP":
		return first(facts.PodIPs), nil
	case "status.podIPs":
		return join(facts.PodIPs), nil
	case "status.hostIP":
		return first(facts.HostIPs), nil
	case "status.hostIPs":
		return join(facts.HostIPs), nil
	}
	return "", unsupported(path)
}

func unsupported(path string) error {
	return fmt.Errorf("fieldRef %q: not a field of the downward API; use one such as metadata.name, metadata.labels['x'], spec.nodeName or status.podIP", path)
}

// subscript splits metadata.labels['key'].
func subscript(path string) (inner, key string, ok bool) {
	inner, key, ok = strings.Cut(path, "['")
	key, closed := strings.CutSuffix(key, "']")
	return inner, key, ok && closed
}

// lines is the form of a map in a downward API file.
func lines(m map[string]string) string {
	out := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s=%q", key, m[key]))
	}
	return strings.Join(out, "\n")
}

func first(addrs []netip.Addr) string {
	if len(addrs) == 0 {
		return ""
	}
	return addrs[0].String()
}

func join(addrs []netip.Addr) string {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = a.String()
	}
	return strings.Join(out, ",")
}

// Resource is a container's request or limit in units of the divisor, rounded up. A limit that is not set is what
// the Node has to give.
func Resource(c *corev1.Container, facts Facts, ref *corev1.ResourceFieldSelector) (string, error) {
	kind, name, ok := strings.Cut(ref.Resource, ".")
	var amount resource.Quantity
	switch {
	case ok && kind == "limits":
		var set bool
		if amount, set = c.Resources.Limits[corev1.ResourceName(name)]; !set {
			amount = facts.Allocatable[corev1.ResourceName(name)]
		}
	case ok && kind == "requests":
		amount = c.Resources.Requests[corev1.ResourceName(name)]
	default:
		return "", fmt.Errorf("resourceFieldRef %q: must be limits.<resource> or requests.<resource>", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == string(corev1.ResourceCPU) {
		return fmt.Sprint(ceil(amount.MilliValue(), divisor.MilliValue())), nil
	}
	return fmt.Sprint(ceil(amount.Value(), divisor.Value())), nil
}

func ceil(amount, divisor int64) int64 { return (amount + divisor - 1) / divisor }
