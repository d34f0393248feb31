// Package bench measures nplbridge in the lab and prints what it measured; it never judges.
package bench

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/load"
	"github.com/nplbridge/nplbridge/e2e/view"
)

const (
	namespace = "bench"
	replicas  = 10
)

// ReadyToFirstRequest rolls a Deployment until at least pods Pods have become Ready under requests, and prints the
// percentiles of the time from the moment the API server told everybody that a Pod is Ready to the first answer of
// that Pod through the VIP. The Pod has to wait for its turn among the others, too: a round of requests takes
// members/rate, which is printed beside it, and so is lbsync's own part, from the event to HAProxy's acknowledgement.
func ReadyToFirstRequest(ctx context.Context, l *lab.Lab, out io.Writer, pods int) error {
	v := view.View{Lab: l, Namespace: namespace}
	if err := l.Apply(ctx, manifest); err != nil {
		return err
	}
	vip, err := v.Address(ctx, "bench", npl.IPv4)
	if err != nil {
		return err
	}
	if _, err := v.Settled(ctx, "bench", replicas); err != nil {
		return err
	}
	seen := newSightings()
	if err := seen.watch(ctx, l); err != nil {
		return err
	}
	before, err := propagation(ctx, v)
	if err != nil {
		return err
	}
	began := time.Now()
	requests := load.Start(ctx, load.Options{
		Targets: []string{vip}, Clients: 4, Timeout: 10 * time.Second, Dial: v.DialFrom("client"), OnAnswer: seen.answered,
	})
	for seen.measured() < pods {
		so := seen.measured()
		if _, err := l.Kubectl(ctx, "-n", namespace, "rollout", "restart", "deployment", "bench"); err != nil {
			return err
		}
		err := view.Poll(ctx, func() error {
			if n := seen.measured() - so; n < replicas {
				return fmt.Errorf("%d of %d new Pods have answered", n, replicas)
			}
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "  %d Pods measured\n", seen.measured())
	}
	r := requests.Stop()
	rate := float64(r.Requests) / time.Since(began).Seconds()
	after, err := propagation(ctx, v)
	if err != nil {
		return err
	}
	seen.print(out, rate)
	fmt.Fprintf(out, "lbsync's own part, mean              %.1f ms over %.0f changes\n",
		1000*(after.sum-before.sum)/max(1, after.count-before.count), after.count-before.count)
	fmt.Fprintf(out, "requests meanwhile                   %d, %d failed\n", r.Requests, r.Failed)
	return nil
}

// sightings holds when each Pod was seen Ready and when it first answered, by UID.
type sightings struct {
	mu     sync.Mutex
	ready  map[string]time.Time
	answer map[string]time.Time
	old    map[string]bool // Ready before the measurement began
}

func newSightings() *sightings {
	return &sightings{ready: map[string]time.Time{}, answer: map[string]time.Time{}, old: map[string]bool{}}
}

func (s *sightings) watch(ctx context.Context, l *lab.Lab) error {
	factory := informers.NewSharedInformerFactoryWithOptions(l.Client(), 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, initial bool) { s.pod(obj.(*corev1.Pod), initial) },
		UpdateFunc: func(_, obj any) { s.pod(obj.(*corev1.Pod), false) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return nil
}

func (s *sightings) pod(p *corev1.Pod, initial bool) {
	now := time.Now()
	if !view.Ready(*p) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := string(p.UID)
	if initial {
		s.old[uid] = true
	}
	if _, ok := s.ready[uid]; !ok {
		s.ready[uid] = now
	}
}

func (s *sightings) answered(_ string, a load.Answer, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.answer[a.UID]; !ok {
		s.answer[a.UID] = at
	}
}

func (s *sightings) measured() int { return len(s.latencies()) }

func (s *sightings) latencies() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []time.Duration
	for uid, at := range s.answer {
		if ready, ok := s.ready[uid]; ok && !s.old[uid] {
			all = append(all, at.Sub(ready))
		}
	}
	slices.Sort(all)
	return all
}

func (s *sightings) print(out io.Writer, rate float64) {
	all := s.latencies()
	percentiles := map[int]time.Duration{}
	for _, p := range []int{50, 90, 99, 100} {
		percentiles[p] = all[min(len(all)-1, len(all)*p/100)]
	}
	fmt.Fprintf(out, "Pod Ready to first request served through the VIP, %d Pods\n", len(all))
	for _, p := range slices.Sorted(maps.Keys(percentiles)) {
		fmt.Fprintf(out, "  p%-3d %8.1f ms\n", p, float64(percentiles[p].Microseconds())/1000)
	}
	fmt.Fprintf(out, "a round over %d members takes        %.1f ms at %.0f requests/s\n", replicas, 1000*replicas/rate, rate)
}
