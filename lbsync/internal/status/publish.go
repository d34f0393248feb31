package status

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
)

// publish lists the addresses that a load balancer has acknowledged for any port: those assigned, and those that were published until now
// and are still there, so that a Service whose address changes is reachable all the time. The ipMode is Proxy, because with VIP
// kube-proxy would answer in the load balancer's place.
func publish(s *corev1.Service, f facts) {
	before, ours := published(s), slices.Clone(f.had)
	var there addrs
	var out []corev1.LoadBalancerIngress
	known, pending := true, false
	for _, on := range f.on {
		ours = append(ours, on.assigned...)
		if on.abandoned {
			continue
		}
		known, pending = known && (on.reported || on.nodes != nil && on.nodes.known), pending || len(on.pending) > 0
		if on.nodes != nil {
			known = known && on.nodes.known
			there = append(there, on.nodes.addrs()...)
			out = append(out, on.nodes.entries(s, on, f)...)
			continue
		}
		missing := on.unannounced()
		for _, addr := range announced(on) {
			if !slices.Contains(there, addr) && !slices.Contains(missing, addr) && (slices.Contains(on.assigned, addr) || slices.Contains(before.addrs, addr)) {
				there = append(there, addr)
				out = append(out, entry(s, on, addr, func(p loop.PortReport) *string { return portError(on, p, addr, f) }))
			}
		}
	}
	for _, i := range s.Status.LoadBalancer.Ingress {
		ip, err := netip.ParseAddr(i.IP)
		if err == nil && slices.Contains(there, ip) {
			continue
		}
		// Beside others' load balancers, what it had may still be served. What the Service publishes beside what it has of us is somebody else's,
		// where its virtual server is.
		if !known || pending && err == nil && slices.Contains(f.had, ip) || f.membersOnly && (err != nil || !slices.Contains(ours, ip)) {
			out = append(out, i)
		}
	}
	s.Status.LoadBalancer.Ingress = out
}

// announced returns the addresses that the load balancer has for any port, those assigned first.
func announced(on served) (out addrs) {
	for _, addr := range on.assigned {
		if slices.ContainsFunc(on.report.Ports, func(p loop.PortReport) bool { return slices.Contains(p.VIPs, addr) }) {
			out = append(out, addr)
		}
	}
	for _, p := range on.report.Ports {
		for _, addr := range p.VIPs {
			if !slices.Contains(out, addr) {
				out = append(out, addr)
			}
		}
	}
	return out
}

// entry publishes one address. failure says why a port does not answer there.
func entry(s *corev1.Service, on served, addr netip.Addr, failure func(loop.PortReport) *string) corev1.LoadBalancerIngress {
	out := corev1.LoadBalancerIngress{IP: addr.String(), IPMode: ptr.To(corev1.LoadBalancerIPModeProxy)}
	for _, port := range s.Spec.Ports {
		status := corev1.PortStatus{Port: port.Port, Protocol: port.Protocol}
		at := slices.IndexFunc(on.report.Ports, func(p loop.PortReport) bool {
			return int32(p.Key.Port) == port.Port && string(p.Key.Protocol) == string(port.Protocol)
		})
		if at >= 0 {
			status.Error = failure(on.report.Ports[at])
		}
		out.Ports = append(out.Ports, status)
	}
	return out
}

// portError says why a port does not answer at the address, if that is going to stay so.
func portError(on served, p loop.PortReport, addr netip.Addr, f facts) *string {
	switch {
	case p.Unsupported:
		return new(portErrorPrefix + cannot(on, p, f).reason)
	case p.Problem != "" && p.Kind != "" && !passes(p.Kind) && !slices.Contains(p.VIPs, addr):
		return new(portErrorPrefix + reasonProviderPrefix + string(p.Kind))
	}
	return nil
}
