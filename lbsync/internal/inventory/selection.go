package inventory

import (
	"cmp"
	"maps"
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

// Selection says which Services are ours and how objects are read.
type Selection struct {
	Instances []string           // the provider instances; each has the loadBalancerClass annotations.ClassPrefix + its name
	Unclassed string             // the instance that Services without a class are on; empty leaves them alone
	Manager   string             // our value of annotations.ManagedBy
	Pools     []vip.Pool         // whose addresses VIPs are
	Source    annotations.Source // of Services that do not say
	AtNodes   []string           // the instances that serve Services which name no address at those of Nodes
	Allocate  []string           // the instances whose load balancer gives addresses itself: there, one in no pool of ours may be had, too

	NamespaceSelector map[string]string // labels of the Namespaces whose Services are ours; empty selects all
	BlockedNamespaces []string          // whose Services are never ours
	DrainOnCordon     bool              // a cordoned Node drains like one with annotations.Drain
	// Nothing is true when no Service is ours any more: everything is to be taken back.
	Nothing bool

	// labelsOf returns the labels of a Namespace; known is false until it was seen. Watch sets it where a selector is given.
	labelsOf func(namespace string) (labels map[string]string, known bool)
}

// Wishes returns what the annotations and the fields of the Service ask for, and what of it cannot be read.
func (c Selection) Wishes(s *corev1.Service) (annotations.Wishes, []annotations.Problem) {
	return annotations.Decode(s.Annotations, specOf(s), c.Instances)
}

// specOf returns the fields that mean the same as an annotation.
func specOf(s *corev1.Service) annotations.Spec {
	spec := annotations.Spec{
		LoadBalancerIP: s.Spec.LoadBalancerIP, SourceRanges: s.Spec.LoadBalancerSourceRanges,
		SessionAffinity: s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP,
	}
	if a := s.Spec.SessionAffinityConfig; spec.SessionAffinity && a != nil && a.ClientIP != nil && a.ClientIP.TimeoutSeconds != nil {
		spec.AffinityTimeout = time.Duration(*a.ClientIP.TimeoutSeconds) * time.Second
	}
	return spec
}

// On returns the provider instances that the Service asks for, sorted.
func (c Selection) On(s *corev1.Service) []string {
	wishes, problems := c.Wishes(s)
	return c.on(s, wishes, problems)
}

func (c Selection) on(s *corev1.Service, wishes annotations.Wishes, problems []annotations.Problem) []string {
	if c.Nothing || s.Spec.Type == corev1.ServiceTypeExternalName || !c.inNamespace(s) {
		return nil // an ExternalName has no Pods
	}
	if source := cmp.Or(wishes.Source, c.Source); s.Spec.Type == corev1.ServiceTypeNodePort && source == annotations.NodePortLocal && !wishes.Kept.Structure {
		return nil // npl-agent and Antrea's give the Pods of such a Service no node ports
	}
	class := c.class(s)
	attaching := s.Annotations[annotations.Pool] != "" || len(wishes.Attachments) > 0
	if class == "" && !attaching {
		return nil
	}
	var out []string
	switch {
	case wishes.Kept.Structure && wrong(problems, annotations.Pool):
		out = slices.Clone(c.Instances) // whichever it is on, it stays there
	case wishes.Kept.Structure && wrong(problems, annotations.Providers):
		out = c.holding(s, class)
	case len(wishes.Attachments) > 0:
		for _, a := range wishes.Attachments {
			out = append(out, a.Instance)
		}
	case class == "":
	case len(wishes.Providers) > 0:
		out = slices.Clone(wishes.Providers)
	default:
		out = []string{class}
	}
	out = slices.DeleteFunc(out, func(instance string) bool { return !slices.Contains(c.Instances, instance) })
	slices.Sort(out)
	return slices.Compact(out)
}

// wrong reports whether there is a problem with the annotation.
func wrong(problems []annotations.Problem, key string) bool {
	return slices.ContainsFunc(problems, func(p annotations.Problem) bool { return p.Key == key })
}

// holding returns the instances on which the Service has addresses or members; the one of its class when it has none.
func (c Selection) holding(s *corev1.Service, class string) []string {
	assigned, err := annotations.ParseAssigned(s.Annotations[annotations.AssignedIPs], c.Instances[0])
	if err != nil {
		return slices.Clone(c.Instances)
	}
	on := append(annotations.ParseAttached(s.Annotations[annotations.AttachedTo]), slices.Collect(maps.Keys(assigned))...)
	if len(on) == 0 {
		return []string{class}
	}
	return on
}

// class returns the instance that a Service of type LoadBalancer is for by its class, or "".
func (c Selection) class(s *corev1.Service) string {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return ""
	}
	instance := c.Unclassed
	if class := s.Spec.LoadBalancerClass; class != nil {
		name, ours := strings.CutPrefix(*class, annotations.ClassPrefix)
		if !ours {
			return ""
		}
		instance = name
	}
	if !slices.Contains(c.Instances, instance) {
		return ""
	}
	return instance
}

