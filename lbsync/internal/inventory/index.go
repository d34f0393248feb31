// Package inventory keeps what the model needs of the cluster, indexed so that a change to one Pod costs the Services
// that select it, and nothing else (invariant I8). Index is a plain data structure; Watch fills it from informers.
package inventory

import (
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// Index holds Services, Pods and Nodes and remembers which Services a change made dirty. All methods may be called by
// several goroutines.
type Index struct {
	mu       sync.Mutex
	services map[model.ServiceKey]*service
	pods     map[podKey]*pod
	nodes    map[string]*model.Node

	bySelector map[selectorTerm]map[model.ServiceKey]*service // a Service stands under the first term of its selector
	podsIn     map[string]map[podKey]*pod                     // by namespace
	podsOn     map[string]map[podKey]*pod                     // by Node
	malformed  map[string]map[podKey]*pod                     // those of podsOn whose annotation is malformed: few
	claims     map[model.Claim]map[podKey]*pod
	vips       map[vipKey]map[model.ServiceKey]*service

	sawGo [3]bool // by kind: the last object was seen to go
	feeds []*Feed
	seen  string // resourceVersion of Pods up to which everything is in here
}

// vipKey is a VIP on one load balancer.
type vipKey struct {
	instance string
	ip       netip.Addr
}

type service struct {
	model.Service
	pods map[podKey]*pod
}

type pod struct {
	*model.Pod
	claims []model.Claim
}

type podKey struct{ namespace, name string }

type selectorTerm struct{ namespace, key, value string }

// NewIndex returns an empty Index.
func NewIndex() *Index {
	return &Index{
		services:   map[model.ServiceKey]*service{},
		pods:       map[podKey]*pod{},
		nodes:      map[string]*model.Node{},
		bySelector: map[selectorTerm]map[model.ServiceKey]*service{},
		podsIn:     map[string]map[podKey]*pod{},
		podsOn:     map[string]map[podKey]*pod{},
		malformed:  map[string]map[podKey]*pod{},
		claims:     map[model.Claim]map[podKey]*pod{},
		vips:       map[vipKey]map[model.ServiceKey]*service{},
	}
}

// SetService adds or replaces a Service. A record that is equal to the one there costs nothing.
func (x *Index) SetService(s model.Service, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.services[s.ServiceKey]; old != nil {
		if reflect.DeepEqual(old.Service, s) {
			return
		}
		x.touch(s.ServiceKey, now)
	}
	x.removeService(s.ServiceKey, now)
	entry := &service{Service: s, pods: map[podKey]*pod{}}
	x.services[s.ServiceKey] = entry
	if term, ok := firstTerm(s.Namespace, s.Selector); ok {
		put(x.bySelector, term, s.ServiceKey, entry)
		for key, p := range x.podsIn[s.Namespace] {
			if matches(s.Selector, p.Labels) {
				entry.pods[key] = p
			}
		}
	}
	for vip := range addresses(s) {
		put(x.vips, vip, s.ServiceKey, entry)
		x.touchSharers(vip, now)
	}
	x.touch(s.ServiceKey, now)
}

// DeleteService removes a Service. seen is false when it was only missing from a list.
func (x *Index) DeleteService(key model.ServiceKey, seen bool, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.removeService(key, now)
	x.touch(key, now)
	x.emptied(services, len(x.services), seen)
}

func (x *Index) removeService(key model.ServiceKey, now time.Time) {
	old := x.services[key]
	if old == nil {
		return
	}
	delete(x.services, key)
	if term, ok := firstTerm(old.Namespace, old.Selector); ok {
		drop(x.bySelector, term, key)
	}
	for vip := range addresses(old.Service) {
		drop(x.vips, vip, key)
		x.touchSharers(vip, now)
	}
}

// SetPod adds or replaces a Pod. A record that is equal to the one there costs nothing.
func (x *Index) SetPod(p *model.Pod, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := podKey{p.Namespace, p.Name}
	if old := x.pods[key]; old != nil {
		if p = withdrawing(old.Pod, p, now); reflect.DeepEqual(old.Pod, p) {
			return
		}
	}
	before := x.servicesOf(x.pods[key])
	x.removePod(key, now)
	entry := &pod{Pod: p}
	x.pods[key] = entry
	put(x.podsIn, p.Namespace, key, entry)
	put(x.podsOn, p.Node, key, entry)
	if p.Malformed != "" {
		put(x.malformed, p.Node, key, entry)
	}
	x.claim(key, entry, now)
	for _, s := range x.servicesOf(entry) {
		s.pods[key] = entry
		x.touch(s.ServiceKey, now)
	}
	for _, s := range before {
		x.touch(s.ServiceKey, now)
	}
}

// withdrawing returns the record that follows old, with what the annotation had until lately.
func withdrawing(old, p *model.Pod, now time.Time) *model.Pod {
	if old.UID != p.UID || old.Node != p.Node || p.Finished || p.Malformed != "" {
		return p
	}
	had := slices.Clone(old.Withdrawn)
	for _, m := range old.Mappings {
		had = append(had, model.Withdrawal{Mapping: m, At: now})
	}
	had = slices.DeleteFunc(had, func(w model.Withdrawal) bool {
		return slices.Contains(p.Mappings, w.Mapping) || now.Sub(w.At) >= model.WithdrawGrace
	})
	if len(had) == 0 {
		return p
	}
	out := *p
	out.Withdrawn = had
	return &out
}

// DeletePod removes a Pod. seen is false when it was only missing from a list.
func (x *Index) DeletePod(namespace, name string, seen bool, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := podKey{namespace, name}
	for _, s := range x.servicesOf(x.pods[key]) {
		x.touch(s.ServiceKey, now)
	}
	x.removePod(key, now)
	x.emptied(pods, len(x.pods), seen)
}

func (x *Index) removePod(key podKey, now time.Time) {
	old := x.pods[key]
	if old == nil {
		return
	}
	for _, s := range x.servicesOf(old) {
		delete(s.pods, key)
	}
	x.unclaim(key, old, now)
	delete(x.pods, key)
	drop(x.podsIn, key.namespace, key)
	drop(x.podsOn, old.Node, key)
	drop(x.malformed, old.Node, key)
}

// SetNode adds or replaces a Node. Only a change of its addresses costs anything: that of its Pods.
func (x *Index) SetNode(n *model.Node, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.nodes[n.Name]
	x.nodes[n.Name] = n
	if old == nil || !slices.Equal(old.Addresses, n.Addresses) {
		x.touchNode(n.Name, now)
	}
}

// DeleteNode removes a Node. seen is false when it was only missing from a list.
func (x *Index) DeleteNode(name string, seen bool, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.nodes, name)
	x.touchNode(name, now)
	x.emptied(nodes, len(x.nodes), seen)
}

