package status

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
)

// enabling says what is to become of the annotation nodeportlocal.antrea.io/enabled.
type enabling int

const (
	leave    enabling = iota // as it is
	enable                   // set it, unless the user has decided
	takeBack                 // take it off, if it is ours
)

// claimed is what a Service carries in its metadata while it is ours.
type claimed struct {
	manager  string
	instance string // of the installation
	assigned map[string][]netip.Addr
	attached []string // load balancers
	admit    bool     // something is going to be written to a load balancer
	enabling enabling
}

// claim returns the Service as it must be before anything of it is written to a load balancer: our finalizer, our name, the addresses,
// and the request for node ports.
func claim(s *corev1.Service, c claimed) *corev1.Service {
	out := s.DeepCopy()
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[annotations.ManagedBy] = c.manager
	if assigned := annotations.FormatAssigned(c.assigned); assigned != "" {
		out.Annotations[annotations.AssignedIPs] = assigned
	} else {
		delete(out.Annotations, annotations.AssignedIPs)
	}
	if slices.Sort(c.attached); len(c.attached) > 0 {
		out.Annotations[annotations.AttachedTo] = strings.Join(slices.Compact(c.attached), ",")
	} else {
		delete(out.Annotations, annotations.AttachedTo)
	}
	if c.admit && !slices.Contains(out.Finalizers, annotations.Finalizer) {
		out.Finalizers = append(out.Finalizers, annotations.Finalizer)
	}
	switch value, set := out.Annotations[npl.EnabledAnnotation]; {
	case c.enabling == takeBack:
		disable(out, c.instance)
	case c.enabling == enable && !set:
		out.Annotations[npl.EnabledAnnotation] = "true"
		out.Annotations[annotations.EnabledBy] = c.instance
	case value != "true" && out.Annotations[annotations.EnabledBy] == c.instance:
		delete(out.Annotations, annotations.EnabledBy) // somebody decided otherwise, so it is theirs now
	}
	return out
}

// disable takes the request for node ports off the Service, if it is ours.
func disable(s *corev1.Service, instance string) {
	if s.Annotations[annotations.EnabledBy] != instance {
		return
	}
	delete(s.Annotations, annotations.EnabledBy)
	if npl.Enabled(s.Annotations) {
		delete(s.Annotations, npl.EnabledAnnotation)
	}
}

// letGo returns the Service without anything of ours in its metadata.
func letGo(s *corev1.Service, instance string) *corev1.Service {
	out := s.DeepCopy()
	out.Finalizers = slices.DeleteFunc(out.Finalizers, func(f string) bool { return f == annotations.Finalizer })
	delete(out.Annotations, annotations.ManagedBy)
	delete(out.Annotations, annotations.AssignedIPs)
	delete(out.Annotations, annotations.AttachedTo)
	disable(out, instance)
	return out
}

// traces are the load balancers that the Service has been on, by what it carries; with its addresses there, if it has any.
func (c *Controller) traces(s *corev1.Service) map[string][]netip.Addr {
	out, err := annotations.ParseAssigned(s.Annotations[annotations.AssignedIPs], c.Selection.Instances[0])
	if err != nil {
		out = map[string][]netip.Addr{}
	}
	for _, name := range annotations.ParseAttached(s.Annotations[annotations.AttachedTo]) {
		if _, known := out[name]; !known {
			out[name] = nil
		}
	}
	return out
}

// unknown are those of them that are not configured any more.
func (c *Controller) unknown(s *corev1.Service) map[string][]netip.Addr {
	out := c.traces(s)
	maps.DeleteFunc(out, func(instance string, _ []netip.Addr) bool { return slices.Contains(c.Selection.Instances, instance) })
	return out
}

// silence returns the Service without anything of ours in its status. An address that is published is ours if it is one of these.
func silence(s *corev1.Service, ours []netip.Addr) *corev1.Service {
	out := s.DeepCopy()
	meta.RemoveStatusCondition(&out.Status.Conditions, Accepted)
	meta.RemoveStatusCondition(&out.Status.Conditions, Programmed)
	if published(s).all(ours) {
		out.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	return out
}

// published are the addresses in a Service's status; whole is false when there is something else.
type publishedIn struct {
	addrs addrs
	whole bool
}

func published(s *corev1.Service) publishedIn {
	out := publishedIn{whole: true}
	for _, i := range s.Status.LoadBalancer.Ingress {
		if ip, err := netip.ParseAddr(i.IP); err == nil {
			out.addrs = append(out.addrs, ip)
		} else {
			out.whole = false
		}
	}
	return out
}

// all reports whether everything that is published is one of these.
func (p publishedIn) all(of addrs) bool { return p.whole && of.containAll(p.addrs) }
