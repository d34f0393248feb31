package winnat

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// newNAT is the command that makes a NAT as we need it.
const newNAT = "New-NetNat -Name nplbridge -InternalIPInterfaceAddressPrefix <CIDR of this Node's Pods>"

// host is what the Node has, ours and others', and what the last commands said.
type host struct {
	nats     []nat
	mappings []static
	failures map[dataplane.Key]error
}

// nat is one NAT of the host and the addresses behind it.
type nat struct {
	name   string
	behind netip.Prefix
}

// static is a static mapping. Of one that does not lead to an IPv4 address the target is not valid.
type static struct {
	mapping
	external   string
	everywhere bool // on all addresses of the Node, for all clients, as ours are
}

// at returns the mappings of a port, whichever of the Node's addresses they are for.
func (h *host) at(k dataplane.Key) (out []static) {
	for _, s := range h.mappings {
		if s.key == k {
			out = append(out, s)
		}
	}
	return out
}

// natOf returns the NAT that an address is behind; of several the narrowest.
func (h *host) natOf(a netip.Addr) (string, error) {
	behind := slices.DeleteFunc(slices.Clone(h.nats), func(n nat) bool { return !n.behind.Contains(a) })
	if len(behind) == 0 {
		var all []string
		for _, n := range h.nats {
			all = append(all, fmt.Sprintf("%s (%s)", n.name, n.behind))
		}
		return "", fmt.Errorf("Pod address %s is behind no NAT of this Node, which has %q: create one with %s", a, all, newNAT)
	}
	return slices.MinFunc(behind, func(a, b nat) int {
		return cmp.Or(cmp.Compare(b.behind.Bits(), a.behind.Bits()), cmp.Compare(a.name, b.name))
	}).name, nil
}

// failure returns what the last commands said about a port.
func (h *host) failure(k dataplane.Key) error {
	return cmp.Or(h.failures[k], errors.New("no cmdlet reported an error: is something else changing static mappings?"))
}

// natName is a name that needs no quoting rules beyond single quotes. PowerShell takes more characters for quotes than this one.
var natName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._ -]{0,127}$`)

func parseNATs(raw json.RawMessage) (out []nat, err error) {
	found, err := list[struct{ Name, Internal string }](raw)
	for _, f := range found {
		prefix, err := netip.ParsePrefix(f.Internal)
		if err != nil || !prefix.Addr().Is4() || !natName.MatchString(f.Name) {
			continue // one of another kind: nothing can be mapped by it
		}
		out = append(out, nat{f.Name, prefix.Masked()})
	}
	return out, err
}

func parseMappings(raw json.RawMessage) (out []static, err error) {
	found, err := list[struct {
		Protocol, Address, Remote, InternalAddress string
		Port, InternalPort                         uint16
	}](raw)
	for _, f := range found {
		k := dataplane.Key{Family: npl.IPv4, NodePort: f.Port}
		switch strings.ToUpper(f.Protocol) {
		case "TCP", "6":
			k.Protocol = npl.TCP
		case "UDP", "17":
			k.Protocol = npl.UDP
		default:
			continue
		}
		s := static{mapping: mapping{key: k}, external: f.Address + ":" + strconv.Itoa(int(f.Port))}
		if a, err := netip.ParseAddr(f.InternalAddress); err == nil {
			s.target = netip.AddrPortFrom(a, f.InternalPort)
		}
		s.everywhere = f.Address == "0.0.0.0" && (f.Remote == "" || f.Remote == "0.0.0.0/0")
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b static) int {
		return cmp.Or(a.key.Compare(b.key), cmp.Compare(a.external, b.external))
	})
	return out, err
}

// list decodes what ConvertTo-Json makes of a list: an array, the object itself where it was one, nothing or null where it was none, and,
// in Windows PowerShell 5.1, sometimes {"value": [...], "Count": n}.
func list[T any](raw json.RawMessage) ([]T, error) {
	text := strings.TrimSpace(string(raw))
	switch {
	case text == "" || text == "null":
		return nil, nil
	case text[0] == '[':
		var out []T
		err := json.Unmarshal(raw, &out)
		return out, err
	}
	var wrapped struct {
		Value json.RawMessage `json:"value"`
		Count *int
	}
	if err := json.Unmarshal(raw, &wrapped); err != nil {
		return nil, err
	}
	if wrapped.Count != nil {
		return list[T](wrapped.Value)
	}
	var one T
	err := json.Unmarshal(raw, &one)
	return []T{one}, err
}
