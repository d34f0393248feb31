package bigip

import "github.com/nplbridge/nplbridge/providers"

// The options that only this provider has.
const (
	optionMonitor  = "monitor"
	optionSNAT     = "snat"
	optionProfiles = "profiles"
	optionRules    = "irules"
	optionVLANs    = "vlans"
)

func options() []providers.Option {
	return []providers.Option{
		{
			Name: optionMonitor, Example: "tcp-half-open",
			Doc: "a kind of monitor that only a BIG-IP has: tcp-half-open or gateway-icmp",
			Check: func(value string) string {
				if value == "tcp-half-open" || value == "gateway-icmp" {
					return ""
				}
				return "write tcp-half-open or gateway-icmp"
			},
		},
		{
			Name: optionSNAT, Example: "none", Virtual: true, Check: checkSNAT,
			Doc: "source address that members see: automap is one of the BIG-IP, none is the client's, for which the nodes' way back has to lead through the BIG-IP; or the path of a SNAT pool",
		},
		{
			Name: optionProfiles, Example: "/Common/fastL4", Virtual: true, Check: checkPaths,
			Doc: "paths of the profiles of the virtual server, with commas between them, instead of the protocol profile of the settings",
		},
		{
			Name: optionRules, Example: "/Common/_sys_https_redirect", Virtual: true, Check: checkPaths,
			Doc: "paths of iRules of the virtual server in their order, with commas between them",
		},
		{
			Name: optionVLANs, Example: "/Common/external", Virtual: true, Check: checkPaths,
			Doc: "paths of the VLANs on which the virtual server listens, with commas between them, instead of all",
		},
	}
}
