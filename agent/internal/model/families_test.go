package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// Which of its addresses leads to a Pod, for every set of addresses a Pod can have and every set of families a Service can want: the
// first of each wanted family, and a refusal for each wanted family that the Pod lacks, but none for a Pod without any address yet.
func TestNPL41PodAddressOfEachFamily(t *testing.T) {
	const a4, b4, a6, b6 = "10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"
	for _, tt := range []struct {
		ips    string
		v4, v6 string // what leads to the Pod
	}{
		{"", "", ""},
		{a4, a4, ""},
		{a6, "", a6},
		{a4 + " " + a6, a4, a6},
		{a6 + " " + a4, a4, a6},
		{b4 + " " + a4, b4, ""},
		{b6 + " " + a4 + " " + a6 + " " + b4, a4, b6},
	} {
		for _, families := range [][]npl.Family{v4, v6, both, {npl.IPv6, npl.IPv4}} {
			t.Run(fmt.Sprintf("Pod [%s], Service %v", tt.ips, families), func(t *testing.T) {
				m := Build(Input{Node: node(), Pods: []Pod{pod("a", strings.Fields(tt.ips)...)}, Services: []Service{service("s", families, tcp(80))},
					Addresses: internal, IPFamilies: both, KernelFamilies: both})
				got := map[npl.Family]string{}
				for _, w := range m.Pods[0].Wants {
					got[w.ID.Family] = w.Target.Addr().String()
				}
				refused := 0
				for f, want := range map[npl.Family]string{npl.IPv4: tt.v4, npl.IPv6: tt.v6} {
					switch wanted := slices.Contains(families, f); {
					case !wanted:
						want = ""
					case want == "" && tt.ips != "":
						refused++
					}
					if got[f] != want {
						t.Errorf("%s leads to %q, want %q", f, got[f], want)
					}
				}
				if len(m.Refusals) != refused || refused > 0 && m.Refusals[0].Reason != PodAddressMissing {
					t.Errorf("refusals %+v, want %d", m.Refusals, refused)
				}
			})
		}
	}
}
