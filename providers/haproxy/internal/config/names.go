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

// ParseServerName reads what ServerName wrote; ok is false for any other name.
func ParseServerName(name string) (id providers.MemberID, ok bool) {
	address, uid, found := strings.Cut(name, "_")
	colon := strings.LastIndexByte(address, ':')
	if !found || colon < 0 {
		return id, false
	}
	addr, err := netip.ParseAddr(address[:colon])
	if err != nil {
		return id, false
	}
	port, err := strconv.ParseUint(address[colon+1:], 10, 16)
	if err != nil {
		return id, false
	}
	var plain []byte
	for uid != "" {
		if uid[0] != '_' {
			plain, uid = append(plain, uid[0]), uid[1:]
			continue
		}
		if len(uid) < 3 {
			return id, false
		}
		c, err := strconv.ParseUint(uid[1:3], 16, 8)
		if err != nil {
			return id, false
		}
		plain, uid = append(plain, byte(c)), uid[3:]
	}
	id = providers.MemberID{UID: string(plain), Address: netip.AddrPortFrom(addr, uint16(port))}
	again, err := ServerName(id)
	return id, err == nil && again == name
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
