package inventory

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// Watch fills an Index from the API server. Of Pods, Nodes and Namespaces nothing is kept but what the model needs of them.
type Watch struct {
	Index     *Index
	Selection Selection

	clock      clock.PassiveClock
	namespaces *namespaces // nil without a selector
	services   cache.SharedIndexInformer
	handled    cache.InformerSynced // every Service of the first list
	first      []feed               // Namespaces and Nodes, which a Service and a Pod are read with
	pods       feed

	running   sync.WaitGroup
	reading   sync.Mutex // while a Service is read and entered
	onService []func(model.ServiceKey)
	onGated   []func(PodKey)
}

// feed is a reflector with what it fills.
type feed struct {
	run    func(context.Context)
	synced func() bool
}

// NewWatch returns a Watch that has not started.
func NewWatch(client kubernetes.Interface, selection Selection, clk clock.PassiveClock) (*Watch, error) {
	w := &Watch{Index: NewIndex(), clock: clk}
	core := client.CoreV1()
	if len(selection.NamespaceSelector) > 0 {
		w.namespaces = &namespaces{changed: w.rereadNamespace, labels: map[string]map[string]string{}}
		selection.labelsOf = w.namespaces.of
		w.first = append(w.first, newFeed(client, core.Namespaces(), &store[namespace]{convert: readNamespace, into: w.namespaces}, &corev1.Namespace{}))
	}
	w.Selection = selection
	w.Index.atNodes = selection.AtNodes
	w.first = append(w.first, newFeed(client, core.Nodes(), &store[*model.Node]{convert: w.readNode, into: nodeTarget{w.Index, clk}}, &corev1.Node{}))
	w.pods = newFeed(client, core.Pods(metav1.NamespaceAll),
		&store[*model.Pod]{convert: readPod, into: podTarget{w.Index, clk, w.tellGated}}, &corev1.Pod{})

	w.services = cache.NewSharedIndexInformer(consistent(client, core.Services(metav1.NamespaceAll), func(runtime.Object) error { return nil }),
		&corev1.Service{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if err := w.services.SetTransform(Transform); err != nil {
		return nil, fmt.Errorf("set the transform of the informer of Services: %w", err)
	}
	registration, err := w.services.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { w.readService(keyOf(object.(*corev1.Service))) },
		UpdateFunc: func(_, object any) { w.readService(keyOf(object.(*corev1.Service))) },
		DeleteFunc: w.dropService,
	})
	if err != nil {
		return nil, fmt.Errorf("add an event handler to the informer of Services: %w", err)
	}
	w.handled = registration.HasSynced
	return w, nil
}

// lister is a typed client of one resource.
type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// consistent lists and watches so that a first list is never older than what an earlier process has seen (invariant I6). each is done to
// every item of a list.
func consistent[L runtime.Object](client kubernetes.Interface, from lister[L], each func(runtime.Object) error) cache.ListerWatcher {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if o.ResourceVersion == "0" {
				o.ResourceVersion = "" // which is consistent, and comes in pages
			}
			list, err := from.List(ctx, o)
			if err == nil {
				err = meta.EachListItem(list, each)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return from.Watch(ctx, o) },
	}
	return cache.ToListWatcherWithWatchListSemantics(lw, client)
}

func newFeed[L runtime.Object, R any](client kubernetes.Interface, from lister[L], to *store[R], object runtime.Object) feed {
	reflector := cache.NewReflectorWithOptions(consistent(client, from, lighten), object, to, cache.ReflectorOptions{})
	return feed{run: reflector.RunWithContext, synced: to.listed.Load}
}

// OnService calls f after each event of a Service. It must be called before Start.
func (w *Watch) OnService(f func(model.ServiceKey)) { w.onService = append(w.onService, f) }

// OnGated calls f after each event of a Pod whose readiness gate of ours is not True, and once more when it is True or the Pod is gone. f
// must not block. It must be called before Start.
func (w *Watch) OnGated(f func(PodKey)) { w.onGated = append(w.onGated, f) }

