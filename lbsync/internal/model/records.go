// Package model computes what a Service wants of the load balancer. It is pure: records in, values out; no clients, no
// logger, no clock.
package model

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

// ServiceKey names a Service.
type ServiceKey struct{ Namespace, Name string }

// String returns "namespace/name".
func (k ServiceKey) String() string { return k.Namespace + "/" + k.Name }

// ServiceKeyOf returns the Service that a key of the load balancer belongs to.
func ServiceKeyOf(k providers.Key) ServiceKey { return ServiceKey{k.Namespace, k.Service} }

// Service is what the model needs of a Service. A record is never changed after it was made.
type Service struct {
	ServiceKey
	UID     string
	Created time.Time

	// On names the provider instances that the Service asks for, sorted; empty when it asks for none of ours.
	On       []string
	Admitted bool // it carries our finalizer, so writing something new to a load balancer is safe
	Deleting bool
	// ManagedByOther is true when the Service carries the name of another lbsync, to which it is left.
	ManagedByOther bool
	// Abandoned names the provider instances whose load balancer is gone for good, as the user says: nothing there is waited for.
	Abandoned []string

	// Source is where members come from; never empty.
	Source          annotations.Source
	Selector        map[string]string
	Ports           []ServicePort
	Families        []npl.Family
	PublishNotReady bool
	// LocalOnly is true with externalTrafficPolicy Local: of Nodes as members, only those with a ready Pod take traffic.
	LocalOnly bool

	// VIPs are the addresses that the Lease holder has assigned, by provider instance, sorted; none where there are none or they are unreadable.
	VIPs map[string][]netip.Addr
	// Wishes are what the annotations ask for. What cannot be read is named in Wishes.Kept and stays as it is on the load balancer.
	Wishes annotations.Wishes
}

// Ours reports whether the Service asks for any of our provider instances.
func (s Service) Ours() bool { return len(s.On) > 0 }

// Wanted reports whether the Service is to be on the provider instance. Until it is admitted, that is only what is there.
func (s Service) Wanted(instance string) bool {
	return slices.Contains(s.On, instance) && !s.ManagedByOther && !s.Deleting && !s.Wishes.Unservable
}

// ServicePort is one port of a Service. Its target is a number or, when TargetNumber is 0, a name.
type ServicePort struct {
	Name         string
	Port         uint16
	Protocol     providers.Protocol
	TargetNumber uint16
	TargetName   string
	NodePort     uint16 // 0 when none is allocated
}

// Pod is what the model needs of a Pod. A record is never changed after it was made.
type Pod struct {
	Namespace, Name, UID string
	Labels               map[string]string
	Node                 string
	IPs                  []netip.Addr // empty until the Pod has one

	// Ready is the condition Ready, or for a Pod with our readiness gate what Ready would be without that gate: ContainersReady and the
	// other gates.
	Ready        bool
	ReadyChanged time.Time
	Terminating  bool
	Since        time.Time // when deletion was asked for, if Terminating
	Finished     bool      // phase Succeeded or Failed
	Gated        bool      // it has our readiness gate, and that is not True yet

	Ports     []ContainerPort       // named ports of containers and sidecars
	HostPorts []HostPort            // that its containers declare
	Weight    uint8                 // annotations.Weight, 1..20; 0 stands for 1
	Problems  []annotations.Problem // with annotations of the Pod that are ours; what they were last stays

	Mappings  []npl.Mapping // the good entries of the annotation
	Malformed string        // what is wrong with the annotation; empty when nothing is
	// Withdrawn are the mappings that the annotation had within the last WithdrawGrace and has no more.
	Withdrawn []Withdrawal
}

// Withdrawal is a mapping that was taken off a live Pod.
type Withdrawal struct {
	Mapping npl.Mapping
	At      time.Time // when that was seen
}

// WithdrawGrace is how long the member of a mapping that was taken off a live Pod may stay, and that of a live Pod which the Service does not
// select any more. npl-agent keeps the rule for 30 s longer than the annotation, so that connections can end, and so that a pool is not
// emptied by what is put right at once, such as an annotation of the Service that was lost.
const WithdrawGrace = 20 * time.Second

// withdrawDrain is how much of that is left for the connections of a member that served because nothing better was there.
const withdrawDrain = 5 * time.Second

// ID returns "namespace/name".
func (p *Pod) ID() string { return p.Namespace + "/" + p.Name }

// ContainerPort is a named port that a Service's targetPort can refer to.
type ContainerPort struct {
	Name     string
	Protocol providers.Protocol
	Number   uint16
}

// HostPort is a port of the Node that a container declares.
type HostPort struct {
	Protocol providers.Protocol
	Port     uint16
}

// Node is what the model needs of a Node. A record is never changed after it was made.
type Node struct {
	Name, UID string
	Labels    map[string]string
	Addresses []netip.Addr // of type InternalIP and ExternalIP, sorted
	Internal  []netip.Addr // of type InternalIP, in their order: what NodePort members are made of

	NotReady     bool // the condition Ready is not True
	ReadyChanged time.Time
	Excluded     bool // label node.kubernetes.io/exclude-from-external-load-balancers
	// Draining is true when its members take no new connections: the annotation annotations.Drain or, where configured, a cordon.
	Draining bool
	Problems []annotations.Problem // with annotations of the Node that are ours; what they were last stays
}

// Has reports whether a is an address of the Node.
func (n *Node) Has(a netip.Addr) bool {
	return slices.Contains(n.Addresses, a)
}

// Endpoint is a Pod that a Service selects, with its Node, which is nil while it is unknown or has no addresses.
type Endpoint struct {
	Pod      *Pod
	Node     *Node
	NodeGone bool // the deletion of the Node was seen; without it, a nil Node means only that it is not known
}

// Deselected is a Pod that a Service does not select although a member of it is in one of its pools.
type Deselected struct {
	Endpoint
	Since time.Time // when that was first seen
}

// Fate is what became of a Pod that a member belongs to.
type Fate int

// The fates.
const (
	// Gone is that of a Pod whose deletion was seen, and of one that was never known.
	Gone Fate = iota
	// Present is that of a Pod which the API server still has.
	Present
	// Lost is that of a Pod which was missing from a list though nobody saw its deletion. It becomes Gone after an hour.
	Lost
)

// Claim is a node port that a Pod's annotation says is its own.
type Claim struct {
	Address  netip.AddrPort
	Protocol npl.Protocol
}
