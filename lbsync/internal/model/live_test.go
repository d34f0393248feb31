package model_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/plan"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// live is a Service with one Pod on a strict load balancer.
type live struct {
	*testing.T
	model.Input
	lb *providertest.LoadBalancer
	p  providers.Provider
}

func newLive(t *testing.T) *live {
	node := netip.MustParseAddr("192.0.2.11")
	l := &live{T: t, lb: providertest.NewLoadBalancer(providertest.MemoryCapabilities())}
	l.p = l.lb.Open(providers.Owner{ClusterUID: "c1", Instance: "ns/name"})
	l.Input = model.Input{
		Instance: "lb", Capabilities: l.p.Capabilities(), DrainLimit: time.Minute, Now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
		Service: model.Service{
			ServiceKey: model.ServiceKey{Namespace: "shop", Name: "web"}, On: []string{"lb"}, Admitted: true, Families: []npl.Family{npl.IPv4},
			Ports: []model.ServicePort{{Port: 80, Protocol: providers.TCP, TargetNumber: 8080}},
			VIPs:  map[string][]netip.Addr{"lb": {netip.MustParseAddr("198.51.100.1")}},
		},
		Endpoints: []model.Endpoint{{
			Node: &model.Node{Name: "node-1", UID: "n1", Addresses: []netip.Addr{node}},
			Pod: &model.Pod{Namespace: "shop", Name: "web-1", UID: "u1", Node: "node-1", Ready: true, Mappings: []npl.Mapping{
				{PodPort: 8080, NodeIP: node, NodePort: 61001, Protocol: npl.TCP, Family: npl.IPv4},
			}},
		}},
	}
	return l
}

// settle builds and applies until there is nothing left to do, and returns every set of changes that was made.
func (l *live) settle() (made []providers.Changes) {
	l.Helper()
	for range 5 {
		there := l.lb.State()
		l.Current, l.CurrentVS = map[providers.Key]*providers.Pool{}, map[providers.Key]*providers.VirtualServer{}
		for i := range there.Pools {
			l.Current[there.Pools[i].Key] = &there.Pools[i]
		}
		for i := range there.VirtualServers {
			l.CurrentVS[there.VirtualServers[i].Key] = &there.VirtualServers[i]
		}
		out := model.Build(l.Input)
		changes := plan.Between(there, out.State)
		if changes.Empty() {
			return made
		}
		made = append(made, changes)
		for key, err := range l.p.Apply(l.Context(), changes) {
			if err != nil {
				l.Fatalf("%s: %v", key, err)
			}
		}
		if !plan.Between(l.lb.State(), out.State).Empty() && out.Wake.IsZero() {
			l.Error("nobody comes back for the rest")
		}
	}
	l.Fatal("never settles")
	return nil
}

func (l *live) is(want string) {
	l.Helper()
	s := l.lb.State()
	got := fmt.Sprintf("%q with %d members, %d virtual servers", s.Pools[0].Attached, len(s.Pools[0].Members), len(s.VirtualServers))
	if got != want {
		l.Errorf("%s, want %s", got, want)
	}
}

// From a pool of our own to that of somebody else, to another one, and back: what was there is left before the next is entered.
func TestAttachingLive(t *testing.T) {
	l := newLive(t)
	l.lb.PlantPool("blue")
	l.lb.PlantPool("green")
	l.settle()
	l.is(`"" with 1 members, 1 virtual servers`)
	for _, pool := range []string{"blue", "green"} {
		l.Service.Wishes.Attachments = []annotations.Attachment{{Port: "80", Instance: "lb", Pool: pool}}
		l.settle()
		l.is(fmt.Sprintf("%q with 1 members, 0 virtual servers", pool))
	}
	l.Service.Wishes.Attachments = nil
	l.settle()
	l.is(`"" with 1 members, 1 virtual servers`)
}

// Other addresses are one change of the virtual server that is there, and none of anything else.
func TestOtherVIPsWithoutAnOutage(t *testing.T) {
	l := newLive(t)
	l.settle()
	want := []netip.Addr{netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("2001:db8::2")}
	l.Service.VIPs = map[string][]netip.Addr{"lb": want}
	made := l.settle()
	if len(made) != 1 || len(made[0].Pools) != 0 || len(made[0].VirtualServers) != 1 {
		t.Fatalf("%+v", made)
	}
	if c := made[0].VirtualServers[0]; c.Old == nil || c.New == nil || !slices.Equal(c.New.VIPs, want) {
		t.Errorf("%+v", c)
	}
}
