// Package objects follows single ConfigMaps and Secrets, each with a watch of its own that lives as long as somebody
// wants the object. A Node may not list a whole namespace, only watch the names that its Pods refer to.
package objects

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// Key names one object.
type Key struct {
	Secret          bool // else a ConfigMap
	Namespace, Name string
}

// Store holds the objects that are followed.
type Store struct {
	client kubernetes.Interface
	log    *zap.Logger

	mu      sync.Mutex
	entries map[Key]*entry
}

type entry struct {
	cancel  context.CancelFunc
	object  runtime.Object // nil: does not exist
	known   bool
	follows map[int]func()
	next    int
}

// NewStore makes an empty store.
func NewStore(client kubernetes.Interface, log *zap.Logger) *Store {
	return &Store{client: client, log: log, entries: map[Key]*entry{}}
}

// Follow keeps the object up to date and calls changed, from any goroutine, whenever it became known or changed. The
// returned function ends it.
func (s *Store) Follow(key Key, changed func()) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil {
		ctx, cancel := context.WithCancel(context.Background())
		e = &entry{cancel: cancel, follows: map[int]func(){}}
		s.entries[key] = e
		go s.follow(ctx, key, e)
	}
	id := e.next
	e.next++
	e.follows[id] = changed
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(e.follows, id); len(e.follows) == 0 {
			e.cancel()
			delete(s.entries, key)
		}
	})
}

// Get returns the object, nil when it does not exist; known is false until the API server was asked.
func (s *Store) Get(key Key) (object runtime.Object, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[key]; e != nil {
		return e.object, e.known
	}
	return nil, false
}

func (s *Store) set(e *entry, object runtime.Object) {
	s.mu.Lock()
	e.object, e.known = object, true
	var tell []func()
	for _, changed := range e.follows {
		tell = append(tell, changed)
	}
	s.mu.Unlock()
	for _, changed := range tell {
		changed()
	}
}

// follow reads and watches until ctx ends. The first tries come quickly: the API server permits a Node to read an
// object a moment after it bound the Pod that refers to it.
func (s *Store) follow(ctx context.Context, key Key, e *entry) {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 20*time.Millisecond, 10*time.Second
	for ctx.Err() == nil {
		err := s.readAndWatch(ctx, key, e, retry.Reset)
		if err != nil && ctx.Err() == nil {
			s.log.Debug("follow object", zap.Any("object", key), zap.Error(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry.NextBackOff()):
		}
	}
}

func (s *Store) readAndWatch(ctx context.Context, key Key, e *entry, works func()) error {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name).String()}
	object, version, err := s.read(ctx, key, options)
	if err != nil {
		return err
	}
	s.set(e, object)
	options.ResourceVersion = version
	w, err := s.watch(ctx, key, options)
	if err != nil {
		return err
	}
	defer w.Stop()
	works()
	for event := range w.ResultChan() {
		switch event.Type {
		case watch.Added, watch.Modified:
			s.set(e, event.Object)
		case watch.Deleted:
			s.set(e, nil)
		case watch.Error:
			return nil // read again
		default: // bookmarks, which were not asked for
		}
	}
	return nil
}

func (s *Store) read(ctx context.Context, key Key, options metav1.ListOptions) (runtime.Object, string, error) {
	if key.Secret {
		list, err := s.client.CoreV1().Secrets(key.Namespace).List(ctx, options)
		if err != nil || len(list.Items) == 0 {
			return nil, version(list, err), err
		}
		return &list.Items[0], list.ResourceVersion, nil
	}
	list, err := s.client.CoreV1().ConfigMaps(key.Namespace).List(ctx, options)
	if err != nil || len(list.Items) == 0 {
		return nil, version(list, err), err
	}
	return &list.Items[0], list.ResourceVersion, nil
}

func version(list metav1.ListInterface, err error) string {
	if err != nil {
		return ""
	}
	return list.GetResourceVersion()
}

func (s *Store) watch(ctx context.Context, key Key, options metav1.ListOptions) (watch.Interface, error) {
	if key.Secret {
		return s.client.CoreV1().Secrets(key.Namespace).Watch(ctx, options)
	}
	return s.client.CoreV1().ConfigMaps(key.Namespace).Watch(ctx, options)
}
