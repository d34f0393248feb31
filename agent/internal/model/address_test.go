package model

import (
	"net/netip"
	"testing"

	"github.com/nplbridge/nplbridge/agent/npl"
)

func TestChoose(t *testing.T) {
	const in, ex = "InternalIP", "ExternalIP"
	n := Node{Addresses: []NodeAddress{{in, addr("10.9.0.1")}, {in, addr("192.0.2.1")}, {in, addr("2001:db8::1")}, {ex, addr("203.0.113.1")}, {"Hostname", addr("192.0.2.9")}}}
	cidr := netip.MustParsePrefix
	tests := []struct {
		name   string
		policy AddressPolicy
		v4, v6 string
	}{
		{"the first of the only type", AddressPolicy{Types: []string{in}}, "10.9.0.1", "2001:db8::1"},
		{"as Antrea 2.6 and later, but a family that lacks the first type has the second", AddressPolicy{Types: []string{ex, in}}, "203.0.113.1", "2001:db8::1"},
		{"the first type of several", AddressPolicy{Types: []string{in, ex}}, "10.9.0.1", "2001:db8::1"},
		{"a family without the type", AddressPolicy{Types: []string{ex}}, "203.0.113.1", ""},
		{"CIDR picks among several of a type", AddressPolicy{Types: []string{in}, CIDRs: []netip.Prefix{cidr("192.0.2.0/24")}}, "192.0.2.1", ""},
		{"CIDR leaves the second type only", AddressPolicy{Types: []string{in, ex}, CIDRs: []netip.Prefix{cidr("203.0.113.0/24"), cidr("2001:db8::/32")}}, "203.0.113.1", "2001:db8::1"},
		{"CIDR leaves nothing", AddressPolicy{Types: []string{in, ex}, CIDRs: []netip.Prefix{cidr("198.51.100.0/24")}}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for f, want := range map[npl.Family]string{npl.IPv4: tt.v4, npl.IPv6: tt.v6} {
				got, ok := tt.policy.Choose(n, f)
				if ok != (want != "") || ok && got != addr(want) {
					t.Errorf("%s: %v, %v; want %q", f, got, ok, want)
				}
			}
		})
	}
}
