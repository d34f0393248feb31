package nodecheck

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// Collect reads the facts from the network namespace of the calling goroutine, which should be locked to its thread if that is not
// the process's own. It needs CAP_NET_ADMIN; what it cannot read it notes in Unread. It changes nothing and starts no process.
func Collect(s Subject) Facts {
	f := Facts{Subject: s, Unread: map[Check]string{}, Flowtables: map[string][]string{}}
	c := collector{facts: &f}
	c.read(c.sysctls, Conntrack, IPForwarding, BridgeNetfilter, EphemeralPorts)
	c.read(c.listeners, PortsInUse, Antrea)
	c.route(c.links, Hairpin, ReversePath, PodRoutes, EBPF, BridgeNetfilter)
	c.nft(c.features, Kernel)
	c.read(c.barriers, ForwardPolicy)
	c.nft(c.chains, NoTrack, ForeignNAT, Antrea)
	c.nft(c.flowtables, Flowtables)
	c.read(c.legacy, NoTrack, Antrea)
	return f
}

type collector struct{ facts *Facts }

// read runs a step; if it fails, these checks are unread.
func (c collector) read(step func() error, needed ...Check) {
	if err := step(); err != nil {
		for _, check := range needed {
			if _, ok := c.facts.Unread[check]; !ok {
				c.facts.Unread[check] = err.Error()
			}
		}
	}
}

func (c collector) route(step func(*netlink.Handle) error, needed ...Check) {
	c.read(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("open a netlink socket for interfaces and routes: %w", err)
		}
		defer h.Close()
		return step(h)
	}, needed...)
}

func (c collector) nft(step func(*nftables.Conn) error, needed ...Check) {
	c.read(func() error {
		conn, err := nftables.New(nftables.AsLasting())
		if err != nil {
			return fmt.Errorf("open a netlink socket to nf_tables: %w", err)
		}
		return errors.Join(step(conn), conn.CloseLasting())
	}, needed...)
}

// sysctl returns a value of /proc/sys, or "" if there is none.
func sysctl(name string) (string, error) {
	b, err := os.ReadFile("/proc/sys/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

func (c collector) sysctls() error {
	f, values := c.facts, map[string]string{}
	for _, name := range []string{
		"net/netfilter/nf_conntrack_count", "net/netfilter/nf_conntrack_max", "net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding",
		"net/ipv6/conf/all/disable_ipv6", "net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables",
		"net/ipv4/ip_local_port_range", "net/ipv4/ip_local_reserved_ports",
	} {
		var err error
		if values[name], err = sysctl(name); err != nil {
			return err
		}
	}
	// A kernel that has not begun to track has neither.
	f.Tracked, _ = strconv.Atoi(values["net/netfilter/nf_conntrack_count"])
	f.TrackedLimit, _ = strconv.Atoi(values["net/netfilter/nf_conntrack_max"])
	f.Forwarding = map[npl.Family]bool{npl.IPv4: values["net/ipv4/ip_forward"] == "1"}
	if values["net/ipv6/conf/all/disable_ipv6"] == "0" {
		f.Forwarding[npl.IPv6] = values["net/ipv6/conf/all/forwarding"] != "0"
	}
	f.BridgedPass = map[npl.Family]bool{
		npl.IPv4: values["net/bridge/bridge-nf-call-iptables"] == "1",
		npl.IPv6: values["net/bridge/bridge-nf-call-ip6tables"] == "1",
	}
	ephemeral, err := parsePorts(strings.Join(strings.Fields(values["net/ipv4/ip_local_port_range"]), "-"))
	if err != nil || len(ephemeral) != 1 {
		return fmt.Errorf("sysctl net/ipv4/ip_local_port_range %q: %w", values["net/ipv4/ip_local_port_range"], err)
	}
	f.Ephemeral = ephemeral[0]
	if f.Reserved, err = parsePorts(values["net/ipv4/ip_local_reserved_ports"]); err != nil {
		return fmt.Errorf("sysctl net/ipv4/ip_local_reserved_ports: %w", err)
	}
	return nil
}

// parsePorts reads "1,5-9" as the kernel writes it.
func parsePorts(s string) ([]Ports, error) {
	var out []Ports
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errFirst := strconv.ParseUint(first, 10, 16)
		b, errLast := strconv.ParseUint(last, 10, 16)
		if err := errors.Join(errFirst, errLast); err != nil {
			return nil, err
		}
		out = append(out, Ports{uint16(a), uint16(b)})
	}
	return out, nil
}

// procNet opens a file of the calling thread's network namespace; /proc/net would be the one of the process's first thread.
func procNet(name string) (*os.File, error) { return os.Open("/proc/thread-self/net/" + name) }

// legacyTables returns the tables of iptables-legacy in use; asking for others by name would create them.
func legacyTables(v6 bool) ([]string, error) {
	name := "ip_tables_names"
	if v6 {
		name = "ip6_tables_names"
	}
	b, err := os.ReadFile("/proc/thread-self/net/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read which tables of iptables-legacy exist: %w", err)
	}
	return slices.Sorted(slices.Values(strings.Fields(string(b)))), nil
}
