// Package onnode decides at which Nodes' addresses a Service is published that load balancers on Nodes serve. It is pure.
package onnode

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// Failure is a port of a Service that a load balancer cannot have, and not because it is about to.
type Failure struct {
	Port    string         `json:"port"` // "number/PROTOCOL"
	Kind    providers.Kind `json:"kind"`
	Problem string         `json:"problem"`
}

// PortName returns "number/PROTOCOL".
func PortName(k providers.Key) string { return fmt.Sprintf("%d/%s", k.Port, k.Protocol) }

// String returns it as a clause.
func (f Failure) String() string { return f.Port + ": " + f.Problem }

// Served is what one load balancer has of a Service.
type Served struct {
	At     []netip.Addr `json:"at,omitempty"` // where it has confirmed to listen for any port, sorted
	Failed []Failure    `json:"failed,omitempty"`
}

// Empty reports whether there is nothing to say.
func (s Served) Empty() bool { return len(s.At) == 0 && len(s.Failed) == 0 }

// Equal reports whether both say the same.
func (s Served) Equal(o Served) bool {
	return slices.Equal(s.At, o.At) && slices.Equal(s.Failed, o.Failed)
}

// Of returns what the load balancer has of a Service by its report; nothing of one that is not to be there.
func Of(r loop.Report) (out Served) {
	if !r.Wanted {
		return out
	}
	for _, p := range r.Ports {
		out.At = append(out.At, p.VIPs...)
		if len(p.VIPs) == 0 && p.Problem != "" && lasting(p.Kind) {
			out.Failed = append(out.Failed, Failure{PortName(p.Key), p.Kind, p.Problem})
		}
	}
	slices.SortFunc(out.At, providers.CompareAddrs)
	out.At = slices.Compact(out.At)
	return out
}

// lasting reports whether a failure of the kind stays until somebody does something.
func lasting(kind providers.Kind) bool {
	return kind == providers.Rejected || kind == providers.Misconfigured
}

// Share is what a load balancer on a Node has of a Service, as the Lease holder sees it.
type Share struct {
	Identity string // of the process beside it
	NodeName string
	Node     *model.Node // nil when there is none of that name
	Away     string      // why nothing that it says counts; "" when it does
	Served
}

// Compare orders by Node, then identity.
func (s Share) Compare(o Share) int {
	return cmp.Or(strings.Compare(s.NodeName, o.NodeName), strings.Compare(s.Identity, o.Identity))
}

// listens returns the addresses of its Node where it serves any port.
func (s Share) listens() []netip.Addr {
	if s.Away != "" || s.Node == nil {
		return nil
	}
	return s.Node.Publishes(s.At)
}

// Listed is an address at which the Service is published.
type Listed struct {
	Addr   netip.Addr
	Failed []Failure // ports that cannot be had there
}

// List returns where the Service is published: of the Nodes that serve it, those that have to do without the fewest ports, so that a Node on
// which something else has a port is left out as long as another one has them all. It is sorted, and each address is there once.
func List(shares []Share) (out []Listed) {
	fewest := -1
	for _, s := range shares {
		if len(s.listens()) > 0 && (fewest < 0 || len(s.Failed) < fewest) {
			fewest = len(s.Failed)
		}
	}
	for _, s := range shares {
		if len(s.Failed) != fewest {
			continue
		}
		for _, a := range s.listens() {
			out = append(out, Listed{a, s.Failed})
		}
	}
	slices.SortFunc(out, func(x, y Listed) int { return providers.CompareAddrs(x.Addr, y.Addr) })
	return slices.CompactFunc(out, func(x, y Listed) bool { return x.Addr == y.Addr })
}

// podGone is why a process whose Pod is no more does not count.
const podGone = "its Pod is gone"

// PodGone reports whether the Pod is no more that the process ran in, and its load balancer with it.
func (s Share) PodGone() bool { return s.Away == podGone }

// Grace is for how long the Pod of a process may be not ready before that counts: lbsync is started anew in less, while its HAProxy serves.
const Grace = 10 * time.Second

// Pod is the Pod that a process runs in.
type Pod struct {
	UID   string // as the process says; "" when it is in none
	Found *model.Pod
}

// Away returns why a load balancer on a Node does not count, or "". silent is true when nothing was heard of the process for long.
func Away(node *model.Node, nodeName string, pod Pod, silent bool, now time.Time) string {
	p := pod.Found
	switch {
	case pod.UID != "" && (p == nil || p.UID != pod.UID || p.Finished):
		return podGone
	case node == nil:
		return "there is no Node " + nodeName
	case node.NotReady:
		return "Node " + nodeName + " is not ready"
	case pod.UID != "" && p.Terminating:
		return "its Pod is being stopped"
	case pod.UID != "" && !p.Ready && now.Sub(p.ReadyChanged) >= Grace:
		return "its Pod is not ready"
	case silent:
		return "nothing is heard of its lbsync"
	}
	return ""
}
