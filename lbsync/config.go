package lbsync

import (
	"net/netip"
	"time"
)

// Config is all that lbsync can be told. cmd/lbsync fills it from file, environment and flags.
// The zero value is not valid: start from DefaultConfig.
type Config struct {
	// Instance names this installation, "namespace/name" of the Helm release; part of every ownership mark.
	Instance string
	// ProviderName is the provider instance; the Services of loadBalancerClass "nplbridge.io/<ProviderName>" are ours.
	ProviderName string
	// HandleUnclassed takes Services of type LoadBalancer without a loadBalancerClass, too.
	HandleUnclassed bool
	// ServiceType is where members come from; only "NodePortLocal" for now.
	ServiceType string
	// AddressPools are the prefixes or ranges that VIPs are taken from, in order of preference.
	AddressPools []AddressRange
	// DrainLimit is the longest a member stays Draining; 0 to 24h.
	DrainLimit time.Duration
	// Resync is how often the load balancer is read back; 10s to 24h.
	Resync time.Duration
	// Lease locates the leader election Lease.
	LeaseNamespace, LeaseName string
	// Identity of this process in the Lease; required, unique.
	Identity string
}

// AddressRange is an inclusive range of addresses of one family, First <= Last.
type AddressRange struct{ First, Last netip.Addr }
