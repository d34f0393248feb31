package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/lbsync/internal/document"
)

// The states and healths that members have in a document.
const (
	enabled  = "Enabled"
	draining = "Draining"
	up       = "Up"
	down     = "Down"
)

// members follows the way of one pool to its end, whichever Pod that is.
func (c *Chain) members(d document.Document, s document.Service, p document.Port) {
	usable := func(m document.Member) bool { return m.State == enabled && m.Health != down && !m.Blocked }
	var names []string
	for _, m := range p.Members {
		if usable(m) {
			names = append(names, memberName(m))
		}
	}
	lost := Broken
	if len(names) > 0 {
		c.add(Good, "members", "", "%d take connections: %s", len(names), list(names))
		lost = Note
	} else {
		c.add(emptyLevel(s, p), "members", "", "%s", emptiness(s, p))
	}
	// Of what else there is to say, one sentence for each Pod, the most telling one.
	told := map[string]bool{}
	for _, m := range p.Members {
		if !usable(m) || policyBlocks(d, m, p) != "" && m.Health != up {
			told[m.Pod] = true
			c.member(d, s, p, m, lost)
		}
	}
	for _, r := range p.Refusals {
		if !told[r.Pod] {
			told[r.Pod] = true
			c.refused(s, r, lost)
		}
	}
	for _, pod := range s.Pods {
		if !told[pod.Pod] && !slices.ContainsFunc(p.Members, func(m document.Member) bool { return m.Pod == pod.Pod && m.State == enabled }) {
			c.outside(s, pod, lost)
		}
	}
}

// emptyLevel is Waiting while members are about to come, and Broken where nothing but the Service can change that.
func emptyLevel(s document.Service, p document.Port) Level {
	if s.Deleting || len(p.Refusals) > 0 || len(s.Pods) > 0 || len(p.Members) > 0 {
		return Waiting
	}
	return Broken
}

func emptiness(s document.Service, p document.Port) string {
	switch {
	case len(p.Members) > 0:
		return "none takes new connections"
	case s.Selected == 0:
		return "there are none: the Service selects no Pod"
	default:
		return fmt.Sprintf("there are none, of %d Pods that the Service selects", s.Selected)
	}
}

// pod follows the way of one pool to one Pod. lost is how bad it is that the Pod gets nothing.
func (c *Chain) pod(d document.Document, s document.Service, p document.Port, name string, lost Level) {
	found := false
	for _, m := range p.Members {
		if m.Pod == name {
			found = true
			c.member(d, s, p, m, lost)
		}
	}
	for _, r := range p.Refusals {
		if r.Pod == name {
			found = true
			c.refused(s, r, lost)
		}
	}
	for _, pod := range s.Pods {
		switch {
		case pod.Pod != name:
		case !found:
			c.outside(s, pod, lost)
			found = true
		case pod.Gated && c.worst() == Good:
			c.add(Waiting, "Pod", "", "its readiness gate nplbridge.io/in-pool waits for all load balancers, or for gateTimeout")
		}
	}
	if !found {
		c.add(lost, "member", "", "Pod %s is not in this pool", name)
	}
}

// member is a member that is in the pool.
func (c *Chain) member(d document.Document, s document.Service, p document.Port, m document.Member, lost Level) {
	name := memberName(m)
	blocking := policyBlocks(d, m, p)
	switch {
	case m.Blocked:
		c.add(lost, "member", "enable it on the load balancer again; lbsync respects what an operator disabled", "%s is disabled on %s by an operator", name, p.Provider)
	case m.State == draining:
		c.add(Waiting, "member", "", "%s takes no new connections and leaves when it has none%s: %s", name, connections(m), why(s, m))
	case m.Health == down && blocking != "":
		c.add(lost, "Pod", "let the load balancer in, by an ipBlock of its addresses", "%s calls %s down, and %s", p.Provider, name, blocking)
	case m.Health == down:
		c.add(lost, "node port", downFix(s, m), "%s calls %s down: it gets no answer there", p.Provider, name)
	default:
		c.add(Good, "member", "", "%s is enabled%s%s", name, healthText(m), connections(m))
		if blocking != "" && m.Health != up {
			c.add(Note, "Pod", "let the load balancer in, by an ipBlock of its addresses", "%s", blocking)
		}
		if narrow := policyNarrows(d, m, p); narrow != "" {
			c.add(Note, "Pod", "", "%s", narrow)
		}
	}
}

// refused is a Pod that does not check out for the pool.
func (c *Chain) refused(s document.Service, r document.Refusal, lost Level) {
	c.add(lost, reasonLink(r.Reason), reasonFix(r, s), "%s (%s): %s", r.Pod, r.Reason, r.Message)
}

// outside is a Pod that is in no pool and that nothing is known against.
func (c *Chain) outside(s document.Service, pod document.Pod, lost Level) {
	describe := "see why:\nkubectl -n " + s.Namespace() + " describe pod " + bare(pod.Pod)
	switch {
	case pod.Terminating:
		c.add(Waiting, "Pod", "", "%s is being deleted", pod.Pod)
	case pod.Finished:
		c.add(lost, "Pod", "", "%s has ended; nothing serves in it any more", pod.Pod)
	case pod.Malformed != "":
		c.add(lost, "node port", "npl-agent writes it anew when somebody else has; find out who", "the annotation of %s cannot be read: %s", pod.Pod, pod.Malformed)
	case !pod.Ready:
		c.add(lost, "Pod", describe, "%s is not ready", pod.Pod)
	default:
		c.add(Waiting, "member", "", "%s is ready and about to enter", pod.Pod)
	}
}

// why says why a member drains.
func why(s document.Service, m document.Member) string {
	i := slices.IndexFunc(s.Pods, func(p document.Pod) bool { return p.UID == m.PodUID })
	switch {
	case m.Deselected:
		return "the Service does not select its Pod any more"
	case i < 0:
		return "it is not wanted any more, or its Node drains"
	case s.Pods[i].Terminating:
		return "its Pod is being deleted"
	case !s.Pods[i].Ready:
		return "its Pod is not ready"
	case len(s.Pods[i].Mappings) == 0 && s.Source == "NodePortLocal":
		return "its node port was withdrawn"
	default:
		return "its Node drains, or another member takes its place"
	}
}

func memberName(m document.Member) string {
	if m.Pod == "" {
		return m.Address
	}
	return m.Pod + " at " + m.Address
}

func healthText(m document.Member) string {
	if m.Health == "" {
		return ""
	}
	return ", monitor says " + strings.ToLower(m.Health)
}

func connections(m document.Member) string {
	if m.Connections == nil || *m.Connections < 0 {
		return ""
	}
	return fmt.Sprintf(", %d connections", *m.Connections)
}

// list names some, so that the sentence stays one.
func list(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
