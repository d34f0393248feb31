package lbsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/providers"
)

// planPoll is how often Plan looks whether everything was looked at.
const planPoll = 20 * time.Millisecond

// Plan returns the Document of a process that has read cluster and load balancers and would write now what is planned in it. Nothing is
// written, and no Lease is needed. What only the Lease holder decides, such as an address for a new Service, is not in it before that one
// has written it to the Service.
func Plan(ctx context.Context, cfg Config, client kubernetes.Interface, balancers map[string]providers.Provider, log *zap.Logger) (Document, error) {
	cfg.DryRun = true
	s, err := New(cfg, client, balancers, log, prometheus.NewRegistry())
	if err != nil {
		return Document{}, err
	}
	return s.plan(ctx)
}

// PlanCleanup returns the Document of a Cleanup that would begin now, with what it would remove. Nothing is written.
func PlanCleanup(ctx context.Context, cfg Config, client kubernetes.Interface, balancers map[string]providers.Provider, log *zap.Logger) (Document, error) {
	cfg.retiring = true
	return Plan(ctx, cfg, client, balancers, log)
}

// plan runs the loops without a Lease until each has looked at everything once.
func (s *Syncer) plan(ctx context.Context) (Document, error) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.watch.Start(ctx)
	defer s.watch.Stop()
	defer cancel()
	if !s.watch.Wait(ctx) {
		return Document{}, fmt.Errorf("read the cluster: %w", context.Cause(ctx))
	}
	for _, b := range s.balancers {
		running.Go(func() { s.work(ctx, b, nil) })
	}
	tick := time.NewTicker(planPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return Document{}, fmt.Errorf("read the load balancers: %w", context.Cause(ctx))
		case <-tick.C:
		}
		ready, err := true, error(nil)
		for _, b := range s.balancers {
			l := b.loop.Load()
			if l == nil {
				ready = false
				continue
			}
			h := l.Health()
			ready = ready && h.Ready
			if h.Observe != nil {
				err = errors.Join(err, fmt.Errorf("read load balancer %s: %w", b.name, h.Observe))
			}
		}
		if err != nil {
			return Document{}, err
		}
		if ready {
			return s.Document(), nil
		}
	}
}
