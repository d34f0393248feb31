package status

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/onnode"
	"github.com/nplbridge/nplbridge/providers"
)

// nodesOf is where a Service is served at addresses of Nodes.
type nodesOf struct {
	shares []onnode.Share
	known  bool // everybody has been heard of
	listed []onnode.Listed
}

// atNodes returns where a load balancer serves the Service at addresses of Nodes; nil where it does not.
func (c *Controller) atNodes(b Balancer, f facts) *nodesOf {
	if b.Shares == nil || f.membersOnly || !f.record.AtNodes() {
		return nil
	}
	out := &nodesOf{}
	if out.shares, out.known = b.Shares(f.record.ServiceKey); out.known {
		out.listed = onnode.List(out.shares)
	}
	return out
}

// nodeAddresses returns every address of every Node, where a load balancer serves Services at them.
func (c *Controller) nodeAddresses() (out addrs) {
	if c.Nodes == nil || !slices.ContainsFunc(c.Balancers, func(b Balancer) bool { return b.Shares != nil }) {
		return nil
	}
	for _, n := range c.Nodes() {
		out = append(out, n.Addresses...)
	}
	return out
}

// addrs returns the addresses that are published.
func (n *nodesOf) addrs() (out addrs) {
	for _, l := range n.listed {
		out = append(out, l.Addr)
	}
	return out
}

// entries publishes them.
func (n *nodesOf) entries(s *corev1.Service, on served, f facts) (out []corev1.LoadBalancerIngress) {
	for _, l := range n.listed {
		out = append(out, entry(s, on, l.Addr, func(p loop.PortReport) *string {
			at := slices.IndexFunc(l.Failed, func(failure onnode.Failure) bool { return failure.Port == onnode.PortName(p.Key) })
			switch {
			case p.Unsupported:
				return new(portErrorPrefix + cannot(on, p, f).reason)
			case at >= 0:
				return new(portErrorPrefix + reasonProviderPrefix + string(l.Failed[at].Kind))
			}
			return nil
		}))
	}
	return out
}

// outcomeAtNodes says how the Service stands on load balancers that stand on Nodes. That one of them does not have it, or not all of it, is no
// failure as long as another one does.
func (f facts) outcomeAtNodes(on served) outcome {
	n := on.nodes
	if !n.known {
		return outcome{weight: pending, reason: ReasonPending, message: "not everybody has been heard of yet", passing: true}
	}
	waits := outcome{weight: pending, reason: ReasonPending, message: "the load balancer has not confirmed it yet", passing: true}
	if len(n.listed) == 0 {
		if kind, messages := n.failures(func(onnode.Share) bool { return true }); len(messages) > 0 {
			return outcome{weight: failed, reason: reasonProviderPrefix + string(kind), message: strings.Join(messages, "; ")}
		}
		unconfirmed := func(p loop.PortReport) bool { return !p.Programmed && !p.Unsupported }
		if n.counts() && on.trouble == nil && (!on.report.Wanted || len(on.pending) > 0 || slices.ContainsFunc(on.report.Ports, unconfirmed)) {
			return waits
		}
		return outcome{weight: failed, reason: ReasonNoNode, message: "no Node serves it: " + n.absent(f.record, on.trouble), passing: true, since: f.waiting}
	}
	listed := n.addrs()
	published := func(s onnode.Share) bool {
		return s.Node != nil && slices.ContainsFunc(s.Node.Publishes(s.At), func(a netip.Addr) bool { return slices.Contains(listed, a) })
	}
	if kind, messages := n.failures(published); len(messages) > 0 {
		return outcome{weight: failed, reason: reasonProviderPrefix + string(kind), message: strings.Join(messages, "; ")}
	}
	own := func(p loop.PortReport) bool { return p.Kind == "" || passes(p.Kind) }
	on.report.Ports = slices.DeleteFunc(slices.Clone(on.report.Ports), func(p loop.PortReport) bool { return !own(p) })
	if o, bad := trouble(on); bad {
		return o
	}
	if slices.ContainsFunc(on.report.Ports, func(p loop.PortReport) bool { return !p.Programmed && !p.Unsupported }) {
		return waits
	}
	if len(on.pending) > 0 {
		return f.waitsFor(on)
	}
	text := f.fine(on)
	if elsewhere := n.not(); len(elsewhere) > 0 {
		text += "; not " + strings.Join(elsewhere, "; not ")
	}
	return outcome{weight: fine, reason: ReasonProgrammed, message: text}
}

