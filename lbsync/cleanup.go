package lbsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

// ErrRunning is wrapped by the error of Cleanup while an lbsync is at work.
var ErrRunning = errors.New("an lbsync is at work")

// Cleaning is how Cleanup goes about it.
type Cleaning struct {
	// Wait waits for the Lease while another process holds it, instead of refusing.
	Wait bool
	// Tell is told in a few words what is left, whenever that changes; may be nil.
	Tell func(left string)
}

// Cleanup removes everything of ours: pools and virtual servers from the load balancers, then finalizers, annotations, conditions and
// addresses from Services, then the objects that processes of this installation publish, and the Lease. It holds the Lease meanwhile, so
// no other process can begin. What does not carry our mark stays. It may be called again after any failure, and goes on where it
// was. The error says what is left when ctx ends.
//
// A load balancer beside a process, as HAProxy is, can only be cleaned up there: balancers are those of this process.
func Cleanup(ctx context.Context, cfg Config, client kubernetes.Interface, balancers map[string]providers.Provider, log *zap.Logger, how Cleaning) error {
	if !how.Wait {
		if err := unheld(ctx, client, cfg); err != nil {
			return err
		}
	}
	cfg.retiring, cfg.DryRun = true, false
	s, err := New(cfg, client, balancers, log, prometheus.NewRegistry())
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(working) }()
	left, err := s.empty(ctx, ended, how.Tell)
	stop()
	if err == nil {
		err = <-ended
	}
	if err != nil {
		return err
	}
	if left != "" {
		return fmt.Errorf("%s; run cleanup again: it goes on where it was: %w", left, context.Cause(ctx))
	}
	return removeLease(ctx, client, cfg)
}

// unheld returns an error while a living process holds the Lease.
func unheld(ctx context.Context, client kubernetes.Interface, cfg Config) error {
	l, err := client.CoordinationV1().Leases(cfg.LeaseNamespace).Get(ctx, cfg.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Lease %s/%s: %w", cfg.LeaseNamespace, cfg.LeaseName, err)
	}
	holder := ptr.Deref(l.Spec.HolderIdentity, "")
	if holder == "" || l.Spec.RenewTime == nil {
		return nil
	}
	until := l.Spec.RenewTime.Add(time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second)
	if time.Now().After(until) {
		return nil
	}
	return fmt.Errorf("%w: %s holds the Lease %s/%s until %s, and would write everything again", ErrRunning, holder, cfg.LeaseNamespace, cfg.LeaseName,
		until.UTC().Format(time.RFC3339))
}

// cleanupPoll is how often Cleanup looks what is left.
const cleanupPoll = 100 * time.Millisecond

// empty returns when nothing of ours is left, or with what is left when ctx ends.
func (s *Syncer) empty(ctx context.Context, ended <-chan error, tell func(string)) (left string, err error) {
	tick := time.NewTicker(cleanupPoll)
	defer tick.Stop()
	for {
		if now := s.left(); now != left {
			left = now
			if tell != nil && left != "" {
				tell(left)
			}
		}
		if left == "" {
			return "", nil
		}
		select {
		case <-ctx.Done():
			return left, nil
		case err := <-ended:
			return left, errors.Join(errors.New(left), err)
		case <-tick.C:
		}
	}
}

// left says what of ours is still there, "" when nothing is.
func (s *Syncer) left() string {
	if !s.watch.Synced() {
		return "the cluster was not read yet"
	}
	if !s.leading.Load() {
		return "waiting for the Lease, held by " + s.lease.Holder()
	}
	var out []string
	for _, b := range s.balancers {
		l := b.loop.Load()
		if l == nil || !l.Health().Ready {
			why := "was not read yet"
			if l != nil && l.Health().Observe != nil {
				why = "cannot be read: " + l.Health().Observe.Error()
			}
			out = append(out, b.name+" "+why)
			continue
		}
		keys, problem := 0, ""
		for _, r := range l.Reports() {
			if !r.Gone {
				keys++
			}
			for _, p := range r.Ports {
				problem = max(problem, p.Problem)
			}
		}
		if keys > 0 {
			text := fmt.Sprintf("%d Services on %s", keys, b.name)
			if problem != "" {
				text += " (" + problem + ")"
			}
			out = append(out, text)
		}
	}
	var marked []string
	for _, o := range s.watch.Services() {
		if o.Annotations[annotations.ManagedBy] == s.watch.Selection.Manager || o.Annotations[annotations.EnabledBy] == s.cfg.Instance {
			marked = append(marked, o.Namespace+"/"+o.Name)
		}
	}
	slices.Sort(marked)
	if len(marked) > 0 {
		out = append(out, fmt.Sprintf("marks on %d Services, %s", len(marked), strings.Join(marked[:min(3, len(marked))], ", ")))
	}
	if len(out) == 0 {
		return ""
	}
	return "left: " + strings.Join(out, "; ")
}

// removeLease removes the Lease that nobody holds any more.
func removeLease(ctx context.Context, client kubernetes.Interface, cfg Config) error {
	leases := client.CoordinationV1().Leases(cfg.LeaseNamespace)
	l, err := leases.Get(ctx, cfg.LeaseName, metav1.GetOptions{})
	if err == nil {
		if holder := ptr.Deref(l.Spec.HolderIdentity, ""); holder != "" {
			return fmt.Errorf("%w: %s took the Lease as soon as it was free; stop it, and run cleanup again", ErrRunning, holder)
		}
		err = leases.Delete(ctx, cfg.LeaseName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Lease %s/%s: %w", cfg.LeaseNamespace, cfg.LeaseName, err)
	}
	return nil
}
