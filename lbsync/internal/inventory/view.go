package inventory

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// View is one Service as the model wants it.
type View struct {
	Service   model.Service
	Endpoints []model.Endpoint // sorted by name; none of a Service that is not ours
	Nodes     []*model.Node    // all, sorted by name; only of a Service of ours whose Source is NodePort
	// Deselected are the Pods that it follows, see Feed.Follow; sorted by name.
	Deselected []model.Deselected
}

// View returns the Service; ok is false when there is none.
func (x *Index) View(key model.ServiceKey) (v View, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.view(key)
}

func (x *Index) view(key model.ServiceKey) (v View, ok bool) {
	s := x.services[key]
	if s == nil {
		return View{}, false
	}
	v.Service = s.Service
	v.Service.VIPs = x.uncontested(s)
	if _, is := x.ofNodes[s]; is {
		v.Nodes = x.allNodes()
	}
	n := 0
	for g := range s.groups {
		n += len(g.pods)
	}
	v.Endpoints = make([]model.Endpoint, 0, n)
	for g := range s.groups {
		for p := range g.pods {
			v.Endpoints = append(v.Endpoints, p.endpoint())
		}
	}
	slices.SortFunc(v.Endpoints, func(a, b model.Endpoint) int { return cmp.Compare(a.Pod.Name, b.Pod.Name) })
	return v, true
}

func (p *pod) endpoint() model.Endpoint {
	return model.Endpoint{Pod: p.Pod, Node: p.host.known(), NodeGone: !p.host.goneAt.IsZero()}
}

// uncontested drops the VIPs that an older Service has, too: whoever may edit annotations must not get traffic that way.
func (x *Index) uncontested(s *service) map[string][]netip.Addr {
	out := make(map[string][]netip.Addr, len(s.VIPs))
	for instance, vips := range s.VIPs {
		out[instance] = slices.DeleteFunc(slices.Clone(vips), func(vip netip.Addr) bool {
			for other := range x.vips.of(vip) {
				if older(other, s) && other.Ours() && !mayShare(other, s, instance, vip) {
					return true
				}
			}
			return false
		})
	}
	return out
}

// mayShare reports whether two Services may have the VIP together: they say so, and their ports differ.
func mayShare(a, b *service, instance string, vip netip.Addr) bool {
	return a.Wishes.SharedVIP != "" && a.Wishes.SharedVIP == b.Wishes.SharedVIP && a.Namespace == b.Namespace &&
		slices.Contains(a.VIPs[instance], vip) &&
		!slices.ContainsFunc(a.Ports, func(p model.ServicePort) bool {
			return slices.ContainsFunc(b.Ports, func(q model.ServicePort) bool { return p.Port == q.Port && p.Protocol == q.Protocol })
		})
}

func older(a, b *service) bool {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID)) < 0
}

// Claimants returns the Pods, as "namespace/name", other than the one with podUID, that rightfully claim c, sorted.
func (x *Index) Claimants(c model.Claim, podUID string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []string
	for p := range x.claims.of(c) {
		if p.UID != podUID {
			out = append(out, p.ID())
		}
	}
	slices.Sort(out)
	return out
}

// Keys returns every Service, sorted.
func (x *Index) Keys() []model.ServiceKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.SortedFunc(maps.Keys(x.services), compareServices)
}

func compareServices(a, b model.ServiceKey) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// GatedPod is a Pod that waits for our readiness gate.
type GatedPod struct {
	Pod      *model.Pod
	Services []model.ServiceKey // ours that select it, sorted
}

// GatedPods returns the Pods whose readiness gate of ours is not True yet, sorted.
func (x *Index) GatedPods() []PodKey {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := make([]PodKey, 0, len(x.gated))
	for p := range x.gated {
		out = append(out, PodKey{p.Namespace, p.Name})
	}
	slices.SortFunc(out, func(a, b PodKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// GatedPod returns the Pod; ok is false when there is none whose gate is not True yet.
func (x *Index) GatedPod(key PodKey) (g GatedPod, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.pods[key]
	if p == nil || !p.Gated {
		return GatedPod{}, false
	}
	g.Pod = p.Pod
	for s := range p.group.services {
		g.Services = append(g.Services, s.ServiceKey)
	}
	slices.SortFunc(g.Services, compareServices)
	return g, true
}
