package main

import (
	"net/netip"
	"os"
	"slices"

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
			Key: "providers", Kind: settings.Records, Fields: providerFields(), Example: "[{name: edge, kind: haproxy}, {name: core, kind: avi, avi: {tenant: shop}}]",
			Doc: "several load balancers, instead of provider and providerName; settings of a kind that a record leaves out are as outside of the list",
		},
		{
			Key: "handleUnclassed", Kind: settings.Bool, Default: d.HandleUnclassed, Example: "true",
			Doc: "also serve Services of type LoadBalancer that name no class, on the first load balancer",
		},
		{
			Key: "namespaceSelector", Kind: settings.Labels, Example: "[{key: tier, value: web}]",
			Doc: "labels of the Namespaces whose Services are served; empty means all",
		},
		{
			Key: "blockedNamespaces", Kind: settings.List, Example: "[kube-system]",
			Doc: "Namespaces whose Services are never served",
		},
		{
			Key: "serviceType", Default: d.ServiceType, Example: "NodePortLocal",
			Doc: "where members come from, unless a Service says otherwise by nplbridge.io/service-type: NodePortLocal (node ports of Pods), NodePort (Nodes) or ClusterIP (Pods, where the load balancer reaches their addresses)",
		},
		{
			Key: "portRange", Default: "61000-62000", Live: true, Example: "50000-51000", Want: wantPortRange,
			Doc: "where npl-agents take node ports from, FIRST-LAST, both included; a mapping outside of it counts only if the Pod declares that host port. Set to nothing in file or flag it takes any",
		},
		{
			Key: "nodePortRange", Default: d.NodePortRange.String(), Live: true, Example: "20000-22767", Want: wantPortRange,
			Doc: "where the API server takes node ports of Services from, its --service-node-port-range; with haproxy.nodeAddresses a Service cannot have a port in it. Set to nothing in file or flag all are free",
		},
		{
			Key: "nodePortSelector", Kind: settings.Labels, Live: true, Example: "[{key: ingress, value: \"true\"}]",
			Doc: "labels of the Nodes that are members with serviceType NodePort; empty means all",
		},
		{
			Key: "addressPools", Kind: settings.Records, Short: "ranges", Fields: poolFields(), Example: `["192.0.2.0/24", "2001:db8::10-2001:db8::1f"]`,
			Doc: "addresses for Services, in order of preference: prefixes or ranges FIRST-LAST, or in the file pools with names and rules; without any, only Services that ask for a certain address get one",
		},
		{
			Key: "guardHold", Kind: settings.Duration, Default: d.GuardHold, Live: true, Example: "5m",
			Doc: "how long members that more than half of a pool loses at once are held at least, when no event explains it, 0s to 24h; 0s holds nothing",
		},
		{
			Key: "gateTimeout", Kind: settings.Duration, Default: d.GateTimeout, Live: true, Example: "2m",
			Doc: "after how long the readiness gate nplbridge.io/in-pool of a Pod opens although a load balancer has not confirmed it, 0s to 24h; 0s never",
		},
		{
			Key: "drainLimit", Kind: settings.Duration, Default: d.DrainLimit, Live: true, Example: "10m",
			Doc: "the longest that a member which takes no new connections is kept for those it has, 0s to 24h",
		},
		{
			Key: "drainOnCordon", Kind: settings.Bool, Default: d.DrainOnCordon, Example: "true",
			Doc: "drain the members on a Node as soon as it is cordoned",
		},
		{
			Key: "resync", Kind: settings.Duration, Default: d.Resync, Live: true, Example: "1m",
			Doc: "how often the load balancer is read back and repaired, 10s to 24h",
		},
		{
			Key: "dryRun", Kind: settings.Bool, Default: d.DryRun, Example: "true",
			Doc: "plan and show, and write nothing, neither to load balancers nor to Kubernetes; `lbsync diff` shows what it would write",
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
		{
			Key: "nodeName", Example: "worker-1",
			Doc: "name of the Node that this process runs on, in a Pod its spec.nodeName; needed with haproxy.nodeAddresses only",
		},
	}
	own = append(own, kindSettings()...)
	return settings.Table{
		Program:   "lbsync",
		EnvPrefix: "LBSYNC",
		Settings: append(append(own, program.CommonSettings(":10362", "/run/nplbridge/lbsync.sock")...), settings.Setting{
			Key: statusAddress, Example: "127.0.0.1:10364", Want: wantLoopback,
			Doc: "loopback address and port on which the running process serves its status too, read-only and to everybody on its host or in its Pod, so that `lbsync status --remote` can reach it; empty serves none",
		}),
	}
}

// statusAddress is the setting of the listener that commands from outside reach through the API server.
const statusAddress = "statusAddress"

