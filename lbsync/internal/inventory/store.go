package inventory

import (
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// store is what a reflector fills. It keeps nothing: it makes the record of each object, once, and passes it on.
type store[R any] struct {
	convert func(object any) (record R, ok bool)
	into    target[R]
	listed  atomic.Bool
}

// target takes over what happens to the objects of one kind. version is the resourceVersion of the event, or of the list; calls come one
// after the other.
type target[R any] interface {
	set(record R, version string)
	gone(name cache.ObjectName, version string)
	replace(records map[cache.ObjectName]R, version string)
	// reached takes note that everything up to version has come.
	reached(version string)
}

// item stands for an object while the reflector streams the first list, so that this is never in memory as a whole.
type item[R any] struct {
	metav1.ObjectMeta // namespace, name
	record            R
}

func (s *store[R]) Transformer() cache.TransformFunc { return s.transform }

// transform accepts its own results, because a reflector may call it twice.
func (s *store[R]) transform(object any) (any, error) {
	if i, done := object.(*item[R]); done {
		return i, nil
	}
	name, record, err := s.read(object)
	if err != nil {
		return nil, err
	}
	return &item[R]{metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, record}, nil
}

func (s *store[R]) read(object any) (name cache.ObjectName, record R, err error) {
	if name, err = cache.ObjectToName(object); err != nil {
		return name, record, fmt.Errorf("an object of the API server: %w", err)
	}
	record, ok := s.convert(object)
	if !ok {
		return name, record, fmt.Errorf("%s of the API server is a %T", name, object)
	}
	return name, record, nil
}

func (s *store[R]) Add(object any) error { return s.Update(object) }

func (s *store[R]) Update(object any) error {
	_, record, err := s.read(object)
	if err == nil {
		s.into.set(record, versionOf(object))
	}
	return err
}

// Delete takes over the last state of an object, whose resourceVersion is that of its deletion.
func (s *store[R]) Delete(object any) error {
	name, err := cache.ObjectToName(object)
	if err != nil {
		return fmt.Errorf("an object of the API server: %w", err)
	}
	s.into.gone(name, versionOf(object))
	return nil
}

func (s *store[R]) Replace(objects []any, version string) error {
	records := make(map[cache.ObjectName]R, len(objects))
	for _, object := range objects {
		if i, done := object.(*item[R]); done {
			records[cache.NewObjectName(i.Namespace, i.Name)] = i.record
			continue
		}
		name, record, err := s.read(object)
		if err != nil {
			return err
		}
		records[name] = record
	}
	s.into.replace(records, version)
	s.listed.Store(true)
	return nil
}

// Resync has no meaning here.
func (s *store[R]) Resync() error { return nil }

// UpdateResourceVersion is called after each event, and for a bookmark, which is one without an object.
func (s *store[R]) UpdateResourceVersion(version string) { s.into.reached(version) }

func versionOf(object any) string {
	o, ok := object.(metav1.Object)
	if !ok {
		return ""
	}
	return o.GetResourceVersion()
}
