// Package watermark is the contract between whoever keeps node ports in load balancers and whoever gives node ports to Pods: one
// small object per load balancer that says which removals it has acknowledged. A node port is given to another Pod only when no
// load balancer can still list the Pod that had it.
//
// It uses the standard library only, so that any writer or reader can import it.
//
// # The object
//
// A ConfigMap with the label Label set to LabelValue, in the namespace that the readers are told (their setting
// watermarkNamespace), one for each load balancer of each writer. Its data key DataKey holds what Encode returns.
//
// # What a writer must promise
//
// With an object it states: every removal that follows from what I had seen of Pods up to and including resourceVersion Seen is
// acknowledged by this load balancer, except the node ports in Held. For that to be true, a writer
//
//   - creates the object before it writes the first member to the load balancer, with the resourceVersion of its first complete
//     list of Pods, and deletes it only when this load balancer lists nothing of it any more, or is gone for good;
//   - takes for Seen a resourceVersion of Pods that its own model was computed from: of a list, a watch event or a bookmark, never
//     one it has merely heard of. Seen never goes back;
//   - puts every node port into Held that the load balancer still lists, or may list after an unanswered call, although no Pod's
//     annotation lists it at Seen: a removal held by a policy, draining, refused, or not tried yet;
//   - follows the annotation or deletion of the Pod alone here. A member may leave earlier for other reasons, never later.
//
// Safety does not depend on how often it writes. For readers to get on, it writes when removals were acknowledged (many at once are
// one write), when Held changes, and at most once a minute as long as a Pod it selects has no node port yet, for that Pod may be
// waiting for this very object.
package watermark

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// Label marks the ConfigMaps that are watermarks; readers select by it.
	Label = "nplbridge.io/watermark"
	// LabelValue is the version of the format.
	LabelValue = "v1"
	// DataKey is the key of the ConfigMap's data that holds the watermark.
	DataKey = "watermark"
)

// NoWatermark is what Confirmed waits for when there is no watermark at all.
const NoWatermark = "the first watermark"

// Watermark is what one writer says of one load balancer.
type Watermark struct {
	// Instance is the writer, "namespace/name".
	Instance string
	// LoadBalancer is the provider's name, or what tells one local load balancer (HAProxy) from another.
	LoadBalancer string
	// Seen is a resourceVersion of Pods.
	Seen string
	// At is when it was written, to the second. It is for people; nothing is decided by it.
	At time.Time
	// Held are node ports that the load balancer may still list.
	Held []NodePort
}

// NodePort is one port of one Node.
type NodePort struct {
	Node     string
	Protocol string // "tcp", "udp" or "sctp"
	Family   string // "IPv4" or "IPv6"
	Port     uint16 // 1..65535
}

// Compare orders by Node, Port, Protocol and Family.
func (p NodePort) Compare(o NodePort) int {
	return cmp.Or(cmp.Compare(p.Node, o.Node), cmp.Compare(p.Port, o.Port), cmp.Compare(p.Protocol, o.Protocol), cmp.Compare(p.Family, o.Family))
}

// String returns "61000/tcp IPv4 on node-1".
func (p NodePort) String() string {
	return strconv.Itoa(int(p.Port)) + "/" + p.Protocol + " " + p.Family + " on " + p.Node
}

// Name says whose watermark it is: "nplbridge-system/lbsync (haproxy)".
func (w Watermark) Name() string {
	if w.LoadBalancer == "" {
		return w.Instance
	}
	return w.Instance + " (" + w.LoadBalancer + ")"
}

// Confirmed reports whether no load balancer can still list a node port that was withdrawn at a resourceVersion of Pods: that of the
// annotation that no longer lists it, or of the deletion of its Pod. If not, waitingFor names the watermarks that do not say so, sorted
// and without duplicates; it is never empty then. Without any watermark nothing is confirmed, and a watermark whose Seen
// is not a resourceVersion confirms nothing.
func Confirmed(marks []Watermark, port NodePort, withdrawnAt string) (ok bool, waitingFor []string) {
	if len(marks) == 0 {
		return false, []string{NoWatermark}
	}
	for _, m := range marks {
		if c, comparable := CompareVersions(m.Seen, withdrawnAt); !comparable || c < 0 || slices.Contains(m.Held, port) {
			waitingFor = append(waitingFor, m.Name())
		}
	}
	slices.Sort(waitingFor)
	return len(waitingFor) == 0, slices.Compact(waitingFor)
}

// CompareVersions compares two resourceVersions of the same resource: -1, 0 or 1. ok is false if one of them is not a positive decimal
// integer without leading zeros; it may be of any length. That they can be compared so is Kubernetes' own rule
// (k8s.io/apimachinery/pkg/util/resourceversion).
func CompareVersions(a, b string) (c int, ok bool) {
	if !validVersion(a) || !validVersion(b) {
		return 0, false
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)), true
}

func validVersion(s string) bool {
	if s == "" || s[0] == '0' {
		return false
	}
	return strings.Trim(s, "0123456789") == ""
}
