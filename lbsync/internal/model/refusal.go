package model

import (
	"cmp"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
)

// Reason says why a Pod is not a member, or not as it could be. The values appear in Events, metrics and status.
type Reason string

// The reasons.
const (
	MalformedAnnotation  Reason = "MalformedAnnotation"  // the Pod's annotation cannot be read; its last good members, if any, stay
	InvalidAnnotation    Reason = "InvalidAnnotation"    // an annotation of ours on the Pod cannot be read; what it said last stays
	TargetPortUnresolved Reason = "TargetPortUnresolved" // the Pod has no port of the name that targetPort asks for
	NotPublished         Reason = "NotPublished"         // no mapping for the target port yet
	NoAddress            Reason = "NoAddress"            // the Pod has no address of the Service's family, where its own is the member
	NodeUnknown          Reason = "NodeUnknown"          // the Pod's Node or its addresses are not known
	NodeGone             Reason = "NodeGone"             // the Pod's Node was deleted
	ForeignNodeAddress   Reason = "ForeignNodeAddress"   // the mapping's nodeIP is not an address of the Pod's Node
	PortOutOfRange       Reason = "PortOutOfRange"       // the mapping's node port is none that npl-agent gives, and no hostPort of the Pod
	Contested            Reason = "Contested"            // another Pod claims the same node port
	StillListed          Reason = "StillListed"          // another pool has not let go of the node port yet, for the Pod that had it before
	PoolFull             Reason = "PoolFull"             // the load balancer takes no more members in a pool
)

// Reasons lists every Reason, sorted.
func Reasons() []Reason {
	return []Reason{
		Contested, ForeignNodeAddress, InvalidAnnotation, MalformedAnnotation, NoAddress, NodeGone, NodeUnknown, NotPublished, PoolFull, PortOutOfRange,
		StillListed, TargetPortUnresolved,
	}
}

// Passing reports whether the reason is expected to go away by itself within moments, so that it deserves no Event.
func (r Reason) Passing() bool {
	return r == NotPublished || r == NodeUnknown || r == NodeGone || r == NoAddress || r == StillListed
}

// Refusal is one Pod that is not a member of one pool, or not as it could be, and why.
type Refusal struct {
	Key     providers.Key `json:"key"`
	Pod     string        `json:"pod"` // "namespace/name"
	PodUID  string        `json:"podUID"`
	Reason  Reason        `json:"reason"`
	Message string        `json:"message"`
}

// PodName returns the Pod's name without its namespace.
func (r Refusal) PodName() string { return strings.TrimPrefix(r.Pod, r.Key.Namespace+"/") }

// Sentence says it all in one line, for an Event on the Pod. A Pod may be a member with one address and not with another.
func (r Refusal) Sentence() string {
	switch r.Reason {
	case InvalidAnnotation:
		return r.Message
	case MalformedAnnotation:
		return "its annotation cannot be read in full for the pool " + r.Key.String() + ": " + r.Message
	case Contested, ForeignNodeAddress, NodeUnknown, PoolFull, PortOutOfRange, StillListed:
		return "not a member of the pool " + r.Key.String() + " with this address: " + r.Message
	default:
		return "not a member of the pool " + r.Key.String() + ": " + r.Message
	}
}

func compareRefusals(a, b Refusal) int {
	return cmp.Or(
		a.Key.Compare(b.Key),
		cmp.Compare(a.Pod, b.Pod),
		cmp.Compare(a.PodUID, b.PodUID),
		cmp.Compare(a.Reason, b.Reason),
		cmp.Compare(a.Message, b.Message),
	)
}
