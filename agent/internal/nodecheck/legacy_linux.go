package nodecheck

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// iptables-legacy has no netlink. Its tables are read as the tool does, by getsockopt; see linux/netfilter_ipv4/ip_tables.h and
// linux/netfilter_ipv6/ip6_tables.h. Any socket of the family will do, so CAP_NET_RAW is not needed.
const (
	optionInfo    = 64 // IPT_SO_GET_INFO, IP6T_SO_GET_INFO
	optionEntries = 65 // IPT_SO_GET_ENTRIES, IP6T_SO_GET_ENTRIES

	nameSize   = 32                               // XT_TABLE_MAXNAMELEN
	hooks      = 5                                // NF_INET_NUMHOOKS
	infoSize   = nameSize + 4 + 4*hooks*2 + 4 + 4 // struct ipt_getinfo
	headerSize = nameSize + 8                     // struct ipt_get_entries before its entries, which are aligned to 8
	tableLimit = 256 << 20                        // bytes; more is taken for nonsense
)

func (c collector) legacy() error {
	for _, l := range []layout{layoutIPv4(), layoutIPv6()} {
		names, err := legacyTables(l.tool == IP6TablesLegacy)
		if err != nil {
			return err
		}
		for _, name := range names {
			if !slices.Contains([]string{"raw", "nat"}, name) {
				continue
			}
			table, err := l.read(name)
			if err != nil {
				return fmt.Errorf("read table %s of %s: %w", name, l.tool, err)
			}
			c.take(l, name, table)
		}
	}
	return nil
}

// read gets a table from the kernel.
func (l layout) read(name string) (legacyTable, error) {
	fd, err := unix.Socket(l.family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return legacyTable{}, fmt.Errorf("open a socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	for range 5 { // a table that changes between the two calls has another size
		info := make([]byte, infoSize)
		copy(info[:nameSize-1], name)
		if err := getsockopt(fd, l.level, optionInfo, info); err != nil {
			return legacyTable{}, err
		}
		size := binary.NativeEndian.Uint32(info[infoSize-4:])
		if size > tableLimit {
			return legacyTable{}, fmt.Errorf("the kernel says it has %d bytes", size)
		}
		entries := make([]byte, headerSize+int(size))
		copy(entries[:nameSize-1], name)
		binary.NativeEndian.PutUint32(entries[nameSize:], size)
		err := getsockopt(fd, l.level, optionEntries, entries)
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return legacyTable{}, err
		}
		return l.decode(info, entries[headerSize:])
	}
	return legacyTable{}, errors.New("it changes all the time")
}

func getsockopt(fd, level, option int, buffer []byte) error {
	length := uint32(len(buffer))
	_, _, number := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&buffer[0])), uintptr(unsafe.Pointer(&length)), 0)
	if number != 0 {
		return number
	}
	return nil
}

// take turns a table into facts.
func (c collector) take(l layout, name string, table legacyTable) {
	switch name {
	case "raw":
		for _, r := range table.rules {
			if r.notrack {
				r.match.Other = r.match.Other || !r.builtIn // what leads there is a condition, too
				c.facts.NoTrack = append(c.facts.NoTrack, NoTrackRule{fmt.Sprintf("%s -t raw %s", l.tool, r.chain), r.match})
			}
		}
	case "nat":
		if !slices.Contains(table.chains, AntreaChainName) {
			return
		}
		out := AntreaChain{Tool: l.tool}
		for _, r := range table.rules {
			if r.chain == AntreaChainName && r.protocol != "" && r.match.DestinationPort.First != 0 {
				out.Ports = append(out.Ports, AntreaPort{r.protocol, r.match.DestinationPort.First})
			}
		}
		c.facts.AntreaChains = append(c.facts.AntreaChains, out)
	}
}
