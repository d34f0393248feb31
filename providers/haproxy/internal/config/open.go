package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
)

// A Service that comes to an open port takes one of the spare backends, which HAProxy has from the start. Which one it took, and which backend the
// connections to an address and port go to, is in a map. Map and servers change at run time, so the Service costs no reload.

// SparePrefix is what the name of every spare backend begins with.
const SparePrefix = "npl_s_"

// openName names the frontend that listens on all open ports.
const openName = "npl_open"

// SpareSettings are those of the pools that a spare backend can be. What else a pool asks for is in the lines of its backend.
var SpareSettings = providers.PoolSettings{Algorithm: providers.RoundRobin}

// SpareName returns the name of the spare backend with a number from 1 on.
func SpareName(n int) string { return fmt.Sprintf("%s%04d", SparePrefix, n) }

func isSpareName(name string) bool {
	number, is := strings.CutPrefix(name, SparePrefix)
	n, err := strconv.Atoi(number)
	return is && err == nil && n > 0 && SpareName(n) == name
}

// CanBeSpare reports whether a spare backend gives all that the Service asks for, its addresses aside.
func (s Service) CanBeSpare() bool {
	return s.Pool.Equal(SpareSettings) && s.Virtual.Equal(providers.VirtualServerSettings{})
}

// Bind is one address with a range of ports.
type Bind struct {
	Addr        netip.Addr
	First, Last uint16
}

// Has reports whether the range has this address and port.
func (b Bind) Has(at netip.AddrPort) bool {
	return b.Addr == at.Addr() && b.First <= at.Port() && at.Port() <= b.Last
}

// Ports returns how many ports there are.
func (b Bind) Ports() int { return int(b.Last) - int(b.First) + 1 }

// String returns "<address>:<port>" or "<address>:<first>-<last>", as HAProxy writes it.
func (b Bind) String() string {
	text := netip.AddrPortFrom(b.Addr, b.First).String()
	if b.Last > b.First {
		text += "-" + strconv.Itoa(int(b.Last))
	}
	return text
}

// MarshalText implements encoding.TextMarshaler.
func (b Bind) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Bind) UnmarshalText(text []byte) error {
	prefix, first, last, err := parseRange(string(text))
	if err == nil && !prefix.IsSingleIP() {
		err = fmt.Errorf("%q is more than one address", text)
	}
	*b = Bind{prefix.Addr(), first, last}
	return err
}

// MaxOpenPorts is how many ports can be open, over all addresses: each is a listener with a descriptor.
const MaxOpenPorts = 10_000

// ParseOpenPorts reads "<address or prefix>:<port or range>"s, an IPv6 one in brackets, and returns a Bind for each address, sorted and without
// overlaps.
func ParseOpenPorts(texts []string) ([]Bind, error) {
	var binds []Bind
	total := 0
	for _, text := range texts {
		prefix, first, last, err := parseRange(text)
		if err != nil {
			return nil, err
		}
		for addr := prefix.Addr(); prefix.Contains(addr); addr = addr.Next() {
			bind := Bind{addr, first, last}
			if total += bind.Ports(); total > MaxOpenPorts {
				return nil, fmt.Errorf("%q: more than %d ports over all addresses; each is a listener", text, MaxOpenPorts)
			}
			binds = append(binds, bind)
		}
	}
	return Tidy(binds), nil
}

