// Package inventory keeps the Pods of this Node, the Services and the Node itself in informer caches, and hands them out as the
// model's records. Its event handlers decide nothing: they say that something changed.
package inventory

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// enabledIndex holds the enabled Services under one value, so that reading them does not cost a walk over all Services.
const enabledIndex = "enabled"

// Inventory is safe for concurrent use.
type Inventory struct {
	nodeName              string
	pods, services, nodes cache.SharedIndexInformer
	synced                []cache.InformerSynced
	history               *history // of Pods

	mu   sync.Mutex
	node model.Node // the last one that had addresses
}

// New returns an inventory of the Node named nodeName; changed is called, from several goroutines, after anything that could
// matter has changed.
func New(client kubernetes.Interface, nodeName string, changed func()) (*Inventory, error) {
	only := func(field string) func(*metav1.ListOptions) {
		selector := fields.OneTermEqualSelector(field, nodeName).String()
		return func(o *metav1.ListOptions) { o.FieldSelector = selector }
	}
	inv := &Inventory{
		nodeName: nodeName,
		history:  newHistory(),
		pods:     coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, 0, cache.Indexers{}, only("spec.nodeName")),
		services: coreinformers.NewServiceInformer(client, metav1.NamespaceAll, 0, cache.Indexers{enabledIndex: indexEnabled}),
		nodes:    coreinformers.NewFilteredNodeInformer(client, 0, cache.Indexers{}, only("metadata.name")),
	}
	for _, i := range []struct {
		what      string
		informer  cache.SharedIndexInformer
		transform cache.TransformFunc
	}{{"Pods", inv.pods, slimPod}, {"Services", inv.services, slimService}, {"Node", inv.nodes, slimNode}} {
		if err := i.informer.SetTransform(i.transform); err != nil {
			return nil, fmt.Errorf("preparing the cache of %s: %w", i.what, err)
		}
		registration, err := i.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { inv.history.changed(obj); changed() },
			DeleteFunc: func(obj any) { inv.history.gone(obj, inv.Version); changed() },
			UpdateFunc: func(old, new any) {
				if differ(old, new) {
					inv.history.changed(new)
					changed()
				}
			},
		})
		if err != nil {
			return nil, fmt.Errorf("watching %s: %w", i.what, err)
		}
		inv.synced = append(inv.synced, registration.HasSynced)
	}
	return inv, nil
}

func indexEnabled(obj any) ([]string, error) {
	if svc, ok := obj.(*corev1.Service); ok && npl.Enabled(svc.Annotations) {
		return []string{"true"}, nil
	}
	return nil, nil
}

// differ compares slim objects without their resourceVersion, which every heartbeat and probe moves on.
func differ(old, new any) bool {
	a, okA := old.(metav1.Object)
	b, okB := new.(metav1.Object)
	if !okA || !okB {
		return true
	}
	withoutVersion := func(o metav1.Object) any {
		switch o := o.(type) {
		case *corev1.Pod:
			c := *o
			c.ResourceVersion = ""
			return &c
		case *corev1.Service:
			c := *o
			c.ResourceVersion = ""
			return &c
		case *corev1.Node:
			c := *o
			c.ResourceVersion = ""
			return &c
		default:
			return o
		}
	}
	return !apiequality.Semantic.DeepEqual(withoutVersion(a), withoutVersion(b))
}

// Run fills the caches and keeps them up to date until ctx ends.
func (i *Inventory) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, informer := range []cache.SharedIndexInformer{i.pods, i.services, i.nodes} {
		wg.Go(func() { informer.RunWithContext(ctx) })
	}
	wg.Wait()
}

// Synced returns nil once every cache holds the first complete list and the own Node is known.
func (i *Inventory) Synced() error {
	for n, what := range []string{"Pods", "Services", "the Node"} {
		if !i.synced[n]() {
			return fmt.Errorf("the first list of %s has not arrived yet", what)
		}
	}
	if i.Node().Name == "" {
		return fmt.Errorf("Node %q is not in the API, or has no address yet: set nodeName to the name this Node is registered under", i.nodeName)
	}
	return nil
}

// WaitForSync waits until Synced returns nil. It returns false if ctx ends first.
func (i *Inventory) WaitForSync(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), func() bool { return i.Synced() == nil })
}

// Node returns the own Node. If its addresses have vanished from the API, the last known ones stay.
func (i *Inventory) Node() model.Node {
	i.mu.Lock()
	defer i.mu.Unlock()
	if obj, ok, err := i.nodes.GetStore().GetByKey(i.nodeName); ok && err == nil {
		if node := nodeRecord(obj.(*corev1.Node)); len(node.Addresses) > 0 {
			i.node = node
		}
	}
	return i.node
}

// Pods returns the Pods of this Node.
func (i *Inventory) Pods() []model.Pod {
	var out []model.Pod
	for _, obj := range i.pods.GetStore().List() {
		if pod := obj.(*corev1.Pod); pod.Spec.NodeName == i.nodeName {
			out = append(out, podRecord(pod))
		}
	}
	return out
}

// Services returns the enabled Services.
func (i *Inventory) Services() []model.Service {
	objs, err := i.services.GetIndexer().ByIndex(enabledIndex, "true")
	if err != nil { // the index was given to the constructor
		panic("inventory: " + err.Error())
	}
	out := make([]model.Service, 0, len(objs))
	for _, obj := range objs {
		out = append(out, serviceRecord(obj.(*corev1.Service)))
	}
	return out
}
