package annotations

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

func TestAliases(t *testing.T) {
	monitor := func(m providers.Monitor) (w Wishes) { w.Pool.Monitor = m; return w }
	for name, test := range map[string]struct {
		values   map[string]string
		spec     Spec
		want     Wishes
		problems []string
	}{
		"AKO":                           {values: on("ako.vmware.com/load-balancer-ip", "192.0.2.1", "ako.vmware.com/enable-shared-vip", "shared-vip-key-1"), want: Wishes{Addresses: addresses("192.0.2.1"), SharedVIP: "shared-vip-key-1"}},
		"CIS, an address":               {values: on("cis.f5.com/ip", "192.0.2.1", "cis.f5.com/ipamLabel", "Prod"), want: Wishes{Addresses: addresses("192.0.2.1")}},
		"CIS, a label":                  {values: on("cis.f5.com/ipamLabel", "Prod"), want: Wishes{AddressPool: "prod"}},
		"MetalLB":                       {values: on("metallb.io/loadBalancerIPs", "192.0.2.1,2001:db8::1", "metallb.io/allow-shared-ip", "dns"), want: Wishes{Addresses: addresses("192.0.2.1,2001:db8::1"), SharedVIP: "dns"}},
		"MetalLB, older":                {values: on("metallb.universe.tf/address-pool", "production", "metallb.universe.tf/allow-shared-ip", "dns"), want: Wishes{AddressPool: "production", SharedVIP: "dns"}},
		"MetalLB, pool and field":       {values: on("metallb.io/address-pool", "default"), spec: Spec{LoadBalancerIP: "192.0.2.1"}, want: Wishes{Addresses: addresses("192.0.2.1")}},
		"kube-vip":                      {values: on("kube-vip.io/loadbalancerIPs", "192.0.2.1"), spec: Spec{LoadBalancerIP: "192.0.2.2"}, want: Wishes{Addresses: addresses("192.0.2.1")}},
		"Cilium":                        {values: on("lbipam.cilium.io/ips", "192.0.2.1", "lbipam.cilium.io/sharing-key", "1234"), want: Wishes{Addresses: addresses("192.0.2.1"), SharedVIP: "1234"}},
		"ours goes before":              {values: on("cis.f5.com/ip", "192.0.2.1", LoadBalancerIPs, "192.0.2.2", "metallb.io/address-pool", "x", AddressPool, "y"), want: Wishes{Addresses: addresses("192.0.2.2"), AddressPool: "y"}},
		"ours goes before what is bad":  {values: on("cis.f5.com/ip", "x", LoadBalancerIPs, "192.0.2.2"), want: Wishes{Addresses: addresses("192.0.2.2")}},
		"ours goes before, though bad":  {values: on("cis.f5.com/ip", "192.0.2.1", LoadBalancerIPs, "x"), want: Wishes{Kept: Kept{Addresses: true}}, problems: []string{LoadBalancerIPs}},
		"two that say the same":         {values: on("metallb.io/loadBalancerIPs", "192.0.2.1", "metallb.universe.tf/loadBalancerIPs", "192.0.2.1"), want: Wishes{Addresses: addresses("192.0.2.1")}},
		"two that do not":               {values: on("metallb.io/loadBalancerIPs", "192.0.2.1", "ako.vmware.com/load-balancer-ip", "192.0.2.2"), want: Wishes{Addresses: addresses("192.0.2.2")}, problems: []string{"metallb.io/loadBalancerIPs"}},
		"a bad one is passed over":      {values: on("ako.vmware.com/load-balancer-ip", "x", "metallb.io/loadBalancerIPs", "192.0.2.1"), want: Wishes{Addresses: addresses("192.0.2.1")}, problems: []string{"ako.vmware.com/load-balancer-ip"}},
		"a bad one, and there is field": {values: on("ako.vmware.com/load-balancer-ip", "x"), spec: Spec{LoadBalancerIP: "192.0.2.1"}, want: Wishes{Addresses: addresses("192.0.2.1")}, problems: []string{"ako.vmware.com/load-balancer-ip"}},

		"health, looks":              {values: on("cis.f5.com/health", `{"interval": 10, "timeout": 31}`), want: monitor(providers.Monitor{Interval: 10 * time.Second, Fall: 3})},
		"health, the usual interval": {values: on("cis.f5.com/health", `{"type": "tcp", "timeout": 16}`), want: monitor(providers.Monitor{Type: providers.MonitorTCP, Fall: 3})},
		"health, no whole looks":     {values: on("cis.f5.com/health", `{"interval": 5, "timeout": 15}`), want: monitor(providers.Monitor{Interval: 5 * time.Second, Fall: 2})},
		"health, one look":           {values: on("cis.f5.com/health", `{"type": "UDP", "interval": 20, "timeout": 5}`), want: monitor(providers.Monitor{Type: providers.MonitorUDP, Interval: 20 * time.Second, Fall: 1})},
		"health, many looks":         {values: on("cis.f5.com/health", `{"interval": 1, "timeout": 3600}`), want: monitor(providers.Monitor{Interval: time.Second, Fall: mostLooks})},
		"health, a list of one": {values: on("cis.f5.com/health", `[{"type": "http", "send": "GET /healthz HTTP/1.1\\r\\nX: y\\r\\nhost: shop.example.com\\r\\n\\r\\n", "interval": 5}]`),
			want: monitor(providers.Monitor{Type: providers.MonitorHTTP, Path: "/healthz", Host: "shop.example.com", Interval: 5 * time.Second})},
		"health, HTTPS, short request": {values: on("cis.f5.com/health", `{"type": "https", "send": "GET /x"}`), want: monitor(providers.Monitor{Type: providers.MonitorHTTPS, Path: "/x"})},
		"health, what TCP sends":       {values: on("cis.f5.com/health", `{"type": "tcp", "send": "PING"}`), want: monitor(providers.Monitor{Type: providers.MonitorTCP})},
		"health, theirs":               {values: on("cis.f5.com/health", `{"name": "/Common/web", "reference": "bigip"}`), want: monitor(providers.Monitor{Type: providers.MonitorExisting, Name: "/Common/web"})},
		"health, what is not used is said": {values: on("cis.f5.com/health", `{"type": "tcp", "recv": "PONG", "targetPort": 8080}`), want: monitor(providers.Monitor{Type: providers.MonitorTCP}),
			problems: []string{"cis.f5.com/health"}},
		"health, ours goes before":      {values: on("cis.f5.com/health", `{"type": "http"}`, MonitorFall, "2"), want: monitor(providers.Monitor{Fall: 2})},
		"health, bad beside a good key": {values: on("cis.f5.com/health", `{`, Algorithm, "SourceHash"), want: Wishes{Kept: Kept{Pool: true}, Pool: providers.PoolSettings{Algorithm: providers.SourceHash}}, problems: []string{"cis.f5.com/health"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := Decode(test.values, test.spec, instances)
			if !reflect.DeepEqual(got, test.want) || !slices.Equal(keysOf(problems), test.problems) {
				t.Errorf("got  %+v\nwant %+v\nproblems %v", got, test.want, problems)
			}
		})
	}
}

// Whatever stands in an alias, the Service is served, and members come and go.
func TestAliasesNeverTakeOutOfService(t *testing.T) {
	for _, a := range Aliases() {
		if at := slices.IndexFunc(Vocabulary(), func(w Word) bool { return w.Name == a.Word }); at < 0 || !slices.Contains(Vocabulary()[at].Aliases, a.Name) {
			t.Errorf("%s stands for %s, which does not know", a.Name, a.Word)
		}
		for _, value := range []string{"\x00", "a b", strings.Repeat("/", 1000), "{", "%"} {
			got, problems := Decode(on(a.Name, value), Spec{}, instances)
			if got.Unservable || got.Kept.Structure || got.Kept.Addresses || got.Kept.Virtual || len(problems) != 1 || problems[0].Key != a.Name {
				t.Errorf("%s=%.20q: %+v, %v", a.Name, value, got, problems)
			}
		}
	}
}
