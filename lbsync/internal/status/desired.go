package status

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/providers"
)

// grace is how long a passing failure of the load balancer leaves Programmed as it is.
const grace = 5 * time.Second

// refusal is why a Service is not accepted as it is written.
type refusal struct{ reason, message string }

// request reads what addresses the Service asks for. A malformed annotation is a refusal, not a missing request.
func request(s *corev1.Service) (vip.Request, *refusal) {
	if ranges := s.Spec.LoadBalancerSourceRanges; len(ranges) > 0 {
		return vip.Request{}, &refusal{ReasonSourceRanges, fmt.Sprintf("spec.loadBalancerSourceRanges (%s) cannot be enforced yet, so the "+
			"Service is not served; remove the field to serve it to everybody", strings.Join(ranges, ", "))}
	}
	r := vip.Request{}
	for _, family := range s.Spec.IPFamilies {
		r.Families = append(r.Families, npl.Family(family))
	}
	if len(r.Families) == 0 {
		r.Families = []npl.Family{npl.IPv4}
	}
	asked, where := s.Annotations[annotations.LoadBalancerIPs], "annotation "+annotations.LoadBalancerIPs
	if asked == "" {
		asked, where = s.Spec.LoadBalancerIP, "spec.loadBalancerIP"
	}
	if asked == "" {
		return r, nil
	}
	addrs, err := annotations.ParseAddresses(asked)
	if err != nil {
		return r, &refusal{ReasonInvalidAnnotation, where + ": " + err.Error()}
	}
	r.Addresses = addrs
	return r, nil
}

// claim returns the Service as it must be before anything of it is written to the load balancer: our finalizer, our
// name, the addresses, and the request for node ports.
func claim(s *corev1.Service, selection inventory.Selection, instance string, vips []netip.Addr) *corev1.Service {
	out := s.DeepCopy()
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[annotations.ManagedBy] = selection.Manager
	if len(vips) > 0 {
		out.Annotations[annotations.AssignedIPs] = annotations.FormatAssigned(map[string][]netip.Addr{selection.Instances[0]: vips})
		if !slices.Contains(out.Finalizers, annotations.Finalizer) {
			out.Finalizers = append(out.Finalizers, annotations.Finalizer)
		}
	}
	value, set := out.Annotations[npl.EnabledAnnotation]
	switch {
	case !set:
		out.Annotations[npl.EnabledAnnotation] = "true"
		out.Annotations[annotations.EnabledBy] = instance
	case value != "true" && out.Annotations[annotations.EnabledBy] == instance:
		delete(out.Annotations, annotations.EnabledBy) // somebody decided otherwise, so it is theirs now
	}
	return out
}

// letGo returns the Service without anything of ours in its metadata.
func letGo(s *corev1.Service, instance string) *corev1.Service {
	out := s.DeepCopy()
	out.Finalizers = slices.DeleteFunc(out.Finalizers, func(f string) bool { return f == annotations.Finalizer })
	delete(out.Annotations, annotations.ManagedBy)
	delete(out.Annotations, annotations.AssignedIPs)
	if out.Annotations[annotations.EnabledBy] == instance {
		delete(out.Annotations, annotations.EnabledBy)
		if npl.Enabled(out.Annotations) {
			delete(out.Annotations, npl.EnabledAnnotation)
		}
	}
	return out
}

// silence returns the Service without anything of ours in its status. held are its addresses, should the annotation that
// says so be lost.
func silence(s *corev1.Service, held []netip.Addr) *corev1.Service {
	out := s.DeepCopy()
	meta.RemoveStatusCondition(&out.Status.Conditions, Accepted)
	meta.RemoveStatusCondition(&out.Status.Conditions, Programmed)
	byInstance, err := annotations.ParseAssigned(out.Annotations[annotations.AssignedIPs], "")
	assigned := slices.Concat(slices.Collect(maps.Values(byInstance))...)
	if err != nil || len(assigned) == 0 {
		assigned = held
	}
	ours := !slices.ContainsFunc(out.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
		ip, err := netip.ParseAddr(i.IP)
		return err != nil || !slices.Contains(assigned, ip)
	})
	if ours {
		out.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	return out
}

// facts is what the status of a Service follows from.
type facts struct {
	refused *refusal
	vips    []netip.Addr
	report  loop.Report
	trouble error // why the load balancer could not be read
	now     time.Time
}

// speak returns the Service with the status that follows from the facts, and when to look again though nothing happens;
// zero is never.
func speak(s *corev1.Service, f facts) (_ *corev1.Service, again time.Duration) {
	out := s.DeepCopy()
	setCondition(out, accepted(s, f.refused, f.report), f.now)
	programmed, again := programmed(s, f)
	setCondition(out, programmed, f.now)
	if ingress := ingress(s, f.vips, f.report); f.report.Wanted || len(ingress) > 0 {
		out.Status.LoadBalancer.Ingress = ingress
	}
	return out, again
}

func setCondition(s *corev1.Service, c metav1.Condition, now time.Time) {
	c.ObservedGeneration, c.Message = s.Generation, note(c.Message)
	c.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&s.Status.Conditions, c)
}

