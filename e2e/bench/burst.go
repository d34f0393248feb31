package bench

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	burstPods   = 100
	burstRounds = 5
)

// burst measures the time from a Pod's IP to its annotation, with Pods arriving together in two ways: told by one kubelet, which
// reads and patches one status after the other, as fast as the API server answers; and all at once on a connection each, as no
// kubelet does.
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
	var figures []Figure
	for _, how := range []struct {
		what, expected50, expected99 string
		writers, pods                int
	}{
		{"one Pod at a time", "< 10 ms", "", 1, 1},
		{"100 Pods together, told by one kubelet", "< 10 ms", "< 50 ms", 1, burstPods},
		{"100 Pods at once on 100 connections", "", "", burstPods, burstPods},
	} {
		rounds := burstRounds
		if how.pods == 1 {
			rounds = 50
		}
		all, err := s.bursts(ctx, how.what, rounds, how.pods, how.writers)
		if err := a.explain(err); err != nil {
			return nil, err
		}
		r.say("%s: p50 %s, p99 %s, max %s", how.what, ms(quantile(all, 0.5)), ms(quantile(all, 0.99)), ms(quantile(all, 1)))
		figures = append(figures,
			Figure{"IP to annotation visible, " + how.what + ": p50", ms(quantile(all, 0.5)), how.expected50, ""},
			Figure{"IP to annotation visible, " + how.what + ": p99", ms(quantile(all, 0.99)), how.expected99, ""})
	}
	if err := a.stop(); err != nil {
		return nil, err
	}
	return figures, s.cleanup(ctx)
}

// bursts makes Pods without an IP and then tells their IPs, round after round, and returns how long each took to be annotated.
func (s *site) bursts(ctx context.Context, what string, rounds, pods, writers int) (all []time.Duration, err error) {
	namespace := fmt.Sprintf("burst-%d-%d", pods, writers)
	if err := s.namespace(ctx, namespace); err != nil {
		return nil, err
	}
	if err := s.createService(ctx, enabledService(namespace, "app")); err != nil {
		return nil, err
	}
	for range rounds {
		err := inParallel(pods, func(i int) error {
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
		err = parallel(writers, pods, func(i int) error {
			p, err := s.client.CoreV1().Pods(namespace).Get(ctx, fmt.Sprintf("pod-%d", i), metav1.GetOptions{})
			if err != nil {
				return err
			}
			return s.patchStatus(ctx, p, running(p, i))
		})
		if err != nil {
			return nil, err
		}
		if _, err := seen.wait(ctx, pods); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		cancel()
		all = append(all, seen.latencies()...)
		if err := s.deletePods(ctx, namespace); err != nil {
			return nil, err
		}
	}
	return all, nil
}
