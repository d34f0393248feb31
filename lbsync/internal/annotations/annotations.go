// Package annotations holds the keys that lbsync reads and writes on Services, and their decoders. It imports the
// standard library and the provider contract only.
package annotations

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
)

// Keys that users set on a Service; Vocabulary says what each means.
const (
	LoadBalancerIPs     = "nplbridge.io/load-balancer-ips"
	AddressPool         = "nplbridge.io/address-pool"
	SharedVIP           = "nplbridge.io/shared-vip"
	Providers           = "nplbridge.io/providers"
	Pool                = "nplbridge.io/pool"
	ServiceType         = "nplbridge.io/service-type"
	Algorithm           = "nplbridge.io/algorithm"
	Persistence         = "nplbridge.io/persistence"
	PersistenceTimeout  = "nplbridge.io/persistence-timeout"
	Monitor             = "nplbridge.io/monitor"
	MonitorPath         = "nplbridge.io/monitor-path"
	MonitorHost         = "nplbridge.io/monitor-host"
	MonitorName         = "nplbridge.io/monitor-name"
	MonitorInterval     = "nplbridge.io/monitor-interval"
	MonitorTimeout      = "nplbridge.io/monitor-timeout"
	MonitorRise         = "nplbridge.io/monitor-rise"
	MonitorFall         = "nplbridge.io/monitor-fall"
	ProxyProtocol       = "nplbridge.io/proxy-protocol"
	AcceptProxyProtocol = "nplbridge.io/accept-proxy-protocol"
	SlowStart           = "nplbridge.io/slow-start"
	MemberConnections   = "nplbridge.io/member-connections"
	SourceRanges        = "nplbridge.io/source-ranges"
	IdleTimeout         = "nplbridge.io/idle-timeout"
	DrainLimit          = "nplbridge.io/drain-limit"
	AllowRemoval        = "nplbridge.io/allow-removal"
	Abandon             = "nplbridge.io/abandon"
)

// Keys that users set on Pods and Nodes.
const (
	Weight = "nplbridge.io/weight"
	Drain  = "nplbridge.io/drain"
)

// Keys that lbsync sets on a Service and takes back.
const (
	// AssignedIPs are the addresses that the Lease holder has given to the Service; every lbsync programs from it.
	AssignedIPs = "nplbridge.io/load-balancer-ips-assigned"
	// AttachedTo names, separated by commas, the provider instances on which the Service has members in pools of others, and no addresses.
	AttachedTo = "nplbridge.io/attached-to"
	// ManagedBy is "<instance>/<provider name>": the lbsync that the finalizer belongs to.
	ManagedBy = "nplbridge.io/managed-by"
	// EnabledBy is the instance that set nodeportlocal.antrea.io/enabled; without it that annotation is the user's.
	EnabledBy = "nplbridge.io/enabled-by"
)

// Finalizer keeps a Service until nothing of it is left on the load balancer.
const Finalizer = "nplbridge.io/cleanup"

// ClassPrefix and the name of a provider instance make the loadBalancerClass.
const ClassPrefix = "nplbridge.io/"

// Gate is the readiness gate of Pods that are to count as ready only when every load balancer has them.
const Gate = "nplbridge.io/in-pool"

// ParseAddresses reads one IPv4 address, one IPv6 address, or both separated by a comma; blanks around them are
// ignored. The result is sorted, IPv4 first.
func ParseAddresses(s string) ([]netip.Addr, error) {
	var out []netip.Addr
	for field := range strings.SplitSeq(s, ",") {
		field = strings.TrimSpace(field)
		a, err := netip.ParseAddr(field)
		if err != nil {
			return nil, fmt.Errorf("%q is not an IP address; write one IPv4 address, one IPv6 address, or both separated by a comma", shorten(field))
		}
		if a = a.Unmap(); a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() {
			return nil, fmt.Errorf("%s cannot be the address of a load balancer; write a unicast address that clients can route to", a)
		}
		if slices.ContainsFunc(out, func(o netip.Addr) bool { return o.Is4() == a.Is4() }) {
			return nil, fmt.Errorf("%q names two addresses of one family; write at most one of each", shorten(s))
		}
		out = append(out, a)
	}
	slices.SortFunc(out, providers.CompareAddrs)
	return out, nil
}

// FormatAddresses is the inverse of ParseAddresses.
func FormatAddresses(addrs []netip.Addr) string {
	var fields []string
	for _, a := range slices.SortedFunc(slices.Values(addrs), providers.CompareAddrs) {
		fields = append(fields, a.String())
	}
	return strings.Join(fields, ",")
}

// ParseAssigned reads AssignedIPs: "<instance>=<addresses>" for each provider instance, separated by blanks. A value without an
// instance is that of the first, which is how it was written when there was but one.
func ParseAssigned(s, first string) (map[string][]netip.Addr, error) {
	out := map[string][]netip.Addr{}
	for field := range strings.FieldsSeq(s) {
		instance, list, named := strings.Cut(field, "=")
		if !named {
			instance, list = first, field
		}
		addrs, err := ParseAddresses(list)
		if err != nil {
			return nil, err
		}
		out[instance] = addrs
	}
	return out, nil
}

// FormatAssigned is the inverse of ParseAssigned.
func FormatAssigned(assigned map[string][]netip.Addr) string {
	var fields []string
	for _, instance := range slices.Sorted(maps.Keys(assigned)) {
		if len(assigned[instance]) > 0 {
			fields = append(fields, instance+"="+FormatAddresses(assigned[instance]))
		}
	}
	return strings.Join(fields, " ")
}

// shorten keeps a user's value from filling an Event.
func shorten(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}

// ParseAttached reads AttachedTo.
func ParseAttached(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
