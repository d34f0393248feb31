package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// address is one address of an interface of this Node, with what decides whether it is served.
type address struct {
	addr      netip.Addr
	bits      int // length of its prefix
	index     int // of its interface
	linkType  string
	loopback  bool
	permanent bool // set by hand or by a program; not leased, not advertised by a router
	unusable  bool // IPv6 duplicate or not yet checked for being one
}

// hosting reports whether node ports may be served at a: a unicast address with more than the link's scope that really
// sits on an interface. Not so on loopback, and on dummy interfaces, where kube-proxy's IPVS mode and node-local caches
// put addresses of Services.
func (a address) hosting() bool {
	return !a.loopback && a.linkType != "dummy" && !a.unusable && a.addr.IsGlobalUnicast()
}

// served picks the addresses at which node ports are served, sorted. An address with a host prefix (/32, /128) that was
// put beside a wider one of its family on the same interface is a virtual address that may move to another Node
// (keepalived, kube-vip); alone on its interface, or leased, it is the Node's own (as in some clouds).
func served(all []address) []netip.Addr {
	type home struct {
		index int
		v4    bool
	}
	wide := map[home]bool{}
	for _, a := range all {
		if a.hosting() && a.bits < a.addr.BitLen() {
			wide[home{a.index, a.addr.Is4()}] = true
		}
	}
	var out []netip.Addr
	for _, a := range all {
		virtual := a.bits == a.addr.BitLen() && a.permanent && wide[home{a.index, a.addr.Is4()}]
		if a.hosting() && !virtual {
			out = append(out, a.addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// interfaces returns the indexes of the interfaces that have an address of the family: those behind which a client and a
// Pod can both be neighbours (a bridge, a network card), unlike the nameless ends of the Pods' own links.
func interfaces(all []address, f npl.Family) []int {
	var out []int
	for _, a := range all {
		if a.hosting() && npl.FamilyOf(a.addr) == f {
			out = append(out, a.index)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// addresses reads all addresses of this network namespace.
func (n *NFT) addresses() ([]address, error) {
	links, err := retryDump(n.route.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	byIndex := make(map[int]netlink.Link, len(links))
	for _, l := range links {
		byIndex[l.Attrs().Index] = l
	}
	list, err := retryDump(func() ([]netlink.Addr, error) { return n.route.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the addresses of the network interfaces: %w", err)
	}
	var out []address
	for _, a := range list {
		ip, ok := netip.AddrFromSlice(a.IP)
		link := byIndex[a.LinkIndex]
		if !ok || link == nil || a.Scope > unix.RT_SCOPE_SITE {
			continue
		}
		bits, _ := a.Mask.Size()
		out = append(out, address{
			addr: ip.Unmap(), bits: bits, index: a.LinkIndex, linkType: link.Type(),
			loopback:  link.Attrs().RawFlags&unix.IFF_LOOPBACK != 0,
			permanent: a.Flags&unix.IFA_F_PERMANENT != 0,
			unusable:  a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0 && a.Flags&unix.IFA_F_OPTIMISTIC == 0,
		})
	}
	return out, nil
}

// retryDump repeats a dump that changed while it was read.
func retryDump[T any](dump func() (T, error)) (out T, err error) {
	for range readAttempts {
		if out, err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return out, err
}
