package status

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
)

// serve brings a Service that asks for us to what it must be.
func (c *Controller) serve(ctx context.Context, key model.ServiceKey, s *corev1.Service, r model.Service) (time.Duration, error) {
	if r.ManagedByOther {
		c.yield(s, s.Annotations[annotations.ManagedBy])
		return 0, nil
	}
	c.once(s, ReasonManagedByOther, "")
	wishes, problems := c.Selection.Wishes(s)
	if wishes.Kept.Structure && !r.Admitted && !c.asked(s) {
		// It names load balancers that are not ours, or nothing that can be read: perhaps another lbsync knows better, and two would
		// overwrite each other's conditions for ever.
		c.once(s, ReasonInvalidAnnotation, problems[0].String())
		return 0, nil
	}
	problems = append(problems, r.Misattached()...)
	f := facts{record: r, problems: problems, membersOnly: membersOnly(s, r)}
	again, failure := c.place(ctx, key, s, &f)
	claimed := c.claimed(s, f)
	s, err := c.patch(ctx, s, claim(s, claimed))
	if err != nil {
		return 0, err
	}
	if f.record.Source != annotations.NodePortLocal && s.Annotations[annotations.EnabledBy] == c.Instance {
		again = sooner(again, takeBackPoll) // its node ports are still in use
	}
	c.lookAgain(key, &f)
	if c.early(f) {
		return again, failure // the loop is about to see it; its report brings us back
	}
	later, err := c.say(ctx, s, f)
	if err != nil {
		return 0, err
	}
	var refusals []model.Refusal
	for _, on := range f.on {
		refusals = append(refusals, on.report.Refusals...)
	}
	c.tell(s, key, refusals)
	c.tellOnNodes(s, f)
	return sooner(again, later), failure
}

// asked reports whether the Service asks for a load balancer of ours by its class.
func (c *Controller) asked(s *corev1.Service) bool {
	bare := s.DeepCopy()
	delete(bare.Annotations, annotations.Providers)
	delete(bare.Annotations, annotations.Pool)
	return c.Selection.Ours(bare)
}

func membersOnly(s *corev1.Service, r model.Service) bool {
	return len(r.Wishes.Attachments) > 0 || s.Annotations[annotations.Pool] != ""
}

// place finds out where the Service stands and gives it addresses there. An error is a load balancer's that gives addresses itself.
func (c *Controller) place(ctx context.Context, key model.ServiceKey, s *corev1.Service, f *facts) (again time.Duration, err error) {
	failed := func(failure error) {
		if failure != nil {
			pause, failure := c.retryProvider(failure)
			again, err = sooner(again, pause), errors.Join(err, failure)
		}
	}
	traces := c.traces(s)
	for _, b := range c.Balancers {
		on := served{stand: b.look(key, f.record), assigned: c.vips.of(b.Name, key), nodes: c.atNodes(b, *f)}
		_, was := traces[b.Name]
		switch {
		case f.record.Wishes.Kept.Structure: // whatever it has it keeps, and nothing is new
			if on.wanted = len(on.assigned) > 0 || len(on.report.Pools) > 0; !on.wanted {
				continue
			}
		case !on.wanted && !on.reported && !was && len(on.assigned) == 0:
			continue // as far as anybody knows, it has never been there
		case !on.wanted:
			if !on.gone() {
				break
			}
			if failure := c.release(ctx, s, on); failure != nil {
				failed(failure)
				break // the record of it stays
			}
			continue
		case on.without(*f):
			c.vips.leave(b.Name, key)
			on.assigned = nil
			if on.nodes != nil {
				_, on.refused = request(s, f.record, b)
			}
		case !on.abandoned:
			failed(c.address(ctx, s, f, &on))
		}
		f.on = append(f.on, on)
	}
	for instance, addrs := range c.unknown(s) {
		if !slices.Contains(f.record.Abandoned, instance) {
			continue
		}
		c.abandoned(s, instance, addrs)
		failed(c.vips.release(ctx, key, c.Balancers, instance))
	}
	f.had = c.vips.had(key)
	for i := range f.on {
		f.on[i].former = f.had
	}
	if c.settled(*f) {
		failed(c.vips.settle(ctx, key, c.Balancers))
	}
	return again, err
}

// address gives the Service addresses on a load balancer.
func (c *Controller) address(ctx context.Context, s *corev1.Service, f *facts, on *served) (err error) {
	ask, refused := request(s, f.record, on.balancer)
	if on.refused = refused; refused != nil {
		return nil
	}
	if len(on.assigned) == 0 && len(c.vips.had(ask.key)) > 0 { // perhaps the record of what it has is lost
		if !on.reported {
			return nil // only the load balancer knows
		}
		c.vips.regain(ask.holder(), ask.key, announced(*on))
	}
	on.assigned, on.refused, err = c.vips.assign(ctx, on.balancer, ask)
	return err
}

// release frees what the Service has on a load balancer where nothing of it is left, or nothing that is waited for.
func (c *Controller) release(ctx context.Context, s *corev1.Service, on served) error {
	if len(on.assigned) > 0 && on.abandoned && !(on.reported && on.report.Gone) {
		c.abandoned(s, on.balancer.Name, on.assigned)
	}
	return c.vips.release(ctx, keyOf(s), c.Balancers, on.balancer.Name)
}

