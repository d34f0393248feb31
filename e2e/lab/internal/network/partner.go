package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// AddPartner plugs in the other load balancer of a pair, on which programs may bind addresses that it does not have. Where it is already it stays.
func (n *Network) AddPartner() (*Namespace, error) {
	n.mutex.Lock()
	known := n.partner
	n.mutex.Unlock()
	if known != nil {
		return known, nil
	}
	ns, err := n.addHost(Partner, PartnerAddresses())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(ns.sysctls(nonlocalBind), n.addRoutes(ns)); err != nil {
		return nil, errors.Join(err, ns.Remove())
	}
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.partner = ns
	return ns, nil
}

// Unplug pulls the cable of a host.
func (n *Network) Unplug(host string) error { return n.cable(host, n.underlay.links.LinkSetDown) }

// Plug undoes Unplug.
func (n *Network) Plug(host string) error { return n.cable(host, n.underlay.links.LinkSetUp) }

func (n *Network) cable(host string, set func(netlink.Link) error) error {
	link, err := n.underlay.links.LinkByName(host)
	if err == nil {
		err = set(link)
	}
	if err != nil {
		return fmt.Errorf("cable of %s: %w", host, err)
	}
	return nil
}

// Shared returns which of SharedVIPs the host has at the moment, in order.
func (n *Namespace) Shared() ([]netip.Addr, error) {
	addresses, err := n.shared()
	var out []netip.Addr
	for _, a := range addresses {
		address, _ := netip.AddrFromSlice(a.IP)
		out = append(out, address.Unmap())
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out, err
}

// ForgetShared takes all of SharedVIPs off the host, as the end of its kernel does.
func (n *Namespace) ForgetShared() error {
	addresses, err := n.shared()
	for _, a := range addresses {
		link, findErr := n.links.LinkByIndex(a.LinkIndex)
		if findErr == nil {
			findErr = n.links.AddrDel(link, &a)
		}
		err = errors.Join(err, findErr)
	}
	if err != nil {
		return fmt.Errorf("take the shared addresses off %s: %w", n.name, err)
	}
	return nil
}

func (n *Namespace) shared() ([]netlink.Addr, error) {
	all, err := n.links.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", n.name, err)
	}
	return slices.DeleteFunc(all, func(a netlink.Addr) bool {
		address, _ := netip.AddrFromSlice(a.IP)
		return !SharedVIPs.Contains(address.Unmap())
	}), nil
}
