package inventory

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// Watch fills an Index from informers.
type Watch struct {
	Index     *Index
	Selection Selection

	clock    clock.PassiveClock
	factory  informers.SharedInformerFactory
	services cache.SharedIndexInformer
	synced   []cache.InformerSynced

	mu        sync.Mutex
	listeners []func(model.ServiceKey)
}

// NewWatch returns a Watch that has not started.
func NewWatch(client kubernetes.Interface, selection Selection, clk clock.PassiveClock) (*Watch, error) {
	w := &Watch{
		Index: NewIndex(), Selection: selection, clock: clk,
		factory: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(Transform)),
	}
	core := w.factory.Core().V1()
	w.services = core.Services().Informer()
	var errs []error
	for _, add := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{core.Nodes().Informer(), w.nodes()},
		{w.services, w.serviceEvents()},
		{core.Pods().Informer(), w.pods()},
	} {
		registration, err := add.informer.AddEventHandler(add.handler)
		errs = append(errs, err)
		if err == nil {
			w.synced = append(w.synced, registration.HasSynced)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("add event handlers to the informers: %w", err)
	}
	return w, nil
}

// OnService calls f after each event of a Service, from the informer's goroutine. It must be called before Start.
func (w *Watch) OnService(f func(model.ServiceKey)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listeners = append(w.listeners, f)
}

// Start starts the informers; they stop with ctx.
func (w *Watch) Start(ctx context.Context) { w.factory.StartWithContext(ctx) }

// Stop waits until the informers have stopped; the context given to Start must have ended.
func (w *Watch) Stop() { w.factory.Shutdown() }

// Wait returns true when the Index holds the whole first answer of the API server, false when ctx ends first.
func (w *Watch) Wait(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), w.synced...)
}

// Synced reports whether the Index holds the whole first answer of the API server.
func (w *Watch) Synced() bool {
	for _, synced := range w.synced {
		if !synced() {
			return false
		}
	}
	return true
}

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

func (w *Watch) serviceEvents() cache.ResourceEventHandler {
	set := func(s *corev1.Service) {
		record := w.Selection.Service(s)
		w.Index.SetService(record, w.clock.Now())
		w.tell(record.ServiceKey)
	}
	return handler(set, func(s *corev1.Service, seen bool) {
		key := model.ServiceKey{Namespace: s.Namespace, Name: s.Name}
		w.Index.DeleteService(key, seen, w.clock.Now())
		w.tell(key)
	})
}

func (w *Watch) tell(key model.ServiceKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.listeners {
		f(key)
	}
}

func (w *Watch) pods() cache.ResourceEventHandler {
	return handler(
		func(p *corev1.Pod) { w.Index.SetPod(Pod(p), w.clock.Now()) },
		func(p *corev1.Pod, seen bool) { w.Index.DeletePod(p.Namespace, p.Name, seen, w.clock.Now()) })
}

func (w *Watch) nodes() cache.ResourceEventHandler {
	return handler(
		func(n *corev1.Node) { w.Index.SetNode(Node(n), w.clock.Now()) },
		func(n *corev1.Node, seen bool) { w.Index.DeleteNode(n.Name, seen, w.clock.Now()) })
}

// handler makes an event handler of one type. seen is false for an object that was only missing from a list.
func handler[T any](set func(*T), gone func(o *T, seen bool)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { set(obj.(*T)) },
		UpdateFunc: func(_, obj any) { set(obj.(*T)) },
		DeleteFunc: func(obj any) {
			tombstone, missed := obj.(cache.DeletedFinalStateUnknown)
			if missed {
				obj = tombstone.Obj
			}
			if o, ok := obj.(*T); ok {
				gone(o, !missed)
			}
		},
	}
}
