package network

import (
	"fmt"
	"net/netip"
)

// MaxNodes is how many Nodes the addressing plan has room for.
const MaxNodes = 9

// Names of the namespaces beside the Nodes.
const (
	Underlay     = "underlay" // the bridge, and the control plane at its first address
	LoadBalancer = "lb"
	Partner      = "lb-2" // the other one of a pair, which is there from AddPartner on
	Client       = "client"
)

// The addressing plan. Everything is private and only ever exists inside the lab.
var (
	underlay4 = netip.MustParsePrefix("172.30.0.0/24")
	underlay6 = netip.MustParsePrefix("fd00:30::/64")
	// VIPs are the prefixes routed to the load balancer's namespace, where every address is local.
	VIPs = []netip.Prefix{netip.MustParsePrefix("172.31.0.0/24"), netip.MustParsePrefix("fd00:31::/64")}
	// Services are the ClusterIP ranges.
	Services = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
	// APIService is the ClusterIP of the Service default/kubernetes. It is also an address of the control plane itself,
	// so that it works without kube-proxy.
	APIService = netip.MustParseAddr("10.96.0.1")
	// SharedVIPs are addresses of the underlay that belong to nobody: whichever load balancer of a pair has one answers for it. They are few
	// enough for one VRRP advertisement.
	SharedVIPs = netip.MustParsePrefix("172.30.0.200/29")
)

// ControlPlane is where kube-apiserver listens, IPv4 first.
func ControlPlane() []netip.Addr { return underlayAddresses(1) }

// LoadBalancerAddresses are the load balancer's own addresses, IPv4 first.
func LoadBalancerAddresses() []netip.Addr { return underlayAddresses(2) }

// ClientAddresses are the client's addresses, IPv4 first.
func ClientAddresses() []netip.Addr { return underlayAddresses(3) }

// PartnerAddresses are the addresses of the other load balancer of a pair, IPv4 first.
func PartnerAddresses() []netip.Addr { return underlayAddresses(4) }

// NodeName is the name of Node n, counted from 1, and of its network namespace.
func NodeName(n int) string { return fmt.Sprintf("node-%d", n) }

// NodeAddresses are the addresses of Node n, counted from 1, IPv4 first.
func NodeAddresses(n int) []netip.Addr { return underlayAddresses(byte(10 + n)) }

// PodCIDRs are the ranges that the Pods of Node n, counted from 1, get their addresses from, IPv4 first.
func PodCIDRs(n int) []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", n)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:244:%d::/64", n)),
	}
}

// underlayAddresses are the two addresses of a host on the underlay. In IPv6 the host number is written in decimal
// digits, so that it reads like the IPv4 one: 172.30.0.11 and fd00:30::11.
func underlayAddresses(host byte) []netip.Addr {
	four := underlay4.Addr().As4()
	four[3] = host
	return []netip.Addr{netip.AddrFrom4(four), netip.MustParseAddr(fmt.Sprintf("fd00:30::%d", host))}
}