// failures returns the lasting failures of those that count, one clause each, and the kind of the first.
func (n *nodesOf) failures(which func(onnode.Share) bool) (kind providers.Kind, messages []string) {
	for _, s := range n.shares {
		if s.Away != "" || !which(s) {
			continue
		}
		for _, f := range s.Failed {
			if len(messages) == 0 {
				kind = f.Kind
			}
			messages = append(messages, fmt.Sprintf("on Node %s: %s", s.NodeName, f))
		}
	}
	return kind, messages
}

// not says on which Nodes that count the Service is not, or not all of it.
func (n *nodesOf) not() (out []string) {
	_, out = n.failures(func(onnode.Share) bool { return true })
	return out
}

// counts reports whether any counts.
func (n *nodesOf) counts() bool {
	return slices.ContainsFunc(n.shares, func(s onnode.Share) bool { return s.Away == "" })
}

// absent says why none serves the Service.
func (n *nodesOf) absent(r model.Service, trouble error) string {
	var out []string
	for _, s := range n.shares {
		why := s.Away
		if why == "" && !slices.ContainsFunc(s.Node.Addresses, func(a netip.Addr) bool { return slices.Contains(r.Families, npl.FamilyOf(a)) }) {
			why = fmt.Sprintf("the Node has no address of the Service's families (%s)", join(r.Families))
		}
		if why != "" {
			out = append(out, fmt.Sprintf("%s: %s", s.NodeName, why))
		}
	}
	if trouble != nil {
		out = append(out, trouble.Error())
	}
	return strings.Join(out, "; ")
}

func join(families []npl.Family) string {
	var out []string
	for _, f := range families {
		out = append(out, string(f))
	}
	return strings.Join(out, ", ")
}

// tellOnNodes makes an Event, once, of each port that a load balancer on a Node cannot have, and of each that no Node has.
func (c *Controller) tellOnNodes(s *corev1.Service, f facts) {
	now := map[string]string{}
	for _, on := range f.on {
		if on.nodes == nil || !on.nodes.known {
			continue
		}
		for _, share := range on.nodes.shares {
			if share.Away != "" {
				continue
			}
			for _, failure := range share.Failed {
				now[fmt.Sprintf("%s %s %s", ReasonNotOnNode, share.NodeName, failure.Port)] = fmt.Sprintf("not served on Node %s: %s", share.NodeName, failure)
			}
		}
	}
	c.mu.Lock()
	var over []string
	for cause := range c.said[keyOf(s)] {
		if _, still := now[cause]; !still && strings.HasPrefix(cause, ReasonNotOnNode+" ") {
			over = append(over, cause)
		}
	}
	c.mu.Unlock()
	for _, cause := range over {
		c.once(s, cause, "")
	}
	for cause, message := range now {
		c.once(s, cause, message)
	}
}

// unannounced returns the addresses of the Service that the load balancer has, and no host.
func (s served) unannounced() (out addrs) {
	if s.balancer.Announced == nil || s.nodes != nil {
		return nil
	}
	for _, addr := range s.assigned {
		if slices.Contains(announced(s), addr) && !s.balancer.Announced(addr) {
			out = append(out, addr)
		}
	}
	return out
}

// notAnnounced is the outcome where no host has an address.
func notAnnounced(missing addrs) outcome {
	return outcome{weight: failed, reason: ReasonNotAnnounced, message: fmt.Sprintf("no host of the load balancer has %s on an interface, so it is "+
		"not published; see that keepalived runs and has it, or if routes lead it there set haproxy.announce to routed", annotations.FormatAddresses(missing))}
}

// portReasons are what a port that is not served for another reason than the load balancer's is told with.
func portReason(p loop.PortReport) (string, bool) {
	return string(p.Reason), p.Reason != "" && slices.Contains(model.PortReasons(), p.Reason)
}
