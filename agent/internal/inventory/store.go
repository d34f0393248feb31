package inventory

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// store is what a reflector fills. Of an object that matters it keeps the record that the model reads, made once, when the object comes; of
// any other it keeps nothing. An informer would keep both, one of them for each Service of the cluster.
type store[R any] struct {
	convert func(object any) (record R, matters bool)
	same    func(a, b R) bool // whether b means to the model what a does
	// tell is called, in the order of events and after the store has it, with the record that came, changed or vanished: old, new or both
	// are not nil. An event about the object came at version; a list has its own.
	tell func(old, new *R, version string)

	mu      sync.Mutex
	records map[string]R // by "namespace/name"
	version string
	listed  bool
}

func newStore[R any](convert func(any) (R, bool), same func(a, b R) bool, tell func(old, new *R, version string)) *store[R] {
	return &store[R]{convert: convert, same: same, tell: tell, records: map[string]R{}}
}

// item stands for an object that matters while the reflector streams the first list.
type item[R any] struct {
	metav1.ObjectMeta // namespace, name
	record            R
}

// Transformer returns how objects are kept while they are streamed, so that the first list is never in memory as a whole. The function
// accepts its own results.
func (s *store[R]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		o, ok := object.(metav1.Object)
		if _, done := object.(*item[R]); done || !ok {
			return object, nil
		}
		record, matters := s.convert(object)
		if !matters {
			return cache.ExplicitKey(cache.NewObjectName(o.GetNamespace(), o.GetName()).String()), nil
		}
		return &item[R]{metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName()}, record}, nil
	}
}

// Add is Update.
func (s *store[R]) Add(object any) error { return s.Update(object) }

// Update takes over an object that came or changed.
func (s *store[R]) Update(object any) error {
	record, matters := s.convert(object)
	if !matters {
		return s.event(object, nil)
	}
	return s.event(object, &record)
}

// Delete takes over the last state of an object, whose resourceVersion is that of its deletion.
func (s *store[R]) Delete(object any) error { return s.event(object, nil) }

func (s *store[R]) event(object any, record *R) error {
	o, err := meta.Accessor(object)
	if err != nil {
		return fmt.Errorf("an object of the API server: %w", err)
	}
	key := cache.NewObjectName(o.GetNamespace(), o.GetName()).String()
	s.mu.Lock()
	old := s.put(key, record)
	s.version = o.GetResourceVersion()
	s.mu.Unlock()
	s.compare(old, record, o.GetResourceVersion())
	return nil
}

// put keeps record, or nothing if it is nil, and returns what was kept before.
func (s *store[R]) put(key string, record *R) (old *R) {
	if r, ok := s.records[key]; ok {
		old = &r
	}
	if record == nil {
		delete(s.records, key)
	} else {
		s.records[key] = *record
	}
	return old
}

func (s *store[R]) compare(old, record *R, version string) {
	if old == nil && record == nil || old != nil && record != nil && s.same(*old, *record) {
		return
	}
	s.tell(old, record, version)
}

// Replace takes over a complete list.
func (s *store[R]) Replace(objects []any, version string) error {
	records := map[string]R{}
	for _, object := range objects {
		slim, err := s.Transformer()(object)
		if err != nil {
			return err
		}
		if i, ok := slim.(*item[R]); ok {
			records[cache.NewObjectName(i.Namespace, i.Name).String()] = i.record
		}
	}
	s.mu.Lock()
	before := s.records
	s.records, s.version, s.listed = records, version, true
	s.mu.Unlock()
	for key, old := range before {
		if _, stays := records[key]; !stays {
			s.compare(&old, nil, version)
		}
	}
	for key, record := range records {
		if old, known := before[key]; known {
			s.compare(&old, &record, version)
		} else {
			s.compare(nil, &record, version)
		}
	}
	return nil
}

// Bookmark takes note that everything up to version has come.
func (s *store[R]) Bookmark(version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
	return nil
}

// Resync has no meaning here.
func (s *store[R]) Resync() error { return nil }

// all returns the records, in no order.
func (s *store[R]) all() []R {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]R, 0, len(s.records))
	for _, r := range s.records {
		out = append(out, r)
	}
	return out
}

// at returns the resourceVersion that the records stand at.
func (s *store[R]) at() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

func (s *store[R]) get(key string) (R, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[key]
	return r, ok
}

// synced reports whether the first complete list has come.
func (s *store[R]) synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed
}
