package lbsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync/internal/applied"
	"github.com/nplbridge/nplbridge/lbsync/internal/watermarks"
)

// silence is after how long without a word a process beside a local load balancer counts as stopped.
const silence = 3 * applied.Interval

// published is one ConfigMap by which a process of this installation speaks.
type published struct {
	name     string
	uid      metav1.Preconditions
	identity string // of the process; empty for what belongs to a remote load balancer
	at       time.Time
	applied  bool // it is a heartbeat
}

// publications returns what processes of the installation have published, sorted by name. What cannot be read is nobody's: it proves
// nothing.
func publications(ctx context.Context, client kubernetes.Interface, cfg Config) ([]published, error) {
	var out []published
	for _, label := range []string{watermark.Label, applied.Label} { // of whichever version
		list, err := client.CoreV1().ConfigMaps(cfg.LeaseNamespace).List(ctx, metav1.ListOptions{LabelSelector: label})
		if err != nil {
			return nil, fmt.Errorf("list the ConfigMaps %s in namespace %s: %w", label, cfg.LeaseNamespace, err)
		}
		for _, m := range list.Items {
			p := published{name: m.Name, uid: metav1.Preconditions{UID: new(m.UID)}, identity: m.Annotations[watermarks.IdentityAnnotation]}
			if standing, err := applied.Decode(m.Data[applied.DataKey]); err == nil && standing.Instance == cfg.Instance {
				p.identity, p.at, p.applied = standing.Identity, standing.At, true
				out = append(out, p)
			} else if content, err := applied.Unpack(m.BinaryData[applied.ContentKey]); err == nil && content.Instance == cfg.Instance {
				p.identity = content.Identity
				out = append(out, p)
			} else if mark, err := watermark.Decode(m.Data[watermark.DataKey]); err == nil && mark.Instance == cfg.Instance {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b published) int { return strings.Compare(a.name, b.name) })
	return out, nil
}

// Retire removes what the process of an identity has published, one that is gone for good together with its load balancer: npl-agents wait
// for it no longer. It refuses while that process may be alive. It returns the names of the ConfigMaps that it removed.
func Retire(ctx context.Context, cfg Config, client kubernetes.Interface, identity string) ([]string, error) {
	all, err := publications(ctx, client, cfg)
	if err != nil {
		return nil, err
	}
	var gone []published
	var others []string
	for _, p := range all {
		switch {
		case p.identity == identity:
			gone = append(gone, p)
		case p.identity != "":
			others = append(others, p.identity)
		}
		if p.identity == identity && p.applied && time.Since(p.at) < silence {
			return nil, fmt.Errorf("%w: %s wrote %s %s ago; stop it first", ErrRunning, identity, p.name, time.Since(p.at).Round(time.Second))
		}
	}
	if holder, err := livingHolder(ctx, client, cfg); err != nil {
		return nil, err
	} else if holder == identity {
		return nil, fmt.Errorf("%w: %s holds the Lease; stop it first", ErrRunning, identity)
	}
	if len(gone) == 0 {
		slices.Sort(others)
		return nil, fmt.Errorf("no process %q of %s has published anything; there are: %s", identity, cfg.Instance, strings.Join(slices.Compact(others), ", "))
	}
	return remove(ctx, client, cfg, gone)
}

func remove(ctx context.Context, client kubernetes.Interface, cfg Config, objects []published) (removed []string, err error) {
	var errs []error
	for _, p := range objects {
		err := client.CoreV1().ConfigMaps(cfg.LeaseNamespace).Delete(ctx, p.name, metav1.DeleteOptions{Preconditions: &p.uid})
		switch {
		case err == nil:
			removed = append(removed, p.name)
		case !apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("delete ConfigMap %s/%s: %w", cfg.LeaseNamespace, p.name, err))
		}
	}
	return removed, errors.Join(errs...)
}

// unpublish removes what the processes of the identities, and whoever wrote remote load balancers, have published. The error names others
// whose load balancers are not cleaned up.
func unpublish(ctx context.Context, client kubernetes.Interface, cfg Config, identities ...string) error {
	all, err := publications(ctx, client, cfg)
	if err != nil {
		return err
	}
	var ours []published
	var others []string
	for _, p := range all {
		if p.identity == "" || slices.Contains(identities, p.identity) {
			ours = append(ours, p)
		} else if !slices.Contains(others, p.identity) {
			others = append(others, p.identity)
		}
	}
	if _, err := remove(ctx, client, cfg, ours); err != nil {
		return err
	}
	if len(others) > 0 {
		return fmt.Errorf("left: load balancers beside %s; run cleanup there, or cleanup --retire for each that is gone for good", strings.Join(others, ", "))
	}
	return nil
}

// idle returns an error that wraps ErrRunning while a process of the installation is at work.
func idle(ctx context.Context, client kubernetes.Interface, cfg Config) error {
	holder, err := livingHolder(ctx, client, cfg)
	if err != nil {
		return err
	}
	if holder != "" {
		return fmt.Errorf("%w: %s holds the Lease %s/%s, and would write everything again", ErrRunning, holder, cfg.LeaseNamespace, cfg.LeaseName)
	}
	all, err := publications(ctx, client, cfg)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.applied && time.Since(p.at) < silence {
			return fmt.Errorf("%w: %s wrote %s %s ago, and its load balancer beside it", ErrRunning, p.identity, p.name, time.Since(p.at).Round(time.Second))
		}
	}
	return nil
}

// livingHolder returns who holds the Lease, "" when nobody does or it has expired.
func livingHolder(ctx context.Context, client kubernetes.Interface, cfg Config) (string, error) {
	l, err := client.CoordinationV1().Leases(cfg.LeaseNamespace).Get(ctx, cfg.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read Lease %s/%s: %w", cfg.LeaseNamespace, cfg.LeaseName, err)
	}
	if l.Spec.RenewTime == nil || time.Now().After(l.Spec.RenewTime.Add(time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0))*time.Second)) {
		return "", nil
	}
	return ptr.Deref(l.Spec.HolderIdentity, ""), nil
}
