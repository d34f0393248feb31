package bench

import (
	"context"
	_ "embed"
	"fmt"
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
	readyNamespace = "bench"
	readyPods      = 100
	replicas       = 10
)

//go:embed manifest.yaml
var manifest string

// ready rolls a Deployment until at least readyPods Pods have become Ready under requests, and measures the
// percentiles of the time from the moment the API server told everybody that a Pod is Ready to the first answer of
// that Pod through the VIP. The Pod has to wait for its turn among the others, too: a round of requests takes
// members/rate, which stands beside it, and so does lbsync's own part, from the event to HAProxy's acknowledgement.
func ready(ctx context.Context, r *runner) ([]Figure, error) {
	if err := r.start(ctx, 3); err != nil {
		return nil, err
	}
	if err := r.lab.InstallChart(ctx); err != nil {
		return nil, err
	}
	if err := r.lab.StartLoadBalancer(ctx); err != nil {
		return nil, err
	}
	r.say("chart installed, load balancer up")
	return readyToFirstRequest(ctx, r, r.lab)
}

func readyToFirstRequest(ctx context.Context, r *runner, l *lab.Lab) ([]Figure, error) {
	v := view.View{Lab: l, Namespace: readyNamespace}
	if err := l.Apply(ctx, manifest); err != nil {
		return nil, err
	}
	vip, err := v.Address(ctx, "bench", npl.IPv4)
	if err != nil {
		return nil, err
	}
	if _, err := v.Settled(ctx, "bench", replicas); err != nil {
		return nil, err
	}
	seen := newSightings()
	if err := seen.watch(ctx, l); err != nil {
		return nil, err
	}
	before, err := propagation(ctx, l)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	requests := load.Start(ctx, load.Options{
		Targets: []string{vip}, Clients: 4, Timeout: 10 * time.Second, Dial: v.DialFrom("client"), OnAnswer: seen.answered,
	})
	for seen.measured() < readyPods {
		so := seen.measured()
		if _, err := l.Kubectl(ctx, "-n", readyNamespace, "rollout", "restart", "deployment", "bench"); err != nil {
			return nil, err
		}
		err := view.Poll(ctx, func() error {
			if n := seen.measured() - so; n < replicas {
				return fmt.Errorf("%d of %d new Pods have answered", n, replicas)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		r.say("%d Pods measured", seen.measured())
	}
	counts := requests.Stop()
	rate := float64(counts.Requests) / time.Since(began).Seconds()
	after, err := propagation(ctx, l)
	if err != nil {
		return nil, err
	}
	all := seen.latencies()
	changes := after.count - before.count
	const what = "Pod Ready to first request through the VIP: "
	return []Figure{
		{What: what + "p50", Measured: ms(quantile(all, 0.5))},
		{What: what + "p90", Measured: ms(quantile(all, 0.9))},
		{What: what + "p99", Measured: ms(quantile(all, 0.99))},
		{What: fmt.Sprintf("a round of requests over %d members", replicas), Measured: fmt.Sprintf("%.1f ms", 1000*replicas/rate)},
		{What: "lbsync's own part, mean", Measured: fmt.Sprintf("%.1f ms over %.0f changes", 1000*(after.sum-before.sum)/max(1, changes), changes)},
		{What: "requests meanwhile", Measured: fmt.Sprintf("%d, %d failed", counts.Requests, counts.Failed)},
	}, nil
}

// propagation is lbsync_propagation_seconds of the lbsync beside HAProxy.
func propagation(ctx context.Context, l *lab.Lab) (total, error) {
	families, err := scrape(ctx, l, "lb", "127.0.0.1:10362")
	return histogram(families["lbsync_propagation_seconds"]), err
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
	factory := informers.NewSharedInformerFactoryWithOptions(l.Client(), 0, informers.WithNamespace(readyNamespace))
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
	return all
}
