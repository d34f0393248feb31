package ports

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// Host ports of Pods are nobody else's, whether a container runtime opens them on all addresses or on one, of one family or both: not
// one of them is given, and all other ports of the range are.
func TestNPL66HostPortsOfOtherPodsAreNotGiven(t *testing.T) {
	r := Range{61000, 61009}
	port := func(p npl.Protocol, hostPort uint16, hostIP string) model.ContainerPort {
		ip, _ := netip.ParseAddr(hostIP)
		return model.ContainerPort{Port: 80, Protocol: p, HostPort: hostPort, HostIP: ip}
	}
	m := model.Build(model.Input{Pods: []model.Pod{
		{UID: "a", Ports: []model.ContainerPort{port(npl.TCP, 61001, ""), port(npl.UDP, 61002, "0.0.0.0")}},
		{UID: "b", Ports: []model.ContainerPort{port(npl.TCP, 61003, "192.0.2.9"), port(npl.UDP, 61003, "2001:db8::9"), port(npl.SCTP, 61004, "::")}},
		{UID: "c", Ports: []model.ContainerPort{{Port: 61005, Protocol: npl.TCP, HostPort: 61005}}}, // on the Node's network: what it declares is its host port
		{UID: "done", Terminated: true, Ports: []model.ContainerPort{port(npl.TCP, 61006, "")}},
		{UID: "d", Ports: []model.ContainerPort{port(npl.TCP, 8080, "")}},
	}})
	taken := map[npl.Protocol]map[npl.Family][]uint16{
		npl.TCP:  {npl.IPv4: {61001, 61003, 61005}, npl.IPv6: {61001, 61005}},
		npl.UDP:  {npl.IPv4: {61002}, npl.IPv6: {61003}},
		npl.SCTP: {npl.IPv6: {61004}},
	}
	a := New(r, 0, false)
	a.Exclude(slices.Collect(maps.Keys(m.HostPorts)), epoch)
	for _, p := range protocols {
		for _, f := range []npl.Family{npl.IPv4, npl.IPv6} {
			given := map[uint16]bool{}
			for i := range r.Size() + 1 {
				id := model.ID{PodUID: fmt.Sprint(i), PodPort: 80, Protocol: p, Family: f}
				if a.Allocate([]model.ID{id}, all) {
					k, _ := a.Current(id)
					given[k.NodePort] = true
				}
			}
			for n := r.First; n <= r.Last; n++ {
				if hostPort := slices.Contains(taken[p][f], n); given[n] == hostPort {
					t.Errorf("%d/%s over %s: given %v, host port %v", n, p, f, given[n], hostPort)
				}
			}
		}
	}
}

// What was a host port may still be listed for the Pod that had it, so it rests like any freed port; whoever had it before that Pod has
// no claim to it any more.
func TestFormerHostPortCools(t *testing.T) {
	a := New(Range{61000, 61000}, 0, false)
	mustAllocate(t, a, "a")
	if cooled := a.Exclude([]model.Key{key(61000)}, epoch.Add(cool)); cooled != nil {
		t.Errorf("%v cools while it is a host port", cooled)
	}
	a.Release(key(61000), epoch.Add(cool))
	if cooled := a.Exclude(nil, epoch.Add(2*cool)); !slices.Equal(cooled, []model.Key{key(61000)}) {
		t.Errorf("%v begins to cool", cooled)
	}
	a.Expire(epoch.Add(cool), always)
	if a.Allocate([]model.ID{id("a")}, all) {
		t.Error("the Pod that had the port before it was a host port got it at once")
	}
	a.Expire(epoch.Add(2*cool), always)
	if got := mustAllocate(t, a, "b"); got != 61000 {
		t.Errorf("got %d", got)
	}
}

// A host port that comes and goes outside the range, or while somebody has the port still, is nothing to cool.
func TestFormerHostPortThatNeedNotCool(t *testing.T) {
	a := New(Range{61000, 61000}, 0, false)
	mustAllocate(t, a, "a")
	a.Exclude([]model.Key{key(61000), key(80)}, epoch.Add(cool))
	if cooled := a.Exclude(nil, epoch.Add(cool)); cooled != nil || len(a.Cooling()) > 0 {
		t.Errorf("%v begins to cool; cooling %v", cooled, a.Cooling())
	}
}
