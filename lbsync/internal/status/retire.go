package status

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/providers"
)

// stripped reports whether a manifest of another type took the place of a Service that some lbsync served: it drops the
// metadata and leaves the conditions. With a type that no lbsync serves, it does not matter whose they were; whose a
// finalizer is does.
func stripped(s *corev1.Service) bool {
	return s.Spec.Type != corev1.ServiceTypeLoadBalancer && s.Annotations[annotations.ManagedBy] == "" && s.Annotations[annotations.Pool] == "" &&
		!slices.Contains(s.Finalizers, annotations.Finalizer) &&
		(meta.FindStatusCondition(s.Status.Conditions, Accepted) != nil || meta.FindStatusCondition(s.Status.Conditions, Programmed) != nil)
}

// retire lets go of a Service that is being deleted or no longer ours, when nothing of it is left on any load balancer.
func (c *Controller) retire(ctx context.Context, key model.ServiceKey, s *corev1.Service, r model.Service) (time.Duration, error) {
	var left, all []served
	traces := c.traces(s)
	for _, b := range c.Balancers {
		on := served{stand: b.look(key, r), assigned: c.vips.of(b.Name, key)}
		if _, was := traces[b.Name]; !on.reported && !was && len(traces) > 0 && len(on.assigned) == 0 {
			continue // as far as anybody knows, it has never been there
		}
		if all = append(all, on); !on.gone() {
			left = append(left, on)
		}
	}
	unknown := c.unknown(s)
	waits := maps.Clone(unknown)
	maps.DeleteFunc(waits, func(instance string, _ []netip.Addr) bool { return slices.Contains(r.Abandoned, instance) })
	if len(left) > 0 || len(waits) > 0 {
		if stripped(s) {
			return 0, nil // two lbsyncs that both thought it theirs would overwrite each other's words for ever
		}
		return c.lament(ctx, s, r, left, waits)
	}
	ours := c.vips.had(key)
	if s.Annotations[annotations.AttachedTo] != "" {
		ours = append(ours, c.nodeAddresses()...)
	}
	for _, on := range all {
		ours = append(ours, on.assigned...)
		if on.abandoned && !(on.reported && on.report.Gone) {
			c.abandoned(s, on.balancer.Name, on.assigned)
		}
		if err := c.vips.release(ctx, key, c.Balancers, on.balancer.Name); err != nil {
			return c.retryProvider(err)
		}
	}
	for instance, addrs := range unknown {
		ours = append(ours, addrs...)
		c.abandoned(s, instance, addrs)
		if err := c.vips.release(ctx, key, c.Balancers, instance); err != nil {
			return c.retryProvider(err)
		}
	}
	if err := c.vips.settle(ctx, key, c.Balancers); err != nil {
		return c.retryProvider(err)
	}
	return 0, c.letGo(ctx, key, s, ours)
}

// letGo takes everything of ours off the Service.
func (c *Controller) letGo(ctx context.Context, key model.ServiceKey, s *corev1.Service, ours addrs) error {
	if s.DeletionTimestamp == nil {
		assigned, _ := annotations.ParseAssigned(s.Annotations[annotations.AssignedIPs], "") // what is unreadable is known by its holder
		for _, addrs := range assigned {
			ours = append(ours, addrs...)
		}
		var err error
		if s, err = c.patch(ctx, s, silence(s, ours), "status"); err != nil {
			return err
		}
	}
	if _, err := c.patch(ctx, s, letGo(s, c.Instance)); err != nil {
		return err
	}
	c.vips.forget(key)
	c.rest(key, true)
	return nil
}

// passingReasons are of failures that say nothing about whether a load balancer is still there.
var passingReasons = []string{
	reasonProviderPrefix + string(providers.Throttled), reasonProviderPrefix + string(providers.Conflict), reasonProviderPrefix + string(providers.Rejected),
}

