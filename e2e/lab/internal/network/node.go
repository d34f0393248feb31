package network

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
)

// Node is a Node's network: its own namespace and the Pods behind it.
type Node struct {
	*Namespace
	Addresses []netip.Addr   // on the underlay, IPv4 first
	PodCIDRs  []netip.Prefix // IPv4 first

	kind  Kind
	mutex sync.Mutex // guards what follows
	free  *pool
	pods  map[string]*pod // by UID
}

type pod struct {
	namespace *Namespace
	link      string // the Node's end
	number    uint32
	addresses []netip.Addr
}

// Sandbox is the network of one Pod.
type Sandbox struct {
	Path      string       // of its network namespace
	Addresses []netip.Addr // IPv4 first
}

const (
	podBridge   = "cni0"
	podEthernet = "eth0"
)

// Where a routed Pod sends everything; the Node answers for it on the Pod's link.
var (
	routedGateway4 = netip.MustParseAddr("169.254.1.1")
	routedGateway6 = netip.MustParseAddr("fe80::1")
)

func newNode(host *Namespace, number int, options Options) (*Node, error) {
	cidrs := PodCIDRs(number)
	node := &Node{
		Namespace: host,
		Addresses: NodeAddresses(number),
		PodCIDRs:  cidrs,
		kind:      options.Pods,
		free:      newPool(cidrs[0], options.ReusePodIPs),
		pods:      map[string]*pod{},
	}
	if options.Pods == Routed {
		return node, nil
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: podBridge}}
	if err := host.links.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("create the Pod bridge of %s: %w", host.Name(), missing(err, "bridge"))
	}
	if err := errors.Join(host.up(podBridge), host.sysctls(hostSettings(options.BridgeNetfilter))); err != nil {
		return nil, err
	}
	for _, cidr := range cidrs {
		if err := host.assign(podBridge, netip.PrefixFrom(numbered(cidr, gatewayNumber), cidr.Bits())); err != nil {
			return nil, err
		}
	}
	return node, nil
}

// Attach gives a Pod a network namespace with addresses of this Node. A Pod that has one gets the same again.
func (n *Node) Attach(podUID string) (Sandbox, error) {
	n.mutex.Lock()
	known := n.pods[podUID]
	if known == nil {
		number, err := n.free.take()
		if err != nil {
			n.mutex.Unlock()
			return Sandbox{}, fmt.Errorf("Pod network of %s: %w", n.Name(), err)
		}
		known = &pod{link: linkName(podUID), number: number}
		for _, cidr := range n.PodCIDRs {
			known.addresses = append(known.addresses, numbered(cidr, number))
		}
		n.pods[podUID] = known
		n.mutex.Unlock()
		if err := n.connect(podUID, known); err != nil {
			return Sandbox{}, errors.Join(fmt.Errorf("connect Pod %s to %s: %w", podUID, n.Name(), err), n.Detach(podUID))
		}
	} else {
		n.mutex.Unlock()
	}
	return Sandbox{Path: PodPath(podUID), Addresses: known.addresses}, nil
}

// Detach takes a Pod's network away and frees its addresses; a Pod that has none is fine.
func (n *Node) Detach(podUID string) error {
	n.mutex.Lock()
	known := n.pods[podUID]
	delete(n.pods, podUID)
	n.mutex.Unlock()
	if known == nil {
		return nil
	}
	var errs []error
	// The link goes first and by hand: a process that still holds the namespace would keep it.
	if link, err := n.links.LinkByName(known.link); err == nil {
		errs = append(errs, n.links.LinkDel(link))
	}
	if known.namespace != nil {
		errs = append(errs, known.namespace.Remove())
	}
	n.mutex.Lock()
	n.free.give(known.number)
	n.mutex.Unlock()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("disconnect Pod %s from %s: %w", podUID, n.Name(), err)
	}
	return nil
}

