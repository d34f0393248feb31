package inventory

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/providers"
)

// Selection says which Services are ours.
type Selection struct {
	Instances []string // the provider instances; each has the loadBalancerClass annotations.ClassPrefix + its name
	Unclassed string   // the instance that Services without a class are on; empty leaves them alone
	Manager   string   // our value of annotations.ManagedBy
	Pools     []vip.Range
	Source    annotations.Source // of Services that do not say
}

// On returns the provider instances that the Service asks for, sorted.
func (c Selection) On(s *corev1.Service) []string {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	instance := c.Unclassed
	if class := s.Spec.LoadBalancerClass; class != nil {
		instance, _ = strings.CutPrefix(*class, annotations.ClassPrefix)
	}
	if instance == "" || !slices.Contains(c.Instances, instance) {
		return nil
	}
	return []string{instance}
}

// Ours reports whether the Service asks for any load balancer of ours.
func (c Selection) Ours(s *corev1.Service) bool { return len(c.On(s)) > 0 }

// Admitted reports whether the Service carries our finalizer: the finalizer, and nobody else's name beside it.
func (c Selection) Admitted(s *corev1.Service) bool {
	manager := s.Annotations[annotations.ManagedBy]
	return slices.Contains(s.Finalizers, annotations.Finalizer) && (manager == c.Manager || manager == "" && c.Ours(s))
}

// Service makes the record of a Service. What it cannot read it leaves out: the Lease holder reports it.
func (c Selection) Service(s *corev1.Service) model.Service {
	manager := s.Annotations[annotations.ManagedBy]
	out := model.Service{
		ServiceKey:      model.ServiceKey{Namespace: s.Namespace, Name: s.Name},
		UID:             string(s.UID),
		Created:         s.CreationTimestamp.Time,
		On:              c.On(s),
		Admitted:        c.Admitted(s),
		Deleting:        s.DeletionTimestamp != nil,
		ManagedByOther:  manager != "" && manager != c.Manager,
		Source:          c.Source,
		Selector:        s.Spec.Selector,
		PublishNotReady: s.Spec.PublishNotReadyAddresses,
	}
	for _, family := range s.Spec.IPFamilies {
		out.Families = append(out.Families, npl.Family(family))
	}
	if len(out.Families) == 0 {
		out.Families = []npl.Family{npl.IPv4}
	}
	for _, p := range s.Spec.Ports {
		port := model.ServicePort{Port: uint16(p.Port), Protocol: providers.Protocol(p.Protocol)}
		if port.Protocol == "" {
			port.Protocol = providers.TCP
		}
		switch {
		case p.TargetPort.StrVal != "":
			port.TargetName = p.TargetPort.StrVal
		case p.TargetPort.IntVal > 0 && p.TargetPort.IntVal <= 65535:
			port.TargetNumber = uint16(p.TargetPort.IntVal)
		default:
			port.TargetNumber = port.Port
		}
		out.Ports = append(out.Ports, port)
	}
	if assigned := s.Annotations[annotations.AssignedIPs]; assigned != "" {
		if vips, err := annotations.ParseAssigned(assigned, c.Instances[0]); err == nil {
			for instance := range vips {
				vips[instance] = slices.DeleteFunc(vips[instance], func(a netip.Addr) bool { return !c.inPools(a) })
			}
			out.VIPs = vips
		}
	}
	algorithm, err := annotations.ParseAlgorithm(s.Annotations[annotations.Algorithm])
	out.Wishes.Pool.Algorithm, out.Wishes.Kept.Pool = algorithm, err != nil
	out.Wishes.Unservable = len(s.Spec.LoadBalancerSourceRanges) > 0
	return out
}

func (c Selection) inPools(a netip.Addr) bool {
	return len(c.Pools) == 0 || slices.ContainsFunc(c.Pools, func(r vip.Range) bool { return r.Contains(a) })
}

// Pod makes the record of a Pod.
func Pod(p *corev1.Pod) *model.Pod {
	out := &model.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID),
		Labels:      p.Labels,
		Node:        p.Spec.NodeName,
		Terminating: p.DeletionTimestamp != nil,
		Finished:    p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
	if out.Terminating {
		out.Since = p.DeletionTimestamp.Time // the end of the grace period; its beginning is when deletion was asked for
		if grace := p.DeletionGracePeriodSeconds; grace != nil {
			out.Since = out.Since.Add(-time.Duration(*grace) * time.Second)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Ready, out.ReadyChanged = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		for _, port := range c.Ports {
			protocol := providers.Protocol(port.Protocol)
			if protocol == "" {
				protocol = providers.TCP
			}
			out.Ports = append(out.Ports, model.ContainerPort{Name: port.Name, Protocol: protocol, Number: uint16(port.ContainerPort)})
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

// Node makes the record of a Node.
func Node(n *corev1.Node) *model.Node {
	out := &model.Node{Name: n.Name}
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			out.Addresses = append(out.Addresses, ip.Unmap())
		}
	}
	slices.SortFunc(out.Addresses, netip.Addr.Compare)
	out.Addresses = slices.Compact(out.Addresses)
	return out
}

// Transform slims an object before it is stored. It accepts its own output, because a reflector may call it twice.
func Transform(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		return slimPod(o), nil
	case *corev1.Node:
		n := &corev1.Node{}
		n.Name, n.UID, n.ResourceVersion = o.Name, o.UID, o.ResourceVersion
		n.Status.Addresses = o.Status.Addresses
		return n, nil
	case *corev1.Service:
		o.ManagedFields = nil
		return o, nil
	}
	return obj, nil // a tombstone
}

func slimPod(p *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{}
	out.Namespace, out.Name, out.UID, out.ResourceVersion = p.Namespace, p.Name, p.UID, p.ResourceVersion
	out.Labels = p.Labels
	out.DeletionTimestamp, out.DeletionGracePeriodSeconds = p.DeletionTimestamp, p.DeletionGracePeriodSeconds
	if value, ok := p.Annotations[npl.Annotation]; ok {
		out.Annotations = map[string]string{npl.Annotation: value}
	}
	out.Spec.NodeName = p.Spec.NodeName
	out.Spec.Containers = namedPorts(p.Spec.Containers, func(corev1.Container) bool { return true })
	out.Spec.InitContainers = namedPorts(p.Spec.InitContainers, func(c corev1.Container) bool {
		return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
	out.Status.Phase = p.Status.Phase
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	return out
}

// namedPorts keeps the containers that a targetPort can refer to by name: those with named ports, and of init
// containers only sidecars.
func namedPorts(in []corev1.Container, eligible func(corev1.Container) bool) []corev1.Container {
	var out []corev1.Container
	for _, c := range in {
		slim := corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy}
		for _, p := range c.Ports {
			if p.Name != "" {
				slim.Ports = append(slim.Ports, corev1.ContainerPort{Name: p.Name, Protocol: p.Protocol, ContainerPort: p.ContainerPort})
			}
		}
		if len(slim.Ports) > 0 && eligible(c) {
			out = append(out, slim)
		}
	}
	return out
}
