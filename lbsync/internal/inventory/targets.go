package inventory

import (
	"maps"
	"sync"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// podTarget enters Pods in an Index.
type podTarget struct {
	*Index
	clock clock.PassiveClock
	tell  func(PodKey) // of Pods that wait for our readiness gate
}

func (t podTarget) set(p *model.Pod, version string) {
	if t.enter(p, version) {
		t.tell(PodKey{p.Namespace, p.Name})
	}
}

func (t podTarget) enter(p *model.Pod, version string) (gated bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	gated = t.setPod(p, t.clock.Now())
	t.follow(version)
	return gated
}

func (t podTarget) gone(name cache.ObjectName, version string) {
	if key := PodKey(name); t.remove(key, version) {
		t.tell(key)
	}
}

func (t podTarget) remove(key PodKey, version string) (gated bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	gated = t.deletePod(key, true, t.clock.Now())
	t.follow(version)
	return gated
}

func (t podTarget) replace(records map[cache.ObjectName]*model.Pod, version string) {
	for key := range t.exchange(records, version) {
		t.tell(key)
	}
}

// exchange takes over a list at once, so that nobody sees half of it.
func (t podTarget) exchange(records map[cache.ObjectName]*model.Pod, version string) set[PodKey] {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, gated := t.clock.Now(), set[PodKey]{}
	missing := maps.Clone(t.pods)
	for name := range records {
		delete(missing, PodKey(name))
	}
	for key := range missing {
		if t.deletePod(key, false, now) {
			gated.add(key)
		}
	}
	for name, p := range records {
		if t.setPod(p, now) {
			gated.add(PodKey(name))
		}
	}
	t.seen = ""
	t.advance(version)
	return gated
}

func (t podTarget) reached(version string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost.forget(t.clock.Now())
	t.advance(version)
}

// follow is advance with an event. A watch that follows a list has them in order; one that follows none begins with what there is, in any
// order, and then only reached says how far it is.
func (x *Index) follow(version string) {
	if x.seen != "" {
		x.advance(version)
	}
}

// nodeTarget enters Nodes in an Index.
type nodeTarget struct {
	*Index
	clock clock.PassiveClock
}

func (t nodeTarget) set(n *model.Node, _ string) { t.SetNode(n, t.clock.Now()) }

func (t nodeTarget) gone(name cache.ObjectName, _ string) {
	t.DeleteNode(name.Name, true, t.clock.Now())
}

func (t nodeTarget) replace(records map[cache.ObjectName]*model.Node, _ string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	for _, n := range records {
		t.setNode(n, now)
	}
	for name, h := range t.hosts {
		if h.node != nil && records[cache.NewObjectName("", name)] == nil {
			t.deleteNode(name, false, now)
		}
	}
}

func (nodeTarget) reached(string) {}

// namespaces are the labels of Namespaces.
type namespaces struct {
	changed func(name string)

	mu     sync.Mutex
	labels map[string]map[string]string
}

// namespace is the record of a Namespace.
type namespace struct {
	name   string
	labels map[string]string
}

// of returns the labels of a Namespace; known is false until it was seen.
func (n *namespaces) of(name string) (labels map[string]string, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	labels, known = n.labels[name]
	return labels, known
}

func (n *namespaces) set(record namespace, _ string) {
	n.mu.Lock()
	old, known := n.labels[record.name]
	n.labels[record.name] = record.labels
	n.mu.Unlock()
	if !known || !maps.Equal(old, record.labels) {
		n.changed(record.name)
	}
}

func (n *namespaces) gone(name cache.ObjectName, _ string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.labels, name.Name) // its Services are gone, or it would not be
}

// replace keeps what it knows of a Namespace that is missing from the list: whether its deletion was missed or the list is wrong, its Services
// say themselves whether they are there.
func (n *namespaces) replace(records map[cache.ObjectName]namespace, version string) {
	for _, record := range records {
		n.set(record, version)
	}
}

func (*namespaces) reached(string) {}
