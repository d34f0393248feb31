package explain

import (
	"fmt"

	"github.com/nplbridge/nplbridge/lbsync/internal/document"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// kindFix is what to do about an error of a kind.
func kindFix(kind string) string {
	switch providers.Kind(kind) {
	case providers.Misconfigured:
		return "a person must act: correct what the message names, then see:\nlbsync check"
	case providers.Rejected:
		return "change what the message names; it is tried again then, and every few minutes"
	case providers.Throttled, providers.Conflict:
		return "nothing: it is tried again by itself"
	default:
		return "see that it can be reached; it is tried again within seconds:\nlbsync check"
	}
}

// downFix is where to look when the load balancer gets no answer from a member.
func downFix(s document.Service, m document.Member) string {
	if s.Source != "NodePortLocal" {
		return "try it from the load balancer's network; a firewall, a NetworkPolicy or the Pod itself does not answer"
	}
	return fmt.Sprintf("ask its Node who is behind the port, and what keeps packets away:\nnpl-agent status --port %s\nnpl-agent check", m.Address)
}

// reasonLink is the link that a refusal is about.
func reasonLink(reason string) string {
	switch model.Reason(reason) {
	case model.TargetPortUnresolved:
		return "Service"
	case model.PoolFull:
		return "pool"
	case model.NoAddress:
		return "Pod"
	default:
		return "node port"
	}
}

// reasonFix is what to do about a refusal.
func reasonFix(r document.Refusal, s document.Service) string {
	pod := "kubectl -n " + s.Namespace() + " get pod " + bare(r.Pod) + " -o yaml"
	switch model.Reason(r.Reason) {
	case model.NotPublished:
		return "ask the npl-agent of the Pod's Node; under REFUSALS it says why:\nnpl-agent status"
	case model.InvalidAnnotation:
		return "mend the annotation of the Pod, in the template of its Deployment for good, or take it off:\n" + pod
	case model.MalformedAnnotation:
		return "find out who writes the annotation, since npl-agent writes a good one:\n" + pod
	case model.Contested:
		return "one of the annotations is forged or left over; the Node itself knows whose the port is:\nnpl-agent status"
	case model.ForeignNodeAddress:
		return "compare the annotation with the addresses of the Node; nodeAddressTypes and nodeAddressCIDRs of npl-agent decide which it publishes:\n" + pod
	case model.PortOutOfRange:
		return "set portRange of lbsync to that of the npl-agents, or to nothing; or find out who wrote the annotation:\n" + pod
	case model.NoAddress:
		return "wait until the Pod has an address; for good, compare spec.ipFamilies of the Service with the families of Pods:\n" + pod
	case model.NodeGone:
		return "nothing: Kubernetes deletes the Pods of a Node that is gone"
	case model.StillListed:
		return "see why the other pool does not let go; the member comes as soon as it has:\nlbsync status -A -o wide"
	case model.NodeUnknown:
		return "see whether the Node is there and has addresses:\nkubectl get nodes -o wide"
	case model.TargetPortUnresolved:
		return "name a port of a container, or write targetPort as a number"
	case model.PoolFull:
		return "spread the Pods over more Services, or have fewer"
	default:
		return ""
	}
}