// inNamespace reports whether Services of that Namespace are ours. In one that is not known, those are that were: a list of
// Namespaces that came incomplete must not look like a wish to be rid of them.
func (c Selection) inNamespace(s *corev1.Service) bool {
	if slices.Contains(c.BlockedNamespaces, s.Namespace) {
		return false
	}
	if len(c.NamespaceSelector) == 0 {
		return true
	}
	if c.labelsOf != nil {
		if labels, known := c.labelsOf(s.Namespace); known {
			return matches(c.NamespaceSelector, labels)
		}
	}
	return slices.Contains(s.Finalizers, annotations.Finalizer)
}

// Ours reports whether the Service asks for any load balancer of ours.
func (c Selection) Ours(s *corev1.Service) bool { return len(c.On(s)) > 0 }

// Admitted reports whether the Service carries our finalizer: the finalizer, and nobody else's name beside it.
func (c Selection) Admitted(s *corev1.Service) bool {
	return c.admitted(s, func() bool { return c.Ours(s) })
}

func (c Selection) admitted(s *corev1.Service, ours func() bool) bool {
	manager := s.Annotations[annotations.ManagedBy]
	return slices.Contains(s.Finalizers, annotations.Finalizer) && (manager == c.Manager || manager == "" && ours())
}

// Service makes the record of a Service. What it cannot read it leaves out: the Lease holder reports it.
func (c Selection) Service(s *corev1.Service) model.Service {
	manager := s.Annotations[annotations.ManagedBy]
	wishes, problems := c.Wishes(s)
	out := model.Service{
		ServiceKey:      model.ServiceKey{Namespace: s.Namespace, Name: s.Name},
		UID:             string(s.UID),
		Created:         s.CreationTimestamp.Time,
		On:              c.on(s, wishes, problems),
		Deleting:        s.DeletionTimestamp != nil,
		ManagedByOther:  manager != "" && manager != c.Manager,
		Abandoned:       wishes.Abandoned,
		Source:          wishes.Source,
		Selector:        s.Spec.Selector,
		PublishNotReady: s.Spec.PublishNotReadyAddresses,
		LocalOnly:       s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		VIPs:            c.vips(s),
		Wishes:          wishes,
	}
	out.Admitted = c.admitted(s, out.Ours)
	if out.Source == "" {
		out.Source = c.Source
	}
	for _, family := range s.Spec.IPFamilies {
		out.Families = append(out.Families, npl.Family(family))
	}
	if len(out.Families) == 0 {
		out.Families = []npl.Family{npl.IPv4}
	}
	for _, p := range s.Spec.Ports {
		out.Ports = append(out.Ports, servicePort(p))
	}
	return out
}

func servicePort(p corev1.ServicePort) model.ServicePort {
	out := model.ServicePort{Name: p.Name, Port: uint16(p.Port), Protocol: protocolOf(p.Protocol), NodePort: uint16(p.NodePort)}
	switch {
	case p.TargetPort.StrVal != "":
		out.TargetName = p.TargetPort.StrVal
	case p.TargetPort.IntVal > 0 && p.TargetPort.IntVal <= 65535:
		out.TargetNumber = uint16(p.TargetPort.IntVal)
	default:
		out.TargetNumber = out.Port
	}
	return out
}

func protocolOf(p corev1.Protocol) providers.Protocol {
	if p == "" {
		return providers.TCP
	}
	return providers.Protocol(p)
}

// vips returns the addresses assigned to the Service that it may have: whoever may edit annotations does not get others that way.
func (c Selection) vips(s *corev1.Service) map[string][]netip.Addr {
	assigned := s.Annotations[annotations.AssignedIPs]
	if assigned == "" {
		return nil
	}
	out, err := annotations.ParseAssigned(assigned, c.Instances[0])
	if err != nil {
		return nil
	}
	for instance := range out {
		request := vip.Request{Instance: instance, Namespace: s.Namespace, Labels: s.Labels}
		own := slices.Contains(c.Allocate, instance)
		out[instance] = slices.DeleteFunc(out[instance], func(a netip.Addr) bool {
			return !vip.MayHave(c.Pools, request, a) && !(own && c.inNoPool(a))
		})
	}
	return out
}

func (c Selection) inNoPool(a netip.Addr) bool {
	return !slices.ContainsFunc(c.Pools, func(p vip.Pool) bool { return p.Contains(a) })
}
