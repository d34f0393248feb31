package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// arrivals holds when everybody could see a Pod's IP, and when its annotation, by name: the moments at which one watch told it.
type arrivals struct {
	mu        sync.Mutex
	addressed map[string]time.Time
	annotated map[string]time.Time
	broken    bool // the watch has ended; one that is taken up again would tell everything late
}

// watchArrivals watches the Pods of a namespace until ctx ends. It begins with what there is.
func (s *site) watchArrivals(ctx context.Context, namespace string) (*arrivals, error) {
	list, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	a := &arrivals{addressed: map[string]time.Time{}, annotated: map[string]time.Time{}}
	for _, p := range list.Items {
		a.see(&p, time.Now())
	}
	w, err := s.client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: new(int64(3600))})
	if err != nil {
		return nil, err
	}
	go func() {
		defer w.Stop()
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Deleted {
				a.see(p, time.Now())
			}
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.broken = true
	}()
	return a, nil
}

func (a *arrivals) see(p *corev1.Pod, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.addressed[p.Name]; !known && len(p.Status.PodIPs) > 0 {
		a.addressed[p.Name] = now
	}
	if _, known := a.annotated[p.Name]; !known && isAnnotated(p) {
		a.annotated[p.Name] = now
	}
}

// wait waits until n Pods are annotated, and returns when the last one was.
func (a *arrivals) wait(ctx context.Context, n int) (last time.Time, err error) {
	err = poll(ctx, func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.annotated) < n {
			if a.broken {
				return errors.New("the API server has broken off the watch: the machine is too busy to measure anything")
			}
			return fmt.Errorf("%d of %d Pods are annotated", len(a.annotated), n)
		}
		for _, at := range a.annotated {
			if at.After(last) {
				last = at
			}
		}
		return nil
	})
	return last, err
}

// first is when the first Pod was annotated.
func (a *arrivals) first() (first time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range a.annotated {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// latencies are the times from IP to annotation.
func (a *arrivals) latencies() (all []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, at := range a.annotated {
		all = append(all, at.Sub(a.addressed[name]))
	}
	return all
}

func isAnnotated(p *corev1.Pod) bool { return p.Annotations[npl.Annotation] != "" }

// isAnnotatedWith reports whether the annotation lists a mapping of the Pod's port.
func isAnnotatedWith(p *corev1.Pod, podPort uint16) bool {
	mappings, _ := npl.Decode(p.Annotations[npl.Annotation])
	return slices.ContainsFunc(mappings, func(m npl.Mapping) bool { return m.PodPort == podPort })
}
