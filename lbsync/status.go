package lbsync

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/document"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/status"
	"github.com/nplbridge/nplbridge/providers"
)

// Check is one named condition of readiness; nil is good.
type Check struct {
	Name  string
	Check func() error
}

// Checks returns what readiness depends on: the caches, and each load balancer that this process is the one to write.
// Whoever waits for the Lease of a remote load balancer is ready.
func (s *Syncer) Checks() []Check {
	checks := []Check{{"caches", func() error {
		if !s.watch.Synced() {
			return errors.New(waitingForCaches)
		}
		return nil
	}}}
	for _, b := range s.balancers {
		name := "load-balancer"
		if len(s.balancers) > 1 {
			name += "-" + b.name
		}
		checks = append(checks, Check{name, b.ready})
	}
	return checks
}

const waitingForCaches = "waiting for the API server's first answer"

func (b *balancer) ready() error {
	l := b.loop.Load()
	switch {
	case l == nil && !b.local:
		return nil
	case l == nil:
		return errors.New("waiting for the caches")
	}
	h := l.Health()
	if h.Observe != nil {
		return fmt.Errorf("cannot read the load balancer: %w", h.Observe)
	}
	if !h.Ready {
		return errors.New("waiting for the first sync")
	}
	return nil
}

// Status returns a Document.
func (s *Syncer) Status() any { return s.Document() }

// Document returns what this process knows and does.
func (s *Syncer) Document() Document {
	settings := s.settings.Load()
	d := Document{
		Version: document.Version, Instance: s.cfg.Instance, Identity: s.cfg.Identity, At: s.clock.Now(),
		Leading: s.leading.Load(), Leader: s.lease.Holder(), DryRun: s.cfg.DryRun,
		ServiceType: s.cfg.ServiceType, PortRange: settings.PortRange.String(), Providers: []document.Provider{}, Services: []document.Service{},
	}
	if settings.GuardHold > 0 {
		d.GuardHold = settings.GuardHold.String()
	}
	if !s.watch.Synced() {
		d.Problem = waitingForCaches
	}
	reports := map[model.ServiceKey]map[string]loop.Report{}
	for _, b := range s.balancers {
		p, of := b.document()
		d.Providers = append(d.Providers, p)
		for key, r := range of {
			if r.Gone {
				continue // nothing of it is there or to be there
			}
			if reports[key] == nil {
				reports[key] = map[string]loop.Report{}
			}
			reports[key][b.name] = r
		}
	}
	for _, o := range s.watch.Services() {
		key := model.ServiceKey{Namespace: o.Namespace, Name: o.Name}
		view, known := s.watch.Index.View(key)
		switch {
		case known && (view.Service.Ours() || view.Service.Admitted || len(reports[key]) > 0):
			out := s.describe(o, view)
			s.addPorts(&out, view, reports[key])
			d.Services = append(d.Services, out)
		default:
			if why := s.whyNot(o); why != "" {
				d.Ignored = append(d.Ignored, document.Ignored{Service: key.String(), Why: why})
			}
		}
		delete(reports, key)
	}
	for key := range reports { // the Service is gone, and something of it is left
		out := document.Service{Service: key.String(), On: []string{}, Deleting: true, Ports: []document.Port{}}
		s.addPorts(&out, inventory.View{Service: model.Service{ServiceKey: key}}, reports[key])
		d.Services = append(d.Services, out)
	}
	slices.SortFunc(d.Services, func(a, b document.Service) int { return strings.Compare(a.Service, b.Service) })
	slices.SortFunc(d.Ignored, func(a, b document.Ignored) int { return strings.Compare(a.Service, b.Service) })
	return d
}

