package dataplane

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// NFT is the nftables dataplane of the network namespace in which it was opened. Its methods may be called from several
// goroutines.
type NFT struct {
	cfg      Config
	families []*family
	layouts  map[*family]layout
	now      func() time.Time
	route    *netlink.Handle // rtnetlink

	mu     sync.Mutex
	kernel kernel
	// known is the table as it was last read or written; stale families are read again before the next write.
	known map[*family]*state
	stale map[*family]bool
	// walkDue marks families whose UDP flows are to be looked at in the next repair: always in the first, since an earlier
	// process may have been killed between its transaction and the flows.
	walkDue map[*family]bool
	self    []netip.Addr
	links   []address // all addresses of the Node, when self was made

	sockets sockets
	// opened is what chain FORWARD was opened for by family, since it was looked at first.
	opened map[*family][]PortRange
	warned map[string]bool
}

// Open connects to nf_tables of the calling thread's network namespace and checks that our tables, where they exist, are
// this cluster's. It writes nothing. IPv6 is left out where it is disabled on the Node.
func Open(cfg Config) (*NFT, error) {
	cfg, err := cfg.normalized()
	if err != nil {
		return nil, err
	}
	v6, err := ipv6Enabled()
	if err != nil {
		return nil, err
	}
	route, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, explain("open a netlink socket for addresses", err)
	}
	n := &NFT{
		cfg: cfg, families: families(v6), layouts: map[*family]layout{}, now: time.Now, route: route,
		known: map[*family]*state{}, stale: map[*family]bool{}, walkDue: map[*family]bool{}, warned: map[string]bool{},
	}
	for _, f := range n.families {
		n.walkDue[f] = true
		n.layouts[f] = newLayout(f, cfg.Masquerade)
	}
	if err := n.kernel.dial(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	if err := n.checkMarks(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// ipv6Enabled reports whether the kernel has IPv6 and it is not switched off for this network namespace.
func ipv6Enabled() (bool, error) {
	b, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find out whether IPv6 is enabled: %w", err)
	}
	return string(bytes.TrimSpace(b)) != "1", nil
}

func (n *NFT) checkMarks() error {
	for _, f := range n.families {
		info, err := n.kernel.tableInfo(f)
		if err != nil {
			return err
		}
		if err := n.claim(f, info); err != nil {
			return err
		}
	}
	return nil
}

// Families returns the IP families that are served: both, or only IPv4 where IPv6 is disabled on the Node.
func (n *NFT) Families() []npl.Family {
	var out []npl.Family
	for _, f := range n.families {
		out = append(out, f.ip)
	}
	return out
}

// Self returns the addresses at which node ports were served when the tables were last loaded, written or repaired.
func (n *NFT) Self() []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.self)
}

// Load reads what is in the kernel now. It writes nothing.
func (n *NFT) Load() (Snapshot, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := Snapshot{Mappings: map[Key]netip.AddrPort{}, Cooling: map[Key]time.Duration{}}
	if err := n.refreshSelf(); err != nil {
		return out, err
	}
	for _, f := range n.families {
		s, err := n.read(f)
		if err != nil {
			return Snapshot{}, err
		}
		n.known[f], n.stale[f] = s, false
		s.mappings(f, out)
		s.cooling(f, n.now(), out)
		_, hasMap := s.elements[setPorts]
		_, hasCooling := s.elements[setCooling]
		out.Fresh = out.Fresh || !hasMap || !hasCooling
	}
	return out, nil
}

func (n *NFT) refreshSelf() error {
	all, err := n.addresses()
	if err != nil {
		return err
	}
	n.links, n.self = all, served(all)
	if n.self == nil {
		n.self = []netip.Addr{}
	}
	return nil
}

func (n *NFT) checkFamilies(keys []Key) error {
	for _, k := range keys {
		if !slices.ContainsFunc(n.families, func(f *family) bool { return f.ip == k.Family }) {
			return fmt.Errorf("node port %s: %s is disabled on this Node: enable it, or do not ask for it", k, k.Family)
		}
	}
	return nil
}

// Close releases the ports and closes all sockets. Tables stay as they are.
func (n *NFT) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kernel.hangUp()
	n.route.Close()
	return n.sockets.close()
}

// Cleanup deletes our tables, and our rules in tables of iptables, and forgets the UDP flows that went through them. Sockets stay until Close.
func (n *NFT) Cleanup() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, err := n.look(nil, false)
	errs := []error{err}
	for _, f := range n.families {
		s, err := n.read(f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !s.exists {
			continue
		}
		t := &transaction{f: f}
		t.deleteTable()
		if err := n.kernel.commit(t); err != nil {
			// Gone meanwhile is as good.
			if dialErr := n.kernel.dial(); !errors.Is(err, unix.ENOENT) || dialErr != nil {
				errs = append(errs, err, dialErr)
				continue
			}
		}
		flows := map[flow]netip.AddrPort{}
		for key := range s.elements[setPorts] {
			if k, err := f.decodeKey(key); err == nil && k.Protocol == npl.UDP {
				flows[k.flow()] = netip.AddrPort{}
			}
		}
		n.forget(f, flows)
		delete(n.known, f)
	}
	return errors.Join(errs...)
}

func (n *NFT) warnOnce(key, message string, fields ...zap.Field) {
	if !n.warned[key] {
		n.warned[key] = true
		n.cfg.Log.Warn(message, fields...)
	}
}

// warnForeign reports NAT chains of others that see packets before ours: where they have an answer, ours is never asked.
func (n *NFT) warnForeign(chains []*nftables.Chain) {
	for _, c := range chains {
		if c.Table != nil && c.Table.Name != TableName && c.Type == nftables.ChainTypeNAT && c.Priority != nil && c.Hooknum != nil &&
			*c.Priority < priorityDNAT && (*c.Hooknum == *nftables.ChainHookPrerouting || *c.Hooknum == *nftables.ChainHookOutput) {
			n.warnOnce("chain "+c.Table.Name+" "+c.Name, "another NAT chain sees packets before ours and may take node ports away",
				zap.String("table", c.Table.Name), zap.String("chain", c.Name), zap.Int32("priority", int32(*c.Priority)))
		}
	}
}
