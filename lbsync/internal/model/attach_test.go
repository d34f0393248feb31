package model

import (
	"fmt"
	"testing"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

// attach puts a port into a pool of somebody else.
func attach(port, instance, pool string) func(*world) {
	return func(w *world) {
		w.Service.Wishes.Attachments = append(w.Service.Wishes.Attachments, annotations.Attachment{Port: port, Instance: instance, Pool: pool})
	}
}

func twoPorts(w *world) {
	w.Service.Ports = []ServicePort{
		{Name: "http", Port: 80, Protocol: providers.TCP, TargetNumber: 8080},
		{Name: "quic", Port: 443, Protocol: providers.UDP, TargetNumber: 8443},
		{Name: "https", Port: 443, Protocol: providers.TCP, TargetNumber: 8443},
	}
}

func TestAttachedPools(t *testing.T) {
	for _, test := range []struct {
		name  string
		world *world
		want  string // "port/protocol=pool"
	}{
		{"by number", newWorld().with(twoPorts).with(attach("80", "lb", "blue")), "[80/TCP=blue]"},
		{"by name", newWorld().with(twoPorts).with(attach("https", "lb", "blue")), "[443/TCP=blue]"},
		{"a number that two ports have means the first", newWorld().with(twoPorts).with(attach("443", "lb", "blue")), "[443/UDP=blue]"},
		{"several", newWorld().with(twoPorts).with(attach("quic", "lb", "blue")).with(attach("http", "lb", "green")), "[80/TCP=green 443/UDP=blue]"},
		{"on another load balancer", newWorld().with(twoPorts).with(attach("80", "other", "blue")), "[]"},
		{"one here, one there", newWorld().with(twoPorts).with(attach("80", "other", "blue")).with(attach("443", "lb", "blue")), "[443/UDP=blue]"},
		{"a port that is not there", newWorld().with(twoPorts).with(attach("81", "lb", "blue")), "[]"},
		{"twice", newWorld().with(twoPorts).with(attach("80", "lb", "blue")).with(attach("http", "lb", "green")), "[80/TCP=blue]"},
	} {
		out := Build(test.world.Input)
		got := []string{}
		for i, p := range out.State.Pools {
			got = append(got, fmt.Sprintf("%d/%s=%s", p.Key.Port, p.Key.Protocol, p.Attached))
			if !p.Settings.Equal(providers.PoolSettings{}) || out.Ports[i].Attached != p.Attached || out.Ports[i].Key != p.Key {
				t.Errorf("%s: pool %+v, port %+v", test.name, p, out.Ports[i])
			}
		}
		if fmt.Sprint(got) != test.want || len(out.State.VirtualServers) != 0 || len(out.Ports) != len(got) {
			t.Errorf("%s: %v, want %s; virtual servers %v, ports %v", test.name, got, test.want, out.State.VirtualServers, out.Ports)
		}
	}
}

func TestAttachedMembers(t *testing.T) {
	w := newWorld().pod(1, func(p *Pod) { p.Weight = 3 }).pod(2, terminating(0)).with(attach("80", "lb", "blue")).has(2, providers.Enabled)
	w.Current[key].Attached = "blue"
	out := Build(w.Input)
	if got, want := members(out), "u1:61001 Enabled, u2:61002 Draining"; got != want || out.State.Pools[0].Members[0].Weight != 3 || cannot(out) != "" {
		t.Errorf("%q, want %q; %q", got, want, cannot(out))
	}
	w.Service.Wishes.Pool.Algorithm = providers.LeastConnections
	if got, want := cannot(Build(w.Input)), `settings are for pools of our own, so pool "blue" keeps those that it has`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestMisattached(t *testing.T) {
	w := newWorld().with(twoPorts).with(attach("81", "lb", "blue")).with(attach("80", "lb", "blue")).with(attach("http", "lb", "green")).
		with(attach("80", "other", "blue"))
	var got []string
	for _, p := range w.Service.Misattached() {
		got = append(got, p.Key+" "+p.Value+": "+p.Message)
	}
	want := []string{
		`nplbridge.io/pool 81=lb:blue: the Service has no port "81"; write the number or the name of one of its ports`,
		`nplbridge.io/pool http=lb:green: port 80/TCP is put into blue on lb already; write one pool for each port and provider, and names instead of numbers ` +
			`where two ports have the same number`,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}