// document returns the load balancer and what it was reported to have, by Service.
func (b *balancer) document() (document.Provider, map[model.ServiceKey]loop.Report) {
	p := document.Provider{Name: b.name, Kind: b.provider.Capabilities().Name, Local: b.local}
	l := b.loop.Load()
	if l == nil {
		return p, nil
	}
	h := l.Health()
	p.Writing, p.Ready, p.RemovalsHeld, p.Foreign = true, h.Ready, h.Held, h.Foreign
	p.Planned = document.Changes(l.Planned())
	if !h.LastObserve.IsZero() {
		p.LastObserve = &h.LastObserve
	}
	if h.Observe != nil {
		p.Problem, p.ProblemKind = h.Observe.Error(), string(providers.KindOf(h.Observe))
	}
	if ports, ok := l.Holdings(); ok {
		p.Watermark = &document.Watermark{Seen: ports.Seen, Waiting: ports.Waiting}
		for _, port := range ports.Held {
			p.Watermark.Held = append(p.Watermark.Held, fmt.Sprintf("%s %d/%s %s", port.Node, port.Port, port.Protocol, port.Family))
		}
	}
	return p, l.Reports()
}

// describe returns what the Service itself says.
func (s *Syncer) describe(o *corev1.Service, view inventory.View) document.Service {
	r := view.Service
	out := document.Service{
		Service: r.ServiceKey.String(), On: slices.Clone(r.On), Deleting: r.Deleting, Source: string(r.Source), LocalOnly: r.LocalOnly,
		Attached: len(r.Wishes.Attachments) > 0,
		NodePorts: o.Spec.Type == corev1.ServiceTypeLoadBalancer && ptr.Deref(o.Spec.AllocateLoadBalancerNodePorts, true) &&
			slices.ContainsFunc(o.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 }),
		Ports: []document.Port{},
	}
	for _, e := range view.Endpoints {
		if !e.Pod.Finished {
			out.Selected++
		}
	}
	if out.On == nil {
		out.On = []string{}
	}
	if r.ManagedByOther {
		out.ManagedBy = o.Annotations[annotations.ManagedBy]
	}
	if _, problems := s.watch.Selection.Wishes(o); r.Ours() {
		for _, p := range problems {
			out.Problems = append(out.Problems, document.Problem{Key: p.Key, Value: p.Value, Message: p.Message})
		}
	}
	for _, c := range o.Status.Conditions {
		if c.Type == status.Accepted || c.Type == status.Programmed {
			out.Conditions = append(out.Conditions, document.Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message})
		}
	}
	return out
}

// whyNot says why a Service that looks as if it were for a load balancer is none of ours; "" of any other.
func (s *Syncer) whyNot(o *corev1.Service) string {
	attaches := o.Annotations[annotations.Pool] != ""
	if o.Spec.Type != corev1.ServiceTypeLoadBalancer && !attaches {
		return ""
	}
	var classes []string
	for _, name := range s.cfg.Providers {
		classes = append(classes, annotations.ClassPrefix+name)
	}
	class := o.Spec.LoadBalancerClass
	switch {
	case slices.Contains(s.cfg.BlockedNamespaces, o.Namespace):
		return "blockedNamespaces of lbsync names its Namespace"
	case attaches && o.Spec.Type == corev1.ServiceTypeExternalName:
		return "a Service of type ExternalName has no Pods"
	case attaches:
		return "its Namespace is not among those of namespaceSelector, or " + annotations.Pool + " names no load balancer of lbsync; there are " + strings.Join(s.cfg.Providers, ", ")
	case class == nil && !s.cfg.HandleUnclassed:
		return "it has no loadBalancerClass, and handleUnclassed is false; the classes of lbsync are " + strings.Join(classes, ", ")
	case class != nil && !slices.Contains(classes, *class):
		return fmt.Sprintf("its loadBalancerClass is %q; those of lbsync are %s", *class, strings.Join(classes, ", "))
	default:
		return "its Namespace is not among those of namespaceSelector"
	}
}

