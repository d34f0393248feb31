package nodecheck

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables/xt"
	"golang.org/x/sys/unix"
)

// layout says where the parts of an entry of one family stand: struct ipt_entry, struct ip6t_entry.
type layout struct {
	tool          Tool
	family, level int
	addressSize   int
	protocol      int // of ipt_ip, ip6t_ip6
	inverse       int // the inverse flags
	offsets       int // of the target, then of the next entry, 2 bytes each
	matches       int
}

func layoutIPv4() layout {
	return layout{IPTablesLegacy, unix.AF_INET, unix.SOL_IP, 4, 80, 83, 88, 112}
}

func layoutIPv6() layout {
	return layout{IP6TablesLegacy, unix.AF_INET6, unix.SOL_IPV6, 16, 128, 132, 140, 168}
}

// legacyTable is one table of iptables-legacy.
type legacyTable struct {
	chains []string
	rules  []legacyRule
}

type legacyRule struct {
	rule
	chain   string
	builtIn bool
}

// extensionSize is that of struct xt_entry_match and xt_entry_target: size, name, revision.
const extensionSize = 32

var errShort = errors.New("an entry is cut off")

// decode reads a table as the kernel gives it: entries one after the other. The info says at which offset each built-in chain begins.
// A chain of the user's begins with an entry of target ERROR that holds its name; the last such
// entry ends the table.
func (l layout) decode(info, entries []byte) (legacyTable, error) {
	var out legacyTable
	begins := map[int]string{}
	valid := binary.NativeEndian.Uint32(info[nameSize:])
	for hook, name := range []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"} {
		if valid&(1<<hook) != 0 {
			begins[int(binary.NativeEndian.Uint32(info[nameSize+4+4*hook:]))] = name
			out.chains = append(out.chains, name)
		}
	}
	chain, builtIn := "", false
	for at := 0; at < len(entries); {
		e := entries[at:]
		if len(e) < l.matches {
			return out, errShort
		}
		target, next := int(binary.NativeEndian.Uint16(e[l.offsets:])), int(binary.NativeEndian.Uint16(e[l.offsets+2:]))
		if target < l.matches || target+extensionSize > next || next > len(e) {
			return out, fmt.Errorf("the entry at %d: %w", at, errShort)
		}
		if name, ok := begins[at]; ok {
			chain, builtIn = name, true
		}
		r := legacyRule{rule: l.rule(e[:target]), chain: chain, builtIn: builtIn}
		name, data := extensionName(e[target:]), e[target+extensionSize:next]
		if name == "ERROR" {
			if at+next < len(entries) {
				chain, builtIn = text(data), false
				out.chains = append(out.chains, chain)
			}
		} else {
			raw := xt.Unknown(data)
			r.target(name, &raw)
			out.rules = append(out.rules, r)
		}
		at += next
	}
	return out, nil
}

// rule reads the addresses and the matches of an entry.
func (l layout) rule(e []byte) rule {
	var out rule
	n := l.addressSize
	if e[l.inverse] == 0 {
		out.match.Source, out.match.Destination = maskedPrefix(e[:n], e[2*n:3*n]), maskedPrefix(e[n:2*n], e[3*n:4*n])
	} else {
		out.match.Other = true
	}
	interfaces := e[4*n : 4*n+32]
	protocol := binary.NativeEndian.Uint16(e[l.protocol:])
	if protocol != 0 || !bytes.Equal(interfaces, make([]byte, 32)) {
		out.match.Other = true
	}
	out.protocol = protocolOf(byte(protocol))
	for at := l.matches; at+extensionSize <= len(e); {
		size := int(binary.NativeEndian.Uint16(e[at:]))
		if size < extensionSize || at+size > len(e) {
			break
		}
		revision := uint32(e[at+extensionSize-1])
		info, err := xt.Unmarshal(extensionName(e[at:]), xt.TableFamily(l.family), revision, e[at+extensionSize:at+size])
		if err != nil {
			info = nil
		}
		out.extension(extensionName(e[at:]), info)
		at += size
	}
	return out
}

// extensionName reads the name of a match or a target: its size comes first, its revision last.
func extensionName(b []byte) string { return text(b[2 : extensionSize-1]) }

func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

func maskedPrefix(address, mask []byte) netip.Prefix {
	if bytes.Equal(mask, make([]byte, len(mask))) {
		return netip.Prefix{}
	}
	return prefix(address, mask, len(address))
}
