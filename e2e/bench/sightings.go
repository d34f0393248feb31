package bench

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nplbridge/nplbridge/e2e/load"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// sightings holds what a watch told of each Pod, and when the Pod answered requests, by what answers say of it.
type sightings struct {
	identity func(*corev1.Pod) string // what the Pod says of itself in its answers; empty while it is not known
	mu       sync.Mutex
	pods     map[string]*sighting
}

// sighting is of one Pod; times that are not known are zero.
type sighting struct {
	old         bool // Ready before the measurement began
	ready       time.Time
	deleted     time.Time // when it was told that the Pod is to end
	gone        time.Time // and that it is no more
	first, last time.Time // answer
	late        int       // answers after it was gone
}

func newSightings(identity func(*corev1.Pod) string) *sightings {
	return &sightings{identity: identity, pods: map[string]*sighting{}}
}

// watch begins with what there is, and goes on until ctx ends.
func (s *sightings) watch(ctx context.Context, client kubernetes.Interface, namespace string) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { s.pod(obj.(*corev1.Pod), initial, false, time.Now()) },
		UpdateFunc: func(_, obj any) { s.pod(obj.(*corev1.Pod), false, false, time.Now()) },
		DeleteFunc: func(obj any) {
			if p, ok := obj.(*corev1.Pod); ok { // else the watch missed when
				s.pod(p, false, true, time.Now())
			}
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return nil
}

func (s *sightings) of(id string) *sighting {
	if s.pods[id] == nil {
		s.pods[id] = &sighting{}
	}
	return s.pods[id]
}

func (s *sightings) pod(p *corev1.Pod, initial, gone bool, now time.Time) {
	id := s.identity(p)
	if id == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.of(id)
	once := func(at *time.Time, is bool) {
		if is && at.IsZero() {
			*at = now
		}
	}
	one.old = one.old || initial && view.Ready(*p)
	once(&one.ready, view.Ready(*p))
	once(&one.deleted, gone || p.DeletionTimestamp != nil)
	once(&one.gone, gone)
}

func (s *sightings) answered(_ string, a load.Answer, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.of(a.UID)
	if one.first.IsZero() {
		one.first = at
	}
	one.last = at
	if !one.gone.IsZero() {
		one.late++
	}
}

func (s *sightings) measured() int { return len(s.latencies()) }

// latencies are the times from Ready to the first answer.
func (s *sightings) latencies() []time.Duration {
	return s.since(time.Time{}).begin
}

// lives is what became of the Pods that were Ready after some time.
type lives struct {
	begin []time.Duration // from Ready to the first answer
	end   []time.Duration // from deletion to the last answer; 0 if that was before
	never int             // were deleted without ever having answered
	late  int             // answers after the Pod was gone
}

// since is about the Pods that became Ready, and those that were deleted, after a time.
func (s *sightings) since(t time.Time) (out lives) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.pods {
		if !one.old && one.ready.After(t) && !one.first.IsZero() {
			out.begin = append(out.begin, one.first.Sub(one.ready))
		}
		if one.deleted.IsZero() || !one.deleted.After(t) {
			continue
		}
		out.late += one.late
		if one.first.IsZero() {
			out.never++
			continue
		}
		out.end = append(out.end, max(0, one.last.Sub(one.deleted)))
	}
	return out
}
