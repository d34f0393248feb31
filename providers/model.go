package providers

import (
	"fmt"
	"net/netip"
)

// Protocol is a Service port's protocol in Kubernetes spelling.
type Protocol string

// The protocols a Service port can have (core/v1 Protocol).
const (
	TCP  Protocol = "TCP"
	UDP  Protocol = "UDP"
	SCTP Protocol = "SCTP"
)

// Key names one Service port, and so one pool and the virtual server in front of it.
// It is comparable and its String form is stable, so it may be used in names on the load balancer.
type Key struct {
	Namespace string
	Service   string
	Port      uint16 // the Service port, 1..65535
	Protocol  Protocol
}

// String returns "namespace/service:port/PROTOCOL".
func (k Key) String() string {
	return fmt.Sprintf("%s/%s:%d/%s", k.Namespace, k.Service, k.Port, k.Protocol)
}

// Compare orders keys by namespace, service, port, protocol.
func (k Key) Compare(o Key) int { return compareKeys(k, o) }

// MemberState says what a member may receive.
type MemberState string

// Enabled members take connections. Draining members keep the connections they have and get no new ones, not even
// from clients with persistence.
const (
	Enabled  MemberState = "Enabled"
	Draining MemberState = "Draining"
)

// Member is one address that a pool sends connections to: a node port of a Pod (nodeIP:nodePort), a Pod itself, or a
// Service's node port on a Node, as the Service's member source says. Its identity in a pool is (UID, Address): a Pod that moved or
// was replaced is another member.
type Member struct {
	UID     string         // of the Pod, or of the Node where Nodes are members; every provider stores it, so it survives a restart
	Name    string         // "namespace/name" of the Pod, or the Node's; for people; may be empty in an observed member
	Address netip.AddrPort // where connections go
	State   MemberState
	// Weight is the member's share of new connections relative to the pool's others, 1..20; 0 stands for 1. Only with Weights.
	Weight uint8
}

// MemberID is what makes a member the same member.
type MemberID struct {
	UID     string
	Address netip.AddrPort
}

// ID returns the member's identity.
func (m Member) ID() MemberID { return MemberID{m.UID, m.Address} }

// Pool is the set of members behind one virtual server.
type Pool struct {
	Key Key
	// Attached names a pool on the load balancer that somebody else made, in the load balancer's own spelling. Of such a pool only the
	// members that carry our mark are read and written; Settings are zero, and there is no virtual server of ours in front. Empty for
	// a pool of our own. Only with AttachedPools.
	Attached string
	Settings PoolSettings
	Members  []Member // sorted by Address, then UID
}

// VirtualServer is what clients connect to: one or more addresses and a port, in front of the pool with the same Key.
type VirtualServer struct {
	Key  Key
	VIPs []netip.Addr // sorted; at most one per family
	Port uint16       // 1..65535
	// Shared, if not empty, is "namespace/name" of a group of Services whose virtual servers have the same VIPs on different ports.
	// Only with SharedVIPs.
	Shared   string
	Settings VirtualServerSettings
}

// State is everything of ours on one load balancer: wanted by the model, or read back by Observe.
// Slices are sorted by Key.
type State struct {
	Pools          []Pool
	VirtualServers []VirtualServer
}
