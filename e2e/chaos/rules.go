package chaos

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// nodePort is a node port as the kernel knows it: of a Node, by protocol and number, in one family.
type nodePort struct {
	node     string
	protocol npl.Protocol
	family   npl.Family
	number   uint16
}

// String is the node port as people read it.
func (n nodePort) String() string {
	return fmt.Sprintf("%s %s/%d (%s)", n.node, n.protocol, n.number, n.family)
}

// rules reads what the kernels of the Nodes have, fast enough to be asked at every event.
type rules struct {
	mutex   sync.Mutex
	kernels map[string]*nftables.Conn
}

func (s *site) openRules(ctx context.Context) error {
	s.rules = &rules{kernels: map[string]*nftables.Conn{}}
	for _, node := range s.Lab.Nodes() {
		err := s.Lab.Do(ctx, node, func() (err error) {
			s.rules.kernels[node], err = nftables.New(nftables.AsLasting())
			return err
		})
		if err != nil {
			return fmt.Errorf("nftables of %s: %w", node, err)
		}
	}
	return nil
}

var families = map[npl.Family]nftables.TableFamily{npl.IPv4: nftables.TableFamilyIPv4, npl.IPv6: nftables.TableFamilyIPv6}

// of returns the node ports of a Node and where they lead; none where there is no table.
func (r *rules) of(node string) (map[nodePort]netip.AddrPort, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found := map[nodePort]netip.AddrPort{}
	for family, number := range families {
		set := &nftables.Set{Table: &nftables.Table{Name: "nplbridge", Family: number}, Name: "ports", IsMap: true}
		elements, err := r.kernels[node].GetSetElements(set)
		if err != nil && strings.Contains(err.Error(), unix.ENOENT.Error()) { // the library does not wrap it
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("node ports of %s: %w", node, err)
		}
		for _, e := range elements {
			size := len(e.Val) - 4
			address, ok := netip.AddrFromSlice(e.Val[:max(0, size)])
			if !ok || len(e.Key) < 6 {
				continue // not a node port
			}
			found[nodePort{node, protocolOf(e.Key[0]), family, binary.BigEndian.Uint16(e.Key[4:])}] =
				netip.AddrPortFrom(address, binary.BigEndian.Uint16(e.Val[size:]))
		}
	}
	return found, nil
}

func protocolOf(number byte) npl.Protocol {
	switch number {
	case unix.IPPROTO_TCP:
		return npl.TCP
	case unix.IPPROTO_UDP:
		return npl.UDP
	}
	return npl.SCTP
}
