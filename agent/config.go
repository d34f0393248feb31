package agent

import (
	"time"
)

// Config is all that npl-agent can be told. cmd/npl-agent fills it from file, environment and flags.
// The zero value is not valid: start from DefaultConfig.
type Config struct {
	// NodeName is the Node this agent serves; required.
	NodeName string
	// PortRange is where node ports come from, both ends included.
	PortRange PortRange
	// NodeAddressTypes lists the Node.status address types to publish, most wanted first: "InternalIP", "ExternalIP".
	NodeAddressTypes []string
	// CoolDown is how long a freed port stays unused; 0 to 24h.
	CoolDown time.Duration
	// RepairInterval is how often the kernel is compared with what is wanted; 1s to 1h.
	RepairInterval time.Duration
	// WithdrawGrace is how long a live Pod that no Service wants any more keeps its rule; 0 to 1h.
	WithdrawGrace time.Duration
	// Masquerade chooses which connections get the Node's address as source: "auto", "all" or "none".
	Masquerade string
}

// PortRange is an inclusive range of ports, 1..65535, First <= Last.
type PortRange struct{ First, Last uint16 }
