package agent

import (
	"net/netip"
	"time"
)

// Config is all that npl-agent can be told. cmd/npl-agent fills it from file, environment and flags.
// The zero value is not valid: start from DefaultConfig.
type Config struct {
	// NodeName is the Node this agent serves; required.
	NodeName string
	// PortRange is where node ports come from, both ends included. It may not overlap ClusterNodePortRange.
	PortRange PortRange
	// ClusterNodePortRange is what the API server gives to Services of type NodePort (its --service-node-port-range).
	ClusterNodePortRange PortRange
	// IPFamilies lists the families that get node ports: "IPv4", "IPv6". A Service's other families are left out silently.
	IPFamilies []string
	// SameNodePortPerProtocol gives the protocols of one Pod port and family one number, for consumers that do not read the
	// annotation's protocol.
	SameNodePortPerProtocol bool
	// NodeAddressTypes lists the Node.status address types to publish, most wanted first: "InternalIP", "ExternalIP".
	NodeAddressTypes []string
	// NodeAddressCIDRs, if any, leaves only Node addresses inside one of them to choose from.
	NodeAddressCIDRs []netip.Prefix
	// CoolDown is how long a freed port stays unused; 0 to 24h.
	CoolDown time.Duration
	// PortReuse says what a port needs beside CoolDown before another Pod may have it: ReuseAfterCoolDown, nothing;
	// ReuseConfirmed, the word of every load balancer's watermark.
	PortReuse string
	// WatermarkNamespace is where lbsync publishes its watermarks; required with ReuseConfirmed.
	WatermarkNamespace string
	// RepairInterval is how often the kernel is compared with what is wanted; 1s to 1h.
	RepairInterval time.Duration
	// WithdrawGrace is how long a live Pod that no Service wants any more keeps its rule; 0 to 1h.
	WithdrawGrace time.Duration
	// Masquerade chooses which connections get the Node's address as source: "auto", "all" or "none".
	Masquerade string
	// ForwardAccept lets forwarded connections to node ports pass a FORWARD chain that drops by default.
	ForwardAccept bool
}

// The values of Config.PortReuse.
const (
	ReuseAfterCoolDown = "coolDown"
	ReuseConfirmed     = "confirmed"
)

// PortRange is an inclusive range of ports, 1..65535, First <= Last.
type PortRange struct{ First, Last uint16 }
