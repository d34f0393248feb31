// Package document is the form of what a running lbsync says about itself. Its JSON is stable: fields are added, and none changes its
// meaning without another Version.
package document

import (
	"slices"
	"strings"
	"time"
)

// Version is that of the form.
const Version = 2

// Document is one process's view.
type Document struct {
	Version     int        `json:"version"`
	Instance    string     `json:"instance"` // of the installation, "namespace/name"
	Identity    string     `json:"identity"` // of the process
	At          time.Time  `json:"at"`
	Leading     bool       `json:"leading"`          // it holds the Lease, so it writes Services and remote load balancers
	Leader      string     `json:"leader,omitempty"` // identity of who holds the Lease, as far as this process knows
	DryRun      bool       `json:"dryRun,omitempty"`
	Problem     string     `json:"problem,omitempty"` // what keeps the process from working at all
	ServiceType string     `json:"serviceType"`
	PortRange   string     `json:"portRange,omitempty"` // "61000-62000"; empty takes any
	GuardHold   string     `json:"guardHold,omitempty"`
	Providers   []Provider `json:"providers"`
	Services    []Service  `json:"services"` // that are ours or have something on a load balancer, sorted
	// Ignored are Services that look as if they were for lbsync, and are not.
	Ignored []Ignored `json:"ignored,omitempty"`
	// NetworkPolicies are those that select Pods of the Services. The process does not read them: who shows the document may add them.
	NetworkPolicies []NetworkPolicy `json:"networkPolicies,omitempty"`
	// Unread says why NetworkPolicies could not be added.
	Unread string `json:"unread,omitempty"`
}

// Provider is one load balancer.
type Provider struct {
	Name         string     `json:"name"`
	Kind         string     `json:"kind"`
	Local        bool       `json:"local"`   // it is beside this process, which writes it whether it leads or not
	Writing      bool       `json:"writing"` // this process writes it
	Ready        bool       `json:"ready"`   // everything was brought in order once since this process began to write
	LastObserve  *time.Time `json:"lastObserve,omitempty"`
	Problem      string     `json:"problem,omitempty"`
	ProblemKind  string     `json:"problemKind,omitempty"`
	RemovalsHeld bool       `json:"removalsHeld"` // because the API server's answer cannot be believed
	Foreign      []string   `json:"foreign,omitempty"`
	Watermark    *Watermark `json:"watermark,omitempty"`
	Planned      []Change   `json:"planned,omitempty"` // wanted and not there yet
}

// Watermark is what npl-agents are told about one load balancer.
type Watermark struct {
	Seen    string   `json:"seen"`              // resourceVersion of Pods
	Held    []string `json:"held,omitempty"`    // node ports, "worker-1 61007/tcp IPv4"
	Waiting bool     `json:"waiting,omitempty"` // Pods wait for a node port
}

// Change is one change that is wanted on a load balancer.
type Change struct {
	Key    string `json:"key"`    // "namespace/service:port/PROTOCOL"
	Object string `json:"object"` // PoolObject or VirtualServerObject
	Op     string `json:"op"`     // Create, Change or Delete
	Steps  []Step `json:"steps,omitempty"`
}

// The kinds of object in a Change, and what happens to it.
const (
	PoolObject          = "pool"
	VirtualServerObject = "virtual server"

	Create = "create"
	Modify = "change"
	Delete = "delete"
)

// Step is one part of a Change.
type Step struct {
	Op   string `json:"op"`             // "+", "-" or "~"
	What string `json:"what"`           // a member's address and Pod, or a setting
	From string `json:"from,omitempty"` // only with "~"
	To   string `json:"to,omitempty"`
}

// Service is one Service.
type Service struct {
	Service   string   `json:"service"` // "namespace/name"
	On        []string `json:"on"`      // the load balancers that it asks for
	Deleting  bool     `json:"deleting,omitempty"`
	ManagedBy string   `json:"managedBy,omitempty"` // another lbsync, to which it is left
	Source    string   `json:"source"`              // of members
	Attached  bool     `json:"attached,omitempty"`  // it only puts members into pools of others
	// NodePorts is true while the Service gets node ports from Kubernetes, which nobody needs with another source than NodePort.
	NodePorts bool `json:"nodePorts,omitempty"`
	// LocalOnly is externalTrafficPolicy Local.
	LocalOnly  bool        `json:"localOnly,omitempty"`
	Problems   []Problem   `json:"problems,omitempty"` // annotations and fields that cannot be read
	Conditions []Condition `json:"conditions,omitempty"`
	Selected   int         `json:"selected"` // Pods, those that have ended not counted
	Ports      []Port      `json:"ports"`
	Pods       []Pod       `json:"pods,omitempty"` // that it selects and that are not Enabled members of every pool of it
}

