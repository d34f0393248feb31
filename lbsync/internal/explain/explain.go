// Package explain says, from a status document alone, why traffic for something does or does not reach Pods. It follows the way that
// traffic takes, VIP, virtual server, pool, member, node port, Pod, and stops at the first link that is broken. It is pure.
package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/lbsync/internal/document"
)

// Level is how a link is.
type Level string

// The levels. What is Waiting needs no hand; a Note breaks nothing.
const (
	Good    Level = "ok"
	Note    Level = "note"
	Waiting Level = "waiting"
	Broken  Level = "broken"
)

// Step is one link of the way.
type Step struct {
	Level Level  `json:"level"`
	Link  string `json:"link"`          // "VIP", "pool", "Pod"
	Found string `json:"found"`         // one sentence without a full stop
	Fix   string `json:"fix,omitempty"` // what to do: a sentence, or a command on a line of its own
}

// Chain is one way, from one VIP or pool on.
type Chain struct {
	Title string `json:"title"`
	Steps []Step `json:"steps"`
}

// Explanation is the answer.
type Explanation struct {
	Target string  `json:"target"`
	Chains []Chain `json:"chains"`
}

// Broken reports whether any link is.
func (e Explanation) Broken() bool {
	return slices.ContainsFunc(e.Chains, func(c Chain) bool { return c.worst() == Broken })
}

func (c Chain) worst() Level {
	worst := Good
	for _, s := range c.Steps {
		switch {
		case s.Level == Broken:
			return Broken
		case s.Level == Waiting:
			worst = Waiting
		}
	}
	return worst
}

func (c *Chain) add(level Level, link, fix, format string, args ...any) {
	c.Steps = append(c.Steps, Step{Level: level, Link: link, Found: fmt.Sprintf(format, args...), Fix: fix})
}

// Service explains a Service, "namespace/name".
func Service(d document.Document, name string) Explanation {
	e := Explanation{Target: "Service " + name}
	s := service(d, name)
	if s == nil {
		e.Chains = []Chain{unknown(d, name)}
		return e
	}
	head := Chain{Title: "Service " + name}
	if !head.process(d) || !head.service(*s) || len(s.Ports) == 0 {
		if len(s.Ports) == 0 && head.worst() == Good {
			head.nothing(d, *s)
		}
		e.Chains = []Chain{head}
		return e
	}
	e.Chains = append(e.Chains, head)
	for _, p := range s.Ports {
		c := Chain{Title: title(*s, p)}
		if c.port(d, *s, p) {
			c.members(d, *s, p)
		}
		e.Chains = append(e.Chains, c)
	}
	if missing := missing(*s); len(missing) > 0 {
		c := Chain{Title: "other load balancers"}
		for _, name := range missing {
			c.unreported(d, name)
		}
		e.Chains = append(e.Chains, c)
	}
	return e
}

// Pod explains a Pod, "namespace/name".
func Pod(d document.Document, name string) Explanation {
	e := Explanation{Target: "Pod " + name}
	for _, s := range d.Services {
		if !knows(s, name) {
			continue
		}
		head := Chain{Title: "Service " + s.Service}
		if !head.process(d) || !head.service(s) {
			e.Chains = append(e.Chains, head)
			continue
		}
		for _, p := range s.Ports {
			c := Chain{Title: title(s, p), Steps: slices.Clone(head.Steps)}
			if c.port(d, s, p) {
				c.pod(d, s, p, name, Broken)
			}
			e.Chains = append(e.Chains, c)
		}
	}
	if len(e.Chains) == 0 {
		c := Chain{Title: e.Target}
		if c.process(d) {
			namespace, _, _ := strings.Cut(name, "/")
			c.add(Broken, "Service", "compare the selectors of the Services with the labels of the Pod:\nkubectl -n "+namespace+" get services -o wide\n"+
				"kubectl -n "+namespace+" get pod "+bare(name)+" --show-labels", "no Service that lbsync serves selects this Pod, or there is no such Pod")
		}
		e.Chains = []Chain{c}
	}
	return e
}

