package bench

import (
	"context"
	"fmt"
	"time"
)

const (
	coldPods     = 1000
	coldServices = 10
	coldRounds   = 3
)

// coldStart measures an agent that finds all its Pods waiting: from the start of its process until the last one is annotated.
func coldStart(ctx context.Context, r *runner) ([]Figure, error) {
	s, err := r.agentSite(ctx)
	if err != nil {
		return nil, err
	}
	const namespace = "cold"
	if err := s.namespace(ctx, namespace); err != nil {
		return nil, err
	}
	for i := range coldServices {
		if err := s.createService(ctx, enabledService(namespace, fmt.Sprintf("app-%d", i))); err != nil {
			return nil, err
		}
	}
	err = inParallel(coldPods, func(i int) error {
		p := smallPod(namespace, fmt.Sprintf("pod-%d", i), fmt.Sprintf("app-%d", i%coldServices))
		return s.createPod(ctx, p, running(p, i))
	})
	if err != nil {
		return nil, err
	}
	r.say("%d Pods wait", coldPods)
	var all, first []time.Duration
	for range coldRounds {
		watching, cancel := context.WithCancel(ctx)
		defer cancel()
		seen, err := s.watchArrivals(watching, namespace)
		if err != nil {
			return nil, err
		}
		a, err := s.startAgent(ctx)
		if err != nil {
			return nil, err
		}
		last, err := seen.wait(ctx, coldPods)
		if err := a.explain(err); err != nil {
			return nil, err
		}
		all, first = append(all, last.Sub(a.began)), append(first, seen.first().Sub(a.began))
		r.say("annotated %s after the start of the process, the first one after %s", ms(last.Sub(a.began)), ms(seen.first().Sub(a.began)))
		if err := a.stop(); err != nil {
			return nil, err
		}
		cancel()
		if err := s.cleanup(ctx); err != nil {
			return nil, err
		}
	}
	return []Figure{
		{"1,000 waiting Pods: start of the process to the first annotation", ms(quantile(first, 0.5)), "", ""},
		{"1,000 waiting Pods: start of the process to the last annotation", ms(quantile(all, 0.5)), "< 2 s", "18.8 s for 100 Pods"},
	}, s.deletePods(ctx, namespace)
}