func parseRange(text string) (prefix netip.Prefix, first, last uint16, err error) {
	wrong := fmt.Errorf("%q is not <address or prefix>:<port or first-last>, for example 192.0.2.0/28:80 or [2001:db8::1]:8000-8099", text)
	at := strings.LastIndexByte(text, ':')
	if at < 0 {
		return prefix, 0, 0, wrong
	}
	host, ports := text[:at], text[at+1:]
	if inner, is := strings.CutPrefix(host, "["); is {
		host, is = strings.CutSuffix(inner, "]")
		if !is {
			return prefix, 0, 0, wrong
		}
	} else if strings.Contains(host, ":") {
		return prefix, 0, 0, wrong
	}
	if strings.Contains(host, "/") {
		prefix, err = netip.ParsePrefix(host)
	} else {
		var addr netip.Addr
		if addr, err = netip.ParseAddr(host); addr.Zone() != "" {
			return prefix, 0, 0, wrong
		}
		prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	if err != nil || prefix.Addr().Is4In6() || prefix != prefix.Masked() || prefix.Addr().IsUnspecified() {
		return prefix, 0, 0, wrong
	}
	low, high, _ := strings.Cut(ports, "-")
	from, err1 := strconv.ParseUint(low, 10, 16)
	to, err2 := strconv.ParseUint(cmp.Or(high, low), 10, 16)
	if err1 != nil || err2 != nil || from == 0 || to < from {
		return prefix, 0, 0, wrong
	}
	return prefix, uint16(from), uint16(to), nil
}

// Tidy sorts binds and joins those that touch.
func Tidy(binds []Bind) []Bind {
	binds = slices.SortedFunc(slices.Values(binds), func(a, b Bind) int { return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.First, b.First)) })
	out := binds[:0]
	for _, b := range binds {
		if n := len(out); n > 0 && out[n-1].Addr == b.Addr && int(b.First) <= int(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, b.Last)
			continue
		}
		out = append(out, b)
	}
	return out
}

// Without returns sorted binds without some addresses and ports.
func Without(binds []Bind, gone func(netip.AddrPort) bool) []Bind {
	var out []Bind
	for _, b := range binds {
		for port := int(b.First); port <= int(b.Last); port++ {
			if !gone(netip.AddrPortFrom(b.Addr, uint16(port))) {
				out = append(out, Bind{b.Addr, uint16(port), uint16(port)})
			}
		}
	}
	return Tidy(out)
}

// IsOpen reports whether the file's frontend for open ports listens there.
func (f File) IsOpen(at netip.AddrPort) bool {
	return slices.ContainsFunc(f.Open, func(b Bind) bool { return b.Has(at) })
}

// Suits reports whether the Service can be in a spare backend of this file.
func (f File) Suits(s Service) bool {
	return len(f.Open) > 0 && s.CanBeSpare() && !slices.ContainsFunc(s.Binds(), func(at netip.AddrPort) bool { return !f.IsOpen(at) })
}

// openLine is the JSON behind openMark.
type openLine struct {
	// Ports are the setting; another one is another structure, whatever of it can be listened on.
	Ports []Bind `json:"ports"`
	Map   string `json:"map,omitempty"`
	Binds []Bind `json:"binds,omitempty"`
}

const (
	openMark  = "# open "
	spareMark = "# spare "
)

// renderOpen writes the frontend for the open ports and the spare backends that no Service has.
func (f File) renderOpen(line func(string, ...any), s Settings) {
	text, err := json.Marshal(openLine{s.OpenPorts, f.Map, f.Open})
	if err != nil {
		panic(err) // addresses and numbers always marshal
	}
	line("")
	line("%s%s", openMark, text)
	if len(f.Open) > 0 {
		line("frontend %s from npl-tcp", openName)
		for _, bind := range f.Open {
			line("    bind %s", bind)
		}
		line("    tcp-request connection set-var(sess.npl_port) dst_port")
		line("    tcp-request connection set-var(sess.npl_to) dst,concat(:,sess.npl_port),map(%s.%s)", s.MapFile, f.Map)
		line("    tcp-request connection reject unless { var(sess.npl_to) -m found }")
		line("    use_backend %%[var(sess.npl_to)]")
	}
	taken := map[string]bool{}
	for _, service := range f.Services {
		taken[service.Spare] = true
	}
	for _, name := range f.Spares {
		if !taken[name] {
			line("%s%s", spareMark, name)
			Service{Spare: name, Pool: SpareSettings}.renderBackend(line, s)
		}
	}
}

func (f *File) parseOpen(text string) error {
	var l openLine
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return fmt.Errorf("open ports: %w", err)
	}
	if (l.Map != "") != (len(l.Binds) > 0) || l.Map != "" && !slices.Contains(MapNames, l.Map) {
		return fmt.Errorf("open ports: map %.20q", l.Map)
	}
	f.Open, f.Map = Tidy(l.Binds), l.Map
	return nil
}

func (f *File) parseSpare(name string) error {
	if !isSpareName(name) || slices.Contains(f.Spares, name) {
		return fmt.Errorf("spare backend %.40q", name)
	}
	f.Spares = append(f.Spares, name)
	return nil
}