// addPorts adds what the load balancers have of the Service, in the order of port, protocol and configuration, and the Pods that are
// not Enabled members of all of it.
func (s *Syncer) addPorts(out *document.Service, view inventory.View, reports map[string]loop.Report) {
	gone := deselected(view)
	nodes := map[string]int{} // Enabled members, by Pod UID
	pools := 0
	for _, b := range s.balancers {
		r, ok := reports[b.name]
		if !ok {
			continue
		}
		for _, p := range r.Ports {
			port := portStatus(b.name, view, gone, r, p)
			out.Ports = append(out.Ports, port)
			if !port.Unserved {
				pools++
			}
			seen := map[string]bool{}
			for _, m := range port.Members {
				if m.State == string(providers.Enabled) && !seen[m.PodUID] {
					seen[m.PodUID] = true
					nodes[m.PodUID]++
				}
			}
		}
	}
	slices.SortStableFunc(out.Ports, func(a, b document.Port) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	if view.Service.Source == annotations.NodePort {
		return // Nodes are the members, whatever becomes of a Pod
	}
	for _, e := range view.Endpoints {
		if p := e.Pod; nodes[p.UID] < max(1, pools) || p.Gated || p.Malformed != "" {
			out.Pods = append(out.Pods, podStatus(p))
		}
	}
}

func portStatus(name string, view inventory.View, gone func(providers.Member) bool, r loop.Report, p loop.PortReport) document.Port {
	out := document.Port{
		Port: p.Key.Port, Protocol: string(p.Key.Protocol), Provider: name, Target: targetPort(view.Service, p.Key),
		Programmed: p.Programmed, Problem: p.Problem, ProblemKind: string(p.Kind), Cannot: p.Cannot, Unserved: p.Unsupported,
		Attached: p.Attached, Guarded: p.Guarded, Members: []document.Member{},
	}
	if p.Unsupported && out.Cannot == "" {
		out.Cannot = "the load balancer cannot balance " + out.Protocol
	}
	if !p.Since.IsZero() {
		out.Since = p.Since.UTC().Format(time.RFC3339)
	}
	for _, vip := range p.VIPs {
		out.VIPs = append(out.VIPs, vip.String())
	}
	for _, pool := range r.Pools {
		if pool.Key != p.Key {
			continue
		}
		for _, m := range pool.Members {
			member := memberStatus(m, r.Health[p.Key])
			member.Deselected = gone(m)
			out.Members = append(out.Members, member)
		}
	}
	for _, f := range r.Refusals {
		if f.Key == p.Key {
			out.Refusals = append(out.Refusals, document.Refusal{Pod: f.Pod, PodUID: f.PodUID, Reason: string(f.Reason), Message: f.Message})
		}
	}
	return out
}

// deselected tells which members are of Pods that the Service does not select. A Node's name is not like theirs.
func deselected(view inventory.View) func(providers.Member) bool {
	selected := make(map[string]bool, len(view.Endpoints))
	for _, e := range view.Endpoints {
		selected[e.Pod.UID] = true
	}
	return func(m providers.Member) bool {
		return view.Service.Ours() && !selected[m.UID] && strings.Contains(m.Name, "/")
	}
}

func memberStatus(m providers.Member, known map[providers.MemberID]providers.MemberStatus) document.Member {
	out := document.Member{Pod: m.Name, PodUID: m.UID, Address: m.Address.String(), State: string(m.State), Weight: m.Weight}
	if h, ok := known[m.ID()]; ok {
		out.Health, out.Blocked = string(h.Health), h.Blocked
		if h.Connections >= 0 {
			out.Connections = &h.Connections
		}
	}
	return out
}

// targetPort returns the Pods' port behind a Service port, a number or a name.
func targetPort(s model.Service, key providers.Key) string {
	for _, p := range s.Ports {
		if p.Port == key.Port && p.Protocol == key.Protocol {
			return cmp.Or(p.TargetName, fmt.Sprint(p.TargetNumber))
		}
	}
	return ""
}

func podStatus(p *model.Pod) document.Pod {
	out := document.Pod{
		Pod: p.ID(), UID: p.UID, Node: p.Node, Ready: p.Ready, Terminating: p.Terminating, Finished: p.Finished, Gated: p.Gated, Malformed: p.Malformed,
	}
	for _, m := range p.Mappings {
		out.Mappings = append(out.Mappings, fmt.Sprintf("%d/%s at %s", m.PodPort, m.Protocol, netip.AddrPortFrom(m.NodeIP, m.NodePort)))
	}
	return out
}
