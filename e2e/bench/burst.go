package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// arriving is a way in which Pods get their IPs.
type arriving struct {
	what                   string
	rounds, pods           int
	writers                int // how many statuses are on their way to the API server at once
	expected50, expected99 string
}

var arrivingPods = []arriving{
	{"one Pod at a time", 50, 1, 1, "< 10 ms", ""},
	// A kubelet reads and patches one status after the other, as fast as the API server answers.
	{"100 Pods together, told by one kubelet", 5, 100, 1, "< 10 ms", "< 50 ms"},
	// No kubelet does that.
	{"100 Pods at once on 100 connections", 5, 100, 100, "", ""},
}

// burst measures the time from a Pod's IP to its annotation. What the API server and the machine take stands beside it: the same by a
// program that does nothing but patch each Pod it sees.
func burst(ctx context.Context, r *runner) ([]Figure, error) {
	s, err := r.agentSite(ctx)
	if err != nil {
		return nil, err
	}
	a, err := s.startAgent(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	before, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	byAgent, err := s.bursts(ctx, r, "agent")
	if err := a.explain(err); err != nil {
		return nil, err
	}
	after, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.stop(); err != nil {
		return nil, err
	}
	patching, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.patchEach(patching); err != nil {
		return nil, err
	}
	bare, err := s.bursts(ctx, r, "bare")
	if err != nil {
		return nil, err
	}
	var figures []Figure
	for n, how := range arrivingPods {
		figures = append(figures, Figure{
			What:     "IP to annotation visible: " + how.what,
			Measured: fmt.Sprintf("p50 %s, p99 %s", ms(quantile(byAgent[n], 0.5)), ms(quantile(byAgent[n], 0.99))),
			Expected: bounds(how),
		}, Figure{
			What:     "  the same by a program that only patches",
			Measured: fmt.Sprintf("p50 %s, p99 %s", ms(quantile(bare[n], 0.5)), ms(quantile(bare[n], 0.99))),
		})
	}
	arrived := 0
	for _, how := range arrivingPods {
		arrived += how.rounds * how.pods
	}
	figures = append(figures, Figure{
		What:     "processor time of the agent for a Pod that comes and goes, mean",
		Measured: ms((after.cpu - before.cpu) / time.Duration(arrived)),
	})
	return figures, s.cleanup(ctx)
}

func bounds(how arriving) string {
	switch {
	case how.expected50 == "":
		return ""
	case how.expected99 == "":
		return "p50 " + how.expected50
	default:
		return "p50 " + how.expected50 + ", p99 " + how.expected99
	}
}

// bursts has Pods arrive in each way and returns, in that order, how long they took to be annotated by whoever does that now.
func (s *site) bursts(ctx context.Context, r *runner, by string) (all [][]time.Duration, err error) {
	for n, how := range arrivingPods {
		took, err := s.arrive(ctx, fmt.Sprintf("burst-%s-%d", by, n), how)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", how.what, err)
		}
		r.say("%s, %s: p50 %s, p99 %s, max %s", by, how.what, ms(quantile(took, 0.5)), ms(quantile(took, 0.99)), ms(quantile(took, 1)))
		all = append(all, took)
	}
	return all, nil
}

// arrive makes Pods without an IP and then tells their IPs, round after round.
func (s *site) arrive(ctx context.Context, namespace string, how arriving) (all []time.Duration, err error) {
	if err := s.namespace(ctx, namespace); err != nil {
		return nil, err
	}
	if err := s.createService(ctx, enabledService(namespace, "app")); err != nil {
		return nil, err
	}
	for range how.rounds {
		took, err := s.arriveOnce(ctx, namespace, how)
		if err != nil {
			return nil, err
		}
		all = append(all, took...)
	}
	return all, nil
}

func (s *site) arriveOnce(ctx context.Context, namespace string, how arriving) ([]time.Duration, error) {
	err := inParallel(how.pods, func(i int) error {
		return s.createPod(ctx, realisticPod(namespace, fmt.Sprintf("pod-%d", i), "app"), nil)
	})
	if err != nil {
		return nil, err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, err := s.watchArrivals(watching, namespace)
	if err != nil {
		return nil, err
	}
	err = parallel(how.writers, how.pods, func(i int) error {
		p, err := s.client.CoreV1().Pods(namespace).Get(ctx, fmt.Sprintf("pod-%d", i), metav1.GetOptions{})
		if err != nil {
			return err
		}
		return s.patchStatus(ctx, p, running(p, i))
	})
	if err != nil {
		return nil, err
	}
	if _, err := seen.wait(ctx, how.pods); err != nil {
		return nil, err
	}
	return seen.latencies(), s.deletePods(ctx, namespace)
}

// patchEach annotates each Pod of the site's Node as soon as a watch tells its IP, until ctx ends: the least that an agent must do.
func (s *site) patchEach(ctx context.Context) error {
	pods := s.agentClient.CoreV1().Pods(metav1.NamespaceAll)
	ours := metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName}
	list, err := pods.List(ctx, ours)
	if err != nil {
		return err
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.FieldSelector = ours.FieldSelector
		return pods.Watch(ctx, o)
	}})
	if err != nil {
		return err
	}
	waiting := make(chan *corev1.Pod, 1000)
	go func() {
		defer close(waiting)
		defer w.Stop()
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Deleted && len(p.Status.PodIPs) > 0 && !isAnnotated(p) {
				waiting <- p
			}
		}
	}()
	var workers sync.WaitGroup
	for range bareWriters {
		workers.Go(func() {
			for p := range waiting {
				_ = s.annotate(ctx, p.Namespace, p.Name, true) // whoever waits for the annotation says that it did not come
			}
		})
	}
	return nil
}
