package lbsync

import (
	"cmp"
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
	// Wait waits while another process is at work, instead of refusing.
	Wait bool
	// Tell is told in a few words what is left, whenever that changes; may be nil.
	Tell func(left string)
}

// waitPoll is how often Cleanup looks whether others have stopped.
const waitPoll = time.Second

// Cleanup removes everything of ours: pools and virtual servers from the load balancers, then finalizers, annotations, conditions and
// addresses from Services, then what processes of this installation have published, and the Lease. It holds the Lease meanwhile, so
// no other process can begin. What does not carry our mark stays. It may be called again after any failure, and goes on where it
// was. The error says what is left when ctx ends.
//
// A load balancer beside a process, as HAProxy is, can only be cleaned up there: with cfg and balancers of that process, which has
// stopped. cfg.Identity is that one's.
func Cleanup(ctx context.Context, cfg Config, client kubernetes.Interface, balancers map[string]providers.Provider, log *zap.Logger, how Cleaning) error {
	if how.Tell == nil {
		how.Tell = func(string) {}
	}
	if err := await(ctx, client, cfg, how); err != nil {
		return err
	}
	was := cfg.Identity
	cfg.retiring, cfg.DryRun, cfg.Identity = true, false, was+"-cleanup" // not to be taken for the one that has stopped
	s, err := New(cfg, client, balancers, log, prometheus.NewRegistry())
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(working) }()
	left, err := s.empty(ctx, ended, how.Tell, s.left)
	stop()
	if err != nil {
		return err
	}
	if err := <-ended; err != nil {
		return err
	}
	if left != "" {
		return fmt.Errorf("%s; run cleanup again: it goes on where it was: %w", left, context.Cause(ctx))
	}
	return errors.Join(unpublish(ctx, client, cfg, was, cfg.Identity), removeLease(ctx, client, cfg))
}

// await returns nil when no other process is at work.
func await(ctx context.Context, client kubernetes.Interface, cfg Config, how Cleaning) error {
	tick := time.NewTicker(waitPoll)
	defer tick.Stop()
	told := ""
	for {
		err := idle(ctx, client, cfg)
		if !errors.Is(err, ErrRunning) || !how.Wait {
			return err
		}
		if holder, _ := livingHolder(ctx, client, cfg); holder != told {
			told = holder
			how.Tell("waiting: " + err.Error())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; waiting for it: %w", err, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// cleanupPoll is how often Cleanup looks what is left.
const cleanupPoll = 100 * time.Millisecond

// empty returns when remains says that nothing of ours is left, or with what is left when ctx ends.
func (s *Syncer) empty(ctx context.Context, ended <-chan error, tell func(string), remains func() string) (left string, err error) {
	tick := time.NewTicker(cleanupPoll)
	defer tick.Stop()
	for {
		if now := remains(); now != left {
			left = now
			if left != "" {
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
			return left, fmt.Errorf("it stopped: %w", cmp.Or(err, errors.New(left)))
		case <-tick.C:
		}
	}
}

// left says what of ours is still there, "" when nothing is.
func (s *Syncer) left() string {
	if !s.watch.Synced() {
		return unread
	}
	if !s.leading.Load() {
		return s.waitsForLease()
	}
	return s.remains(s.marked())
}

const unread = "the cluster was not read yet"

func (s *Syncer) waitsForLease() string { return "waiting for the Lease, held by " + s.lease.Holder() }

// remains says what of ours is on the load balancers that this process writes, and on Services.
func (s *Syncer) remains(marked []string) string {
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
	if len(marked) > 0 {
		out = append(out, fmt.Sprintf("marks on %d Services, %s", len(marked), strings.Join(marked[:min(3, len(marked))], ", ")))
	}
	if len(out) == 0 {
		return ""
	}
	return "left: " + strings.Join(out, "; ")
}

// marked returns the Services that carry our marks, sorted.
func (s *Syncer) marked() (out []string) {
	for _, o := range s.watch.Services() {
		if s.cfg.marks(o.Annotations) {
			out = append(out, o.Namespace+"/"+o.Name)
		}
	}
	slices.Sort(out)
	return out
}

// markedServices reads from the API server what marked takes from the caches.
func markedServices(ctx context.Context, client kubernetes.Interface, cfg Config) (out []string, err error) {
	list, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	for _, o := range list.Items {
		if cfg.marks(o.Annotations) {
			out = append(out, o.Namespace+"/"+o.Name)
		}
	}
	return out, nil
}

// manager is what Services of ours name in annotations.ManagedBy.
func (c Config) manager() string { return c.Instance + "/" + c.LeaseName }

// marks says whether a Service with these annotations carries our marks.
func (c Config) marks(of map[string]string) bool {
	return of[annotations.ManagedBy] == c.manager() || of[annotations.EnabledBy] == c.Instance
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
