package inventory

import "github.com/nplbridge/nplbridge/lbsync/internal/model"

// Nodes returns every Node, sorted by name: the same slice until one changes. It must not be changed.
func (x *Index) Nodes() []*model.Node {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.allNodes()
}

// Node returns the Node of that name, or nil. It must not be changed.
func (x *Index) Node(name string) *model.Node {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h := x.hosts[name]; h != nil {
		return h.node
	}
	return nil
}

// Pod returns the Pod, or nil. It must not be changed.
func (x *Index) Pod(key PodKey) *model.Pod {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.pods[key]; p != nil {
		return p.Pod
	}
	return nil
}

// AtNodes reports whether the Service asks for no address, see model.Service.
func (x *Index) AtNodes(key model.ServiceKey) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.services[key]
	return s != nil && s.AtNodes()
}
