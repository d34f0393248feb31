package inventory

import (
	"hash/maphash"
	"maps"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// group is the Pods of one Namespace with the same labels, as those of one ReplicaSet have them: they are behind the same Services, and
// keep their labels once.
type group struct {
	namespace string
	labels    map[string]string
	pods      set[*pod]
	services  set[*service]

	hash uint64
	next *group // another one with the same hash
}

// groups are all that have Pods.
type groups struct {
	hash   func(namespace string, labels map[string]string) uint64
	byHash map[uint64]*group
	in     map[string]set[*group] // by Namespace
}

func newGroups() groups {
	seed := maphash.MakeSeed()
	hash := func(namespace string, labels map[string]string) uint64 {
		sum := maphash.String(seed, namespace)
		for k, v := range labels {
			sum += maphash.Comparable(seed, [2]string{k, v}) // in whichever order
		}
		return sum
	}
	return groups{hash: hash, byHash: map[uint64]*group{}, in: map[string]set[*group]{}}
}

// of returns the group, or a new one that is not entered yet.
func (gs *groups) of(namespace string, labels map[string]string) *group {
	hash := gs.hash(namespace, labels)
	for g := gs.byHash[hash]; g != nil; g = g.next {
		if g.namespace == namespace && maps.Equal(g.labels, labels) {
			return g
		}
	}
	return &group{namespace: namespace, labels: labels, pods: set[*pod]{}, services: set[*service]{}, hash: hash}
}

// sharing returns the record with what it has in common with others kept once.
func sharing(record *model.Pod, g *group, h *host) *model.Pod {
	out := *record
	out.Namespace, out.Labels, out.Node = g.namespace, g.labels, h.name
	return &out
}

// join enters a Pod in its group, and the group if the Pod is its first.
func (x *Index) join(g *group, p *pod) {
	if len(g.pods) == 0 {
		g.next = x.groups.byHash[g.hash]
		x.groups.byHash[g.hash] = g
		put(x.groups.in, g.namespace, g)
		for k, v := range g.labels {
			for s := range x.bySelector[selectorTerm{g.namespace, k, v}] {
				if matches(s.Selector, g.labels) {
					g.services.add(s)
					s.groups.add(g)
				}
			}
		}
	}
	g.pods.add(p)
}

// leave takes a Pod out of its group, and the group away with its last one.
func (x *Index) leave(g *group, p *pod) {
	delete(g.pods, p)
	if len(g.pods) > 0 {
		return
	}
	for s := range g.services {
		delete(s.groups, g)
	}
	drop(x.groups.in, g.namespace, g)
	if first := x.groups.byHash[g.hash]; first == g {
		if g.next == nil {
			delete(x.groups.byHash, g.hash)
		} else {
			x.groups.byHash[g.hash] = g.next
		}
	} else {
		for first.next != g {
			first = first.next
		}
		first.next = g.next
	}
}

// selectorTerm is one label that a selector asks for.
type selectorTerm struct{ namespace, key, value string }

// selects enters what a Service of ours selects.
func (x *Index) selects(s *service) {
	if !s.Ours() || len(s.Selector) == 0 {
		return // an empty selector selects nothing, as in EndpointSlices
	}
	fewest := -1
	for k, v := range s.Selector { // the term that the fewest others stand under is the one to find it by
		term := selectorTerm{s.Namespace, k, v}
		if n := len(x.bySelector[term]); fewest < 0 || n < fewest {
			s.term, fewest = term, n
		}
	}
	put(x.bySelector, s.term, s)
	for g := range x.groups.in[s.Namespace] {
		if matches(s.Selector, g.labels) {
			g.services.add(s)
			s.groups.add(g)
		}
	}
}

func (x *Index) unselect(s *service) {
	drop(x.bySelector, s.term, s)
	for g := range s.groups {
		delete(g.services, s)
	}
	clear(s.groups)
}

func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return len(selector) > 0
}