// poolFields are the keys of one record of addressPools.
func poolFields() []settings.Setting {
	return []settings.Setting{
		{Key: "name", Example: "public", Doc: "what nplbridge.io/address-pool of a Service names; required"},
		{Key: "ranges", Kind: settings.List, Example: `["192.0.2.0/24"]`, Doc: "prefixes, ranges FIRST-LAST or addresses; required"},
		{Key: "providers", Kind: settings.List, Example: "[edge]", Doc: "names of the load balancers that may use it; empty means all"},
		{Key: "namespaces", Kind: settings.List, Example: "[shop]", Doc: "Namespaces whose Services may use it; empty means all"},
		{Key: "selector", Kind: settings.Labels, Example: "[{key: exposure, value: public}]", Doc: "labels of Services that may use it; empty means all"},
		{
			Key: "onRequest", Kind: settings.Bool, Default: false, Example: "true",
			Doc: "keep it for Services that name it, or an address in it",
		},
	}
}

// providerFields are the keys of one record of providers.
func providerFields() []settings.Setting {
	fields := []settings.Setting{
		{Key: "name", Example: "edge", Doc: "name of the load balancer, as providerName; required"},
		{Key: "kind", Example: "haproxy", Doc: "kind of load balancer, as provider: " + known() + "; required"},
	}
	return append(fields, kindSettings()...)
}

// kindSettings are the settings of every kind of load balancer.
func kindSettings() []settings.Setting {
	return slices.Concat(haproxySettings(), aviSettings(), bigipSettings())
}

func wantPortRange(value any) string {
	if _, err := lbsync.ParsePortRange(value.(string)); err != nil {
		return err.Error()
	}
	return ""
}

// wantLoopback takes addresses that only this host, or this Pod, can reach; empty is good.
func wantLoopback(value any) string {
	const want = "write a loopback address and a port, since whoever reaches it can read it"
	text := value.(string)
	if text == "" {
		return ""
	}
	if at, err := netip.ParseAddrPort(text); err != nil || !at.Addr().IsLoopback() {
		return want
	}
	return ""
}

// config turns settings into lbsync's configuration. Errors are about settings.
func config(v *settings.Values) (lbsync.Config, error) {
	ports, _ := lbsync.ParsePortRange(v.String("portRange")) // wantPortRange has looked at it
	nodePorts, _ := lbsync.ParsePortRange(v.String("nodePortRange"))
	c := lbsync.Config{
		NodeName:          v.String("nodeName"),
		NodePortRange:     nodePorts,
		Instance:          v.String("instance"),
		HandleUnclassed:   v.Bool("handleUnclassed"),
		ServiceType:       v.String("serviceType"),
		PortRange:         ports,
		NodePortSelector:  v.Labels("nodePortSelector"),
		NamespaceSelector: v.Labels("namespaceSelector"),
		BlockedNamespaces: v.List("blockedNamespaces"),
		GuardHold:         v.Duration("guardHold"),
		GateTimeout:       v.Duration("gateTimeout"),
		DrainLimit:        v.Duration("drainLimit"),
		DrainOnCordon:     v.Bool("drainOnCordon"),
		DryRun:            v.Bool("dryRun"),
		Resync:            v.Duration("resync"),
		LeaseNamespace:    v.String("leaseNamespace"),
		LeaseName:         v.String("leaseName"),
		Identity:          v.String("identity"),
	}
	balancers, err := balancers(v)
	if err != nil {
		return lbsync.Config{}, err
	}
	for _, b := range balancers {
		c.Providers = append(c.Providers, b.name)
		if b.kind == kindHAProxy {
			if err := haproxyPlaces(&c, b.name, b.settings); err != nil {
				return lbsync.Config{}, err
			}
		}
	}
	if c.AddressPools, err = addressPools(v); err != nil {
		return lbsync.Config{}, err
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

// defaultPool is the name of the address pool that bare ranges make.
const defaultPool = "default"

func addressPools(v *settings.Values) ([]lbsync.AddressPool, error) {
	var out []lbsync.AddressPool
	for _, record := range v.Records("addressPools") {
		pool := lbsync.AddressPool{
			Name: record.String("name"), Providers: record.List("providers"), Namespaces: record.List("namespaces"),
			Selector: record.Labels("selector"), OnRequest: record.Bool("onRequest"),
		}
		if record.At() == "" {
			pool.Name = defaultPool
		}
		for _, text := range record.List("ranges") {
			r, err := lbsync.ParseAddressRange(text)
			if err != nil && record.At() == "" {
				return nil, v.Reject("addressPools", err.Error())
			}
			if err != nil {
				return nil, record.Reject("ranges", err.Error())
			}
			pool.Ranges = append(pool.Ranges, r)
		}
		out = append(out, pool)
	}
	return out, nil
}
