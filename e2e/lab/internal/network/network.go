// Package network builds the lab's network out of kernel parts: a bridge that all hosts are plugged into, a network
// namespace for every Node, the load balancer and the client, and a Pod network behind each Node.
package network

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Kind is how Pods are connected to their Node.
type Kind string

const (
	// Routed gives each Pod a point-to-point link and a host route, as Calico and Cilium do.
	Routed Kind = "routed"
	// Bridged puts the Pods of a Node on one bridge, as the bridge plugin and Flannel do.
	Bridged Kind = "bridged"
	// Overlay is Bridged with a tunnel between the Nodes (VXLAN), as Flannel's: the underlay knows no Pod addresses, and what Pods
	// send to others than Pods bears their Node's address.
	Overlay Kind = "overlay"
)

// Options choose the shape of the network.
type Options struct {
	Nodes int  // 1 to MaxNodes
	Pods  Kind // Routed, Bridged or Overlay
	// BridgeNetfilter sends bridged traffic between Pods of one Node through iptables and nftables.
	BridgeNetfilter bool
	// ReusePodIPs gives a new Pod the lowest free address, so often the one that was freed last. Otherwise an address
	// comes back only after the whole range was used.
	ReusePodIPs bool
}

// Validate returns one error for the first option that cannot be.
func (o Options) Validate() error {
	if o.Nodes < 1 || o.Nodes > MaxNodes {
		return fmt.Errorf("nodes %d: the lab has room for 1 to %d", o.Nodes, MaxNodes)
	}
	if o.Pods != Routed && o.Pods != Bridged && o.Pods != Overlay {
		return fmt.Errorf("pod network %q: use %q, %q or %q", o.Pods, Routed, Bridged, Overlay)
	}
	if o.BridgeNetfilter && o.Pods == Routed {
		return fmt.Errorf("bridge netfilter needs a pod network with a bridge, %q or %q, not %q", Bridged, Overlay, o.Pods)
	}
	if _, err := os.Stat("/proc/sys/net/bridge"); o.BridgeNetfilter && err != nil {
		return errors.New("bridge netfilter: the kernel module br_netfilter is not loaded: sudo modprobe br_netfilter")
	}
	return nil
}

// Network is all namespaces of a lab.
type Network struct {
	underlay, loadBalancer, client *Namespace
	nodes                          []*Node
	podRoutes                      bool // the underlay knows the way to Pods

	mutex   sync.Mutex
	partner *Namespace // nil until AddPartner
}

// New builds the network in the network namespace of this process, which must be empty, and in new ones.
func New(options Options) (_ *Network, err error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	var n Network
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if n.underlay, err = thisNamespace(Underlay); err != nil {
		return nil, err
	}
	if err := n.buildUnderlay(); err != nil {
		return nil, err
	}
	if n.loadBalancer, err = n.addHost(LoadBalancer, LoadBalancerAddresses()); err != nil {
		return nil, err
	}
	if err := n.anyAddress(); err != nil {
		return nil, err
	}
	if n.client, err = n.addHost(Client, ClientAddresses()); err != nil {
		return nil, err
	}
	for i := 1; i <= options.Nodes; i++ {
		host, err := n.addHost(NodeName(i), NodeAddresses(i))
		if err != nil {
			return nil, err
		}
		node, err := newNode(host, i, options)
		if err != nil {
			return nil, err
		}
		n.nodes = append(n.nodes, node)
	}
	if options.Pods == Overlay {
		for _, node := range n.nodes {
			if err := node.joinOverlay(n.nodes); err != nil {
				return nil, fmt.Errorf("Pod network of %s: %w", node.Name(), err)
			}
		}
	}
	n.podRoutes = options.Pods != Overlay
	return &n, n.addRoutes(n.all()...)
}

// Nodes are the Nodes in order: index 0 is node-1.
func (n *Network) Nodes() []*Node { return n.nodes }

// Namespace finds a namespace by name; "" is the underlay.
func (n *Network) Namespace(name string) (*Namespace, error) {
	if name == "" {
		return n.underlay, nil
	}
	var known []string
	for _, ns := range n.all() {
		if ns.Name() == name {
			return ns, nil
		}
		known = append(known, ns.Name())
	}
	return nil, fmt.Errorf("no place %q in this lab: use one of %s, or pod:<namespace>/<name>", name, strings.Join(known, ", "))
}

func (n *Network) all() []*Namespace {
	all := []*Namespace{n.underlay, n.loadBalancer, n.client}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.partner != nil {
		all = append(all, n.partner)
	}
	for _, node := range n.nodes {
		all = append(all, node.Namespace)
	}
	return all
}

const bridgeName = "underlay"