// Start begins to fill the Index, until ctx ends. Pods come last: what they are behind is known then, so the first list of them costs
// no more than they do.
func (w *Watch) Start(ctx context.Context) {
	for _, f := range w.first {
		w.running.Go(func() { f.run(ctx) })
	}
	w.running.Go(func() {
		if w.await(ctx, w.first) {
			w.services.RunWithContext(ctx)
		}
	})
	w.running.Go(func() {
		if w.await(ctx, w.first) && cache.WaitForCacheSync(ctx.Done(), w.handled) {
			w.pods.run(ctx)
		}
	})
}

func (w *Watch) await(ctx context.Context, feeds []feed) bool {
	return cache.WaitForCacheSync(ctx.Done(), func() bool { return allSynced(feeds) })
}

func allSynced(feeds []feed) bool {
	for _, f := range feeds {
		if !f.synced() {
			return false
		}
	}
	return true
}

// Stop waits until nothing is filled any more; the context given to Start must have ended.
func (w *Watch) Stop() { w.running.Wait() }

// Wait returns true when the Index holds the whole first answer of the API server, false when ctx ends first.
func (w *Watch) Wait(ctx context.Context) bool { return cache.WaitForCacheSync(ctx.Done(), w.Synced) }

// Synced reports whether the Index holds the whole first answer of the API server.
func (w *Watch) Synced() bool { return allSynced(w.first) && w.handled() && w.pods.synced() }

// Service returns the Service as the API server sent it, or nil. It must not be changed.
func (w *Watch) Service(key model.ServiceKey) *corev1.Service {
	obj, exists, err := w.services.GetStore().GetByKey(key.String())
	if err != nil || !exists {
		return nil
	}
	return obj.(*corev1.Service)
}

// Services returns all Services as the API server sent them. They must not be changed.
func (w *Watch) Services() []*corev1.Service {
	var out []*corev1.Service
	for _, obj := range w.services.GetStore().List() {
		out = append(out, obj.(*corev1.Service))
	}
	return out
}

// ServicesIn returns the Services of a Namespace as the API server sent them. They must not be changed.
func (w *Watch) ServicesIn(namespace string) []*corev1.Service {
	var out []*corev1.Service
	found, err := w.services.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil { // only an index that there is not has one
		panic(err)
	}
	for _, obj := range found {
		out = append(out, obj.(*corev1.Service))
	}
	return out
}

// readService enters a Service as it is now.
func (w *Watch) readService(key model.ServiceKey) {
	if w.enterService(key) {
		w.tell(key)
	}
}

func (w *Watch) enterService(key model.ServiceKey) bool {
	w.reading.Lock()
	defer w.reading.Unlock()
	s := w.Service(key)
	if s == nil {
		return false // the event of its deletion is on its way
	}
	w.Index.SetService(w.Selection.Service(s), w.clock.Now())
	return true
}

// dropService takes over a deletion that was seen, or that only a list lets one conclude.
func (w *Watch) dropService(object any) {
	tombstone, missed := object.(cache.DeletedFinalStateUnknown)
	if missed {
		object = tombstone.Obj
	}
	if s, ok := object.(*corev1.Service); ok {
		w.reading.Lock()
		w.Index.DeleteService(keyOf(s), !missed, w.clock.Now())
		w.reading.Unlock()
		w.tell(keyOf(s))
	}
}

// rereadNamespace enters the Services of a Namespace anew: whether they are ours depends on its labels.
func (w *Watch) rereadNamespace(name string) {
	objects, err := w.services.GetIndexer().ByIndex(cache.NamespaceIndex, name)
	if err != nil {
		return // there is no such index in a Watch that is not from NewWatch
	}
	for _, object := range objects {
		w.readService(keyOf(object.(*corev1.Service)))
	}
}

func keyOf(s *corev1.Service) model.ServiceKey {
	return model.ServiceKey{Namespace: s.Namespace, Name: s.Name}
}

func (w *Watch) tell(key model.ServiceKey) {
	for _, f := range w.onService {
		f(key)
	}
}

func (w *Watch) tellGated(key PodKey) {
	for _, f := range w.onGated {
		f(key)
	}
}

func readPod(object any) (*model.Pod, bool) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return nil, false
	}
	return Pod(p), true
}

func (w *Watch) readNode(object any) (*model.Node, bool) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return nil, false
	}
	return w.Selection.Node(n), true
}

func readNamespace(object any) (namespace, bool) {
	n, ok := object.(*corev1.Namespace)
	if !ok {
		return namespace{}, false
	}
	return namespace{n.Name, n.Labels}, true
}
