package lbsync

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestParseAddressRange(t *testing.T) {
	for _, test := range []struct{ in, want, err string }{
		{in: "172.31.0.0/24", want: "172.31.0.1-172.31.0.254"},
		{in: "172.31.0.0/31", want: "172.31.0.0-172.31.0.1"},
		{in: "172.31.0.7/32", want: "172.31.0.7"},
		{in: "10.0.0.0/8", want: "10.0.0.1-10.255.255.254"},
		{in: "fd00:31::/64", want: "fd00:31::1-fd00:31::ffff:ffff:ffff:ffff"},
		{in: "fd00:31::/127", want: "fd00:31::-fd00:31::1"},
		{in: " 172.31.0.10 - 172.31.0.20 ", want: "172.31.0.10-172.31.0.20"},
		{in: "fd00:31::5", want: "fd00:31::5"},
		{in: "172.31.0.5/24", err: `write "172.31.0.0/24"`},
		{in: "172.31.0.20-172.31.0.10", err: `write "172.31.0.10-172.31.0.20"`},
		{in: "172.31.0.1-fd00::1", err: "different families"},
		{in: "", err: "not addresses"},
		{in: "172.31.0.0/33", err: "not a prefix"},
		{in: "web", err: `address pool "web"`},
		{in: "fe80::1%eth0", err: "not addresses"},
	} {
		got, err := ParseAddressRange(test.in)
		switch {
		case test.err == "" && (err != nil || got.String() != test.want):
			t.Errorf("ParseAddressRange(%q) = %s, %v; want %s", test.in, got, err, test.want)
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("ParseAddressRange(%q) = %s, %v; want an error with %q", test.in, got, err, test.err)
		}
	}
}

func FuzzParseAddressRange(f *testing.F) {
	for _, seed := range []string{"172.31.0.0/24", "fd00::/64", "1.2.3.4-1.2.3.9", "0.0.0.0/0", "::/0", "::ffff:1.2.3.0/120"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseAddressRange(s)
		if err != nil {
			return
		}
		again, err := ParseAddressRange(r.String())
		if err != nil || again != r || r.Last.Less(r.First) || r.First.Is4() != r.Last.Is4() {
			t.Errorf("%q -> %s -> %s, %v", s, r, again, err)
		}
	})
}

func TestValidate(t *testing.T) {
	if err := config("one").Validate(); err != nil {
		t.Errorf("a good configuration: %v", err)
	}
	pool := func(first, last string) AddressPool {
		return AddressPool{Name: "p", Ranges: []AddressRange{{netip.MustParseAddr(first), netip.MustParseAddr(last)}}}
	}
	for setting, edit := range map[string]func(*Config){
		"instance":               func(c *Config) { c.Instance = "nplbridge" },
		"providerName":           func(c *Config) { c.Providers = []string{"a b"} },
		"providers":              func(c *Config) { c.Providers = []string{"a", "a"} },
		"serviceType":            func(c *Config) { c.ServiceType = "Ingress" },
		"portRange":              func(c *Config) { c.PortRange = PortRange{5, 4} },
		"nodePortSelector":       func(c *Config) { c.NodePortSelector = map[string]string{"a b": "c"} },
		"namespaceSelector":      func(c *Config) { c.NamespaceSelector = map[string]string{"a": "b c"} },
		"blockedNamespaces":      func(c *Config) { c.BlockedNamespaces = []string{"Kube"} },
		"addressPools[0].ranges": func(c *Config) { c.AddressPools = []AddressPool{pool("1.2.3.4", "1.2.3.3")} },
		"addressPools[1].name": func(c *Config) {
			c.AddressPools = []AddressPool{pool("1.2.3.4", "1.2.3.4"), pool("1.2.3.5", "1.2.3.5")}
		},
		"addressPools[1].ranges": func(c *Config) {
			c.AddressPools = []AddressPool{pool("1.2.3.4", "1.2.3.9"), pool("1.2.3.9", "1.2.3.12")}
			c.AddressPools[1].Name = "q"
		},
		"addressPools[0].providers": func(c *Config) {
			c.AddressPools = []AddressPool{pool("1.2.3.4", "1.2.3.4")}
			c.AddressPools[0].Providers = []string{"nobody"}
		},
		"addressPools[0].namespaces": func(c *Config) {
			c.AddressPools = []AddressPool{pool("1.2.3.4", "1.2.3.4")}
			c.AddressPools[0].Namespaces = []string{"a/b"}
		},
		"addressPools[0].selector": func(c *Config) {
			c.AddressPools = []AddressPool{pool("1.2.3.4", "1.2.3.4")}
			c.AddressPools[0].Selector = map[string]string{"": "x"}
		},
		"guardHold":      func(c *Config) { c.GuardHold = -time.Second },
		"gateTimeout":    func(c *Config) { c.GateTimeout = 25 * time.Hour },
		"drainLimit":     func(c *Config) { c.DrainLimit = 25 * time.Hour },
		"resync":         func(c *Config) { c.Resync = time.Second },
		"leaseNamespace": func(c *Config) { c.LeaseNamespace = "A" },
		"leaseName":      func(c *Config) { c.LeaseName = "" },
		"identity":       func(c *Config) { c.Identity = "" },
	} {
		c := config("one")
		edit(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), setting+": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", setting, err)
		}
	}
}

func TestParsePortRange(t *testing.T) {
	for in, want := range map[string]string{"61000-62000": "61000-62000", "": "", "5 - 5": "5-5"} {
		if got, err := ParsePortRange(in); err != nil || got.String() != want {
			t.Errorf("ParsePortRange(%q) = %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"61000", "2-1", "0-5", "a-b", "1-65536", "-"} {
		if got, err := ParsePortRange(in); err == nil || err.Error() != portRangeFix {
			t.Errorf("ParsePortRange(%q) = %q, %v", in, got, err)
		}
	}
}
