// Package model says what must be reachable: from Pods, Services and the own Node it computes the mappings each Pod should
// have, and why others cannot be. It is pure: no API objects, no clients, no clock, no logger.
//
// The rules are those of Antrea's NodePortLocal, with the gaps closed that its users reported: sidecars' named ports,
// hostIP of host ports, and a family fallback for the Node's address.
package model

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// ID is the identity of a mapping. While it stays, the node port stays. An IP address is not part of it: addresses are reused.
type ID struct {
	PodUID   string
	PodPort  uint16
	Protocol npl.Protocol
	Family   npl.Family
}

// Compare orders by PodUID, PodPort, Protocol, Family.
func (i ID) Compare(o ID) int {
	return cmp.Or(cmp.Compare(i.PodUID, o.PodUID), cmp.Compare(i.PodPort, o.PodPort), cmp.Compare(i.Protocol, o.Protocol), cmp.Compare(i.Family, o.Family))
}

// Key names a node port: what a rule in the kernel is found by. The same number may be in use once per protocol and family.
type Key struct {
	Protocol npl.Protocol
	Family   npl.Family
	NodePort uint16
}

// Compare orders by Protocol, Family, NodePort.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Protocol, o.Protocol), cmp.Compare(k.Family, o.Family), cmp.Compare(k.NodePort, o.NodePort))
}

// Pod is what the model needs to know of a Pod of this Node.
type Pod struct {
	UID, Namespace, Name string
	Created              time.Time
	Labels               map[string]string
	IPs                  []netip.Addr
	// Terminated Pods (phase Succeeded or Failed) have given up their address.
	Terminated bool
	// Vanishing Pods are terminated ones whose deletion was asked for and whose object nothing holds: the kubelet removes it any moment.
	Vanishing bool
	// Ports that containers and sidecars (init containers that restart always) declare, in that order.
	Ports []ContainerPort
	// Annotation is the raw value of npl.Annotation; Annotated tells "" from absent.
	Annotation string
	Annotated  bool
	// ResourceVersion of the object this was read from.
	ResourceVersion string
}

// String returns "namespace/name".
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// IP returns the Pod's first address of a family.
func (p Pod) IP(f npl.Family) (netip.Addr, bool) { return firstOf(p.IPs, f) }

// ContainerPort is one declared port of a container.
type ContainerPort struct {
	Name     string
	Port     uint16
	Protocol npl.Protocol
	HostPort uint16     // 0 when there is none
	HostIP   netip.Addr // invalid when the host port is open on every address
}

// Service is what the model needs to know of a Service. Only enabled ones matter; see npl.Enabled.
type Service struct {
	Namespace, Name string
	Type            string // as in core/v1
	Selector        map[string]string
	Families        []npl.Family
	Ports           []ServicePort
}

// String returns "namespace/name".
func (s Service) String() string { return s.Namespace + "/" + s.Name }

// ServicePort is one port of a Service. The target is TargetName if that is set, else TargetPort.
type ServicePort struct {
	Protocol   npl.Protocol
	TargetPort uint16
	TargetName string
}

// Node is the own Node.
type Node struct {
	Name      string
	Addresses []NodeAddress
}

// NodeAddress is one entry of Node.status.addresses that is an IP address.
type NodeAddress struct {
	Type string // "InternalIP" or "ExternalIP"
	IP   netip.Addr
}

// Input is everything the model is computed from.
type Input struct {
	Node      Node
	Pods      []Pod
	Services  []Service     // the enabled ones
	Addresses AddressPolicy // which of the Node's are published
	// IPFamilies are those to serve. A Service's others are left out silently.
	IPFamilies []npl.Family
	// KernelFamilies are those the kernel can serve.
	KernelFamilies []npl.Family
}

// AddressPolicy says which of a Node's addresses is published.
type AddressPolicy struct {
	// Types of Node address, most wanted first.
	Types []string
	// CIDRs, if any, leave only the addresses inside one of them to choose from.
	CIDRs []netip.Prefix
}

// Reason is why something wanted is refused. It is the reason of the Event and the label of the metric.
type Reason string

// The reasons the model gives.
const (
	// ServiceTypeUnsupported: an enabled Service is neither ClusterIP nor LoadBalancer.
	ServiceTypeUnsupported Reason = "ServiceTypeUnsupported"
	// TargetPortUnknown: no container of the Pod declares a port of that name and protocol.
	TargetPortUnknown Reason = "TargetPortUnknown"
	// PodAddressMissing: the Service wants a family of which the Pod has no address.
	PodAddressMissing Reason = "PodAddressMissing"
	// NodeAddressMissing: the Service wants a family of which the Node has no address to publish.
	NodeAddressMissing Reason = "NodeAddressMissing"
	// FamilyUnsupported: the Service wants a family that this Node's kernel cannot serve.
	FamilyUnsupported Reason = "FamilyUnsupported"
)

// Refusal is one thing that a Service asks for a Pod and that cannot be. One that is about the Service alone names no Pod.
type Refusal struct {
	Reason  Reason
	PodUID  string // empty if Pod is
	Pod     string // "namespace/name"; may be empty
	Service string // "namespace/name"; may be empty
	Message string // names object and value, and the fix
}

// Compare orders by Pod, Service, Reason, Message.
func (r Refusal) Compare(o Refusal) int {
	return cmp.Or(cmp.Compare(r.Pod, o.Pod), cmp.Compare(r.PodUID, o.PodUID), cmp.Compare(r.Service, o.Service), cmp.Compare(r.Reason, o.Reason), cmp.Compare(r.Message, o.Message))
}

// Want is one mapping a Pod should have.
type Want struct {
	ID     ID
	Target netip.AddrPort // the Pod's address and port
	NodeIP netip.Addr     // to publish
	// HostPort, if not 0, is published as it is: the container runtime already serves it, so it needs no rule.
	HostPort uint16
	// Services that ask for it, "namespace/name", sorted.
	Services []string
}

// PodWants is a live Pod and what it should have, which may be nothing. Wants are in the order of their IDs.
type PodWants struct {
	Pod   Pod
	Wants []Want
}

// Model is the answer.
type Model struct {
	// Pods are those that have not terminated and those that still carry the annotation, oldest first.
	Pods []PodWants
	// HostPorts are ports of this Node that Pods take by themselves, with the UID of one that does.
	HostPorts map[Key]string
	Refusals  []Refusal
}