// Namespace returns the Service's namespace.
func (s Service) Namespace() string {
	namespace, _, _ := strings.Cut(s.Service, "/")
	return namespace
}

// Condition is one of ours on the Service.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Problem is one annotation or field that cannot be read.
type Problem struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Message string `json:"message"`
}

// Port is one port of a Service on one load balancer: virtual server and pool, as acknowledged by it.
type Port struct {
	Port        uint16    `json:"port"`
	Protocol    string    `json:"protocol"`
	Provider    string    `json:"provider"`
	Target      string    `json:"target,omitempty"` // port of Pods, a number or a name
	VIPs        []string  `json:"vips,omitempty"`
	Programmed  bool      `json:"programmed"` // everything wanted is acknowledged
	Problem     string    `json:"problem,omitempty"`
	ProblemKind string    `json:"problemKind,omitempty"` // a providers.Kind
	Since       string    `json:"since,omitempty"`       // of the problem
	Cannot      string    `json:"cannot,omitempty"`      // what the load balancer cannot do of what is asked for
	Unserved    bool      `json:"unserved,omitempty"`    // and therefore the port is not served
	Attached    string    `json:"attached,omitempty"`    // the pool of somebody else that members are put into
	Guarded     int       `json:"guarded,omitempty"`     // members that the guard holds
	Members     []Member  `json:"members"`
	Refusals    []Refusal `json:"refusals,omitempty"`
}

// Member is one member of a pool.
type Member struct {
	Pod         string `json:"pod,omitempty"` // "namespace/name", or the Node's name; empty until it was matched after a restart
	PodUID      string `json:"podUID"`
	Address     string `json:"address"`
	State       string `json:"state"`
	Weight      uint8  `json:"weight,omitempty"`
	Health      string `json:"health,omitempty"`      // Up or Down; empty while unknown
	Connections *int   `json:"connections,omitempty"` // while known
	Blocked     bool   `json:"blocked,omitempty"`     // an operator disabled it on the load balancer
	Deselected  bool   `json:"deselected,omitempty"`  // the Service does not select its Pod any more
}

// Refusal is one Pod that is not a member, or not as it could be.
type Refusal struct {
	Pod     string `json:"pod"`
	PodUID  string `json:"podUID"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Pod is what decides about one Pod.
type Pod struct {
	Pod         string   `json:"pod"`
	UID         string   `json:"uid"`
	Node        string   `json:"node,omitempty"`
	Ready       bool     `json:"ready"`
	Terminating bool     `json:"terminating,omitempty"`
	Finished    bool     `json:"finished,omitempty"`
	Gated       bool     `json:"gated,omitempty"` // its readiness gate nplbridge.io/in-pool is not True yet
	Malformed   string   `json:"malformed,omitempty"`
	Mappings    []string `json:"mappings,omitempty"` // "8080/tcp at 192.0.2.11:61000"
}

// Ignored is a Service that is not ours.
type Ignored struct {
	Service string `json:"service"`
	Why     string `json:"why"`
}

// NetworkPolicy is one that restricts what may reach Pods.
type NetworkPolicy struct {
	Policy string   `json:"policy"` // "namespace/name"
	Pods   []string `json:"pods"`   // that it selects, "namespace/name"
	Rules  []Rule   `json:"rules,omitempty"`
}

// Rule lets traffic in.
type Rule struct {
	// Blocks are the networks that it lets in; empty with Anyone false means only Pods.
	Blocks []string   `json:"blocks,omitempty"`
	Anyone bool       `json:"anyone,omitempty"`
	Ports  []RulePort `json:"ports,omitempty"` // empty is every port
}

// RulePort is one port, or a range, of Pods.
type RulePort struct {
	Protocol string `json:"protocol"`       // "tcp", "udp" or "sctp"
	First    uint16 `json:"first"`          // 0 is every port
	Last     uint16 `json:"last,omitempty"` // 0 is First
	Name     string `json:"name,omitempty"` // instead of numbers
}

// Provider returns the load balancer of a name, or nil.
func (d Document) Provider(name string) *Provider {
	i := slices.IndexFunc(d.Providers, func(p Provider) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return &d.Providers[i]
}

// In returns the document with the Services of one namespace only.
func (d Document) In(namespace string) Document {
	prefix := namespace + "/"
	d.Services = slices.DeleteFunc(slices.Clone(d.Services), func(s Service) bool { return !strings.HasPrefix(s.Service, prefix) })
	d.Ignored = slices.DeleteFunc(slices.Clone(d.Ignored), func(s Ignored) bool { return !strings.HasPrefix(s.Service, prefix) })
	return d
}
