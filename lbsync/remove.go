package lbsync

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/lbsync/internal/document"
	"github.com/nplbridge/nplbridge/providers"
)

// Remove is Cleanup for a process that was told to go, while others of the installation are told as well or are not yet: it removes what is ours from
// the load balancers beside it and, as holder of the Lease, from the others and from Services, and then what it has published itself. It returns
// when nothing of that is left. tell is told in a few words what is, whenever that changes. With DryRun nothing was written, and nothing is removed.
//
// It takes part in the election for the Lease until then, and no longer: of several processes one after the other sees that nothing is left on a
// remote load balancer.
func Remove(ctx context.Context, cfg Config, client kubernetes.Interface, balancers map[string]providers.Provider, log *zap.Logger, tell func(left string)) error {
	if cfg.DryRun {
		log.Info("dryRun is true: nothing was written, and nothing is removed")
		return nil
	}
	cfg.retiring = true
	s, err := New(cfg, client, balancers, log, prometheus.NewRegistry())
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(working) }()
	left, err := s.empty(ctx, ended, tell, s.leftHere)
	stop()
	if err != nil {
		return err
	}
	if err := <-ended; err != nil {
		return err
	}
	if left != "" {
		return fmt.Errorf("%s: %w", left, context.Cause(ctx))
	}
	return s.withdraw(ctx)
}

// leftHere says what of ours is still there that this process has to remove, "" when nothing is.
func (s *Syncer) leftHere() string {
	if !s.watch.Synced() {
		return unread
	}
	marked := s.marked()
	if (len(marked) > 0 || s.remote()) && !s.leading.Load() {
		return s.waitsForLease()
	}
	return s.remains(marked)
}

// remote says whether a load balancer is written by the holder of the Lease alone.
func (s *Syncer) remote() bool {
	return slices.ContainsFunc(s.balancers, func(b *balancer) bool { return !b.local })
}

// withdraw removes what this process has published.
func (s *Syncer) withdraw(ctx context.Context) error {
	all, err := publications(ctx, s.client, s.cfg)
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(all, func(p published) bool {
		return p.identity != s.cfg.Identity && (p.identity != "" || !s.remote())
	})
	_, err = remove(ctx, s.client, s.cfg, own)
	return err
}

// Remains says what an installation still has in the cluster: ConfigMaps by which its processes speak, with namespace, name and UID, and
// Services with its marks, "shop/web". Both are sorted.
func Remains(ctx context.Context, client kubernetes.Interface, cfg Config) (published []corev1.ObjectReference, services []string, err error) {
	all, err := publications(ctx, client, cfg)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range all {
		published = append(published, corev1.ObjectReference{Namespace: cfg.LeaseNamespace, Name: p.name, UID: *p.uid.UID})
	}
	services, err = markedServices(ctx, client, cfg)
	slices.SortFunc(services, strings.Compare)
	return published, services, err
}

// Leaving is the Document of a process that was told to go: what is left, "" when nothing is.
func Leaving(cfg Config, left string) Document {
	problem := "the state is removing: nothing is left"
	if left != "" {
		problem = "the state is removing: " + left
	}
	return Document{
		Version: document.Version, Instance: cfg.Instance, Identity: cfg.Identity, At: time.Now(), DryRun: cfg.DryRun, Problem: problem,
		ServiceType: cfg.ServiceType, Providers: []document.Provider{}, Services: []document.Service{},
	}
}
