package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	coldPods     = 1000
	coldServices = 10
	coldRounds   = 3
	bareWriters  = 8 // as many patches on their way as npl-agent has
)

// coldStart measures an agent that finds all its Pods waiting: from the start of its process until the last one is annotated. What the API
// server and the machine take for the same patches stands beside it.
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
	var first, last, bare, cpu []time.Duration
	for range coldRounds {
		round, err := s.coldRound(ctx, namespace)
		if err != nil {
			return nil, err
		}
		r.say("annotated %s after the start of the process, the first one after %s; a bare client takes %s", ms(round.last), ms(round.first), ms(round.bare))
		first, last, bare, cpu = append(first, round.first), append(last, round.last), append(bare, round.bare), append(cpu, round.cpu)
	}
	const what = "1,000 waiting Pods: "
	return []Figure{
		{What: what + "start of the process to the first annotation", Measured: ms(quantile(first, 0.5))},
		{What: what + "start of the process to the last annotation", Measured: ms(quantile(last, 0.5)), Expected: "< 2 s", Antrea: "18.8 s for 100 Pods"},
		{What: what + "the same patches by a client that does nothing else", Measured: ms(quantile(bare, 0.5))},
		{What: what + "processor time of the agent", Measured: ms(quantile(cpu, 0.5))},
	}, s.deletePods(ctx, namespace)
}

// coldStarted are the times of one start, from the start of the process.
type coldStarted struct{ first, last, bare, cpu time.Duration }

func (s *site) coldRound(ctx context.Context, namespace string) (c coldStarted, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, err := s.watchArrivals(ctx, namespace)
	if err != nil {
		return c, err
	}
	a, err := s.startAgent(ctx)
	if err != nil {
		return c, err
	}
	last, err := seen.wait(ctx, coldPods)
	if err := a.explain(err); err != nil {
		return c, err
	}
	c.first, c.last = seen.first().Sub(a.began), last.Sub(a.began)
	used, err := a.usage(ctx)
	if err != nil {
		return c, err
	}
	c.cpu = used.cpu
	if err := a.stop(); err != nil {
		return c, err
	}
	if err := s.cleanup(ctx); err != nil {
		return c, err
	}
	began := time.Now()
	err = parallel(bareWriters, coldPods, func(i int) error { return s.annotate(ctx, namespace, fmt.Sprintf("pod-%d", i), true) })
	c.bare = time.Since(began)
	return c, errors.Join(err, inParallel(coldPods, func(i int) error { return s.annotate(ctx, namespace, fmt.Sprintf("pod-%d", i), false) }))
}
