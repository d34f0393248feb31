// Package inventory keeps the Pods of this Node, the enabled Services and the Node itself up to date, as the model's records. It decides
// nothing: it says that something changed.
package inventory

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// Inventory is safe for concurrent use.
type Inventory struct {
	nodeName   string
	pods       *store[model.Pod]
	services   *store[service]
	nodes      *store[model.Node]
	reflectors []*cache.Reflector
	history    *history // of Pods

	mu   sync.Mutex
	node model.Node // the last one that had addresses
}

// service is an enabled Service, and what an Event about it needs.
type service struct {
	model.Service
	uid types.UID
}

// New returns an inventory of the Node named nodeName. After anything that could matter has changed, changed is called, from several
// goroutines; after nothing but the annotation of a Pod has, annotated is: most of these changes are our own.
func New(client kubernetes.Interface, nodeName string, changed, annotated func()) *Inventory {
	i := &Inventory{nodeName: nodeName, history: newHistory()}
	i.pods = newStore(i.convertPod, samePod, func(old, new *model.Pod, version string) {
		if old != nil && new != nil && sameButAnnotation(*old, *new) {
			annotated()
			return
		}
		i.history.note(old, new, version)
		changed()
	})
	i.services = newStore(convertService, same[service], func(_, _ *service, _ string) { changed() })
	i.nodes = newStore(i.convertNode, same[model.Node], func(_, _ *model.Node, _ string) { changed() })

	core := client.CoreV1()
	i.reflectors = []*cache.Reflector{
		newReflector(client, core.Pods(metav1.NamespaceAll), i.pods, &corev1.Pod{}, fields.OneTermEqualSelector("spec.nodeName", nodeName)),
		newReflector(client, core.Services(metav1.NamespaceAll), i.services, &corev1.Service{}, fields.Everything()),
		newReflector(client, core.Nodes(), i.nodes, &corev1.Node{}, fields.OneTermEqualSelector("metadata.name", nodeName)),
	}
	return i
}

// listWatcher is a typed client of one resource.
type listWatcher[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// newReflector returns what fills to with the objects that a field selector selects; object is an empty one.
func newReflector[L runtime.Object](client kubernetes.Interface, from listWatcher[L], to cache.TransformingStore, object runtime.Object, only fields.Selector) *cache.Reflector {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only.String()
			return from.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only.String()
			return from.Watch(ctx, o)
		},
	}
	return cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, client), object, to, cache.ReflectorOptions{})
}

func (i *Inventory) convertPod(object any) (model.Pod, bool) {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName != i.nodeName {
		return model.Pod{}, false
	}
	return podRecord(pod), true
}

func convertService(object any) (service, bool) {
	svc, ok := object.(*corev1.Service)
	if !ok || !npl.Enabled(svc.Annotations) {
		return service{}, false
	}
	return service{serviceRecord(svc), svc.UID}, true
}

func (i *Inventory) convertNode(object any) (model.Node, bool) {
	node, ok := object.(*corev1.Node)
	if !ok || node.Name != i.nodeName {
		return model.Node{}, false
	}
	return nodeRecord(node), true
}

func same[R any](a, b R) bool { return reflect.DeepEqual(a, b) }

// samePod compares without the resourceVersion, which every heartbeat and probe moves on.
func samePod(a, b model.Pod) bool {
	a.ResourceVersion = b.ResourceVersion
	return same(a, b)
}

func sameButAnnotation(a, b model.Pod) bool {
	a.Annotation, a.Annotated = b.Annotation, b.Annotated
	return samePod(a, b)
}

// Run keeps everything up to date until ctx ends.
func (i *Inventory) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, r := range i.reflectors {
		wg.Go(func() { r.RunWithContext(ctx) })
	}
	wg.Wait()
}

// Synced returns nil once every first list has come completely and the own Node is known.
func (i *Inventory) Synced() error {
	for _, of := range []struct {
		what   string
		synced func() bool
	}{{"Pods", i.pods.synced}, {"Services", i.services.synced}, {"the Node", i.nodes.synced}} {
		if !of.synced() {
			return fmt.Errorf("the first list of %s has not arrived yet", of.what)
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
	if node, ok := i.nodes.get(i.nodeName); ok && len(node.Addresses) > 0 {
		i.node = node
	}
	return i.node
}

// Pods returns the Pods of this Node, in no order.
func (i *Inventory) Pods() []model.Pod { return i.pods.all() }

// Services returns the enabled Services, in no order.
func (i *Inventory) Services() []model.Service {
	var out []model.Service
	for _, s := range i.services.all() {
		out = append(out, s.Service)
	}
	return out
}

// ServiceUID returns the UID of an enabled Service, or "" if there is none of that name.
func (i *Inventory) ServiceUID(namespace, name string) types.UID {
	s, _ := i.services.get(cache.NewObjectName(namespace, name).String())
	return s.uid
}

// Version returns the resourceVersion that the Pods stand at: what a later call of Pods returns is at least as new. It is empty before the
// first list.
func (i *Inventory) Version() string { return i.pods.at() }
