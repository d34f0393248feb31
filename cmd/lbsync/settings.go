package main

import (
	"os"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/lbsync"
)

// table is every setting of lbsync. The defaults are lbsync's and the providers' own, and for names those of the chart
// installed as nplbridge in nplbridge-system.
func table() settings.Table {
	d := lbsync.DefaultConfig()
	own := []settings.Setting{
		{
			Key: "instance", Default: "nplbridge-system/nplbridge", Example: "nplbridge-system/nplbridge",
			Doc: "name of this installation, namespace/name of the Helm release; part of the mark on everything it creates, so never change it",
		},
		{
			Key: "provider", Default: "haproxy", Example: "haproxy",
			Doc: "kind of load balancer: " + known(),
		},
		{
			Key: "providerName", Default: "haproxy", Example: "edge",
			Doc: "name of the load balancer; Services with loadBalancerClass nplbridge.io/<providerName> are served",
		},
		{
			Key: "handleUnclassed", Kind: settings.Bool, Default: d.HandleUnclassed, Example: "true",
			Doc: "also serve Services of type LoadBalancer that name no class",
		},
		{
			Key: "serviceType", Default: d.ServiceType, Example: "NodePortLocal",
			Doc: "where members come from: NodePortLocal",
		},
		{
			Key: "addressPools", Kind: settings.List, Example: `["192.0.2.0/24", "2001:db8::10-2001:db8::1f"]`,
			Doc: "addresses for Services, prefixes or ranges FIRST-LAST, in order of preference; without any, only Services with spec.loadBalancerIP get an address",
		},
		{
			Key: "drainLimit", Kind: settings.Duration, Default: d.DrainLimit, Example: "10m",
			Doc: "the longest that a member which takes no new connections is kept for those it has, 0s to 24h",
		},
		{
			Key: "resync", Kind: settings.Duration, Default: d.Resync, Example: "1m",
			Doc: "how often the load balancer is read back and repaired, 10s to 24h",
		},
		{
			Key: "leaseNamespace", Default: "nplbridge-system", Example: "nplbridge-system",
			Doc: "Namespace of the Lease by which one lbsync becomes the leader",
		},
		{
			Key: "leaseName", Default: "nplbridge-lbsync", Example: "nplbridge-lbsync",
			Doc: "name of that Lease",
		},
		{
			Key: "identity", Example: "lb-1", Want: program.WantWord,
			Doc: "name of this process in the Lease, unique, without blanks; empty means the host's name",
		},
	}
	own = append(own, haproxySettings()...)
	own = append(own, aviSettings()...)
	return settings.Table{
		Program:   "lbsync",
		EnvPrefix: "LBSYNC",
		Settings:  append(own, program.CommonSettings(":10362", "/run/nplbridge/lbsync.sock")...),
	}
}

// config turns settings into lbsync's configuration. Errors are about settings.
func config(v *settings.Values) (lbsync.Config, error) {
	d := lbsync.DefaultConfig()
	c := lbsync.Config{
		Instance:        v.String("instance"),
		Providers:       []string{v.String("providerName")},
		HandleUnclassed: v.Bool("handleUnclassed"),
		ServiceType:     v.String("serviceType"),
		DrainLimit:      v.Duration("drainLimit"),
		GuardHold:       d.GuardHold,
		GateTimeout:     d.GateTimeout,
		Resync:          v.Duration("resync"),
		LeaseNamespace:  v.String("leaseNamespace"),
		LeaseName:       v.String("leaseName"),
		Identity:        v.String("identity"),
	}
	pool := lbsync.AddressPool{Name: "default"}
	for _, text := range v.List("addressPools") {
		r, err := lbsync.ParseAddressRange(text)
		if err != nil {
			return lbsync.Config{}, v.Reject("addressPools", err.Error())
		}
		pool.Ranges = append(pool.Ranges, r)
	}
	if len(pool.Ranges) > 0 {
		c.AddressPools = []lbsync.AddressPool{pool}
	}
	if c.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return lbsync.Config{}, v.Reject("identity", "empty, and this host's name is unknown: "+err.Error())
		}
		c.Identity = host
	}
	return c, v.Invalid(c.Validate())
}
