package inventory

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

func podRecord(pod *corev1.Pod) model.Pod {
	out := model.Pod{
		UID:             string(pod.UID),
		Namespace:       pod.Namespace,
		Name:            pod.Name,
		Created:         pod.CreationTimestamp.Time,
		Labels:          pod.Labels,
		Terminated:      pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed,
		ResourceVersion: pod.ResourceVersion,
	}
	out.Vanishing = out.Terminated && pod.DeletionTimestamp != nil && len(pod.Finalizers) == 0
	out.Annotation, out.Annotated = pod.Annotations[npl.Annotation]
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && reachable(a) {
			out.IPs = append(out.IPs, a.Unmap())
		}
	}
	for _, c := range pod.Spec.Containers {
		out.Ports = appendPorts(out.Ports, c)
	}
	for _, c := range pod.Spec.InitContainers {
		if isSidecar(c) {
			out.Ports = appendPorts(out.Ports, c)
		}
	}
	return out
}

func appendPorts(out []model.ContainerPort, c corev1.Container) []model.ContainerPort {
	for _, p := range c.Ports {
		hostIP, _ := netip.ParseAddr(p.HostIP) // invalid when empty: every address
		out = append(out, model.ContainerPort{
			Name:     p.Name,
			Port:     uint16(p.ContainerPort),
			Protocol: protocol(p.Protocol),
			HostPort: uint16(p.HostPort),
			HostIP:   hostIP.Unmap(),
		})
	}
	return out
}

func serviceRecord(svc *corev1.Service) model.Service {
	out := model.Service{Namespace: svc.Namespace, Name: svc.Name, Type: string(svc.Spec.Type), Selector: svc.Spec.Selector}
	if out.Type == "" {
		out.Type = string(corev1.ServiceTypeClusterIP)
	}
	for _, f := range svc.Spec.IPFamilies {
		out.Families = append(out.Families, npl.Family(f))
	}
	for _, p := range svc.Spec.Ports {
		sp := model.ServicePort{Protocol: protocol(p.Protocol)}
		switch {
		case p.TargetPort.Type == intstr.String:
			sp.TargetName = p.TargetPort.StrVal
		case p.TargetPort.IntVal != 0:
			sp.TargetPort = uint16(p.TargetPort.IntVal)
		default: // the API server fills targetPort in; a headless Service from an old one may lack it
			sp.TargetPort = uint16(p.Port)
		}
		out.Ports = append(out.Ports, sp)
	}
	return out
}

func nodeRecord(node *corev1.Node) model.Node {
	out := model.Node{Name: node.Name}
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && reachable(ip) {
			out.Addresses = append(out.Addresses, model.NodeAddress{Type: string(a.Type), IP: ip.Unmap()})
		}
	}
	return out
}

// reachable reports whether traffic can be sent to a from another machine.
func reachable(a netip.Addr) bool {
	return a.Zone() == "" && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast()
}

func protocol(p corev1.Protocol) npl.Protocol {
	if p == "" {
		return npl.TCP
	}
	return npl.Protocol(strings.ToLower(string(p)))
}

func isSidecar(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}
