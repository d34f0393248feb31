package ledger

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
)

func mapped(podPort, nodePort uint16) npl.Mapping {
	return npl.Mapping{PodPort: podPort, NodeIP: netip.MustParseAddr("192.0.2.1"), NodePort: nodePort, Protocol: npl.TCP, Family: npl.IPv4}
}

func TestNodePorts(t *testing.T) {
	type event struct {
		at   float64
		uid  string
		gone bool
		has  []npl.Mapping
	}
	for name, c := range map[string]struct {
		events []event
		want   string // part of the only violation, "" for none
	}{
		"kept":                      {[]event{{0, "a", false, []npl.Mapping{mapped(80, 61000)}}, {9, "a", false, []npl.Mapping{mapped(80, 61000), mapped(90, 61001)}}}, ""},
		"moved":                     {[]event{{0, "a", false, []npl.Mapping{mapped(80, 61000)}}, {9, "a", false, []npl.Mapping{mapped(80, 61001)}}}, "moved"},
		"moved in between":          {[]event{{0, "a", false, []npl.Mapping{mapped(80, 61000)}}, {5, "a", false, nil}, {9, "a", false, []npl.Mapping{mapped(80, 61001)}}}, "moved"},
		"two at once":               {[]event{{0, "a", false, []npl.Mapping{mapped(80, 61000)}}, {9, "b", false, []npl.Mapping{mapped(80, 61000)}}}, "while Pod a has it"},
		"too soon after withdrawal": {[]event{{0, "a", false, []npl.Mapping{mapped(80, 61000)}}, {5, "a", false, nil}, {7, "b", false, []npl.Mapping{mapped(80, 61000)}}}, "2s after Pod a"},
		"too soon after deletion":   {[]event{{0, "a", false, []npl.Mapping{mapped(80, 61000)}}, {5, "a", true, nil}, {7, "b", false, []npl.Mapping{mapped(80, 61000)}}}, "2s after Pod a"},
		"cooled":                    {[]event{{0, "a", false, []npl.Mapping{mapped(80, 61000)}}, {5, "a", true, nil}, {8, "b", false, []npl.Mapping{mapped(80, 61000)}}}, ""},
		"its own again at once":     {[]event{{0, "a", false, []npl.Mapping{mapped(80, 61000)}}, {5, "a", false, nil}, {5.1, "a", false, []npl.Mapping{mapped(80, 61000)}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := NewNodePorts(3 * time.Second)
			var got []string
			for _, e := range c.events {
				if e.gone {
					n.Gone(second(e.at), e.uid)
				} else {
					got = append(got, n.Published(second(e.at), e.uid, e.uid, e.has)...)
				}
			}
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
