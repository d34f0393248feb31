package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/lbsync/internal/document"
)

// process says whether this process knows what it is asked.
func (c *Chain) process(d document.Document) bool {
	if d.Problem != "" {
		c.add(Broken, "lbsync", "see its log, or try what it needs:\nlbsync check", "%s", d.Problem)
		return false
	}
	reading := slices.ContainsFunc(d.Providers, func(p document.Provider) bool { return p.Writing })
	switch {
	case reading:
		return true
	case d.Leading:
		c.add(Waiting, "lbsync", "", "%s has just become the leader and reads the load balancers", d.Identity)
	case d.Leader == "":
		c.add(Broken, "lbsync", "see that an lbsync runs and may write the Lease:\nlbsync check",
			"nobody holds the Lease, so nobody writes the load balancers")
	default:
		c.add(Broken, "lbsync", "ask the leader:\nlbsync explain … --remote --process "+d.Leader,
			"this process, %s, waits for its turn and knows nothing of the load balancers; %s holds the Lease", d.Identity, d.Leader)
	}
	return false
}

// service is what is wrong with the Service before any load balancer comes into it.
func (c *Chain) service(s document.Service) bool {
	switch {
	case s.ManagedBy != "":
		c.add(Broken, "Service", "if that one is gone for good, remove its name:\nkubectl -n "+s.Namespace()+" annotate service "+bare(s.Service)+
			" nplbridge.io/managed-by-", "another lbsync, %q, manages it", s.ManagedBy)
		return false
	case s.Deleting:
		c.add(Waiting, "Service", "", "it is being deleted; what is left of it on the load balancers goes first")
		return true
	}
	served := slices.ContainsFunc(s.Ports, func(p document.Port) bool { return p.Programmed && !p.Unserved })
	level := Broken
	if served {
		level = Note
	}
	fix := ""
	if len(s.Problems) > 0 {
		fix = "correct it; what it was before stays until then"
	}
	accepted := condition(s, "nplbridge.io/Accepted")
	refused := accepted != nil && accepted.Status == "False"
	for _, p := range s.Problems {
		if !refused || !strings.Contains(accepted.Message, p.Message) { // each is told once
			c.add(level, "Service", fix, "%s: %q: %s", p.Key, p.Value, p.Message)
		}
	}
	if refused { // perhaps for more than these problems
		c.add(level, "Service", fix, "not accepted as it is written (%s): %s", accepted.Reason, accepted.Message)
	}
	if c.worst() == Broken {
		return false
	}
	if s.NodePorts && s.Source != "NodePort" {
		c.add(Note, "Service", "give back the Node's ports that nobody uses:\nkubectl -n "+s.Namespace()+" patch service "+bare(s.Service)+
			" --type merge -p '{\"spec\":{\"allocateLoadBalancerNodePorts\":false}}'",
			"Kubernetes allocates node ports for it, which no load balancer needs while members come from %s; those it has stay until ports are written anew", s.Source)
	}
	return true
}

// port follows the way as far as the pool.
func (c *Chain) port(d document.Document, s document.Service, p document.Port) bool {
	b := d.Provider(p.Provider)
	if b == nil {
		c.add(Broken, "load balancer", "", "no load balancer of the name %s is configured", p.Provider)
		return false
	}
	switch {
	case p.Unserved:
		c.add(Broken, "virtual server", "take it out of this Service, or choose a load balancer that can", "%s", p.Cannot)
		return false
	case p.Attached == "" && len(p.VIPs) == 0 && p.Problem == "" && b.Problem == "":
		c.add(missingLevel(s), "VIP", "the condition nplbridge.io/Accepted has the reason, if there is more to it than a moment:\nkubectl -n "+s.Namespace()+
			" describe service "+bare(s.Service), "it has no address on %s", b.Name)
		return false
	case p.Attached == "" && len(p.VIPs) > 0:
		c.add(Good, "VIP", "", "%s on %s (%s)", strings.Join(p.VIPs, ", "), b.Name, b.Kind)
	}
	if b.Problem != "" {
		c.add(Broken, "load balancer", kindFix(b.ProblemKind), "%s cannot be read: %s; everything on it stays as it is", b.Name, b.Problem)
		return false
	}
	if p.Problem != "" && p.ProblemKind != "" {
		c.add(Broken, "virtual server", kindFix(p.ProblemKind), "%s did not take a change%s: %s", b.Name, since(p), p.Problem)
		return false
	}
	if d.DryRun && len(planned(*b, s, p)) > 0 {
		c.add(Broken, "lbsync", "set dryRun to false; what would be written is shown by:\nlbsync diff", "it runs with dryRun and writes nothing")
		return false
	}
	if p.Cannot != "" {
		c.add(Note, "virtual server", "", "%s; the rest is served", p.Cannot)
	}
	switch {
	case !p.Programmed && p.Problem == "" && p.Guarded == 0:
		c.add(Waiting, "virtual server", "", "%s has not confirmed everything yet", b.Name)
	case p.Attached != "":
		c.add(Good, "pool", "", "members are put into %s of %s, which is somebody else's", p.Attached, b.Name)
	default:
		c.add(Good, "virtual server", "", "confirmed by %s", b.Name)
	}
	if p.Guarded > 0 {
		c.add(Waiting, "pool", "if they are gone for good, let them go:\nkubectl -n "+s.Namespace()+" annotate service "+bare(s.Service)+
			" nplbridge.io/allow-removal=true", "%d members are held, because more than half of the pool was lost and no event explains it", p.Guarded)
	} else if p.Problem != "" {
		c.add(Waiting, "pool", "", "%s", p.Problem)
	}
	if b.RemovalsHeld {
		c.add(Waiting, "pool", "", "removals wait until the API server's answers can be believed again")
	}
	return true
}

