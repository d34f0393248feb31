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

// Member is one Pod port as the load balancer reaches it: an address of the Pod's Node and the node port on it.
// Its identity in a pool is (PodUID, Address): a Pod that moved or was replaced is another member.
type Member struct {
	PodUID  string         // UID of the Pod; every provider stores it on the load balancer, so it survives a restart
	Pod     string         // "namespace/name" for people; may be empty in an observed member
	Address netip.AddrPort // nodeIP:nodePort
	State   MemberState
}

// MemberID is what makes a member the same member.
type MemberID struct {
	PodUID  string
	Address netip.AddrPort
}

// ID returns the member's identity.
func (m Member) ID() MemberID { return MemberID{m.PodUID, m.Address} }

// Algorithm is how a pool chooses among its Enabled members.
type Algorithm string

// The algorithms every provider supports. RoundRobin is the default.
const (
	RoundRobin       Algorithm = "RoundRobin"
	LeastConnections Algorithm = "LeastConnections"
)

// Pool is the set of members behind one virtual server.
type Pool struct {
	Key       Key
	Algorithm Algorithm
	Members   []Member // sorted by Address, then PodUID
}

// VirtualServer is what clients connect to: one or more addresses and a port, in front of the pool with the same Key.
type VirtualServer struct {
	Key  Key
	VIPs []netip.Addr // sorted; at most one per family
	Port uint16       // 1..65535
}

// State is everything of ours on one load balancer: wanted by the model, or read back by Observe.
// Slices are sorted by Key.
type State struct {
	Pools          []Pool
	VirtualServers []VirtualServer
}