// lament says why a Service cannot be let go of, if there is more to it than that it is about to be.
func (c *Controller) lament(ctx context.Context, s *corev1.Service, r model.Service, left []served, unknown map[string][]netip.Addr) (time.Duration, error) {
	f := facts{record: r, on: left, now: c.Clock.Now()}
	quiet := true // nothing is in the way but time
	for _, on := range left {
		quiet = quiet && len(on.pending) == 0
	}
	f.waiting = c.waitingSince(keyOf(s), !quiet)
	var all []outcome
	for _, on := range left {
		o := f.leaving(on)
		if o.weight == pending && len(on.pending) == 0 {
			continue
		}
		if o.weight == failed && !slices.Contains(passingReasons, o.reason) {
			o.message += fmt.Sprintf("; if it is gone for good, set the annotation %s: %s", annotations.Abandon, on.balancer.Name)
		}
		o.message = on.balancer.Name + ": " + o.message
		all = append(all, o)
	}
	if names := slices.Sorted(maps.Keys(unknown)); len(names) > 0 {
		list := strings.Join(names, ",")
		all = append(all, outcome{weight: failed, reason: ReasonUnknown, message: fmt.Sprintf("the Service is on %s, which is not configured any more; "+
			"configure it again until the Service is gone, or, if it is gone for good, set the annotation %s: %s", list, annotations.Abandon, list)})
	}
	if len(all) == 0 {
		return 0, nil
	}
	worst := slices.MaxFunc(all, func(a, b outcome) int { return a.weight - b.weight })
	if worst.passing {
		if wait := grace - f.now.Sub(worst.since); wait > 0 {
			return wait, nil
		}
	}
	var messages []string
	for _, o := range all {
		messages = append(messages, o.message)
	}
	out := s.DeepCopy()
	setCondition(out, metav1.Condition{Type: Programmed, Status: metav1.ConditionFalse, Reason: worst.reason, Message: strings.Join(messages, "; ")}, f.now)
	patched, err := c.patch(ctx, s, out, "status")
	if err == nil {
		c.announce(patched, s, out)
	}
	return 0, err
}

// loadAll records the addresses that Services have: what was assigned or, should that annotation be lost, what is published. The older
// comes first. What is published and not assigned is on its way out.
func (c *Controller) loadAll(services []*corev1.Service) {
	type loaded struct {
		s        *corev1.Service
		r        model.Service
		assigned map[string][]netip.Addr
	}
	var all []loaded
	nodes := c.nodeAddresses()
	for _, s := range services {
		r := c.Selection.Service(s)
		if r.ManagedByOther || !r.Ours() && !c.mine(s) {
			continue
		}
		assigned, err := annotations.ParseAssigned(s.Annotations[annotations.AssignedIPs], c.Selection.Instances[0])
		if err != nil {
			assigned = nil
		}
		if len(assigned) == 0 && len(r.On) == 1 {
			assigned = map[string][]netip.Addr{r.On[0]: slices.DeleteFunc(published(s).addrs, nodes.has)}
		}
		for _, instance := range slices.Sorted(maps.Keys(assigned)) {
			own := slices.ContainsFunc(c.Balancers, func(b Balancer) bool { return b.Name == instance && b.Allocator != nil })
			h := vip.Holder{Instance: instance, Service: r.ServiceKey.String(), Shared: r.Wishes.SharedVIP, Ports: portsOf(r)}
			c.vips.load(h, r.ServiceKey, own, groupOf(r), assigned[instance])
		}
		all = append(all, loaded{s, r, assigned})
	}
	for _, l := range all {
		had := slices.DeleteFunc(published(l.s).addrs, func(a netip.Addr) bool {
			return nodes.has(a) || slices.ContainsFunc(slices.Collect(maps.Values(l.assigned)), func(has []netip.Addr) bool { return slices.Contains(has, a) })
		})
		if membersOnly(l.s, l.r) && len(l.assigned) == 0 {
			continue // they are of whoever made the virtual server
		}
		c.vips.loadFormer(c.Selection.Instances[0], l.r.ServiceKey, had)
	}
}
