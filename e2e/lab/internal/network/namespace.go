package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namedDir is where `ip netns` and netns.NewNamed keep named network namespaces.
const namedDir = "/run/netns"

// Namespace is a network namespace of the lab.
type Namespace struct {
	name   string
	handle netns.NsHandle
	links  *netlink.Handle
}

// newNamespace creates a named network namespace with its loopback interface up.
func newNamespace(name string) (*Namespace, error) {
	var handle netns.NsHandle
	err := onFreshThread(func() error {
		var err error
		handle, err = netns.NewNamed(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("create network namespace %s: %w", name, err)
	}
	return openNamespace(name, handle)
}

// thisNamespace is the network namespace of this process, under a name.
func thisNamespace(name string) (*Namespace, error) {
	handle, err := netns.GetFromPath("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open own network namespace: %w", err)
	}
	path := filepath.Join(namedDir, name)
	err = errors.Join(os.MkdirAll(namedDir, 0o755), os.WriteFile(path, nil, 0o444),
		unix.Mount("/proc/self/ns/net", path, "bind", unix.MS_BIND, ""))
	if err != nil {
		return nil, fmt.Errorf("name own network namespace %s: %w", name, err)
	}
	return openNamespace(name, handle)
}

func openNamespace(name string, handle netns.NsHandle) (*Namespace, error) {
	links, err := netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink socket in network namespace %s: %w", name, err)
	}
	ns := &Namespace{name: name, handle: handle, links: links}
	return ns, ns.up("lo")
}

// Name is the name below /run/netns.
func (n *Namespace) Name() string { return n.name }

// Path is the file that stands for the namespace, as nsenter and setns take it.
func (n *Namespace) Path() string { return filepath.Join(namedDir, n.name) }

// Do runs a function on a thread inside the namespace. Goroutines that the function starts are outside.
func (n *Namespace) Do(function func() error) error {
	return onFreshThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", n.name, err)
		}
		return function()
	})
}

// onFreshThread runs a function on a thread that is thrown away afterwards, so that what it does to the thread never
// meets other code.
func onFreshThread(function func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot be thrown away, and /proc/self shows its namespaces: keep it busy, use another.
			result <- onFreshThread(function)
			runtime.UnlockOSThread()
			return
		}
		result <- function()
	}()
	return <-result
}

// Start starts a prepared command inside the namespace.
func (n *Namespace) Start(cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// sysctls writes settings of the namespace, each a path below /proc/sys and a value.
func (n *Namespace) sysctls(settings [][2]string) error {
	err := n.Do(func() error {
		for _, setting := range settings {
			if err := os.WriteFile(filepath.Join("/proc/sys", setting[0]), []byte(setting[1]), 0); err != nil {
				return fmt.Errorf("sysctl %s=%s: %w", setting[0], setting[1], err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", n.name, err)
	}
	return nil
}

// removeLinks deletes all interfaces but the loopback.
func (n *Namespace) removeLinks() error {
	links, err := n.links.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces of %s: %w", n.name, err)
	}
	var errs []error
	for _, link := range links {
		if name := link.Attrs().Name; name != "lo" {
			if err := n.links.LinkDel(link); err != nil {
				errs = append(errs, fmt.Errorf("delete %s in %s: %w", name, n.name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Remove forgets the namespace; the kernel frees it when no process is left inside.
func (n *Namespace) Remove() error {
	n.links.Close()
	n.handle.Close()
	return netns.DeleteNamed(n.name)
}

// ForgetConnections empties the table of tracked connections.
func (n *Namespace) ForgetConnections() error {
	handle, err := netlink.NewHandleAt(n.handle, unix.NETLINK_NETFILTER)
	if err == nil {
		defer handle.Close()
		err = handle.ConntrackTableFlush(netlink.ConntrackTable)
	}
	if err != nil {
		return fmt.Errorf("forget the connections of %s: %w", n.name, err)
	}
	return nil
}

func (n *Namespace) up(link string) error {
	found, err := n.links.LinkByName(link)
	if err == nil {
		err = n.links.LinkSetUp(found)
	}
	if err != nil {
		return fmt.Errorf("set %s up in %s: %w", link, n.name, err)
	}
	return nil
}

// assign gives an interface an address without duplicate address detection, so that it is usable at once.
func (n *Namespace) assign(link string, address netip.Prefix) error {
	found, err := n.links.LinkByName(link)
	if err == nil {
		err = n.links.AddrReplace(found, &netlink.Addr{IPNet: ipNet(address), Flags: unix.IFA_F_NODAD})
	}
	if err != nil {
		return fmt.Errorf("assign %s to %s in %s: %w", address, link, n.name, err)
	}
	return nil
}

// route adds a route: through a gateway, to a link, or both. Scope and type have the kernel's defaults.
func (n *Namespace) route(to netip.Prefix, gateway netip.Addr, link string) error {
	route := &netlink.Route{Dst: ipNet(to)}
	if gateway.IsValid() {
		route.Gw = gateway.AsSlice()
	}
	var err error
	if link != "" {
		var found netlink.Link
		if found, err = n.links.LinkByName(link); err == nil {
			route.LinkIndex = found.Attrs().Index
			if !gateway.IsValid() {
				route.Scope = netlink.SCOPE_LINK
			}
		}
	}
	if err == nil {
		err = n.links.RouteAdd(route)
	}
	if err != nil {
		return fmt.Errorf("route to %s via %v %s in %s: %w", to, gateway, link, n.name, err)
	}
	return nil
}

// local makes a whole prefix local to the namespace, as `ip route add local ... dev lo` does.
func (n *Namespace) local(prefix netip.Prefix) error {
	lo, err := n.links.LinkByName("lo")
	if err == nil {
		err = n.links.RouteAdd(&netlink.Route{
			Dst: ipNet(prefix), LinkIndex: lo.Attrs().Index,
			Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
		})
	}
	if err != nil {
		return fmt.Errorf("make %s local in %s: %w", prefix, n.name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// DialFrom opens a connection from the namespace that a file stands for. The address must be numeric.
func DialFrom(ctx context.Context, path, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dial %s: not a numeric address: %w", address, err)
	}
	var conn net.Conn
	err := Inside(path, func() error {
		var err error
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Inside runs a function on a thread in the namespace that a file stands for. Goroutines that the function starts are outside.
func Inside(path string, function func() error) error {
	return onFreshThread(func() error {
		handle, err := netns.GetFromPath(path)
		if err != nil {
			return fmt.Errorf("open network namespace %s: %w", path, err)
		}
		defer handle.Close()
		if err := netns.Set(handle); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", path, err)
		}
		return function()
	})
}
