package dataplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// iptables-legacy has no netlink: its tables are read and replaced whole through socket options. They are only read here.
// To write them soundly takes the lock file that its tool and kube-proxy share on the host, which the agent cannot see.

// xtables holds what differs between ip_tables and ip6_tables, of linux/netfilter_ipv4/ip_tables.h and its IPv6 sister.
type xtables struct {
	names         string // the tables that exist in this network namespace
	domain, level int
	ip            int // size of struct ipt_ip; target_offset follows one number later
	entry         int // size of struct ipt_entry
}

var (
	xtables4 = xtables{
		names: "/proc/thread-self/net/ip_tables_names", domain: unix.AF_INET, level: unix.SOL_IP, ip: 84, entry: 112,
	}
	xtables6 = xtables{
		names: "/proc/thread-self/net/ip6_tables_names", domain: unix.AF_INET6, level: unix.SOL_IPV6, ip: 136, entry: 168,
	}
)

// Of the same headers; the numbers are those of both families.
const (
	xtGetInfo, xtGetEntries = 64, 65 // socket options
	xtInfoSize              = 84     // struct ipt_getinfo
	xtHookAt, xtPolicyAt    = 36, 56 // in it, an offset for each hook
	xtSizeAt                = 80
	xtForwardHook           = 2  // NF_INET_FORWARD
	xtEntriesAt             = 40 // in struct ipt_get_entries
	xtPartHead              = 32 // struct xt_entry_match and xt_entry_target: size, name, revision
)

// legacyBarrier describes chain FORWARD of iptables-legacy; false when there is none that drops by itself. It looks only
// when the table exists: asking for it would make it.
func legacyBarrier(f *family, ports PortRange) (Barrier, bool, error) {
	x := xtables4
	if f == ipv6 {
		x = xtables6
	}
	names, err := os.ReadFile(x.names)
	if errors.Is(err, fs.ErrNotExist) { // no iptables-legacy in this kernel
		return Barrier{}, false, nil
	}
	if err != nil {
		return Barrier{}, false, fmt.Errorf("find out whether %s-legacy is in use: %w", f.xtTool(), err)
	}
	if !slices.Contains(strings.Fields(string(names)), xtTable) {
		return Barrier{}, false, nil
	}
	entries, err := x.forward()
	if err != nil {
		return Barrier{}, false, fmt.Errorf("read chain %s of %s-legacy: %w", xtChain, f.xtTool(), err)
	}
	b, blocks := legacyVerdict(entries, f, ports)
	return b, blocks, nil
}

// legacyVerdict judges the rules of a chain; the last of them is its policy.
func legacyVerdict(entries []legacyRule, f *family, ports PortRange) (Barrier, bool) {
	end := slices.IndexFunc(entries, legacyRule.dropsAll)
	if end < 0 {
		return Barrier{}, false
	}
	b := Barrier{Family: f.ip, Chain: "chain " + xtChain + " of " + f.xtTool() + "-legacy", Why: "policy drop", Command: f.xtCommand("legacy", 0, ports)}
	if end < len(entries)-1 {
		b.Why, b.Command = fmt.Sprintf("rule %d drops all that comes so far", end+1), f.xtCommand("legacy", end+1, ports)
	}
	b.Open = slices.ContainsFunc(entries[:end], func(r legacyRule) bool { return r.accepts(ports) })
	return b, true
}

// legacyRule is an entry of ip_tables.
type legacyRule struct {
	plain   bool // no address, interface or protocol is asked for
	matches []legacyMatch
	target  string // empty for a verdict
	verdict int32
}

type legacyMatch struct {
	name string
	info []byte
}

// Verdicts of standard targets, as x_tables has them: minus the verdict minus one.
const xtDrop, xtAccept int32 = -1, -2

func (r legacyRule) conditional() bool {
	return !r.plain || slices.ContainsFunc(r.matches, func(m legacyMatch) bool { return m.name != "comment" })
}

func (r legacyRule) dropsAll() bool {
	return !r.conditional() && (r.target == "REJECT" || r.target == "" && r.verdict == xtDrop)
}

func (r legacyRule) accepts(ports PortRange) bool {
	deciding := slices.DeleteFunc(slices.Clone(r.matches), func(m legacyMatch) bool { return m.name == "comment" })
	return r.plain && r.target == "" && r.verdict == xtAccept && len(deciding) == 1 && deciding[0].name == "conntrack" && xtCovers(deciding[0].info, ports)
}

// forward reads chain FORWARD of table filter.
func (x xtables) forward() ([]legacyRule, error) {
	fd, err := unix.Socket(x.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	for range readAttempts {
		info := make([]byte, xtInfoSize) // struct ipt_getinfo
		copy(info, xtTable)
		if err := getsockopt(fd, x.level, xtGetInfo, info); err != nil {
			return nil, err
		}
		number := func(offset int) int { return int(binary.NativeEndian.Uint32(info[offset:])) }
		first, policy, size := number(xtHookAt+4*xtForwardHook), number(xtPolicyAt+4*xtForwardHook), number(xtSizeAt)
		blob := make([]byte, xtEntriesAt+size) // struct ipt_get_entries
		copy(blob, xtTable)
		binary.NativeEndian.PutUint32(blob[32:], uint32(size))
		err := getsockopt(fd, x.level, xtGetEntries, blob)
		if errors.Is(err, unix.EAGAIN) { // replaced meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		return x.decode(blob[xtEntriesAt:], first, policy)
	}
	return nil, fmt.Errorf("the table changed %d times while it was read", readAttempts)
}

func getsockopt(fd, level, option int, buf []byte) error {
	size := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

var errShortTable = errors.New("the kernel sent a table that ends in the middle of a rule")

// decode reads the entries from offset first up to and including the one at offset policy.
func (x xtables) decode(blob []byte, first, policy int) (out []legacyRule, err error) {
	for at := first; at <= policy; {
		if at < 0 || at+x.entry > len(blob) {
			return nil, errShortTable
		}
		e := blob[at:]
		target, next := int(binary.NativeEndian.Uint16(e[x.ip+4:])), int(binary.NativeEndian.Uint16(e[x.ip+6:]))
		if target < x.entry || next < target+xtPartHead || next > len(e) {
			return nil, errShortTable
		}
		r := legacyRule{plain: len(bytes.Trim(e[:x.ip], "\x00")) == 0}
		for m := x.entry; m < target; {
			if m+xtPartHead > target {
				return nil, errShortTable
			}
			size := int(binary.NativeEndian.Uint16(e[m:]))
			if size < xtPartHead || m+size > target {
				return nil, errShortTable
			}
			r.matches = append(r.matches, legacyMatch{cString(e[m+2 : m+31]), e[m+xtPartHead : m+size]})
			m += size
		}
		if r.target = cString(e[target+2 : target+31]); r.target == "" && next >= target+xtPartHead+4 {
			r.verdict = int32(binary.NativeEndian.Uint32(e[target+xtPartHead:]))
		}
		out = append(out, r)
		at += next
	}
	return out, nil
}

func cString(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}
