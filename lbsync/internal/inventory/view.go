package inventory

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// The kinds of object in an Index.
const (
	services = iota
	pods
	nodes
)

// emptied notes how the last object of a kind went. An emptiness that nobody saw come about is what a broken API server
// answers.
func (x *Index) emptied(kind, left int, seen bool) {
	if left == 0 {
		x.sawGo[kind] = seen
	}
}

// Believable reports whether the cluster as we see it can be all there is. A list that came back empty is not believed,
// because a cluster has Services, Pods and Nodes; one whose last object we saw being deleted is.
func (x *Index) Believable() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for kind, left := range []int{len(x.services), len(x.pods), len(x.nodes)} {
		if left == 0 && !x.sawGo[kind] {
			return false
		}
	}
	return true
}

// View is one Service as the model wants it.
type View struct {
	Service   model.Service
	Endpoints []model.Endpoint // sorted by name
}

// View returns the Service; ok is false when there is none.
func (x *Index) View(key model.ServiceKey) (v View, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.services[key]
	if s == nil {
		return View{}, false
	}
	v.Service = s.Service
	v.Service.VIPs = x.uncontested(s)
	v.Endpoints = make([]model.Endpoint, 0, len(s.pods))
	for _, p := range s.pods {
		v.Endpoints = append(v.Endpoints, model.Endpoint{Pod: p.Pod, Node: x.known(p.Node)})
	}
	slices.SortFunc(v.Endpoints, func(a, b model.Endpoint) int { return comparePods(a.Pod, b.Pod) })
	return v, true
}

// uncontested drops the VIPs that an older Service has, too: whoever may edit annotations must not get traffic that way.
func (x *Index) uncontested(s *service) map[string][]netip.Addr {
	out := make(map[string][]netip.Addr, len(s.VIPs))
	for instance, vips := range s.VIPs {
		out[instance] = slices.DeleteFunc(slices.Clone(vips), func(vip netip.Addr) bool {
			for _, other := range x.vips[vipKey{instance, vip}] {
				if older(other, s) && other.Ours() {
					return true
				}
			}
			return false
		})
	}
	return out
}

func older(a, b *service) bool {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID)) < 0
}

// Claimants returns the Pods, as "namespace/name", other than the one with podUID, that rightfully claim c, sorted.
func (x *Index) Claimants(c model.Claim, podUID string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []string
	for _, p := range x.claims[c] {
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
	return slices.SortedFunc(maps.Keys(x.services), func(a, b model.ServiceKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// Counts returns how many objects of each kind there are.
func (x *Index) Counts() (services, pods, nodes int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.services), len(x.pods), len(x.nodes)
}

func (x *Index) touch(key model.ServiceKey, now time.Time) {
	if s := x.services[key]; s != nil && !s.Ours() && !s.Admitted {
		return // no load balancer knows anything of it, or will
	}
	for _, f := range x.feeds {
		f.touch(key, now)
	}
}
