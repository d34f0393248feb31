// Package inventory keeps what the model needs of the cluster, indexed so that a change to one Pod costs the Services
// that select it, and nothing else (invariant I8). Index is a plain data structure; Watch fills it from the API server.
package inventory

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// Index holds Services, Pods and Nodes and remembers which Services a change made dirty. All methods may be called by
// several goroutines.
type Index struct {
	mu       sync.Mutex
	services map[model.ServiceKey]*service
	pods     map[PodKey]*pod
	hosts    map[string]*host // by Node

	bySelector map[selectorTerm]set[*service] // a Service that is ours stands under one term of its selector
	groups     groups
	byUID      map[string]*pod
	gated      set[*pod]
	claims     multimap[model.Claim, *pod]
	vips       multimap[netip.Addr, *service]
	atNodes    []string // see Selection
	ports      multimap[nodePort, *service]
	ofNodes    set[*service] // Services whose members are Nodes, or whose addresses are theirs
	nodes      []*model.Node // all, sorted by name; nil when it must be made anew

	counts [kinds]int
	sawGo  [kinds]bool // by kind: the last object was seen to go
	lost   losses
	feeds  []*Feed
	seen   string // resourceVersion of Pods up to which everything is in here
}

type service struct {
	model.Service
	term   selectorTerm
	groups set[*group] // that it selects; none of a Service that is not ours
}

// pod is one Pod with what it is entered under.
type pod struct {
	*model.Pod
	group  *group
	host   *host
	claims []model.Claim
}

// host is a Node, or the name of one that Pods say they are on.
type host struct {
	name      string
	node      *model.Node // nil while there is none
	goneAt    time.Time   // when its deletion was seen; zero when it was not
	pods      set[*pod]
	malformed set[*pod] // those whose annotation is malformed: few
}

// PodKey names a Pod.
type PodKey struct{ Namespace, Name string }

// String returns "namespace/name".
func (k PodKey) String() string { return k.Namespace + "/" + k.Name }

// NewIndex returns an empty Index.
func NewIndex() *Index {
	return &Index{
		services:   map[model.ServiceKey]*service{},
		pods:       map[PodKey]*pod{},
		hosts:      map[string]*host{},
		bySelector: map[selectorTerm]set[*service]{},
		groups:     newGroups(),
		byUID:      map[string]*pod{},
		gated:      set[*pod]{},
		claims:     newMultimap[model.Claim, *pod](),
		vips:       newMultimap[netip.Addr, *service](),
		ports:      newMultimap[nodePort, *service](),
		ofNodes:    set[*service]{},
		lost:       losses{at: map[string]time.Time{}},
	}
}

// SetService adds or replaces a Service. A record that is equal to the one there costs nothing.
func (x *Index) SetService(record model.Service, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.services[record.ServiceKey]
	switch {
	case s == nil:
		s = &service{groups: set[*group]{}}
		x.services[record.ServiceKey] = s
		x.counts[services]++
	case reflect.DeepEqual(s.Service, record):
		return
	default:
		x.touch(s, now)
		x.dropVIPs(s, now)
		x.dropPorts(s, now)
	}
	reselect := !s.Ours() || !record.Ours() || !maps.Equal(s.Selector, record.Selector)
	s.Service = record
	if reselect {
		x.unselect(s)
		x.selects(s)
	}
	x.ofNodes.is(s, s.Ours() && s.Source == annotations.NodePort || len(x.nodePorts(s)) > 0)
	x.addPorts(s, now)
	for vip := range s.addresses() {
		x.vips.add(vip, s)
		x.touchSharers(vip, now)
	}
	x.touch(s, now)
}

// DeleteService removes a Service. seen is false when it was only missing from a list.
func (x *Index) DeleteService(key model.ServiceKey, seen bool, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.services[key]
	if s == nil {
		return
	}
	x.touch(s, now)
	delete(x.services, key)
	x.unselect(s)
	delete(x.ofNodes, s)
	x.dropVIPs(s, now)
	x.dropPorts(s, now)
	x.less(services, seen)
}

func (x *Index) dropVIPs(s *service, now time.Time) {
	for vip := range s.addresses() {
		x.vips.remove(vip, s)
		x.touchSharers(vip, now)
	}
}

func (x *Index) touchSharers(vip netip.Addr, now time.Time) {
	for s := range x.vips.of(vip) {
		x.touch(s, now)
	}
}