func (n *Network) buildUnderlay() error {
	ns := n.underlay
	if err := ns.sysctls(hostSettings(false)); err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
	if err := ns.links.LinkAdd(bridge); err != nil {
		return fmt.Errorf("create the underlay bridge: %w", missing(err, "bridge"))
	}
	if err := ns.up(bridgeName); err != nil {
		return err
	}
	for i, address := range ControlPlane() {
		if err := ns.assign(bridgeName, netip.PrefixFrom(address, underlays()[i].Bits())); err != nil {
			return err
		}
	}
	return ns.assign("lo", single(APIService))
}

// addHost plugs a new namespace into the underlay with its interface eth0.
func (n *Network) addHost(name string, addresses []netip.Addr) (*Namespace, error) {
	ns, err := newNamespace(name)
	if err != nil {
		return nil, err
	}
	if err := ns.sysctls(hostSettings(false)); err != nil {
		return nil, err
	}
	bridge, err := n.underlay.links.LinkByName(bridgeName)
	if err != nil {
		return nil, fmt.Errorf("find the underlay bridge: %w", err)
	}
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index})
	veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(ns.handle)
	if err := n.underlay.links.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("connect %s to the underlay: %w", name, missing(err, "veth"))
	}
	if err := errors.Join(n.underlay.up(name), ns.up("eth0")); err != nil {
		return nil, err
	}
	for i, address := range addresses {
		if err := ns.assign("eth0", netip.PrefixFrom(address, underlays()[i].Bits())); err != nil {
			return nil, err
		}
	}
	return ns, nil
}

// anyAddress makes every VIP an address of the load balancer, without configuring them one by one.
func (n *Network) anyAddress() error {
	for _, prefix := range VIPs {
		if err := n.loadBalancer.local(prefix); err != nil {
			return err
		}
	}
	return n.loadBalancer.sysctls(nonlocalBind)
}

// nonlocalBind lets programs bind addresses that another host has at the moment.
var nonlocalBind = [][2]string{{"net/ipv4/ip_nonlocal_bind", "1"}, {"net/ipv6/ip_nonlocal_bind", "1"}}

// addRoutes tells hosts the way to Pods, VIPs and the API server's ClusterIP; what is unknown goes to the
// underlay, where kube-proxy has rewritten it or it is refused.
func (n *Network) addRoutes(hosts ...*Namespace) error {
	type route struct {
		to  netip.Prefix
		via netip.Addr
		of  *Namespace
	}
	var routes []route
	for family, control := range ControlPlane() {
		routes = append(routes,
			route{netip.PrefixFrom(unspecified(control), 0), control, n.underlay},
			route{VIPs[family], LoadBalancerAddresses()[family], n.loadBalancer})
		for _, node := range n.nodes {
			if n.podRoutes {
				routes = append(routes, route{node.PodCIDRs[family], node.Addresses[family], node.Namespace})
			}
		}
	}
	for _, ns := range hosts {
		for _, r := range routes {
			if r.of == ns {
				continue
			}
			if err := ns.route(r.to, r.via, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close removes the namespaces and all links between them. Processes inside keep theirs until they end.
func (n *Network) Close() error {
	var errs []error
	if n.underlay != nil { // first: the kernel deletes links of removed namespaces some time later
		errs = append(errs, n.underlay.removeLinks())
	}
	for _, node := range n.nodes {
		errs = append(errs, node.close())
	}
	for _, ns := range []*Namespace{n.loadBalancer, n.partner, n.client, n.underlay} {
		if ns != nil {
			errs = append(errs, ns.Remove())
		}
	}
	return errors.Join(errs...)
}

// hostSettings are the kernel settings of a host: it forwards, IPv6 addresses are usable at once, a client may open
// thousands of short connections to one address, and bridged traffic goes through netfilter or not.
func hostSettings(bridgeNetfilter bool) [][2]string {
	settings := [][2]string{
		{"net/ipv4/ip_forward", "1"},
		{"net/ipv6/conf/all/forwarding", "1"},
		{"net/ipv6/conf/all/accept_dad", "0"},
		{"net/ipv6/conf/default/accept_dad", "0"},
		{"net/ipv6/conf/default/dad_transmits", "0"},
		{"net/ipv6/conf/default/accept_ra", "0"},
		{"net/ipv4/tcp_tw_reuse", "1"},
	}
	if _, err := os.Stat("/proc/sys/net/bridge"); err != nil {
		return settings
	}
	value := "0"
	if bridgeNetfilter {
		value = "1"
	}
	return append(settings,
		[2]string{"net/bridge/bridge-nf-call-iptables", value},
		[2]string{"net/bridge/bridge-nf-call-ip6tables", value})
}

// missing names the kernel feature behind an error of creating a link.
func missing(err error, feature string) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("the kernel has no support for %s devices: sudo modprobe %s (%w)", feature, feature, err)
	}
	return err
}

func underlays() []netip.Prefix { return []netip.Prefix{underlay4, underlay6} }

func unspecified(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
