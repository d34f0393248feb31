package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
)

// DefaultConfig returns the settings an agent has unless told otherwise. NodeName is left empty: it has no default.
func DefaultConfig() Config {
	return Config{
		PortRange:        PortRange{First: 61000, Last: 62000},
		NodeAddressTypes: []string{"InternalIP", "ExternalIP"},
		CoolDown:         5 * time.Minute,
		RepairInterval:   30 * time.Second,
		WithdrawGrace:    30 * time.Second,
		Masquerade:       dataplane.MasqueradeAuto,
	}
}

// Validate returns an error that names the first setting that is wrong, its value, and the fix.
func (c Config) Validate() error {
	if c.NodeName == "" {
		return fmt.Errorf(`nodeName "": set it to the name of this Node in the API; in a Pod, take it from spec.nodeName with the downward API`)
	}
	if err := c.PortRange.validate(); err != nil {
		return err
	}
	if err := validateAddressTypes(c.NodeAddressTypes); err != nil {
		return err
	}
	for _, d := range []struct {
		name        string
		value       time.Duration
		least, most time.Duration
	}{
		{"coolDown", c.CoolDown, 0, 24 * time.Hour},
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

func validateAddressTypes(types []string) error {
	known := []string{"InternalIP", "ExternalIP"}
	if len(types) == 0 {
		return fmt.Errorf("nodeAddressTypes is empty: list at least one of %s", strings.Join(known, ", "))
	}
	for i, t := range types {
		if !slices.Contains(known, t) {
			return fmt.Errorf("nodeAddressTypes %q: write one or both of %s, most wanted first", t, strings.Join(known, ", "))
		}
		if slices.Contains(types[:i], t) {
			return fmt.Errorf("nodeAddressTypes %q is listed twice: list each type once, most wanted first", t)
		}
	}
	return nil
}

// ParsePortRange reads "FIRST-LAST", for example "61000-62000"; blanks around the numbers are allowed. Both are 1 to 65535 and
// FIRST is not larger than LAST. The error names the setting portRange.
func ParsePortRange(s string) (PortRange, error) {
	const form = "write it as FIRST-LAST, for example 61000-62000"
	first, last, ok := strings.Cut(s, "-")
	if !ok {
		return PortRange{}, fmt.Errorf("portRange %q: %s", s, form)
	}
	var r PortRange
	for _, end := range []struct {
		name, text string
		port       *uint16
	}{{"first", first, &r.First}, {"last", last, &r.Last}} {
		n, err := strconv.ParseUint(strings.TrimSpace(end.text), 10, 16)
		if err != nil || n == 0 {
			return PortRange{}, fmt.Errorf("portRange %q: %s port %q is not a number from 1 to 65535; %s", s, end.name, strings.TrimSpace(end.text), form)
		}
		*end.port = uint16(n)
	}
	if r.First > r.Last {
		return PortRange{}, fmt.Errorf("portRange %q: first port is larger than last; %s", s, form)
	}
	return r, nil
}

// String returns "FIRST-LAST".
func (r PortRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

func (r PortRange) validate() error {
	_, err := ParsePortRange(r.String())
	return err
}
