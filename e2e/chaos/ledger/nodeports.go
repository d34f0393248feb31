package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// NodePorts remembers who had which node port when, from the annotations that a watch showed, and holds them to I2: a mapping keeps its
// port, and a port goes to another Pod only after the cool-down. It is not safe for concurrent use.
type NodePorts struct {
	coolDown time.Duration
	holders  map[Port]holder
	sticky   map[mapping]Port
	reused   int
	least    time.Duration
}

// Port is a node port of a Node.
type Port struct {
	NodeIP   string
	Protocol npl.Protocol
	Number   uint16
}

// String is the port as people read it.
func (p Port) String() string { return fmt.Sprintf("%s:%d/%s", p.NodeIP, p.Number, p.Protocol) }

type mapping struct {
	uid      string
	podPort  uint16
	protocol npl.Protocol
	family   npl.Family
}

type holder struct {
	uid, pod string
	until    time.Time // zero while it has the port
}

// NewNodePorts returns one that expects this cool-down, less what the events of a watch may be apart.
func NewNodePorts(coolDown time.Duration) *NodePorts {
	return &NodePorts{coolDown: coolDown, holders: map[Port]holder{}, sticky: map[mapping]Port{}}
}

// Published notes what a Pod's annotation lists from now on, and returns what is against I2.
func (n *NodePorts) Published(at time.Time, uid, pod string, mappings []npl.Mapping) (violations []string) {
	listed := map[Port]bool{}
	for _, m := range mappings {
		port := Port{m.NodeIP.String(), m.Protocol, m.NodePort}
		id := mapping{uid, m.PodPort, m.Protocol, m.Family}
		listed[port] = true
		if before, known := n.sticky[id]; known && before != port {
			violations = append(violations, fmt.Sprintf("I2: port %d/%s of Pod %s moved from node port %v to %v", m.PodPort, m.Protocol, pod, before, port))
		}
		n.sticky[id] = port
		h, had := n.holders[port]
		switch gap := at.Sub(h.until); {
		case !had || h.uid == uid:
		case h.until.IsZero():
			violations = append(violations, fmt.Sprintf("I2: node port %v is given to Pod %s while Pod %s has it", port, pod, h.pod))
		default:
			n.reused++
			if n.reused == 1 || gap < n.least {
				n.least = gap
			}
			if gap < n.coolDown {
				violations = append(violations, fmt.Sprintf("I2: node port %v is given to Pod %s %v after Pod %s had it, and the cool-down is %v",
					port, pod, gap.Round(time.Millisecond), h.pod, n.coolDown))
			}
		}
		n.holders[port] = holder{uid: uid, pod: pod}
	}
	n.release(at, uid, listed)
	slices.SortFunc(violations, cmp.Compare[string])
	return violations
}

// Gone notes that a Pod no longer exists.
func (n *NodePorts) Gone(at time.Time, uid string) {
	n.release(at, uid, nil)
	for id := range n.sticky {
		if id.uid == uid {
			delete(n.sticky, id)
		}
	}
}

// release ends what a Pod had and its annotation does not list any more.
func (n *NodePorts) release(at time.Time, uid string, listed map[Port]bool) {
	for port, h := range n.holders {
		if h.uid == uid && h.until.IsZero() && !listed[port] {
			n.holders[port] = holder{uid: h.uid, pod: h.pod, until: at}
		}
	}
}

// Reused returns how often a node port went to another Pod, and the least time that lay between the two.
func (n *NodePorts) Reused() (times int, least time.Duration) { return n.reused, n.least }
