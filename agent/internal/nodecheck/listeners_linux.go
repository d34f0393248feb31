package nodecheck

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// States of sockets in /proc/net, of linux/net/tcp_states.h; an unconnected UDP socket is in "close".
const (
	stateListen = "0A"
	stateClose  = "07"
)

// listeners reads which sockets wait for clients. The agent's own are none of them: those for TCP do not listen, those for UDP are
// connected.
func (c collector) listeners() error {
	for _, table := range []struct {
		file, state string
		protocol    npl.Protocol
	}{{"tcp", stateListen, npl.TCP}, {"tcp6", stateListen, npl.TCP}, {"udp", stateClose, npl.UDP}, {"udp6", stateClose, npl.UDP}} {
		if err := c.listenersIn(table.file, table.state, table.protocol); err != nil {
			return err
		}
	}
	return nil
}

func (c collector) listenersIn(name, state string, p npl.Protocol) error {
	file, err := procNet(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no IPv6
	}
	if err != nil {
		return fmt.Errorf("read which ports are in use: %w", err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Scan() // headings
	for lines.Scan() {
		// sl local_address rem_address st ...
		words := strings.Fields(lines.Text())
		if len(words) < 4 {
			continue
		}
		if words[3] != state {
			if p == npl.TCP {
				return nil // the listening sockets come first
			}
			continue
		}
		at, err := parseSocketAddress(words[1])
		if err != nil {
			return fmt.Errorf("read which ports are in use: %s: %w", name, err)
		}
		c.facts.Listeners = append(c.facts.Listeners, Listener{p, at})
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read which ports are in use: %s: %w", name, err)
	}
	return nil
}

// parseSocketAddress reads "0100007F:1F90": words of the address in the machine's byte order, then the port.
func parseSocketAddress(s string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", s)
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	ip, _ := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(ip, uint16(n)), nil
}