// connect builds the namespace, the link and the routes of a Pod.
func (n *Node) connect(podUID string, p *pod) error {
	var err error
	if p.namespace, err = newNamespace(podName(podUID)); err != nil {
		return err
	}
	if err := p.namespace.sysctls(podSettings()); err != nil {
		return err
	}
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: p.link})
	veth.PeerName, veth.PeerNamespace = podEthernet, netlink.NsFd(p.namespace.handle)
	if n.kind != Routed {
		bridge, err := n.links.LinkByName(podBridge)
		if err != nil {
			return fmt.Errorf("find the Pod bridge: %w", err)
		}
		veth.MasterIndex = bridge.Attrs().Index
	}
	if err := n.links.LinkAdd(veth); err != nil {
		return fmt.Errorf("create link %s: %w", p.link, missing(err, "veth"))
	}
	if n.kind != Routed {
		return n.connectBridged(p)
	}
	return n.connectRouted(p)
}

func (n *Node) connectBridged(p *pod) error {
	port, err := n.links.LinkByName(p.link)
	if err == nil {
		err = n.links.LinkSetHairpin(port, true) // a Pod may reach itself through its Node
	}
	if err != nil {
		return fmt.Errorf("hairpin mode of %s: %w", p.link, err)
	}
	if err := errors.Join(n.up(p.link), p.namespace.up(podEthernet)); err != nil {
		return err
	}
	for i, address := range p.addresses {
		cidr := n.PodCIDRs[i]
		if err := p.namespace.assign(podEthernet, netip.PrefixFrom(address, cidr.Bits())); err != nil {
			return err
		}
		if err := p.namespace.route(netip.PrefixFrom(unspecified(address), 0), numbered(cidr, gatewayNumber), ""); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) connectRouted(p *pod) error {
	err := n.sysctls([][2]string{
		{"net/ipv4/conf/" + p.link + "/proxy_arp", "1"}, // the Node answers for 169.254.1.1
		{"net/ipv4/neigh/" + p.link + "/proxy_delay", "0"},
	})
	if err := errors.Join(err, n.up(p.link), p.namespace.up(podEthernet)); err != nil {
		return err
	}
	if err := n.assign(p.link, netip.PrefixFrom(routedGateway6, 64)); err != nil {
		return err
	}
	if err := p.namespace.route(single(routedGateway4), netip.Addr{}, podEthernet); err != nil {
		return err
	}
	for i, gateway := range []netip.Addr{routedGateway4, routedGateway6} {
		address := p.addresses[i]
		if err := p.namespace.assign(podEthernet, single(address)); err != nil {
			return err
		}
		if err := p.namespace.route(netip.PrefixFrom(unspecified(address), 0), gateway, podEthernet); err != nil {
			return err
		}
		if err := n.route(single(address), netip.Addr{}, p.link); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) close() error {
	n.mutex.Lock()
	var uids []string
	for uid := range n.pods {
		uids = append(uids, uid)
	}
	n.mutex.Unlock()
	var errs []error
	for _, uid := range uids {
		errs = append(errs, n.Detach(uid))
	}
	return errors.Join(append(errs, n.Remove())...)
}

// podSettings are those of a Pod under containerd: IPv6 addresses usable at once, low ports and ping for everyone.
func podSettings() [][2]string {
	return [][2]string{
		{"net/ipv6/conf/all/accept_dad", "0"},
		{"net/ipv6/conf/default/accept_dad", "0"},
		{"net/ipv6/conf/default/dad_transmits", "0"},
		{"net/ipv6/conf/default/accept_ra", "0"},
		{"net/ipv4/ip_unprivileged_port_start", "0"},
	}
}

// PodPath is the file that stands for a Pod's network namespace.
func PodPath(podUID string) string { return namedDir + "/" + podName(podUID) }

func podName(podUID string) string { return "pod-" + podUID }

// linkName is unique and short enough for an interface (15 bytes).
func linkName(podUID string) string {
	hash := fnv.New64a()
	hash.Write([]byte(podUID))
	return fmt.Sprintf("pod%012x", hash.Sum64()&(1<<48-1))
}
