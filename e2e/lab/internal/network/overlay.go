package network

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	overlayLink = "vxlan"
	overlayVNI  = 1
	overlayPort = 8472 // as Flannel's; VXLAN's own is 4789
	// overlayMTU leaves room for the outer headers, 50 bytes over IPv4.
	overlayMTU = 1450
)

// overlayAddress is the address of a Node inside the tunnel, where the other Nodes route its Pods to.
func overlayAddress(node, family int) netip.Prefix {
	if family == 0 {
		return netip.MustParsePrefix(fmt.Sprintf("10.245.0.%d/24", node))
	}
	return netip.MustParsePrefix(fmt.Sprintf("fd00:245::%d/64", node))
}

// joinOverlay connects the Node to the Pods of the others: a tunnel that floods to all of them what it has not learned yet, and routes
// through it. Packets for both families travel over IPv4.
func (n *Node) joinOverlay(nodes []*Node) error {
	vxlan := &netlink.Vxlan{
		LinkAttrs: netlink.LinkAttrs{Name: overlayLink, MTU: overlayMTU},
		VxlanId:   overlayVNI, Port: overlayPort, SrcAddr: n.Addresses[0].AsSlice(), Learning: true,
	}
	if err := n.links.LinkAdd(vxlan); err != nil {
		return fmt.Errorf("create the tunnel: %w", missing(err, "vxlan"))
	}
	if err := n.up(overlayLink); err != nil {
		return err
	}
	// Its own address comes first: the others' are reached from it.
	if err := n.reach(n, slices.Index(nodes, n)+1, vxlan.Index); err != nil {
		return err
	}
	for i, other := range nodes {
		if other == n {
			continue
		}
		if err := n.reach(other, i+1, vxlan.Index); err != nil {
			return err
		}
	}
	return n.masqueradePods(nodes)
}

// reach makes the Pods of a Node, counted from 1, reachable through the tunnel; for the Node itself it assigns its addresses there.
func (n *Node) reach(other *Node, number, tunnel int) error {
	for family, cidr := range other.PodCIDRs {
		address := overlayAddress(number, family)
		var err error
		if other == n {
			err = n.assign(overlayLink, address)
		} else {
			err = n.route(cidr, address.Addr(), overlayLink)
		}
		if err != nil {
			return err
		}
	}
	if other == n {
		return nil
	}
	err := n.links.NeighAppend(&netlink.Neigh{
		LinkIndex: tunnel, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT,
		IP: other.Addresses[0].AsSlice(), HardwareAddr: make(net.HardwareAddr, 6), // the address of all that is not learned yet
	})
	if err != nil {
		return fmt.Errorf("lead the tunnel to %s: %w", other.Name(), err)
	}
	return nil
}

// masqueradePods gives what Pods send to others than Pods the address of their Node, which the underlay can answer.
func (n *Node) masqueradePods(nodes []*Node) error {
	var rules strings.Builder
	for family, name := range []string{"ip", "ip6"} {
		var all []string
		for _, node := range nodes {
			all = append(all, node.PodCIDRs[family].String())
		}
		fmt.Fprintf(&rules, "table %[1]s podnetwork { chain postrouting { type nat hook postrouting priority srcnat; "+
			"%[1]s saddr %[2]s %[1]s daddr != { %[3]s } masquerade; }; }\n", name, n.PodCIDRs[family], strings.Join(all, ", "))
	}
	var said strings.Builder
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin, cmd.Stderr = strings.NewReader(rules.String()), &said
	if err := n.Start(cmd); err != nil {
		return fmt.Errorf("masquerade Pods: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("masquerade Pods: %w: %s", err, said.String())
	}
	return nil
}