func (x *Index) touchNode(name string, now time.Time) {
	for key, p := range x.podsOn[name] {
		x.unclaim(key, p, now)
		x.claim(key, p, now)
		for _, s := range x.servicesOf(p) {
			x.touch(s.ServiceKey, now)
		}
	}
}

// claim enters the Pod's node ports. Whoever else claims one of them, or keeps members on that Node by a malformed
// annotation, is affected.
func (x *Index) claim(key podKey, p *pod, now time.Time) {
	p.claims = model.Claims(p.Pod, x.known(p.Node))
	for _, c := range p.claims {
		put(x.claims, c, key, p)
		x.touchClaimants(c, now)
	}
	if len(p.claims) == 0 {
		return
	}
	for _, other := range x.malformed[p.Node] {
		x.touchPod(other, now)
	}
}

func (x *Index) unclaim(key podKey, p *pod, now time.Time) {
	for _, c := range p.claims {
		drop(x.claims, c, key)
		x.touchClaimants(c, now)
	}
	p.claims = nil
}

func (x *Index) touchClaimants(c model.Claim, now time.Time) {
	if len(x.claims[c]) == 1 {
		for _, only := range x.claims[c] {
			x.touchPod(only, now) // it may just have become the only one
		}
		return
	}
	for _, p := range x.claims[c] {
		x.touchPod(p, now)
	}
}

func (x *Index) touchPod(p *pod, now time.Time) {
	for _, s := range x.servicesOf(p) {
		x.touch(s.ServiceKey, now)
	}
}

// addresses yields the VIPs of a Service.
func addresses(s model.Service) iter.Seq[vipKey] {
	return func(yield func(vipKey) bool) {
		for instance, vips := range s.VIPs {
			for _, ip := range vips {
				if !yield(vipKey{instance, ip}) {
					return
				}
			}
		}
	}
}

func (x *Index) touchSharers(vip vipKey, now time.Time) {
	for key := range x.vips[vip] {
		x.touch(key, now)
	}
}

// servicesOf returns the Services that select p.
func (x *Index) servicesOf(p *pod) []*service {
	if p == nil {
		return nil
	}
	var out []*service
	for k, v := range p.Labels {
		for _, s := range x.bySelector[selectorTerm{p.Namespace, k, v}] {
			if matches(s.Selector, p.Labels) {
				out = append(out, s)
			}
		}
	}
	return out
}

// known returns the Node, or nil while it is unknown or has no addresses.
func (x *Index) known(name string) *model.Node {
	if n := x.nodes[name]; n != nil && len(n.Addresses) > 0 {
		return n
	}
	return nil
}

func firstTerm(namespace string, selector map[string]string) (selectorTerm, bool) {
	if len(selector) == 0 {
		return selectorTerm{}, false // selects nothing, as in EndpointSlices
	}
	key := slices.Min(slices.Collect(maps.Keys(selector)))
	return selectorTerm{namespace, key, selector[key]}, true
}

func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return len(selector) > 0
}

func put[K, J comparable, V any](m map[K]map[J]V, k K, j J, v V) {
	if m[k] == nil {
		m[k] = map[J]V{}
	}
	m[k][j] = v
}

func drop[K, J comparable, V any](m map[K]map[J]V, k K, j J) {
	delete(m[k], j)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}

func comparePods(a, b *model.Pod) int { return strings.Compare(a.Name, b.Name) }
