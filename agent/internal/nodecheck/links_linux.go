package nodecheck

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// dumpAttempts is how often a dump that changed while it was read is begun again.
const dumpAttempts = 3

func retry[T any](dump func() (T, error)) (out T, err error) {
	for range dumpAttempts {
		if out, err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return out, err
}

func (c collector) links(h *netlink.Handle) error {
	links, err := retry(h.LinkList)
	if err != nil {
		return fmt.Errorf("list the interfaces: %w", err)
	}
	byIndex := map[int]netlink.Link{}
	for _, l := range links {
		byIndex[l.Attrs().Index] = l
	}
	toPods := c.podRoutes(h, byIndex)
	if err := c.bridges(byIndex, toPods); err != nil {
		return err
	}
	if err := c.uplinks(h, links, toPods); err != nil {
		return err
	}
	c.programs(h, links)
	return nil
}

// podRoutes asks the kernel how it reaches each Pod. It returns the families of the Pods behind each interface.
func (c collector) podRoutes(h *netlink.Handle, byIndex map[int]netlink.Link) map[int][]npl.Family {
	toPods := map[int][]npl.Family{}
	for _, pod := range c.facts.Pods {
		r := PodRoute{Pod: pod}
		found, err := h.RouteGetWithOptions(pod.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
		switch {
		case err != nil:
			r.Failure = err.Error()
		case len(found) == 0:
			r.Failure = "no route"
		default:
			route := found[0]
			if link := byIndex[route.LinkIndex]; link != nil {
				r.Interface = link.Attrs().Name
			}
			if route.Dst == nil {
				r.Default = true
			} else if ones, _ := route.Dst.Mask.Size(); ones == 0 {
				r.Default = true
			}
			r.Gateway, _ = netip.AddrFromSlice(route.Gw)
			if family := npl.FamilyOf(pod); !r.Default && !slices.Contains(toPods[route.LinkIndex], family) {
				toPods[route.LinkIndex] = append(toPods[route.LinkIndex], family)
			}
		}
		c.facts.Routes = append(c.facts.Routes, r)
	}
	return toPods
}

// bridges finds the ports of the Pods' bridges that lack hairpin mode.
func (c collector) bridges(byIndex map[int]netlink.Link, toPods map[int][]npl.Family) error {
	ports, err := retry(bridgePorts)
	if err != nil {
		return fmt.Errorf("list the ports of bridges: %w", err)
	}
	for index, served := range toPods {
		if link := byIndex[index]; link == nil || link.Type() != "bridge" {
			continue
		}
		b := Bridge{Name: byIndex[index].Attrs().Name, Families: slices.Sorted(slices.Values(served))}
		for _, p := range ports {
			link := byIndex[p.Attrs().Index]
			if p.Attrs().MasterIndex == index && link != nil && link.Type() == "veth" && p.Attrs().Protinfo != nil && !p.Attrs().Protinfo.Hairpin {
				b.NoHairpin = append(b.NoHairpin, link.Attrs().Name)
			}
		}
		slices.Sort(b.NoHairpin)
		c.facts.PodBridges = append(c.facts.PodBridges, b)
	}
	slices.SortFunc(c.facts.PodBridges, func(a, b Bridge) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// bridgePorts dumps the ports of all bridges with their flags, which the library reads port by port only.
func bridgePorts() ([]netlink.Link, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfInfomsg(unix.AF_BRIDGE))
	messages, err := request.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return nil, err
	}
	var out []netlink.Link
	for _, m := range messages {
		link, err := netlink.LinkDeserialize(&unix.NlMsghdr{Type: unix.RTM_NEWLINK}, m) // without the type it passes over the flags
		if err != nil {
			return nil, err
		}
		out = append(out, link)
	}
	return out, nil
}

// notUplinks are types of interfaces by which no client comes from outside: overlays, and homes of virtual addresses.
func notUplinks() []string {
	return []string{"dummy", "vxlan", "geneve", "ipip", "sit", "ip6tnl", "gre", "gretap", "wireguard", "tuntap", "netkit", "ifb"}
}

func (c collector) uplinks(h *netlink.Handle, links []netlink.Link, toPods map[int][]npl.Family) error {
	addresses, err := retry(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return fmt.Errorf("list the addresses of the interfaces: %w", err)
	}
	routes, err := retry(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return fmt.Errorf("list the routes: %w", err)
	}
	byDefault := map[int]bool{}
	for _, r := range routes {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones > 0 {
				continue
			}
		}
		byDefault[r.LinkIndex] = true
		for _, hop := range r.MultiPath {
			byDefault[hop.LinkIndex] = true
		}
	}
	for _, l := range links {
		a := l.Attrs()
		if a.RawFlags&unix.IFF_LOOPBACK != 0 || a.RawFlags&unix.IFF_UP == 0 || toPods[a.Index] != nil || slices.Contains(notUplinks(), l.Type()) {
			continue
		}
		// The node's end of a Pod's own link often has an address of a single host.
		if !slices.ContainsFunc(addresses, func(x netlink.Addr) bool {
			ones, all := x.Mask.Size()
			return x.LinkIndex == a.Index && ones < all && x.Scope == unix.RT_SCOPE_UNIVERSE
		}) {
			continue
		}
		mode := "0"
		for _, name := range []string{"all", a.Name} { // the larger one counts
			value, err := sysctl("net/ipv4/conf/" + name + "/rp_filter")
			if err != nil {
				return err
			}
			mode = max(mode, value)
		}
		c.facts.Uplinks = append(c.facts.Uplinks, Uplink{Name: a.Name, Strict: mode == "1", Default: byDefault[a.Index]})
	}
	return nil
}
