package loop

import "github.com/nplbridge/nplbridge/agent/internal/model"

// The reasons this package refuses for; package model has the others.
const (
	// PortsExhausted: no free node port is left for everything the Pod needs. It gets them as soon as they are free.
	PortsExhausted model.Reason = "PortsExhausted"
	// PortsUnconfirmed: the node ports that are left may still be listed by a load balancer.
	PortsUnconfirmed model.Reason = "PortsUnconfirmed"
	// PortBusy: another process holds a port that is in use for a Pod already.
	PortBusy model.Reason = "PortBusy"
	// PortTaken: a Pod came with a host port that is in use for another Pod, and there is no other port to move that one to.
	PortTaken model.Reason = "PortTaken"
	// AnnotationUnreadable: somebody wrote junk into the annotation. It is replaced.
	AnnotationUnreadable model.Reason = "AnnotationUnreadable"
	// PublishFailed: the API server refuses the annotation. It is tried again.
	PublishFailed model.Reason = "PublishFailed"
)

// Explanation is one reason in words, for the reference.
type Explanation struct {
	Reason  model.Reason
	Object  string // the kind of object the Event is on
	Meaning string
	Remedy  string
}

// Explanations are all reasons for which something can be refused: each is the reason of an Event, the label of a metric and a row of
// the status document.
func Explanations() []Explanation {
	return []Explanation{
		{model.ServiceTypeUnsupported, "Service", "the Service is enabled, but it is neither ClusterIP nor LoadBalancer",
			"change its type, or take the annotation `nodeportlocal.antrea.io/enabled` off"},
		{model.TargetPortUnknown, "Pod", "no container or sidecar of the Pod declares a port of the name and protocol that the Service's `targetPort` asks for",
			"name a port of the container so, or use its number"},
		{model.PodAddressMissing, "Pod", "the Service wants a family of which the Pod has no address", "give the Service the families that the Pod network has"},
		{model.NodeAddressMissing, "Pod", "the Service wants a family of which the Node has no address that may be published",
			"see `nodeAddressTypes` and `nodeAddressCIDRs`, or give the Node such an address"},
		{model.FamilyUnsupported, "Pod", "the Service wants a family that this Node's kernel cannot serve", "enable it there, or take it from the Service's `ipFamilies`"},
		{PortsExhausted, "Pod", "`portRange` has not as many free node ports as the Pod needs; it has none until it can have all", "widen `portRange`, shorten `coolDown`, or wait: the Pod is served as soon as ports are free"},
		{PortsUnconfirmed, "Pod", "the node ports that are left have cooled down, but a load balancer may still list them for the Pods that had them; the message names whose watermark is waited for",
			"see that this lbsync runs and reaches its load balancer; retire it if it is gone for good"},
		{PortBusy, "Pod", "another process listens on a node port that is in use for the Pod already; the rule stays", "stop that process, or delete the Pod"},
		{PortTaken, "Pod", "the Pod's node port is a host port of another Pod by now, or outside `portRange`, and there is no free one to move to", "widen `portRange`, or move one of the Pods elsewhere"},
		{AnnotationUnreadable, "Pod", "somebody wrote something into the annotation `nodeportlocal.antrea.io` that cannot be read", "nothing: it is replaced at once; find out who did"},
		{PublishFailed, "Pod", "the API server does not take the annotation; it is tried again, and the rule stays", "the message says why: rights, an admission policy or webhook, or the API server is not well"},
	}
}

// Reasons are those of Explanations.
func Reasons() []model.Reason {
	var out []model.Reason
	for _, e := range Explanations() {
		out = append(out, e.Reason)
	}
	return out
}
