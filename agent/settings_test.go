package agent

import (
	"strings"
	"testing"
	"time"
)

func TestParsePortRange(t *testing.T) {
	for in, want := range map[string]PortRange{
		"61000-62000": {61000, 62000}, " 1 - 65535 ": {1, 65535}, "61000-61000": {61000, 61000},
	} {
		if got, err := ParsePortRange("portRange", in); err != nil || got != want {
			t.Errorf("ParsePortRange(%q) = %v, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"62000-61000":       `portRange "62000-61000": first port is larger than last; write it as FIRST-LAST, for example 61000-62000`,
		"61000":             `portRange "61000": write it as FIRST-LAST, for example 61000-62000`,
		"":                  `portRange "": write it as FIRST-LAST`,
		"0-10":              `portRange "0-10": first port "0" is not a number from 1 to 65535; write it as`,
		"61000-65536":       `portRange "61000-65536": last port "65536" is not a number from 1 to 65535; write it as`,
		"a-b":               `first port "a" is not a number`,
		"61000-62000-63000": `last port "62000-63000" is not a number`,
		"-1-5":              `first port "" is not a number`,
		"61000-":            `last port "" is not a number`,
	} {
		if _, err := ParsePortRange("portRange", in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParsePortRange(%q): %v, want %q", in, err, want)
		}
	}
}

func TestDefaultConfigIsValidWithANodeName(t *testing.T) {
	if err := config().Validate(); err != nil {
		t.Error(err)
	}
}

func TestShortestCoolDowns(t *testing.T) {
	for _, d := range []time.Duration{0, time.Millisecond} {
		c := config()
		c.CoolDown = d
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestValidateNamesSettingValueAndFix(t *testing.T) {
	for want, change := range map[string]func(*Config){
		`nodeName "": set it to the name of this Node`:                             func(c *Config) { c.NodeName = "" },
		`portRange "0-62000": first port "0" is not`:                               func(c *Config) { c.PortRange.First = 0 },
		`portRange "62001-62000": first port is larger than last`:                  func(c *Config) { c.PortRange.First = 62001 },
		"nodeAddressTypes is empty: list at least one":                             func(c *Config) { c.NodeAddressTypes = nil },
		`nodeAddressTypes "Hostname": write one or both of InternalIP, ExternalIP`: func(c *Config) { c.NodeAddressTypes = []string{"Hostname"} },
		`nodeAddressTypes "InternalIP" is listed twice: list each once`:            func(c *Config) { c.NodeAddressTypes = []string{"InternalIP", "InternalIP"} },
		"coolDown -1s: write 0s, or a duration from 1ms to 24h0m0s":                func(c *Config) { c.CoolDown = -time.Second },
		"coolDown 999.999µs: write 0s, or a duration from 1ms to 24h0m0s":          func(c *Config) { c.CoolDown = time.Millisecond - 1 },
		"coolDown 25h0m0s: write 0s, or a duration from":                           func(c *Config) { c.CoolDown = 25 * time.Hour },
		"repairInterval 500ms: write a duration from 1s to 1h0m0s":                 func(c *Config) { c.RepairInterval = 500 * time.Millisecond },
		"withdrawGrace 2h0m0s: write a duration from 0s to 1h0m0s":                 func(c *Config) { c.WithdrawGrace = 2 * time.Hour },
		`portRange "32000-33000": it overlaps clusterNodePortRange 30000-32767`:    func(c *Config) { c.PortRange = PortRange{32000, 33000} },
		`clusterNodePortRange "0-10": first port "0" is not`:                       func(c *Config) { c.ClusterNodePortRange = PortRange{0, 10} },
		"ipFamilies is empty: list at least one":                                   func(c *Config) { c.IPFamilies = nil },
		`ipFamilies "ipv4": write one or both of IPv4, IPv6`:                       func(c *Config) { c.IPFamilies = []string{"ipv4"} },
		`portReuse "never": write coolDown or confirmed`:                           func(c *Config) { c.PortReuse = "never" },
		`watermarkNamespace "": with portReuse confirmed, set it`:                  func(c *Config) { c.PortReuse = ReuseConfirmed },
		`masquerade "some": write one of auto, all, none`:                          func(c *Config) { c.Masquerade = "some" },
	} {
		c := config()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestParsePrefixes(t *testing.T) {
	got, err := ParsePrefixes("nodeAddressCIDRs", []string{"192.0.2.7/24", "2001:db8::/32"})
	if err != nil || got[0].String() != "192.0.2.0/24" || got[1].String() != "2001:db8::/32" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := ParsePrefixes("nodeAddressCIDRs", []string{"192.0.2.7"}); err == nil || err.Error() != `nodeAddressCIDRs "192.0.2.7": write a CIDR, for example 192.0.2.0/24` {
		t.Errorf("%v", err)
	}
}
