package process

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// listens reports whether a socket in this network namespace listens on address, or on all addresses at its port. It
// reads /proc/net, which needs no privilege, for ports that this process may not bind; unreadable means no.
func listens(address netip.AddrPort) bool {
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			local, ok := parseListener(line)
			if !ok || local.Port() != address.Port() {
				continue
			}
			everywhere := local.Addr().IsUnspecified() && (local.Addr().Is6() || address.Addr().Is4())
			if local.Addr().Unmap() == address.Addr().Unmap() || everywhere {
				return true
			}
		}
	}
	return false
}

// Listeners returns how many TCP sockets in this network namespace listen on each address and port.
func Listeners() map[netip.AddrPort]int {
	out := map[netip.AddrPort]int{}
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if local, ok := parseListener(line); ok {
				out[netip.AddrPortFrom(local.Addr().Unmap(), local.Port())]++
			}
		}
	}
	return out
}

// parseListener reads the local address of a line of /proc/net/tcp or tcp6 (proc(5)); ok is false unless the socket
// listens. An address is written as 32-bit words in the byte order of the machine.
func parseListener(line string) (local netip.AddrPort, ok bool) {
	const listen = "0A"
	fields := strings.Fields(line)
	if len(fields) < 4 || fields[3] != listen {
		return local, false
	}
	address, port, _ := strings.Cut(fields[1], ":")
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return local, false
	}
	bytes, err := hex.DecodeString(address)
	if err != nil || len(bytes)%4 != 0 {
		return local, false
	}
	for word := 0; word < len(bytes); word += 4 {
		binary.BigEndian.PutUint32(bytes[word:], binary.NativeEndian.Uint32(bytes[word:]))
	}
	addr, ok := netip.AddrFromSlice(bytes)
	return netip.AddrPortFrom(addr, uint16(number)), ok
}
