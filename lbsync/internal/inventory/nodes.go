package inventory

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// ofControllers are the labels by which controllers tell the Pods of one workload apart.
var ofControllers = []string{
	appsv1.ControllerRevisionHashLabelKey, "pod-template-generation", appsv1.DefaultDeploymentUniqueLabelKey,
	appsv1.StatefulSetPodNameLabel, appsv1.PodIndexLabel,
}

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

// Alike returns how many Pods of its Namespace have the labels that the Pod has, itself included, except those by which controllers tell the
// Pods of one workload apart; none if there is no such Pod.
func (x *Index) Alike(key PodKey) (pods int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.pods[key]
	if p == nil {
		return 0
	}
	for g := range x.groups.in[key.Namespace] {
		if within(g.labels, p.Labels) && within(p.Labels, g.labels) {
			pods += len(g.pods)
		}
	}
	return pods
}

// within reports whether every label but those of controllers is among others.
func within(labels, others map[string]string) bool {
	for k, v := range labels {
		if have, ok := others[k]; (!ok || have != v) && !slices.Contains(ofControllers, k) {
			return false
		}
	}
	return true
}

// AtNodes reports whether the Service asks for no address, see model.Service.
func (x *Index) AtNodes(key model.ServiceKey) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.services[key]
	return s != nil && s.AtNodes()
}
