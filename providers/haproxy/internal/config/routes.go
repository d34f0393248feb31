package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
)

// MapNames are the endings of the two map files. A text refers to one of them, and the next text with another map to the other, so that HAProxy,
// which reads the text first and the map then, never joins a text with the map of the next.
var MapNames = []string{"a", "b"}

// OtherMap returns the ending of the map file that name is not.
func OtherMap(name string) string {
	if name == MapNames[0] {
		return MapNames[1]
	}
	return MapNames[0]
}

// mapHead is an entry that every map has: HAProxy's answer is then never empty.
const mapHead, mapLayout = "nplbridge", "1"

// Routes returns what the map has to say: by address and port the backend, and by spare backend which Service has it.
func (f File) Routes() map[string]string {
	if len(f.Open) == 0 {
		return nil
	}
	entries := map[string]string{mapHead: mapLayout}
	for _, s := range f.Services {
		if s.Spare == "" {
			continue
		}
		entries[s.Spare] = fmt.Sprintf("%s/%s:%d|%d|%s", s.Key.Namespace, s.Key.Service, s.Key.Port, s.Port, s.Shared)
		for _, at := range s.Binds() {
			entries[routeKey(at)] = s.Spare
		}
	}
	return entries
}

// MapText returns the map file.
func MapText(entries map[string]string) []byte {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		fmt.Fprintf(&b, "%s %s\n", key, entries[key])
	}
	return []byte(b.String())
}

// routeKey is what HAProxy makes of a connection's destination: inet_ntop(3), a colon, the port.
func routeKey(at netip.AddrPort) string {
	return at.Addr().String() + ":" + strconv.Itoa(int(at.Port()))
}

// ParseRouteKey reads the address and port of a route.
func ParseRouteKey(key string) (netip.AddrPort, bool) {
	at := strings.LastIndexByte(key, ':')
	if at < 0 {
		return netip.AddrPort{}, false
	}
	addr, err := netip.ParseAddr(key[:at])
	port, err2 := strconv.ParseUint(key[at+1:], 10, 16)
	route := netip.AddrPortFrom(addr, uint16(port))
	return route, err == nil && err2 == nil && port > 0 && routeKey(route) == key
}

// ParseRoutes returns the Services that have a spare backend by these entries, sorted by Key, without servers. A route that does not belong to the
// Service of its backend, and an entry that nobody can have written, is no part of any.
func ParseRoutes(entries map[string]string) []Service {
	routes := map[string][]netip.AddrPort{}
	for key, value := range entries {
		if at, ok := ParseRouteKey(key); ok {
			routes[value] = append(routes[value], at)
		}
	}
	var out File
	for _, spare := range slices.Sorted(maps.Keys(entries)) {
		s, ok := parseOccupant(spare, entries[spare])
		if !ok {
			continue
		}
		for _, at := range routes[spare] {
			if at.Port() == s.Port {
				s.VIPs = append(s.VIPs, at.Addr())
			}
		}
		slices.SortFunc(s.VIPs, netip.Addr.Compare)
		if len(s.VIPs) == 0 {
			s.Port, s.Shared = 0, ""
		}
		if _, twice := out.Find(s.Key); !twice && s.Validate() == nil {
			out.Set(s)
		}
	}
	return out.Services
}

func parseOccupant(spare, value string) (s Service, ok bool) {
	parts := strings.Split(value, "|")
	if !isSpareName(spare) || len(parts) != 3 {
		return s, false
	}
	namespace, rest, _ := strings.Cut(parts[0], "/")
	name, number, _ := strings.Cut(rest, ":")
	port, err := strconv.ParseUint(number, 10, 16)
	listen, err2 := strconv.ParseUint(parts[1], 10, 16)
	return Service{
		Key:   providers.Key{Namespace: namespace, Service: name, Port: uint16(port), Protocol: providers.TCP},
		Spare: spare, Pool: SpareSettings, Port: uint16(listen), Shared: parts[2],
	}, err == nil && err2 == nil
}