func accepted(s *corev1.Service, refused *refusal, report loop.Report) metav1.Condition {
	c := metav1.Condition{Type: Accepted, Status: metav1.ConditionFalse}
	value, set := s.Annotations[npl.EnabledAnnotation]
	_, algorithmErr := annotations.ParseAlgorithm(s.Annotations[annotations.Algorithm])
	var unsupported []string
	for _, p := range report.Ports {
		if p.Unsupported {
			unsupported = append(unsupported, fmt.Sprintf("%d/%s", p.Key.Port, p.Key.Protocol))
		}
	}
	switch {
	case refused != nil:
		c.Reason, c.Message = refused.reason, refused.message
	case algorithmErr != nil:
		c.Reason, c.Message = ReasonInvalidAnnotation, "annotation "+annotations.Algorithm+": "+algorithmErr.Error()
	case set && value != "true":
		c.Reason = ReasonDisabled
		c.Message = fmt.Sprintf(`annotation %s is %q, so this Service asks for no node ports, and only Pods that get them through another `+
			`Service are members; remove it or set it to "true"`, npl.EnabledAnnotation, value)
	case len(unsupported) > 0:
		c.Reason = ReasonUnsupportedProtocol
		rest := "the other ports are served"
		if !servable(report) {
			rest = "no port is served"
		}
		c.Message = "the load balancer cannot balance " + strings.Join(unsupported, ", ") + "; " + rest
	case s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP:
		c.Reason, c.Message = ReasonSessionAffinity, "spec.sessionAffinity ClientIP is not supported yet; the Service is served without it"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonAccepted, "the Service is served"
	}
	return c
}

func programmed(s *corev1.Service, f facts) (metav1.Condition, time.Duration) {
	report := f.report
	c := metav1.Condition{Type: Programmed, Status: metav1.ConditionFalse, Reason: ReasonPending, Message: "the load balancer has not confirmed it yet"}
	if len(f.vips) == 0 {
		c.Reason, c.Message = ReasonNotAccepted, "the Service has no address, see the condition "+Accepted
		return c, 0
	}
	if !report.Wanted {
		if f.refused != nil {
			c.Reason, c.Message = ReasonNotAccepted, "the Service is not served, see the condition "+Accepted
		}
		if f.trouble != nil {
			c.Reason, c.Message = reasonProviderPrefix+string(providers.KindOf(f.trouble)), f.trouble.Error()
		}
		return c, 0
	}
	if !servable(report) {
		c.Reason, c.Message = ReasonNotAccepted, "no port can be served, see the condition "+Accepted
		return c, 0
	}
	worst := slices.IndexFunc(report.Ports, func(p loop.PortReport) bool { return p.Problem != "" })
	old := meta.FindStatusCondition(s.Status.Conditions, Programmed)
	waiting := slices.ContainsFunc(report.Ports, func(p loop.PortReport) bool { return !p.Programmed && !p.Unsupported })
	if worst < 0 && waiting { // for its turn, as planned
		if old != nil {
			return *old, 0
		}
		return c, 0
	}
	if worst < 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonProgrammed, "the load balancer serves it at "+annotations.FormatAddresses(f.vips)
		return c, 0
	}
	p := report.Ports[worst]
	if age := f.now.Sub(p.Since); old != nil && old.Status == metav1.ConditionTrue && passing(report) && age < grace {
		return *old, grace - age
	}
	c.Message = fmt.Sprintf("%d/%s: %s", p.Key.Port, p.Key.Protocol, p.Problem)
	if c.Reason = ReasonHeld; p.Kind != "" {
		c.Reason = reasonProviderPrefix + string(p.Kind)
	}
	return c, 0
}

// servable reports whether the load balancer can balance any port.
func servable(report loop.Report) bool {
	return slices.ContainsFunc(report.Ports, func(p loop.PortReport) bool { return !p.Unsupported })
}

// passing reports whether every problem is of a kind that may be over in a moment.
func passing(report loop.Report) bool {
	return !slices.ContainsFunc(report.Ports, func(p loop.PortReport) bool {
		return p.Problem != "" && (p.Kind == providers.Rejected || p.Kind == providers.Misconfigured || p.Kind == "")
	})
}

// ingress lists the addresses that the load balancer has acknowledged for any port. Its ipMode is Proxy, because with
// VIP kube-proxy would answer in the load balancer's place.
func ingress(s *corev1.Service, vips []netip.Addr, report loop.Report) []corev1.LoadBalancerIngress {
	var out []corev1.LoadBalancerIngress
	for _, addr := range vips {
		announced := slices.ContainsFunc(report.Ports, func(p loop.PortReport) bool { return slices.Contains(p.VIPs, addr) })
		if !announced {
			continue
		}
		entry := corev1.LoadBalancerIngress{IP: addr.String(), IPMode: ptr.To(corev1.LoadBalancerIPModeProxy)}
		for _, port := range s.Spec.Ports {
			status := corev1.PortStatus{Port: port.Port, Protocol: port.Protocol}
			if slices.ContainsFunc(report.Ports, func(p loop.PortReport) bool {
				return p.Unsupported && int32(p.Key.Port) == port.Port && string(p.Key.Protocol) == string(port.Protocol)
			}) {
				status.Error = new(portError)
			}
			entry.Ports = append(entry.Ports, status)
		}
		out = append(out, entry)
	}
	return out
}