func missingLevel(s document.Service) Level {
	if accepted := condition(s, "nplbridge.io/Accepted"); accepted == nil || accepted.Status == "True" {
		return Waiting
	}
	return Broken
}

func since(p document.Port) string {
	if p.Since == "" {
		return ""
	}
	return " since " + p.Since
}

// planned returns what is wanted on the load balancer for one port.
func planned(b document.Provider, s document.Service, p document.Port) []document.Change {
	key := fmt.Sprintf("%s:%d/%s", s.Service, p.Port, p.Protocol)
	return slices.DeleteFunc(slices.Clone(b.Planned), func(c document.Change) bool { return c.Key != key })
}

// unknown says why a Service is not in the document.
func unknown(d document.Document, name string) Chain {
	c := Chain{Title: "Service " + name}
	for _, i := range d.Ignored {
		if i.Service == name {
			c.add(Broken, "Service", "", "%s", i.Why)
			return c
		}
	}
	if !c.process(d) {
		return c
	}
	namespace, _, _ := strings.Cut(name, "/")
	c.add(Broken, "Service", "see what there is:\nkubectl -n "+namespace+" get service "+bare(name)+" -o yaml",
		"lbsync knows no such Service: there is none of type LoadBalancer, and none with the annotation nplbridge.io/pool")
	return c
}

// nothing says why no load balancer says anything about a Service that is ours.
func (c *Chain) nothing(d document.Document, s document.Service) {
	if len(s.On) == 0 {
		c.add(Waiting, "Service", "", "it asks for no load balancer any more; nothing of it is left")
		return
	}
	for _, name := range s.On {
		c.unreported(d, name)
	}
}

// unreported says why one load balancer says nothing about a Service that asks for it.
func (c *Chain) unreported(d document.Document, name string) {
	b := d.Provider(name)
	switch {
	case b == nil:
		c.add(Broken, "load balancer", "correct nplbridge.io/providers or the class; there are "+names(d), "no load balancer of the name %s is configured", name)
	case b.Problem != "":
		c.add(Broken, "load balancer", kindFix(b.ProblemKind), "%s cannot be read: %s; everything on it stays as it is", name, b.Problem)
	case !b.Writing && d.Leader != "":
		c.add(Broken, "lbsync", "ask the leader:\nlbsync explain … --remote --process "+d.Leader,
			"this process does not write %s; %s holds the Lease", name, d.Leader)
	default:
		c.add(Waiting, "load balancer", "", "%s says nothing about it yet", name)
	}
}

func names(d document.Document) string {
	var out []string
	for _, p := range d.Providers {
		out = append(out, p.Name)
	}
	return strings.Join(out, ", ")
}

// stranger says what an address is that no pool has.
func (c *Chain) stranger(d document.Document, address netip.AddrPort) {
	suffix := " at " + address.String()
	for _, s := range d.Services {
		for _, pod := range s.Pods {
			if slices.ContainsFunc(pod.Mappings, func(m string) bool { return strings.HasSuffix(m, suffix) }) {
				c.add(Broken, "pool", "see why:\nlbsync explain pod "+bare(pod.Pod)+" -n "+s.Namespace(),
					"it is the node port of Pod %s, which is in no pool with it", pod.Pod)
				return
			}
		}
	}
	for _, p := range d.Providers {
		if p.Watermark == nil {
			continue
		}
		for _, held := range p.Watermark.Held {
			if strings.Contains(held, fmt.Sprintf(" %d/", address.Port())) {
				c.add(Note, "node port", "", "%s may still list node port %s, which no Pod gets until it does not", p.Name, held)
			}
		}
	}
	c.add(Broken, "pool", "if a load balancer lists it, it is not by lbsync; who has the port on its Node is shown there by:\nnpl-agent status --port "+
		address.String(), "no pool of ours has such a member, and no Pod that lbsync selects has such a node port")
}

func condition(s document.Service, kind string) *document.Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}