// VIP explains an address of a load balancer, "192.0.2.1" or "192.0.2.1:443".
func VIP(d document.Document, at string) (Explanation, error) {
	e := Explanation{Target: "VIP " + at}
	addr, port, err := parseVIP(at)
	if err != nil {
		return e, err
	}
	c := Chain{Title: e.Target}
	var others []string
	for _, s := range d.Services {
		for _, p := range s.Ports {
			if !slices.Contains(p.VIPs, addr.String()) {
				continue
			}
			if port != 0 && p.Port != port {
				others = append(others, fmt.Sprintf("%d/%s (%s)", p.Port, p.Protocol, s.Service))
				continue
			}
			way := Chain{Title: title(s, p)}
			if way.process(d) && way.service(s) && way.port(d, s, p) {
				way.members(d, s, p)
			}
			e.Chains = append(e.Chains, way)
		}
	}
	switch {
	case len(e.Chains) > 0 || !c.process(d):
	case len(others) > 0:
		slices.Sort(others)
		c.add(Broken, "virtual server", "", "no Service has port %d of %s; it has %s", port, addr, strings.Join(slices.Compact(others), ", "))
	default:
		c.add(Broken, "VIP", "ask for the address in a Service by nplbridge.io/load-balancer-ips, or see which are given:\nlbsync status",
			"no virtual server of ours has the address %s", addr)
	}
	if len(e.Chains) == 0 {
		e.Chains = []Chain{c}
	}
	return e, nil
}

// Member explains what a load balancer lists, "192.0.2.11:61000".
func Member(d document.Document, at string) (Explanation, error) {
	e := Explanation{Target: "member " + at}
	text, protocol, _ := strings.Cut(at, "/")
	address, err := netip.ParseAddrPort(text)
	if err != nil || address.Port() == 0 {
		return e, fmt.Errorf("%q is not a member: write ADDRESS:PORT as the load balancer lists it, for example 192.0.2.11:61000 or [2001:db8::11]:61000", at)
	}
	is := func(p document.Port) bool { return protocol == "" || strings.EqualFold(protocol, p.Protocol) }
	for _, s := range d.Services {
		for _, p := range s.Ports {
			for _, m := range p.Members {
				if m.Address == address.String() && is(p) {
					c := Chain{Title: title(s, p)}
					if c.process(d) && c.service(s) && c.port(d, s, p) {
						c.member(d, s, p, m, Broken)
					}
					e.Chains = append(e.Chains, c)
				}
			}
		}
	}
	if len(e.Chains) > 0 {
		return e, nil
	}
	c := Chain{Title: e.Target}
	if c.process(d) {
		c.stranger(d, address)
	}
	e.Chains = []Chain{c}
	return e, nil
}

func parseVIP(at string) (netip.Addr, uint16, error) {
	if addr, err := netip.ParseAddr(strings.Trim(at, "[]")); err == nil {
		return addr.Unmap(), 0, nil
	}
	both, err := netip.ParseAddrPort(at)
	if err != nil || both.Port() == 0 {
		return netip.Addr{}, 0, fmt.Errorf("%q is not a VIP: write an address, or ADDRESS:PORT, for example 192.0.2.1 or [2001:db8::1]:443", at)
	}
	return both.Addr().Unmap(), both.Port(), nil
}

func service(d document.Document, name string) *document.Service {
	for i := range d.Services {
		if d.Services[i].Service == name {
			return &d.Services[i]
		}
	}
	return nil
}

// knows reports whether the Service has to do with the Pod.
func knows(s document.Service, pod string) bool {
	if slices.ContainsFunc(s.Pods, func(p document.Pod) bool { return p.Pod == pod }) {
		return true
	}
	return slices.ContainsFunc(s.Ports, func(p document.Port) bool {
		return slices.ContainsFunc(p.Members, func(m document.Member) bool { return m.Pod == pod }) ||
			slices.ContainsFunc(p.Refusals, func(r document.Refusal) bool { return r.Pod == pod })
	})
}

// missing returns the load balancers that the Service asks for and that say nothing about it.
func missing(s document.Service) []string {
	return slices.DeleteFunc(slices.Clone(s.On), func(name string) bool {
		return slices.ContainsFunc(s.Ports, func(p document.Port) bool { return p.Provider == name })
	})
}

func title(s document.Service, p document.Port) string {
	return fmt.Sprintf("%s:%d/%s on %s", s.Service, p.Port, p.Protocol, p.Provider)
}

// bare returns a name without its namespace.
func bare(name string) string {
	_, out, ok := strings.Cut(name, "/")
	if !ok {
		return name
	}
	return out
}
