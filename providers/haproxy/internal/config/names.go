package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
)

// maxName bounds the names of frontends and backends, which appear in logs, metrics and the statistics page.
const maxName = 100

// BackendPrefix is what the name of every backend of ours begins with.
const BackendPrefix = "npl_b_"

// BackendName returns the name of the backend for key: "npl_b_<namespace>_<service>_<port>". A longer one than 100
// characters is cut and ends in a hash of the whole. Kubernetes names have no underscore, so it is unambiguous.
func BackendName(key providers.Key) string { return bounded(BackendPrefix, key) }

// FrontendName is BackendName for the frontend: "npl_f_...".
func FrontendName(key providers.Key) string { return bounded("npl_f_", key) }

func bounded(prefix string, key providers.Key) string {
	name := fmt.Sprintf("%s%s_%s_%d", prefix, key.Namespace, key.Service, key.Port)
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	mark := "_" + hex.EncodeToString(sum[:6])
	return name[:maxName-len(mark)] + mark
}

// maxUID bounds the UID of a member; Kubernetes' own have 32 or 36 characters.
const maxUID = 128

// ServerName returns the name of a member's server: "<address>:<port>_<UID>". It is the member's whole identity,
// so what a member is survives wherever HAProxy keeps its name. Characters of the UID that a server name cannot have
// are written as "_" and two hexadecimal digits.
func ServerName(id providers.MemberID) (string, error) {
	if !id.Address.IsValid() || id.Address.Port() == 0 || id.Address.Addr().Zone() != "" || id.Address.Addr().IsUnspecified() {
		return "", fmt.Errorf("member address %s is not an address and a port", id.Address)
	}
	if len(id.UID) > maxUID {
		return "", fmt.Errorf("member %s: its UID is longer than %d characters", id.Address, maxUID)
	}
	var name strings.Builder
	name.WriteString(id.Address.Addr().String())
	name.WriteByte(':')
	name.WriteString(strconv.Itoa(int(id.Address.Port())))
	name.WriteByte('_')
	for i := range len(id.UID) {
		if c := id.UID[i]; isPlain(c) {
			name.WriteByte(c)
		} else {
			fmt.Fprintf(&name, "_%02x", c)
		}
	}
	return name.String(), nil
}

// ParseServerName reads what ServerName wrote; ok is false for any other name, also for one that says the same in other words.
func ParseServerName(name string) (id providers.MemberID, ok bool) {
	address, uid, found := strings.Cut(name, "_")
	colon := strings.LastIndexByte(address, ':')
	if !found || colon < 0 {
		return id, false
	}
	host, number := address[:colon], address[colon+1:]
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Zone() != "" || addr.IsUnspecified() {
		return id, false
	}
	var canonical [64]byte
	if string(addr.AppendTo(canonical[:0])) != host {
		return id, false
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 || number[0] == '0' || number[0] == '+' {
		return id, false
	}
	if uid, ok = parseUID(uid); !ok {
		return id, false
	}
	return providers.MemberID{UID: uid, Address: netip.AddrPortFrom(addr, uint16(port))}, true
}

// parseUID reads a UID as it stands in a server's name.
func parseUID(text string) (uid string, ok bool) {
	escaped := false
	for i := range len(text) {
		if text[i] == '_' {
			escaped = true
		} else if !isPlain(text[i]) {
			return "", false
		}
	}
	if !escaped {
		return text, len(text) <= maxUID
	}
	var plain []byte
	for text != "" {
		if text[0] != '_' {
			plain, text = append(plain, text[0]), text[1:]
			continue
		}
		if len(text) < 3 || strings.ToLower(text[1:3]) != text[1:3] {
			return "", false
		}
		c, err := strconv.ParseUint(text[1:3], 16, 8)
		if err != nil || isPlain(byte(c)) {
			return "", false
		}
		plain, text = append(plain, byte(c)), text[3:]
	}
	return string(plain), len(plain) <= maxUID
}

// NewServerID returns an id for a server that is not taken: a hash of its address, or the next free one. HAProxy's
// consistent hashing and random balancing need explicit ids for servers added at run time, and equal ids give equal
// hash rings on two HAProxies.
func NewServerID(address netip.AddrPort, taken func(id int) bool) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(address.String()))
	const last = 1<<31 - 1
	id := int(h.Sum32()%last) + 1
	for taken(id) {
		id = id%last + 1
	}
	return id
}
