package bench

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

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
	seen := newSightings(func(p *corev1.Pod) string { return string(p.UID) })
	if err := seen.watch(ctx, l.Client(), readyNamespace); err != nil {
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
