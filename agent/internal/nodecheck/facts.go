package nodecheck

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// Settings is what the agent was told, as far as the checks need it.
type Settings struct {
	PortRange, ClusterNodePortRange Ports
	Families                        []npl.Family
	Masquerade                      string // "auto", "all" or "none"
	ForwardAccept                   bool
}

// Ports is an inclusive range of ports.
type Ports struct{ First, Last uint16 }

// String returns "FIRST-LAST", or "PORT" for one.
func (p Ports) String() string {
	if p.First == p.Last {
		return fmt.Sprint(p.First)
	}
	return fmt.Sprintf("%d-%d", p.First, p.Last)
}

func (p Ports) contains(port uint16) bool { return p.First <= port && port <= p.Last }

// common returns the ports that p and o have in common.
func (p Ports) common(o Ports) (Ports, bool) {
	c := Ports{max(p.First, o.First), min(p.Last, o.Last)}
	return c, c.First <= c.Last
}

// without returns what is left of p without the ranges, in order.
func (p Ports) without(ranges []Ports) []Ports {
	left := []Ports{p}
	for _, r := range ranges {
		var next []Ports
		for _, l := range left {
			if _, ok := l.common(r); !ok {
				next = append(next, l)
				continue
			}
			if l.First < r.First {
				next = append(next, Ports{l.First, r.First - 1})
			}
			if l.Last > r.Last {
				next = append(next, Ports{r.Last + 1, l.Last})
			}
		}
		left = next
	}
	return left
}

// Subject is the Node as the API knows it.
type Subject struct {
	Settings Settings
	// Nodes are the addresses of the Node, Pods those of its Pods that have a network of their own.
	Nodes, Pods []netip.Addr
	// AntreaPod is the "namespace/name" of antrea-agent's Pod on this Node, or empty.
	AntreaPod string
	// AntreaRange is the NodePortLocal range in the AntreaAgentInfo of this Node: what its configuration says, whether NodePortLocal is
	// on or off. AntreaRangeKnown says whether it could be read.
	AntreaRange      string
	AntreaRangeKnown bool
}

// needs reports whether the Node has Pods of a family that is to be served; IPv4 when nothing is known.
func (s Subject) needs(f npl.Family) bool {
	if !slices.Contains(s.Settings.Families, f) {
		return false
	}
	addresses := slices.Concat(s.Pods, s.Nodes)
	if len(s.Pods) > 0 {
		addresses = s.Pods
	}
	return len(addresses) == 0 && f == npl.IPv4 || slices.ContainsFunc(addresses, func(a netip.Addr) bool { return npl.FamilyOf(a) == f })
}

// Facts is the state of a Node.
type Facts struct {
	Subject
	// Unread says why the facts of a check could not be read.
	Unread map[Check]string

	// Missing lists what the kernel refused of what the agent needs.
	Missing []string
	// Tracked and TrackedLimit are the entries of the connection tracking table and how many it may have.
	Tracked, TrackedLimit int
	// Forwarding says for each family whether it is forwarded; a family that is not there is disabled on the Node.
	Forwarding    map[npl.Family]bool
	ForwardChains []ForwardChain
	// PodBridges are the bridges that Pods sit on.
	PodBridges []Bridge
	// BridgedPass says for each family whether bridged packets pass netfilter.
	BridgedPass map[npl.Family]bool
	// Uplinks are the interfaces by which clients come.
	Uplinks []Uplink
	Routes  []PodRoute
	NoTrack []NoTrackRule
	// Flowtables is "family table name" of each, with its devices.
	Flowtables map[string][]string
	Programs   []Program
	// Unseen says which eBPF programs could not be looked for, and why.
	Unseen []string
	// NATChains are base chains of type nat of others, in prerouting or output, before ours.
	NATChains []NATChain
	// Ephemeral are the ports for outgoing connections, Reserved those of them that are not used.
	Ephemeral Ports
	Reserved  []Ports
	Listeners []Listener
	// AntreaChains are the chains of Antrea's NodePortLocal that exist.
	AntreaChains []AntreaChain
}

// Tool is the command that shows and changes a chain.
type Tool string

// The tools.
const (
	IPTables        Tool = "iptables-nft"
	IP6Tables       Tool = "ip6tables-nft"
	IPTablesLegacy  Tool = "iptables-legacy"
	IP6TablesLegacy Tool = "ip6tables-legacy"
	NFT             Tool = "nft"
)

// ForwardChain is a chain that drops forwarded packets unless a rule accepts them first.
type ForwardChain struct {
	Family npl.Family
	Chain  string // "chain FORWARD of iptables-nft", "chain inet firewalld filter_FORWARD"
	Why    string // what drops: "policy drop", "rule 7 drops all that comes so far"
	// Open: a rule ahead of what drops accepts connections to node ports. Rules that accept them as traffic to Pods are not recognised.
	Open    bool
	Command string // opens it by hand
}

// Bridge is a bridge that Pods sit on.
type Bridge struct {
	Name     string
	Families []npl.Family // of the Pods
	// NoHairpin are its ports without hairpin mode.
	NoHairpin []string
}

// Uplink is an interface with an address, other than those of Pods, tunnels and virtual addresses.
type Uplink struct {
	Name    string
	Strict  bool // rp_filter is 1
	Default bool // the default route leaves by it
}

// PodRoute is how the Node reaches a Pod.
type PodRoute struct {
	Pod       netip.Addr
	Interface string
	Gateway   netip.Addr
	Default   bool   // the default route is all there is
	Failure   string // the kernel has no route
}

// NoTrackRule is a rule ahead of connection tracking that keeps packets out of it.
type NoTrackRule struct {
	Where string // "iptables-nft -t raw PREROUTING"
	Match Match
}

// Match is what a rule asks of a packet, as far as it was understood. Other says that it asks for more.
type Match struct {
	Source, Destination         netip.Prefix // invalid: any
	SourcePort, DestinationPort Ports        // zero: any
	Other                       bool
}

// Program is an eBPF program on the path of packets.
type Program struct {
	Hook   string // "xdp", "tc ingress", "tcx ingress", "cgroup connect4"
	Device string
	Name   string
	Kind   string // "cilium" or "calico" where the interfaces tell; else empty
}

// NATChain is a base chain of type nat.
type NATChain struct {
	Family, Table, Chain, Hook string
	Priority                   int
}

// Listener is a socket that waits for clients.
type Listener struct {
	Protocol npl.Protocol
	Address  netip.AddrPort
}

// AntreaChain is one chain of Antrea's NodePortLocal, and the node ports its rules translate.
type AntreaChain struct {
	Tool  Tool
	Ports []AntreaPort
}

// AntreaPort is one node port of Antrea's.
type AntreaPort struct {
	Protocol npl.Protocol
	Port     uint16
}
