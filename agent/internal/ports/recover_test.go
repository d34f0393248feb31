package ports

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

func TestRecover(t *testing.T) {
	target := netip.MustParseAddrPort
	found := func(uid, ip string, wants bool, published ...uint16) FoundPod {
		p := FoundPod{UID: uid, IPs: []netip.Addr{netip.MustParseAddr(ip)}, Wants: map[model.ID]bool{}}
		if wants {
			p.Wants[id(uid)] = true
		}
		for _, n := range published {
			p.Published = append(p.Published, npl.Mapping{PodPort: 80, NodePort: n, Protocol: npl.TCP, Family: npl.IPv4})
		}
		return p
	}
	live := func(pairs ...any) map[model.Key]netip.AddrPort {
		m := map[model.Key]netip.AddrPort{}
		for i := 0; i < len(pairs); i += 2 {
			m[key(uint16(pairs[i].(int)))] = target(pairs[i+1].(string))
		}
		return m
	}
	owners := func(pairs ...any) map[model.Key]model.ID {
		m := map[model.Key]model.ID{}
		for i := 0; i < len(pairs); i += 2 {
			m[key(uint16(pairs[i].(int)))] = id(pairs[i+1].(string))
		}
		return m
	}
	tests := []struct {
		name              string
		found             Found
		owners            map[model.Key]model.ID
		current           uint16 // of Pod a
		orphans, unproven []model.Key
	}{
		{"rule and annotation agree", Found{Live: live(61000, "10.0.0.1:80"), Pods: []FoundPod{found("a", "10.0.0.1", true, 61000)}}, owners(61000, "a"), 61000, nil, nil},
		{"rule without annotation", Found{Live: live(61000, "10.0.0.1:80"), Pods: []FoundPod{found("a", "10.0.0.1", true)}}, owners(61000, "a"), 61000, nil, nil},
		{"rule of a Pod that is no longer wanted", Found{Live: live(61000, "10.0.0.1:80"), Pods: []FoundPod{found("a", "10.0.0.1", false)}}, owners(61000, "a"), 61000, nil, nil},
		{"rule of a Pod that is gone", Found{Live: live(61000, "10.0.0.9:80"), Pods: []FoundPod{found("a", "10.0.0.1", true)}}, owners(), 0, []model.Key{key(61000)}, nil},
		{"the live map wins", Found{Live: live(61000, "10.0.0.1:80"), Pods: []FoundPod{found("a", "10.0.0.1", true, 61003)}}, owners(61000, "a"), 61000, nil, []model.Key{key(61003)}},
		{"of two rules the published one counts", Found{Live: live(61000, "10.0.0.1:80", 61001, "10.0.0.1:80"), Pods: []FoundPod{found("a", "10.0.0.1", true, 61001)}}, owners(61000, "a", 61001, "a"), 61001, nil, nil},
		{"the Pod has another address now", Found{Live: live(61000, "10.0.0.1:80"), Pods: []FoundPod{found("a", "10.0.0.2", true, 61000)}}, owners(61000, "a"), 61000, nil, nil},
		{"its old address is another Pod's now", Found{Live: live(61000, "10.0.0.1:80"), Pods: []FoundPod{found("a", "10.0.0.2", true, 61000), found("b", "10.0.0.1", true)}}, owners(), 0, []model.Key{key(61000)}, nil},
		{"a second claim does not take a port from its Pod", Found{Live: live(61000, "10.0.0.1:80"), Pods: []FoundPod{found("a", "10.0.0.1", true, 61000), found("b", "10.0.0.2", true, 61000)}}, owners(61000, "a"), 61000, nil, nil},
		{"annotation alone", Found{Pods: []FoundPod{found("a", "10.0.0.1", true, 61000)}}, owners(61000, "a"), 61000, nil, nil},
		{"annotation alone, not wanted", Found{Pods: []FoundPod{found("a", "10.0.0.1", false, 61000)}}, owners(), 0, nil, []model.Key{key(61000)}},
		{"annotation alone, port cools", Found{Cooling: map[model.Key]bool{key(61000): true}, Pods: []FoundPod{found("a", "10.0.0.1", true, 61000)}}, owners(), 0, nil, []model.Key{key(61000)}},
		{"annotation outside the range", Found{Pods: []FoundPod{found("a", "10.0.0.1", true, 4000)}}, owners(), 0, nil, []model.Key{key(4000)}},
		{"two annotations claim one port", Found{Pods: []FoundPod{found("a", "10.0.0.1", true, 61000), found("b", "10.0.0.2", true, 61000)}}, owners(), 0, nil, []model.Key{key(61000)}},
		{"shared Node address: the one that wants it", Found{Live: live(61000, "192.0.2.1:80"), Pods: []FoundPod{found("0", "192.0.2.1", false), found("a", "192.0.2.1", true)}}, owners(61000, "a"), 61000, nil, nil},
		{"shared Node address: the one that published it", Found{Live: live(61000, "192.0.2.1:80"), Pods: []FoundPod{found("0", "192.0.2.1", true), found("a", "192.0.2.1", true, 61000)}}, owners(61000, "a"), 61000, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Recover(tt.found, func(k model.Key) bool { return any5.Contains(k.NodePort) })
			if diff := cmp.Diff(tt.owners, got.Owners); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
			if k := got.Current[id("a")]; k.NodePort != tt.current {
				t.Errorf("current %d, want %d", k.NodePort, tt.current)
			}
			if diff := cmp.Diff([][]model.Key{tt.orphans, tt.unproven}, [][]model.Key{got.Orphans, got.Unproven}); diff != "" {
				t.Errorf("orphans, unproven (-want +got):\n%s", diff)
			}
		})
	}
}