// abandoned says, once, that the Service is let go of without a load balancer's word.
func (c *Controller) abandoned(s *corev1.Service, instance string, had addrs) {
	at := ""
	if len(had) > 0 {
		at = ", its address " + annotations.FormatAddresses(had) + " may be given to others"
	}
	c.once(s, ReasonAbandoned+" "+instance, fmt.Sprintf("let go of without the word of the load balancer %s%s; what is still there has to be removed by hand",
		instance, at))
}

// settled reports whether every load balancer has given up what the Service has no more.
func (c *Controller) settled(f facts) bool {
	return !slices.ContainsFunc(f.on, func(on served) bool { return !on.settled(on.keeps()) })
}

// lookAgain asks the load balancers once more, after what the Service carries has been written.
func (c *Controller) lookAgain(key model.ServiceKey, f *facts) {
	waiting := false
	for i, on := range f.on {
		f.on[i].stand, f.on[i].nodes = on.balancer.look(key, f.record), c.atNodes(on.balancer, *f)
		f.on[i].wanted = on.wanted
		waiting = waiting || !on.abandoned && (len(f.on[i].pending) > 0 || !on.wanted && !f.on[i].gone())
	}
	f.waiting = c.waitingSince(key, waiting)
}

// early reports whether there is nothing to say before a loop has seen the Service as it is now.
func (c *Controller) early(f facts) bool {
	for _, on := range f.on {
		if on.report.Wanted || on.trouble != nil || on.refused != nil || on.abandoned || !on.without(f) && len(on.assigned) == 0 {
			return false
		}
	}
	return len(f.problems) == 0 && !f.record.Wishes.Unservable
}

// claimed says what the Service carries while it is ours.
func (c *Controller) claimed(s *corev1.Service, f facts) claimed {
	out := claimed{manager: c.Selection.Manager, instance: c.Instance, assigned: map[string][]netip.Addr{}}
	for instance, addrs := range c.unknown(s) {
		if slices.Contains(f.record.Abandoned, instance) {
			continue
		}
		if out.assigned[instance] = addrs; len(addrs) == 0 {
			out.attached = append(out.attached, instance)
		}
	}
	traces := c.traces(s)
	for _, on := range f.on {
		if had, was := traces[on.balancer.Name]; on.wanted && on.without(f) || !on.wanted && was && len(had) == 0 {
			out.attached = append(out.attached, on.balancer.Name)
		}
		out.assigned[on.balancer.Name] = on.assigned
		if on.without(f) && len(on.assigned) == 0 { // until its virtual server is gone, so that a new Lease holder knows whose the address is
			out.assigned[on.balancer.Name] = c.vips.hadOn(on.balancer.Name, f.record.ServiceKey)
		}
		out.admit = out.admit || on.wanted && (f.membersOnly || on.nodes != nil && on.refused == nil || len(on.assigned) > 0)
	}
	switch {
	case f.record.Wishes.Kept.Structure:
	case f.record.Source == annotations.NodePortLocal:
		out.enabling = enable
	case !c.nodePortsInUse(f):
		out.enabling = takeBack
	}
	return out
}

// nodePortsInUse reports whether any pool still has a member at a node port that npl-agent gave a Pod: without our request it would be
// taken away.
func (c *Controller) nodePortsInUse(f facts) bool {
	for _, on := range f.on {
		if !on.reported {
			return true
		}
		for _, pool := range on.report.Pools {
			for _, m := range pool.Members {
				if c.Claimants != nil && len(c.Claimants(model.Claim{Address: m.Address, Protocol: npl.Protocol(strings.ToLower(string(pool.Key.Protocol)))}, "")) > 0 {
					return true
				}
			}
		}
	}
	return false
}

// request reads what addresses the Service asks for on a load balancer. What cannot be read is a refusal, not a missing request.
func request(s *corev1.Service, r model.Service, b Balancer) (ask, *refusal) {
	switch {
	case r.Wishes.Unservable:
		return ask{}, &refusal{ReasonInvalidAnnotation, "before it can be read who may come in, the Service is not served at all"}
	case r.Wishes.Kept.Addresses:
		return ask{}, &refusal{ReasonInvalidAnnotation, "before it can be read which address is asked for, it keeps what it has"}
	}
	return ask{
		Request: vip.Request{
			Instance: b.Name, Service: r.ServiceKey.String(), Namespace: r.Namespace, Labels: s.Labels, Families: r.Families,
			Addresses: r.Wishes.Addresses, Pool: r.Wishes.AddressPool, Shared: r.Wishes.SharedVIP, Ports: portsOf(r),
		},
		key: r.ServiceKey, group: groupOf(r), options: r.Wishes.Options[b.Capabilities.Name],
	}, nil
}

// groupOf names the Services that have their addresses together, for a load balancer that gives addresses.
func groupOf(r model.Service) string {
	if shared := r.Wishes.SharedVIP; shared != "" {
		return r.Namespace + "/" + shared
	}
	return r.ServiceKey.String()
}

func portsOf(r model.Service) (out []vip.Port) {
	for _, p := range r.Ports {
		out = append(out, vip.Port{Number: p.Port, Protocol: p.Protocol})
	}
	return out
}
