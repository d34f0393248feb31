package annotations

import (
	"net/netip"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// Source is where the members of a Service's pools come from.
type Source string

// The sources.
const (
	// NodePortLocal members are the node ports of Pods that the annotation nodeportlocal.antrea.io names.
	NodePortLocal Source = "NodePortLocal"
	// NodePort members are Nodes, with the Service's node port.
	NodePort Source = "NodePort"
	// ClusterIP members are Pods, with their own addresses, where the load balancer can reach those.
	ClusterIP Source = "ClusterIP"
)

// Sources lists every Source.
func Sources() []Source { return []Source{NodePortLocal, NodePort, ClusterIP} }

// Wishes is what the annotations of a Service ask for, together with the fields of its spec that mean the same.
type Wishes struct {
	Source       Source         // empty leaves it to the configuration
	Providers    []string       // provider instances, sorted; empty leaves it to the class
	Attachments  []Attachment   // pools of others to put members into; with any, the Service has no virtual server of ours
	Addresses    []netip.Addr   // certain VIPs, sorted, at most one per family
	AddressPool  string         // name of an address pool of ours to take VIPs from, a DNS label
	SharedVIP    string         // name, within the Namespace, of a group of Services with the same VIPs; empty is none
	Enabled      Enablement     // of the Service's own annotation nodeportlocal.antrea.io/enabled
	DrainLimit   *time.Duration // nil leaves it to the configuration
	AllowRemoval bool           // what the guard holds may go
	Abandoned    []string       // provider instances whose load balancer is gone for good, sorted; also ones that are not configured
	Pool         providers.PoolSettings
	Virtual      providers.VirtualServerSettings
	// Options are by kind of provider, then by name; which of them is about the pool only the provider's Capabilities know.
	Options map[string]map[string]string
	// Kept says what cannot be read and therefore stays as it is on the load balancer.
	Kept Kept
	// Unservable is true when the Service asks for a restriction that cannot be read: serving it without would let in whom it keeps out.
	Unservable bool
}

// Enablement is what the user says about node ports.
type Enablement string

// The values: nothing, "true", or something else.
const (
	Unset    Enablement = ""
	Enabled  Enablement = "Enabled"
	Disabled Enablement = "Disabled"
)

// Kept says which parts of what is on the load balancer stay because what was asked for cannot be read.
type Kept struct {
	Pool    bool // PoolSettings, also options of the pool
	Virtual bool // VirtualServerSettings, also options of the virtual server
	// Addresses: which VIPs. The Service keeps those that it has; without any it gets none.
	Addresses bool
	// Structure: source, providers, attachments or sharing. Whatever the Service has on any load balancer stays, except members that
	// another Pod claims and members whose Pod is gone; nothing new enters.
	Structure bool
}

// Attachment puts the members of one Service port into a pool that somebody else made.
type Attachment struct {
	Port     string // number or name of the Service port
	Instance string // of the provider
	Pool     string // in the load balancer's own spelling
}

// Spec is what of a Service's spec means the same as an annotation.
type Spec struct {
	LoadBalancerIP  string
	SourceRanges    []string
	SessionAffinity bool          // ClientIP
	AffinityTimeout time.Duration // 0 is three hours
}

// Problem is one annotation or field that cannot be read, or that has no effect.
type Problem struct {
	Key     string // of the annotation, or the field's path
	Value   string // shortened
	Message string // what is wrong, with the value, and what would be right
}

// String returns the Problem as a sentence: where, what is wrong, what would be right.
func (p Problem) String() string {
	if strings.HasPrefix(p.Key, "spec.") {
		return p.Key + ": " + p.Message
	}
	return "annotation " + p.Key + ": " + p.Message
}
