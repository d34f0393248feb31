package agent

import (
	"slices"
	"testing"
)

func TestDefaultPortRangeKeepsClearOfEphemeralPorts(t *testing.T) {
	ephemeral := map[string]PortRange{"linux": {32768, 60999}, "windows": {49152, 65535}}
	for goos, theirs := range ephemeral {
		if ours := defaultPortRange(goos); ours.Overlaps(theirs) || ours.Overlaps(DefaultConfig().ClusterNodePortRange) || ours.First < 1024 {
			t.Errorf("%s: %s overlaps %s", goos, ours, theirs)
		}
	}
	if all := []PortRange{defaultPortRange("linux"), defaultPortRange("windows")}; !slices.Equal(all, []PortRange{{61000, 62000}, {40000, 41000}}) {
		t.Errorf("%v: existing installations, and those of Antrea, expect other ports", all)
	}
}
