package main

import (
	"errors"
	"runtime"

	"github.com/nplbridge/nplbridge/agent"
	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
)

// table is every setting of npl-agent. The defaults are the agent's own.
func table() settings.Table {
	d := agent.DefaultConfig()
	return settings.Table{
		Program:   "npl-agent",
		EnvPrefix: "NPL_AGENT",
		Settings: append([]settings.Setting{
			{
				Key: "nodeName", Example: "worker-1", Want: program.WantNodeName,
				Doc: "name of the Node this agent serves; required. In a DaemonSet it comes from the Pod's spec.nodeName",
			},
			{
				Key: "portRange", Default: d.PortRange.String(), Example: "61000-62000",
				Doc: "ports of the Node to give to Pods, FIRST-LAST, both included; outside of clusterNodePortRange and of the kernel's ephemeral ports. On Windows the default is 40000-41000",
			},
			{
				Key: "clusterNodePortRange", Default: d.ClusterNodePortRange.String(), Example: "30000-32767",
				Doc: "what the API server gives to Services of type NodePort (its --service-node-port-range); portRange must keep out of it",
			},
			{
				Key: "ipFamilies", Kind: settings.List, Default: d.IPFamilies, Example: "[IPv4]",
				Doc: "families that get node ports: IPv4, IPv6; leave IPv6 out for consumers that read one address per Pod port",
			},
			{
				Key: "sameNodePortPerProtocol", Kind: settings.Bool, Default: d.SameNodePortPerProtocol, Example: "true",
				Doc: "give TCP, UDP and SCTP of one Pod port the same number, for consumers that do not read the annotation's protocol",
			},
			{
				Key: "nodeAddressTypes", Kind: settings.List, Default: d.NodeAddressTypes, Example: "[ExternalIP, InternalIP]",
				Doc: "types of Node address to publish, most wanted first: InternalIP, ExternalIP",
			},
			{
				Key: "nodeAddressCIDRs", Kind: settings.List, Example: "[192.0.2.0/24, 2001:db8::/32]",
				Doc: "publish only Node addresses inside one of these CIDRs; empty for any",
			},
			{
				Key: "coolDown", Kind: settings.Duration, Default: d.CoolDown, Example: "5m",
				Doc: "how long a freed port stays unused, 0s, or 1ms to 24h; with portReuse coolDown long enough for every load balancer to have forgotten it. With portReuse confirmed the default is 1m",
			},
			{
				Key: "portReuse", Default: d.PortReuse, Example: "confirmed",
				Doc: "what a freed port needs before another Pod may have it: coolDown (time alone; for AKO, F5 CIS, or no lbsync) or confirmed (also the watermark of every lbsync)",
			},
			{
				Key: "watermarkNamespace", Example: "nplbridge-system",
				Doc: "namespace in which lbsync publishes its watermarks; required with portReuse confirmed",
			},
			{
				Key: "repairInterval", Kind: settings.Duration, Default: d.RepairInterval, Example: "10s",
				Doc: "how often the kernel's rules are compared with what they should be, 1s to 1h",
			},
			{
				Key: "withdrawGrace", Kind: settings.Duration, Default: d.WithdrawGrace, Example: "1m",
				Doc: "how long a live Pod that no Service wants any more keeps its port, 0s to 1h",
			},
			{
				Key: "masquerade", Default: d.Masquerade, Example: "all",
				Doc: "which connections get the Node's address as source: auto (only where a reply would go astray), all, none",
			},
			{
				Key: "forwardAccept", Kind: settings.Bool, Default: d.ForwardAccept, Example: "true",
				Doc: "let connections to node ports pass a FORWARD chain of iptables that drops by default",
			},
		}, program.CommonSettings(":10361", statusSocket(runtime.GOOS))...),
	}
}

// statusSocket is where the status is served unless told otherwise.
func statusSocket(goos string) string {
	if goos == "windows" {
		return `C:\ProgramData\nplbridge\npl-agent.sock`
	}
	return "/run/nplbridge/npl-agent.sock"
}

// config turns settings into the agent's configuration. Errors are about settings.
func config(v *settings.Values) (agent.Config, error) {
	ports, portsErr := agent.ParsePortRange("portRange", v.String("portRange"))
	clusterPorts, clusterErr := agent.ParsePortRange("clusterNodePortRange", v.String("clusterNodePortRange"))
	cidrs, cidrsErr := agent.ParsePrefixes("nodeAddressCIDRs", v.List("nodeAddressCIDRs"))
	if err := errors.Join(portsErr, clusterErr, cidrsErr); err != nil {
		return agent.Config{}, v.Invalid(err)
	}
	c := agent.Config{
		NodeName:                v.String("nodeName"),
		PortRange:               ports,
		ClusterNodePortRange:    clusterPorts,
		IPFamilies:              v.List("ipFamilies"),
		SameNodePortPerProtocol: v.Bool("sameNodePortPerProtocol"),
		NodeAddressTypes:        v.List("nodeAddressTypes"),
		NodeAddressCIDRs:        cidrs,
		CoolDown:                v.Duration("coolDown"),
		PortReuse:               v.String("portReuse"),
		WatermarkNamespace:      v.String("watermarkNamespace"),
		RepairInterval:          v.Duration("repairInterval"),
		WithdrawGrace:           v.Duration("withdrawGrace"),
		Masquerade:              v.String("masquerade"),
		ForwardAccept:           v.Bool("forwardAccept"),
	}
	if v.Defaulted("coolDown") {
		c.CoolDown = agent.CoolDown(c.PortReuse)
	}
	return c, v.Invalid(c.Validate())
}
