// Package model computes what a Service wants of the load balancer. It is pure: records in, values out; no clients, no
// logger, no clock.
package model

import (
	"net/netip"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
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

	Ours     bool // type LoadBalancer of our class
	Admitted bool // it carries our finalizer, so writing something new to the load balancer is safe
	Deleting bool
	// ManagedByOther is true when the Service carries the name of another lbsync, to which it is left.
	ManagedByOther bool
	// Unservable is true when the Service asks for a restriction that nobody here can enforce: serving it without would
	// let in whom it keeps out.
	Unservable bool

	Selector        map[string]string
	Ports           []ServicePort
	Families        []npl.Family
	PublishNotReady bool

	VIPs      []netip.Addr        // assigned by the Lease holder, sorted; empty when none or unreadable
	Algorithm providers.Algorithm // empty when the annotation is malformed: keep what is there
}

// Wanted reports whether the Service is to be on the load balancer. Until it is admitted, that is only what is there.
func (s Service) Wanted() bool {
	return s.Ours && !s.ManagedByOther && !s.Deleting && !s.Unservable
}

// ServicePort is one port of a Service. Its target is a number or, when TargetNumber is 0, a name.
type ServicePort struct {
	Port         uint16
	Protocol     providers.Protocol
	TargetNumber uint16
	TargetName   string
}

// Pod is what the model needs of a Pod. A record is never changed after it was made.
type Pod struct {
	Namespace, Name, UID string
	Labels               map[string]string
	Node                 string

	Ready        bool // condition Ready is True
	ReadyChanged time.Time
	Terminating  bool
	Since        time.Time // when deletion was asked for, if Terminating
	Finished     bool      // phase Succeeded or Failed

	Ports []ContainerPort // named ports of containers and sidecars

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

// WithdrawGrace is how long the member of a mapping that was taken off a live Pod may stay. npl-agent keeps the rule for 30 s longer
// than the annotation, so that connections can end, and so that a pool is not emptied by what is put right at once, such as an
// annotation of the Service that was lost.
const WithdrawGrace = 20 * time.Second

// ID returns "namespace/name".
func (p *Pod) ID() string { return p.Namespace + "/" + p.Name }

// ContainerPort is a named port that a Service's targetPort can refer to.
type ContainerPort struct {
	Name     string
	Protocol providers.Protocol
	Number   uint16
}

// Node is what the model needs of a Node.
type Node struct {
	Name      string
	Addresses []netip.Addr
}

// Has reports whether a is an address of the Node.
func (n *Node) Has(a netip.Addr) bool {
	return slices.Contains(n.Addresses, a)
}

// Endpoint is a Pod that a Service selects, with its Node, which is nil while it is unknown or has no addresses.
type Endpoint struct {
	Pod  *Pod
	Node *Node
}

// Claim is a node port that a Pod's annotation says is its own.
type Claim struct {
	Address  netip.AddrPort
	Protocol npl.Protocol
}
