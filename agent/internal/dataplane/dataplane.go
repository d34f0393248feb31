// Package dataplane keeps node ports in the kernel: which port of this Node leads to which Pod.
//
// On Linux that is one small nftables table per IP family, written over netlink without any helper process, with
// sockets that hold the ports and conntrack entries that follow every change. See docs/explanation/dataplane.md for the
// ruleset and the reason for each part.
package dataplane

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/agent/npl"
)

var (
	// ErrPortBusy reports a port that another process holds.
	ErrPortBusy = errors.New("the port is held by another process")
	// ErrForeignTable reports a table of our name that does not carry our mark; it is never touched.
	ErrForeignTable = errors.New("the table does not carry this cluster's mark")
	// ErrUnsupported reports something the kernel lacks; the message names it.
	ErrUnsupported = errors.New("not supported by this kernel")
	// ErrPermission reports a missing capability; the message names it.
	ErrPermission = errors.New("permission denied")
)

// TableName is the name of our table in each IP family.
const TableName = "nplbridge"

// LayoutVersion names the layout of our tables; it is part of their mark.
const LayoutVersion = "v1"

// Masquerade chooses which connections get an address of the Node as their source.
const (
	// MasqueradeAuto masquerades only where the reply would not come back through the Node.
	MasqueradeAuto = "auto"
	// MasqueradeAll masquerades every connection to a node port: the Pod no longer sees its client.
	MasqueradeAll = "all"
	// MasqueradeNone never masquerades.
	MasqueradeNone = "none"
)

// Key names one node port. The same number may be in use once per protocol and family.
type Key struct {
	Protocol npl.Protocol
	Family   npl.Family
	NodePort uint16 // 1..65535
}

// Compare orders keys by port, protocol and family.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.NodePort, o.NodePort), cmp.Compare(k.Protocol, o.Protocol), cmp.Compare(k.Family, o.Family))
}

// String returns "61000/tcp IPv4".
func (k Key) String() string { return fmt.Sprintf("%d/%s %s", k.NodePort, k.Protocol, k.Family) }

// Snapshot is what the kernel holds.
type Snapshot struct {
	// Mappings leads from node ports to Pod addresses.
	Mappings map[Key]netip.AddrPort
	// Cooling says how long each freed port has still to rest; above zero.
	Cooling map[Key]time.Duration
	// Fresh is true when a table of ours is missing (the Node was rebooted, or somebody flushed the ruleset), so that
	// nothing is known about ports freed lately.
	Fresh bool
}

// Change is a difference to apply. Delete comes first, so a key in both Delete and Set ends up set; a port that is set
// no longer cools.
type Change struct {
	// Set adds or replaces mappings.
	Set map[Key]netip.AddrPort
	// Delete removes mappings; a key that has none is ignored.
	Delete []Key
	// Cool makes ports rest for so long from now, whatever was left before; at least 1ms.
	Cool map[Key]time.Duration
	// FlushTCP lists node ports whose Pod is gone: their TCP and SCTP connections are forgotten too, so that clients get a
	// reset instead of silence. UDP needs no listing.
	FlushTCP []Key
}

// Empty reports whether the change does nothing.
func (c Change) Empty() bool {
	return len(c.Set) == 0 && len(c.Delete) == 0 && len(c.Cool) == 0 && len(c.FlushTCP) == 0
}

// Config is what Open needs.
type Config struct {
	// ClusterUID marks our tables: the UID of Namespace kube-system. Required, at most 64 bytes.
	ClusterUID string
	// Masquerade is MasqueradeAuto (also when empty), MasqueradeAll or MasqueradeNone.
	Masquerade string
	// NodePorts is where node ports come from. It is what ForwardAccept lets through, and what reports about chains that drop
	// forwarded packets speak of; without it there are none.
	NodePorts PortRange
	// ForwardAccept lets connections to node ports pass a FORWARD chain of iptables-nft that drops by default; it needs NodePorts.
	ForwardAccept bool
	// Log receives warnings and what was repaired; nil discards them.
	Log *zap.Logger
}

func (c Config) normalized() (Config, error) {
	// A table comment holds 128 bytes with the rest of the mark.
	if c.ClusterUID == "" || len(c.ClusterUID) > 64 {
		return c, fmt.Errorf("cluster UID %q: must be 1 to 64 bytes long: give the UID of Namespace kube-system", c.ClusterUID)
	}
	c.Masquerade = cmp.Or(c.Masquerade, MasqueradeAuto)
	if modes := []string{MasqueradeAuto, MasqueradeAll, MasqueradeNone}; !slices.Contains(modes, c.Masquerade) {
		return c, fmt.Errorf("masquerade %q: must be one of %q", c.Masquerade, modes)
	}
	if c.ForwardAccept || c.NodePorts != (PortRange{}) {
		if err := c.NodePorts.validate(); err != nil {
			return c, err
		}
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c, nil
}

// mark is the comment of our tables.
func (c Config) mark() string { return TableName + "/" + LayoutVersion + " cluster=" + c.ClusterUID }

func (k Key) validate() error {
	switch {
	case k.NodePort == 0:
		return fmt.Errorf("node port %s: must be 1 to 65535", k)
	case k.Protocol != npl.TCP && k.Protocol != npl.UDP && k.Protocol != npl.SCTP:
		return fmt.Errorf("node port %s: protocol %q: must be tcp, udp or sctp", k, k.Protocol)
	case k.Family != npl.IPv4 && k.Family != npl.IPv6:
		return fmt.Errorf("node port %s: family %q: must be IPv4 or IPv6", k, k.Family)
	}
	return nil
}

func validateTarget(k Key, target netip.AddrPort) error {
	if err := k.validate(); err != nil {
		return err
	}
	a := target.Addr()
	switch {
	case !a.IsValid() || target.Port() == 0:
		return fmt.Errorf("node port %s: target %s: must be a Pod address and a port from 1 to 65535", k, target)
	case a.Is4In6() || a.Zone() != "" || npl.FamilyOf(a) != k.Family:
		return fmt.Errorf("node port %s: target %s: must be a plain %s address", k, target, k.Family)
	case a.IsUnspecified() || a.IsLoopback() || a.IsMulticast():
		return fmt.Errorf("node port %s: target %s: must be a unicast address that is not loopback", k, target)
	}
	return nil
}

// validate refuses a change before any of it is written.
func (c Change) validate() error {
	for _, k := range sortedKeys(c.Set) {
		if err := validateTarget(k, c.Set[k]); err != nil {
			return err
		}
	}
	for _, keys := range [][]Key{c.Delete, c.FlushTCP} {
		for _, k := range keys {
			if err := k.validate(); err != nil {
				return err
			}
		}
	}
	for _, k := range sortedKeys(c.Cool) {
		if err := k.validate(); err != nil {
			return err
		}
		if d := c.Cool[k]; d < time.Millisecond {
			return fmt.Errorf("node port %s: cooling time %s: must be at least 1ms", k, d)
		}
	}
	return nil
}

func sortedKeys[V any](m map[Key]V) []Key { return slices.SortedFunc(maps.Keys(m), Key.Compare) }
