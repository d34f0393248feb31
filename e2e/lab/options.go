package lab

import (
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/network"
)

// PodNetwork is how Pods are connected to their Node.
type PodNetwork = network.Kind

const (
	// Routed gives each Pod a point-to-point link and a host route, as Calico and Cilium do.
	Routed = network.Routed
	// Bridged puts the Pods of a Node on one bridge, as the bridge plugin and Flannel do.
	Bridged = network.Bridged
	// Overlay is Bridged with a VXLAN tunnel between the Nodes, as Flannel's.
	Overlay = network.Overlay
)

// Options choose what a lab is like. The zero value is a lab of three Nodes with a routed Pod network.
type Options struct {
	// Name tells labs on one machine apart; by default the first free one of "lab", "lab-2", ...
	Name string
	// Nodes is 1 to 9; 0 means 3.
	Nodes int
	// PodNetwork is Routed, Bridged or Overlay; empty means Routed.
	PodNetwork PodNetwork
	// BridgeNetfilter sends traffic between Pods of one Node through netfilter; not with Routed.
	BridgeNetfilter bool
	// ReusePodIPs gives new Pods the addresses that were freed last, as some Pod networks do.
	ReusePodIPs bool
	// NodeGrace is for how long a Node may say nothing before it counts as lost; 0 means Kubernetes' 50s. Nodes renew their Leases ten times as often.
	NodeGrace time.Duration
	// KubeProxy starts kube-proxy on every Node.
	KubeProxy bool
	// Programs are the programs to run; by default those that Contain has built.
	Programs Programs
	// Progress is told what happens, a line at a time; nil is silence.
	Progress io.Writer
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

func (o *Options) complete() error {
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.PodNetwork == "" {
		o.PodNetwork = Routed
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Name != "" && !validName.MatchString(o.Name) {
		return fmt.Errorf("name %q: use up to 32 lower-case letters, digits and dashes, with no dash at either end", o.Name)
	}
	if err := o.network().Validate(); err != nil {
		return err
	}
	if o.Programs != (Programs{}) {
		return nil
	}
	var err error
	o.Programs, err = builtPrograms()
	return err
}

func (o *Options) network() network.Options {
	return network.Options{Nodes: o.Nodes, Pods: o.PodNetwork, BridgeNetfilter: o.BridgeNetfilter, ReusePodIPs: o.ReusePodIPs}
}

// Validate returns an error that names the first option that cannot be, without starting anything.
func (o Options) Validate() error {
	if o.Programs == (Programs{}) {
		o.Programs.Echo = "not asked for" // only Start needs them
	}
	return o.complete()
}

// NodeAddress is the IPv4 address of a Node by its name, "node-1" to "node-9"; the zero address for other names.
func NodeAddress(node string) netip.Addr { return nodeAddress(node, 0) }

// NodeAddress6 is the IPv6 address of a Node.
func NodeAddress6(node string) netip.Addr { return nodeAddress(node, 1) }

func nodeAddress(node string, family int) netip.Addr {
	for n := 1; n <= network.MaxNodes; n++ {
		if network.NodeName(n) == node {
			return network.NodeAddresses(n)[family]
		}
	}
	return netip.Addr{}
}

// VIPs are the address ranges that are routed to the load balancer, IPv4 first.
func VIPs() []netip.Prefix { return slices.Clone(network.VIPs) }