// touch makes the Service dirty, unless no load balancer knows anything of it, or will.
func (x *Index) touch(s *service, now time.Time) {
	if !s.Ours() && !s.Admitted {
		return
	}
	for _, f := range x.feeds {
		f.touch(s.ServiceKey, now)
	}
}

func (x *Index) touchGroup(g *group, now time.Time) {
	for s := range g.services {
		x.touch(s, now)
	}
}

// touchPod makes dirty who selects the Pod, and who follows it.
func (x *Index) touchPod(p *pod, now time.Time) {
	x.touchGroup(p.group, now)
	for _, f := range x.feeds {
		f.touchAll(f.ofPod[p.UID], now)
	}
}

// addresses returns the VIPs of a Service on all load balancers.
func (s *service) addresses() set[netip.Addr] {
	out := set[netip.Addr]{}
	for _, vips := range s.VIPs {
		for _, vip := range vips {
			out.add(vip)
		}
	}
	return out
}

// SetNode adds or replaces a Node. A change of its labels costs the Services whose members are Nodes; any other also those that its
// Pods are behind.
func (x *Index) SetNode(n *model.Node, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setNode(n, now)
}

func (x *Index) setNode(n *model.Node, now time.Time) {
	h := x.host(n.Name)
	old := h.node
	if old == nil {
		x.counts[nodes]++
	} else {
		n = keepingDrain(old, n)
	}
	if reflect.DeepEqual(old, n) {
		return
	}
	h.node, h.goneAt, x.nodes = n, time.Time{}, nil
	if old == nil || !sameButLabels(*old, *n) {
		x.touchHost(h, now)
	}
	x.touchNodes(now)
}

// keepingDrain returns n draining as old if n says so in words that cannot be read.
func keepingDrain(old, n *model.Node) *model.Node {
	if len(n.Problems) == 0 || n.Draining == old.Draining {
		return n
	}
	out := *n
	out.Draining = old.Draining
	return &out
}

func sameButLabels(a, b model.Node) bool {
	a.Labels = b.Labels
	return reflect.DeepEqual(a, b)
}

// DeleteNode removes a Node. seen is false when it was only missing from a list.
func (x *Index) DeleteNode(name string, seen bool, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.deleteNode(name, seen, now)
}

func (x *Index) deleteNode(name string, seen bool, now time.Time) {
	h := x.hosts[name]
	if h == nil || h.node == nil {
		return
	}
	h.node, x.nodes = nil, nil
	if seen {
		h.goneAt = now
	}
	x.touchHost(h, now)
	x.touchNodes(now)
	x.forgetHosts(now)
	x.less(nodes, seen)
}

// host returns the entry of a Node, making it if need be.
func (x *Index) host(name string) *host {
	h := x.hosts[name]
	if h == nil {
		h = &host{name: name, pods: set[*pod]{}, malformed: set[*pod]{}}
		x.hosts[name] = h
	}
	return h
}

// forgetHosts drops the Nodes that were gone before the memory of losses ends and have no Pods any more.
func (x *Index) forgetHosts(now time.Time) {
	for name, h := range x.hosts {
		if h.node == nil && len(h.pods) == 0 && now.Sub(h.goneAt) >= memory {
			delete(x.hosts, name)
		}
	}
}

// touchHost makes dirty what the Pods of a Node are behind, whose claims depend on its addresses.
func (x *Index) touchHost(h *host, now time.Time) {
	for p := range h.pods {
		x.claim(p, now)
		x.touchPod(p, now)
	}
}

func (x *Index) touchNodes(now time.Time) {
	for s := range x.ofNodes {
		x.touch(s, now)
	}
}

// known returns the Node, or nil while it is unknown or has no addresses.
func (h *host) known() *model.Node {
	if h.node != nil && len(h.node.Addresses) > 0 {
		return h.node
	}
	return nil
}

// allNodes returns every Node, sorted by name.
func (x *Index) allNodes() []*model.Node {
	if x.nodes == nil {
		x.nodes = make([]*model.Node, 0, len(x.hosts))
		for _, name := range slices.Sorted(maps.Keys(x.hosts)) {
			if n := x.hosts[name].node; n != nil {
				x.nodes = append(x.nodes, n)
			}
		}
	}
	return x.nodes
}
