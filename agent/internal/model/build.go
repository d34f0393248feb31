package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// Build computes the model. The result depends on the sets in the input only, not on their order.
func Build(in Input) Model {
	services := map[string][]*asking{} // by namespace
	for _, s := range in.Services {
		services[s.Namespace] = append(services[s.Namespace], newAsking(s, in.IPFamilies))
	}
	for _, list := range services {
		slices.SortFunc(list, func(a, b *asking) int { return cmp.Compare(a.Name, b.Name) })
	}
	m := Model{HostPorts: map[Key]string{}, Pods: make([]PodWants, 0, len(in.Pods))}
	b := podBuilder{in: in, wants: map[ID]Want{}}
	for _, pod := range in.Pods {
		if pod.Terminated {
			if pod.Annotated {
				m.Pods = append(m.Pods, PodWants{Pod: pod})
			}
			continue
		}
		m.addHostPorts(pod)
		b.begin(pod)
		for _, s := range services[pod.Namespace] {
			if selects(s.Selector, pod.Labels) {
				b.add(s)
			}
		}
		m.Pods = append(m.Pods, PodWants{Pod: pod, Wants: b.sorted()})
		m.Refusals = append(m.Refusals, b.refusals...)
	}
	slices.SortFunc(m.Pods, func(a, b PodWants) int {
		return cmp.Or(a.Pod.Created.Compare(b.Pod.Created), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	slices.SortFunc(m.Refusals, Refusal.Compare)
	m.Refusals = slices.Compact(m.Refusals)
	return m
}

// addHostPorts records the Node's ports that the Pod takes. A host port on one address only still rules the number out for
// that whole family: our rule would answer on that address too.
func (m *Model) addHostPorts(pod Pod) {
	for _, p := range pod.Ports {
		if p.HostPort == 0 {
			continue
		}
		for _, f := range []npl.Family{npl.IPv4, npl.IPv6} {
			if p.HostIP.IsValid() && npl.FamilyOf(p.HostIP) != f {
				continue
			}
			k := Key{p.Protocol, f, p.HostPort}
			if holder, ok := m.HostPorts[k]; !ok || pod.UID < holder {
				m.HostPorts[k] = pod.UID
			}
		}
	}
}

// asking is a Service, with what is the same for all Pods that it selects.
type asking struct {
	Service
	alone    []string     // itself, for a Want that no other Service asks for; shared, and so never written to
	families []npl.Family // that are served, of those that it names
}

func newAsking(s Service, served []npl.Family) *asking {
	return &asking{Service: s, alone: []string{s.String()}, families: intersect(s.Families, served)}
}

func intersect(families, served []npl.Family) []npl.Family {
	return slices.DeleteFunc(slices.Clone(families), func(f npl.Family) bool { return !slices.Contains(served, f) })
}

func (s *asking) String() string { return s.alone[0] }

// podBuilder works for one Pod after the other.
type podBuilder struct {
	in       Input
	pod      Pod
	wants    map[ID]Want
	refusals []Refusal
}

func (b *podBuilder) begin(pod Pod) {
	b.pod, b.refusals = pod, nil
	clear(b.wants)
}

func (b *podBuilder) refuse(s *asking, r Reason, format string, args ...any) {
	b.refusals = append(b.refusals, Refusal{Reason: r, PodUID: b.pod.UID, Pod: b.pod.String(), Service: s.String(), Message: fmt.Sprintf(format, args...)})
}

func (b *podBuilder) add(s *asking) {
	if s.Type != "ClusterIP" && s.Type != "LoadBalancer" {
		b.refusals = append(b.refusals, Refusal{Reason: ServiceTypeUnsupported, Service: s.String(), // the same for every Pod: Build keeps one
			Message: fmt.Sprintf("Service %s has type %s: node ports are given for types ClusterIP and LoadBalancer only", s, s.Type)})
		return
	}
	if len(b.pod.IPs) == 0 {
		return // not started yet; nothing to say
	}
	families := s.families
	if len(s.Families) == 0 {
		families = intersect([]npl.Family{npl.FamilyOf(b.pod.IPs[0])}, b.in.IPFamilies)
	}
	if len(families) == 0 {
		return
	}
	for _, sp := range s.Ports {
		port, ok := b.resolve(sp)
		if !ok {
			b.refuse(s, TargetPortUnknown, "Service %s has targetPort %q (%s), which no container of Pod %s declares: name a port of the container so, or use its number", s, sp.TargetName, sp.Protocol, b.pod)
			continue
		}
		for _, f := range families {
			b.addWant(s, port, sp.Protocol, f)
		}
	}
}

func (b *podBuilder) addWant(s *asking, port uint16, protocol npl.Protocol, f npl.Family) {
	podIP, ok := b.pod.IP(f)
	if !ok {
		b.refuse(s, PodAddressMissing, "Service %s wants %s, but Pod %s has no %s address: give the Service the families that the Pod network has", s, f, b.pod, f)
		return
	}
	nodeIP, ok := b.in.Addresses.Choose(b.in.Node, f)
	if !ok {
		b.refuse(s, NodeAddressMissing, "Service %s wants %s, but Node %s has no %s address that %s would publish: widen the setting, or give the Node such an address", s, f, b.in.Node.Name, f, b.in.Addresses)
		return
	}
	if !slices.Contains(b.in.KernelFamilies, f) {
		b.refuse(s, FamilyUnsupported, "Service %s wants %s, which the kernel of Node %s cannot serve: enable it there, or take it from the Service's ipFamilies", s, f, b.in.Node.Name)
		return
	}
	id := ID{PodUID: b.pod.UID, PodPort: port, Protocol: protocol, Family: f}
	want, shared := b.wants[id]
	if !shared {
		want = Want{ID: id, Target: netip.AddrPortFrom(podIP, port), NodeIP: nodeIP, HostPort: b.hostPort(port, protocol, nodeIP), Services: s.alone}
	} else if !slices.Contains(want.Services, s.String()) { // two of its ports may lead to the same one of the Pod
		want.Services = append(slices.Clip(want.Services), s.String())
	}
	b.wants[id] = want
}

// resolve finds the number behind a Service port: names by name and protocol, containers before sidecars.
func (b *podBuilder) resolve(sp ServicePort) (uint16, bool) {
	if sp.TargetName == "" {
		return sp.TargetPort, sp.TargetPort != 0
	}
	for _, p := range b.pod.Ports {
		if p.Name == sp.TargetName && p.Protocol == sp.Protocol {
			return p.Port, true
		}
	}
	return 0, false
}

// hostPort returns the host port that already serves the Pod's port on nodeIP, or 0.
func (b *podBuilder) hostPort(port uint16, protocol npl.Protocol, nodeIP netip.Addr) uint16 {
	for _, p := range b.pod.Ports {
		if p.HostPort == 0 || p.Port != port || p.Protocol != protocol {
			continue
		}
		if !p.HostIP.IsValid() || p.HostIP == nodeIP || p.HostIP.IsUnspecified() && npl.FamilyOf(p.HostIP) == npl.FamilyOf(nodeIP) {
			return p.HostPort
		}
	}
	return 0
}

func (b *podBuilder) sorted() []Want {
	out := make([]Want, 0, len(b.wants))
	for _, w := range b.wants {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b Want) int { return a.ID.Compare(b.ID) })
	return out
}

// selects reports whether every pair of the selector is a label. An empty selector selects nothing.
func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return len(selector) > 0
}

func firstOf(ips []netip.Addr, f npl.Family) (netip.Addr, bool) {
	for _, ip := range ips {
		if npl.FamilyOf(ip) == f {
			return ip, true
		}
	}
	return netip.Addr{}, false
}
