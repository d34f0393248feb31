// Package watermarks keeps the watermarks of all load balancers in an informer cache: ConfigMaps of one namespace with one label.
package watermarks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nplbridge/nplbridge/agent/watermark"
)

// Watermarks is safe for concurrent use.
type Watermarks struct {
	namespace string
	informer  cache.SharedIndexInformer
	synced    cache.InformerSynced
	log       *zap.Logger

	mu sync.Mutex
	// failure is why the API server could not be read, and failedAt the version the cache had then.
	failure  error
	failedAt string
}

// New returns the watermarks of a namespace. changed is called after one has come, changed or gone, and after the API server
// could not be read, from several goroutines.
func New(client kubernetes.Interface, namespace string, changed func(), log *zap.Logger) (*Watermarks, error) {
	selector := labels.Set{watermark.Label: watermark.LabelValue}.String()
	w := &Watermarks{namespace: namespace, log: log}
	w.informer = coreinformers.NewFilteredConfigMapInformer(client, namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) { o.LabelSelector = selector })
	if err := w.informer.SetTransform(w.decode); err != nil {
		return nil, fmt.Errorf("preparing the cache of watermarks: %w", err)
	}
	if err := w.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { w.failed(err); changed() }); err != nil {
		return nil, fmt.Errorf("preparing the watch for watermarks: %w", err)
	}
	registration, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return nil, fmt.Errorf("watching watermarks: %w", err)
	}
	w.synced = registration.HasSynced
	return w, nil
}

// Run fills the cache and keeps it up to date until ctx ends.
func (w *Watermarks) Run(ctx context.Context) { w.informer.RunWithContext(ctx) }

// WaitForSync waits until the first list has arrived, or ctx ends.
func (w *Watermarks) WaitForSync(ctx context.Context) { cache.WaitForCacheSync(ctx.Done(), w.synced) }

// Marks returns all watermarks in the order of their names. One that cannot be read is there, too, with a Seen that confirms
// nothing. The error says why it is not known which there are: then nothing is confirmed, for a load balancer that is
// not among them may list anything.
func (w *Watermarks) Marks() ([]watermark.Watermark, error) {
	if err := w.unknown(); err != nil {
		return nil, err
	}
	var out []watermark.Watermark
	for _, obj := range w.informer.GetStore().List() {
		out = append(out, obj.(*mark).Watermark)
	}
	slices.SortFunc(out, func(a, b watermark.Watermark) int { return strings.Compare(a.Name(), b.Name()) })
	return out, nil
}

func (w *Watermarks) unknown() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil && w.failedAt == w.informer.GetStore().LastStoreSyncResourceVersion() {
		return fmt.Errorf("watermarks in Namespace %s cannot be read: %w", w.namespace, w.failure)
	}
	w.failure = nil
	if !w.synced() {
		return fmt.Errorf("the first list of watermarks in Namespace %s has not arrived yet", w.namespace)
	}
	return nil
}

// failed takes note of an error of the watch. One that ends in a fresh list by itself is none.
func (w *Watermarks) failed(err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failure, w.failedAt = err, w.informer.GetStore().LastStoreSyncResourceVersion()
	w.log.Warn("watermarks cannot be read; freed node ports are not given to other Pods meanwhile", zap.String("namespace", w.namespace), zap.Error(err))
}

// mark is what the cache holds of a ConfigMap.
type mark struct {
	*corev1.ConfigMap // without data
	watermark.Watermark
}

// decode is the transform of the informer, which may apply it to its own output.
func (w *Watermarks) decode(obj any) (any, error) {
	configMap, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return obj, nil // decoded already, or a tombstone
	}
	slim := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: configMap.Namespace, Name: configMap.Name, UID: configMap.UID, ResourceVersion: configMap.ResourceVersion}}
	decoded, err := watermark.Decode(configMap.Data[watermark.DataKey])
	if err != nil {
		decoded.LoadBalancer = strings.TrimPrefix(decoded.LoadBalancer+", ", ", ") + "unreadable ConfigMap " + configMap.Name
		if decoded.Instance == "" {
			decoded.Instance = configMap.Namespace
		}
		w.log.Warn("watermark cannot be read; until it can, it holds every freed node port", zap.String("configMap", configMap.Namespace+"/"+configMap.Name), zap.Error(err))
	}
	return &mark{slim, decoded}, nil
}
