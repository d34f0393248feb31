package inventory

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// Pod makes the record of a Pod.
func Pod(p *corev1.Pod) *model.Pod {
	out := &model.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID),
		Labels:      p.Labels,
		Node:        p.Spec.NodeName,
		IPs:         podIPs(p),
		Terminating: p.DeletionTimestamp != nil,
		Finished:    p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
	out.Ready, out.ReadyChanged, out.Gated = readiness(p)
	if out.Terminating {
		out.Since = p.DeletionTimestamp.Time // the end of the grace period; its beginning is when deletion was asked for
		if grace := p.DeletionGracePeriodSeconds; grace != nil {
			out.Since = out.Since.Add(-time.Duration(*grace) * time.Second)
		}
	}
	for i := range p.Spec.Containers {
		addPorts(out, &p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			addPorts(out, c) // a sidecar: it runs as long as the Pod
		}
	}
	if value, ok := p.Annotations[annotations.Weight]; ok {
		var problem *annotations.Problem
		if out.Weight, problem = annotations.ParseWeight(value); problem != nil {
			out.Problems = append(out.Problems, *problem)
		}
	}
	if value, ok := p.Annotations[npl.Annotation]; ok {
		mappings, err := npl.Decode(value)
		out.Mappings = mappings
		if err != nil {
			out.Malformed = err.Error()
		}
	}
	return out
}

func podIPs(p *corev1.Pod) []netip.Addr {
	var out []netip.Addr
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// addPorts enters what of a container's ports the model can refer to: named ones, and those of the Node.
func addPorts(out *model.Pod, c *corev1.Container) {
	for _, port := range c.Ports {
		if port.Name != "" {
			out.Ports = append(out.Ports, model.ContainerPort{Name: port.Name, Protocol: protocolOf(port.Protocol), Number: uint16(port.ContainerPort)})
		}
		if port.HostPort > 0 {
			out.HostPorts = append(out.HostPorts, model.HostPort{Protocol: protocolOf(port.Protocol), Port: uint16(port.HostPort)})
		}
	}
}

// readiness returns the condition Ready and when it changed. For a Pod with our gate it is what Ready would be without that: otherwise
// the Pod would wait for the load balancer, and the load balancer for the Pod.
func readiness(p *corev1.Pod) (ready bool, changed time.Time, gated bool) {
	own, has := condition(p, corev1.PodReady), slices.Contains(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: annotations.Gate})
	if !has {
		return own.Status == corev1.ConditionTrue, own.LastTransitionTime.Time, false
	}
	gate := condition(p, annotations.Gate)
	gated = gate.Status != corev1.ConditionTrue
	// Once the gate is True, the kubelet needs a moment to say so in Ready. Whatever makes Ready false after that counts, for the node
	// controller speaks through Ready alone.
	waiting := own.Reason == reasonGates || !own.LastTransitionTime.After(gate.LastTransitionTime.Time)
	if !gated && (own.Status == corev1.ConditionTrue || !waiting) {
		return own.Status == corev1.ConditionTrue, own.LastTransitionTime.Time, false
	}
	ready, changed = others(p)
	return ready, changed, gated
}

// reasonGates is the kubelet's reason of a condition Ready that only readiness gates keep false.
const reasonGates = "ReadinessGatesNotReady"

// others combines ContainersReady and the readiness gates that are not ours: it is true since the last of them is, or false since the first
// of those that are.
func others(p *corev1.Pod) (ready bool, changed time.Time) {
	types := []corev1.PodConditionType{corev1.ContainersReady}
	for _, g := range p.Spec.ReadinessGates {
		if g.ConditionType != annotations.Gate {
			types = append(types, g.ConditionType)
		}
	}
	var last, first time.Time
	ready = true
	for _, t := range types {
		c := condition(p, t)
		at := c.LastTransitionTime.Time
		if c.Status == corev1.ConditionTrue {
			if at.After(last) {
				last = at
			}
			continue
		}
		if ready || at.Before(first) {
			first = at
		}
		ready = false
	}
	if ready {
		return true, last
	}
	return false, first
}

// condition returns a condition of the Pod, or an empty one.
func condition(p *corev1.Pod, of corev1.PodConditionType) corev1.PodCondition {
	at := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == of })
	if at < 0 {
		return corev1.PodCondition{}
	}
	return p.Status.Conditions[at]
}

// Node makes the record of a Node.
func (c Selection) Node(n *corev1.Node) *model.Node {
	out := &model.Node{Name: n.Name, UID: string(n.UID), Labels: n.Labels, NotReady: true}
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil || a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP {
			continue
		}
		out.Addresses = append(out.Addresses, ip.Unmap())
		if a.Type == corev1.NodeInternalIP {
			out.Internal = append(out.Internal, ip.Unmap())
		}
	}
	slices.SortFunc(out.Addresses, netip.Addr.Compare)
	out.Addresses = slices.Compact(out.Addresses)
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			out.NotReady, out.ReadyChanged = condition.Status != corev1.ConditionTrue, condition.LastTransitionTime.Time
		}
	}
	_, out.Excluded = n.Labels[corev1.LabelNodeExcludeBalancers]
	var problem *annotations.Problem
	if out.Draining, problem = annotations.ParseDrain(n.Annotations[annotations.Drain]); problem != nil {
		out.Problems = append(out.Problems, *problem)
	}
	out.Draining = out.Draining || c.DrainOnCordon && n.Spec.Unschedulable
	return out
}

// Transform slims a Service before it is stored. It accepts its own output, because a reflector may call it twice.
func Transform(obj any) (any, error) {
	if s, ok := obj.(*corev1.Service); ok {
		s.ManagedFields = nil
	}
	return obj, nil
}

// lighten drops from an object what is large and not read. A list, unlike a stream, is in memory as a whole.
func lighten(object runtime.Object) error {
	switch o := object.(type) {
	case *corev1.Pod:
		o.ManagedFields, o.OwnerReferences = nil, nil
		o.Spec.Volumes, o.Spec.Affinity, o.Spec.Tolerations, o.Spec.TopologySpreadConstraints = nil, nil, nil, nil
		for i, c := range o.Spec.Containers {
			o.Spec.Containers[i] = corev1.Container{Name: c.Name, Ports: c.Ports}
		}
		for i, c := range o.Spec.InitContainers {
			o.Spec.InitContainers[i] = corev1.Container{Name: c.Name, Ports: c.Ports, RestartPolicy: c.RestartPolicy}
		}
		o.Status.ContainerStatuses, o.Status.InitContainerStatuses = nil, nil
	case *corev1.Node:
		o.ManagedFields, o.Status.Images = nil, nil
	}
	return nil
}
