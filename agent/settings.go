package agent

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// DefaultConfig returns the settings an agent has unless told otherwise. NodeName is left empty: it has no default.
func DefaultConfig() Config {
	return Config{
		PortRange:            defaultPortRange(runtime.GOOS),
		ClusterNodePortRange: PortRange{First: 30000, Last: 32767},
		IPFamilies:           []string{string(npl.IPv4), string(npl.IPv6)},
		NodeAddressTypes:     []string{"InternalIP", "ExternalIP"},
		CoolDown:             CoolDown(ReuseAfterCoolDown),
		PortReuse:            ReuseAfterCoolDown,
		RepairInterval:       30 * time.Second,
		WithdrawGrace:        30 * time.Second,
		Masquerade:           dataplane.MasqueradeAuto,
	}
}

// defaultPortRange keeps clear of the ports that the operating system gives to clients: 32768-60999 on Linux, 49152-65535 on Windows.
func defaultPortRange(goos string) PortRange {
	if goos == "windows" {
		return PortRange{First: 40000, Last: 41000}
	}
	return PortRange{First: 61000, Last: 62000}
}

// CoolDown returns the default of Config.CoolDown for a value of PortReuse: where nothing confirms that a port may be used again, time
// alone has to do, and there must be more of it.
func CoolDown(portReuse string) time.Duration {
	if portReuse == ReuseConfirmed {
		return time.Minute
	}
	return 5 * time.Minute
}

// Validate returns an error that names the first setting that is wrong, its value, and the fix.
func (c Config) Validate() error {
	if c.NodeName == "" {
		return fmt.Errorf(`nodeName "": set it to the name of this Node in the API; in a Pod, take it from spec.nodeName with the downward API`)
	}
	if err := c.validatePorts(); err != nil {
		return err
	}
	if err := validateList("ipFamilies", c.IPFamilies, string(npl.IPv4), string(npl.IPv6)); err != nil {
		return err
	}
	if err := validateList("nodeAddressTypes", c.NodeAddressTypes, "InternalIP", "ExternalIP"); err != nil {
		return err
	}
	if c.PortReuse != ReuseAfterCoolDown && c.PortReuse != ReuseConfirmed {
		return fmt.Errorf("portReuse %q: write %s or %s", c.PortReuse, ReuseAfterCoolDown, ReuseConfirmed)
	}
	if c.PortReuse == ReuseConfirmed && c.WatermarkNamespace == "" {
		return fmt.Errorf(`watermarkNamespace "": with portReuse %s, set it to the namespace lbsync runs in`, ReuseConfirmed)
	}
	if c.CoolDown != 0 && (c.CoolDown < time.Millisecond || c.CoolDown > 24*time.Hour) { // the kernel counts in milliseconds
		return fmt.Errorf("coolDown %s: write 0s, or a duration from 1ms to %s, for example 5m", c.CoolDown, 24*time.Hour)
	}
	for _, d := range []struct {
		name        string
		value       time.Duration
		least, most time.Duration
	}{
		{"repairInterval", c.RepairInterval, time.Second, time.Hour},
		{"withdrawGrace", c.WithdrawGrace, 0, time.Hour},
	} {
		if d.value < d.least || d.value > d.most {
			return fmt.Errorf("%s %s: write a duration from %s to %s, for example 30s", d.name, d.value, d.least, d.most)
		}
	}
	if modes := []string{dataplane.MasqueradeAuto, dataplane.MasqueradeAll, dataplane.MasqueradeNone}; !slices.Contains(modes, c.Masquerade) {
		return fmt.Errorf("masquerade %q: write one of %s", c.Masquerade, strings.Join(modes, ", "))
	}
	return nil
}

// validateList checks a list of some of the known values, most wanted first.
func validateList(name string, values []string, known ...string) error {
	if len(values) == 0 {
		return fmt.Errorf("%s is empty: list at least one of %s", name, strings.Join(known, ", "))
	}
	for i, v := range values {
		if !slices.Contains(known, v) {
			return fmt.Errorf("%s %q: write one or both of %s, most wanted first", name, v, strings.Join(known, ", "))
		}
		if slices.Contains(values[:i], v) {
			return fmt.Errorf("%s %q is listed twice: list each once, most wanted first", name, v)
		}
	}
	return nil
}

func (c Config) validatePorts() error {
	if _, err := ParsePortRange("portRange", c.PortRange.String()); err != nil {
		return err
	}
	if _, err := ParsePortRange("clusterNodePortRange", c.ClusterNodePortRange.String()); err != nil {
		return err
	}
	if c.PortRange.Overlaps(c.ClusterNodePortRange) {
		return fmt.Errorf("portRange %q: it overlaps clusterNodePortRange %s, whose ports kube-proxy takes for Services of type NodePort; choose another range, or correct clusterNodePortRange",
			c.PortRange, c.ClusterNodePortRange)
	}
	return nil
}

// ParsePortRange reads "FIRST-LAST", for example "61000-62000"; blanks around the numbers are allowed. Both are 1 to 65535 and
// FIRST is not larger than LAST. The error names the setting.
func ParsePortRange(setting, s string) (PortRange, error) {
	const form = "write it as FIRST-LAST, for example 61000-62000"
	first, last, ok := strings.Cut(s, "-")
	if !ok {
		return PortRange{}, fmt.Errorf("%s %q: %s", setting, s, form)
	}
	var r PortRange
	for _, end := range []struct {
		name, text string
		port       *uint16
	}{{"first", first, &r.First}, {"last", last, &r.Last}} {
		n, err := strconv.ParseUint(strings.TrimSpace(end.text), 10, 16)
		if err != nil || n == 0 {
			return PortRange{}, fmt.Errorf("%s %q: %s port %q is not a number from 1 to 65535; %s", setting, s, end.name, strings.TrimSpace(end.text), form)
		}
		*end.port = uint16(n)
	}
	if r.First > r.Last {
		return PortRange{}, fmt.Errorf("%s %q: first port is larger than last; %s", setting, s, form)
	}
	return r, nil
}

// String returns "FIRST-LAST".
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Overlaps reports whether the ranges have a port in common.
func (r PortRange) Overlaps(o PortRange) bool { return r.First <= o.Last && o.First <= r.Last }

// ParsePrefixes reads CIDRs such as "192.0.2.0/24"; host bits are allowed and dropped. The error names the setting.
func ParsePrefixes(setting string, cidrs []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range cidrs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%s %q: write a CIDR, for example 192.0.2.0/24", setting, text)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
