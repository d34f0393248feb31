package main

import (
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
				Doc: "ports of the Node to give to Pods, FIRST-LAST, both included; outside of the cluster's node port range and of the kernel's ephemeral ports",
			},
			{
				Key: "nodeAddressTypes", Kind: settings.List, Default: d.NodeAddressTypes, Example: "[ExternalIP, InternalIP]",
				Doc: "types of Node address to publish, most wanted first: InternalIP, ExternalIP",
			},
			{
				Key: "coolDown", Kind: settings.Duration, Default: d.CoolDown, Example: "5m",
				Doc: "how long a freed port stays unused, 0s to 24h; long enough for every load balancer to have forgotten it",
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
		}, program.CommonSettings(":10361", "/run/nplbridge/npl-agent.sock")...),
	}
}

// config turns settings into the agent's configuration. Errors are about settings.
func config(v *settings.Values) (agent.Config, error) {
	ports, err := agent.ParsePortRange(v.String("portRange"))
	if err != nil {
		return agent.Config{}, v.Invalid(err)
	}
	c := agent.Config{
		NodeName:         v.String("nodeName"),
		PortRange:        ports,
		NodeAddressTypes: v.List("nodeAddressTypes"),
		CoolDown:         v.Duration("coolDown"),
		RepairInterval:   v.Duration("repairInterval"),
		WithdrawGrace:    v.Duration("withdrawGrace"),
		Masquerade:       v.String("masquerade"),
	}
	return c, v.Invalid(c.Validate())
}
