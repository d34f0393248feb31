package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

var (
	now    = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	key    = providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP}
	nodeIP = netip.MustParseAddr("192.0.2.11")
	node   = &Node{Name: "node-1", Addresses: []netip.Addr{nodeIP, netip.MustParseAddr("2001:db8::11")}}
	limit  = 5 * time.Minute
)

// world is a readable Input: Pod n is at nodeIP:61000+n.
type world struct {
	Input
	claims map[Claim][]*Pod
}

func newWorld() *world {
	w := &world{claims: map[Claim][]*Pod{}}
	w.Input = Input{
		Instance: "lb",
		Service: Service{
			ServiceKey: ServiceKey{"shop", "web"}, On: []string{"lb"}, Admitted: true, Families: []npl.Family{npl.IPv4},
			Ports: []ServicePort{{Port: 80, Protocol: providers.TCP, TargetNumber: 8080}},
			VIPs:  map[string][]netip.Addr{"lb": {netip.MustParseAddr("198.51.100.1")}},
		},
		Current:   map[providers.Key]*providers.Pool{},
		CurrentVS: map[providers.Key]*providers.VirtualServer{}, Status: map[providers.Key]map[providers.MemberID]providers.MemberStatus{},
		Capabilities: providertest.MemoryCapabilities(), DrainLimit: limit, Now: now,
		Claimants: func(c Claim, uid string) (out []string) {
			for _, p := range w.claims[c] {
				if p.UID != uid {
					out = append(out, p.ID())
				}
			}
			return out
		},
	}
	return w
}

func (w *world) pod(n int, edit func(*Pod)) *world {
	p := &Pod{
		Namespace: "shop", Name: fmt.Sprintf("web-%d", n), UID: fmt.Sprintf("u%d", n), Node: "node-1", Ready: true,
		Mappings: []npl.Mapping{{PodPort: 8080, NodeIP: nodeIP, NodePort: uint16(61000 + n), Protocol: npl.TCP, Family: npl.IPv4}},
	}
	if edit != nil {
		edit(p)
	}
	w.Endpoints = append(w.Endpoints, Endpoint{Pod: p, Node: node})
	w.claim(p)
	return w
}

func (w *world) claim(p *Pod) {
	for _, c := range Claims(p, node) {
		w.claims[c] = append(w.claims[c], p)
	}
}

// has puts Pod n's member into the pool as it is on the load balancer.
func (w *world) has(n int, state providers.MemberState) *world {
	if w.Current[key] == nil {
		w.Current[key] = &providers.Pool{Key: key, Settings: providers.PoolSettings{Algorithm: providers.LeastConnections}}
	}
	w.Current[key].Members = append(w.Current[key].Members, providers.Member{
		UID: fmt.Sprintf("u%d", n), Address: netip.AddrPortFrom(nodeIP, uint16(61000+n)), State: state,
	})
	return w
}

func (w *world) connections(n, count int) *world {
	w.Status[key] = map[providers.MemberID]providers.MemberStatus{{UID: fmt.Sprintf("u%d", n), Address: netip.AddrPortFrom(nodeIP, uint16(61000+n))}: {Connections: count}}
	return w
}

func (w *world) with(edit func(*world)) *world { edit(w); return w }

func terminating(ago time.Duration) func(*Pod) {
	return func(p *Pod) { p.Terminating, p.Since = true, now.Add(-ago) }
}

func unready(ago time.Duration) func(*Pod) {
	return func(p *Pod) { p.Ready, p.ReadyChanged = false, now.Add(-ago) }
}

// withdrawn takes the mapping off the Pod.
func withdrawn(ago time.Duration) func(*Pod) {
	return func(p *Pod) { p.Mappings, p.Withdrawn = nil, []Withdrawal{{p.Mappings[0], now.Add(-ago)}} }
}

// moved gives the Pod another node port.
func moved(ago time.Duration) func(*Pod) {
	return func(p *Pod) {
		p.Withdrawn = []Withdrawal{{p.Mappings[0], now.Add(-ago)}}
		p.Mappings = slices.Clone(p.Mappings)
		p.Mappings[0].NodePort = 61005
	}
}

func both(edits ...func(*Pod)) func(*Pod) {
	return func(p *Pod) {
		for _, edit := range edits {
			edit(p)
		}
	}
}

// stripped makes a Service as a user's manifest replaces it: nothing of ours is left on it.
func stripped(w *world) { w.Service.Admitted, w.Service.VIPs = false, nil }

const malformed = "entry 0: nonsense"

func TestMembers(t *testing.T) {
	const enabled, draining = providers.Enabled, providers.Draining
	for _, test := range []struct {
		name    string
		world   *world
		want    string // "uid:port state", by address
		refused string // "pod reason"
	}{
		{"ready", newWorld().pod(1, nil), "u1:61001 Enabled", ""},
		{"not ready never enters", newWorld().pod(1, unready(0)), "", ""},
		{"not ready drains", newWorld().pod(1, unready(time.Minute)).has(1, enabled), "u1:61001 Draining", ""},
		{"not ready for longer than the limit", newWorld().pod(1, unready(limit)).has(1, draining), "", ""},
		{"ready again", newWorld().pod(1, nil).has(1, draining), "u1:61001 Enabled", ""},
		{"publishNotReadyAddresses", newWorld().pod(1, unready(0)).pod(2, both(unready(0), terminating(0))).
			with(func(w *world) { w.Service.PublishNotReady = true }), "u1:61001 Enabled, u2:61002 Enabled", ""},
		{"finished", newWorld().pod(1, func(p *Pod) { p.Finished = true }).has(1, enabled), "", ""},

		{"terminating drains", newWorld().pod(1, terminating(time.Second)).pod(2, nil).has(1, enabled), "u1:61001 Draining, u2:61002 Enabled", ""},
		{"terminating, not serving, drains", newWorld().pod(1, both(unready(0), terminating(time.Second))).pod(2, nil).has(1, enabled),
			"u1:61001 Draining, u2:61002 Enabled", ""},
		{"terminating never enters", newWorld().pod(1, terminating(time.Second)).pod(2, nil), "u2:61002 Enabled", ""},
		{"drained", newWorld().pod(1, terminating(time.Second)).pod(2, nil).has(1, draining).connections(1, 0), "u2:61002 Enabled", ""},
		{"one connection left", newWorld().pod(1, terminating(time.Second)).pod(2, nil).has(1, draining).connections(1, 1),
			"u1:61001 Draining, u2:61002 Enabled", ""},
		{"zero connections while still enabled", newWorld().pod(1, terminating(time.Second)).pod(2, nil).has(1, enabled).connections(1, 0),
			"u1:61001 Draining, u2:61002 Enabled", ""},
		{"drain limit", newWorld().pod(1, terminating(limit)).pod(2, nil).has(1, draining).connections(1, 1), "u2:61002 Enabled", ""},
		{"just before the drain limit", newWorld().pod(1, terminating(limit-1)).pod(2, nil).has(1, draining).connections(1, 1),
			"u1:61001 Draining, u2:61002 Enabled", ""},
		{"all terminating: those that serve stay enabled", newWorld().pod(1, terminating(0)).pod(2, both(unready(0), terminating(0))).
			has(1, enabled).has(2, enabled), "u1:61001 Enabled, u2:61002 Draining", ""},
		{"all terminating: those that drain come back", newWorld().pod(1, terminating(0)).has(1, draining).connections(1, 0), "u1:61001 Enabled", ""},
		{"all terminating, nothing there yet", newWorld().pod(1, terminating(0)), "u1:61001 Enabled", ""},
		{"one not ready, one terminating", newWorld().pod(1, unready(0)).pod(2, terminating(0)).has(2, enabled), "u2:61002 Enabled", ""},

		{"no mapping yet", newWorld().pod(1, func(p *Pod) { p.Mappings = nil }), "", "web-1 NotPublished"},
		{"no mapping, not ready: nothing to say", newWorld().pod(1, both(unready(0), func(p *Pod) { p.Mappings = nil })), "", ""},
		{"another protocol", newWorld().pod(1, func(p *Pod) { p.Mappings[0].Protocol = npl.UDP }), "", "web-1 NotPublished"},
		{"another port", newWorld().pod(1, func(p *Pod) { p.Mappings[0].PodPort = 8081 }), "", "web-1 NotPublished"},
		{"another family", newWorld().pod(1, nil).with(func(w *world) { w.Service.Families = []npl.Family{npl.IPv6} }), "", "web-1 NotPublished"},
		{"both families", newWorld().pod(1, func(p *Pod) {
			p.Mappings = append(p.Mappings, npl.Mapping{PodPort: 8080, NodeIP: node.Addresses[1], NodePort: 61001, Protocol: npl.TCP, Family: npl.IPv6})
		}).with(func(w *world) { w.Service.Families = []npl.Family{npl.IPv6, npl.IPv4} }), "u1:61001 Enabled, u1:61001 Enabled", ""},
		{"named port, per Pod", newWorld().
			pod(1, func(p *Pod) { p.Ports = []ContainerPort{{"http", providers.TCP, 8080}} }).
			pod(2, func(p *Pod) {
				p.Ports, p.Mappings[0].PodPort = []ContainerPort{{"http", providers.UDP, 1}, {"http", providers.TCP, 9090}}, 9090
			}).
			pod(3, nil).
			with(func(w *world) { w.Service.Ports[0].TargetNumber, w.Service.Ports[0].TargetName = 0, "http" }),
			"u1:61001 Enabled, u2:61002 Enabled", "web-3 TargetPortUnresolved"},

		{"another Node's address", newWorld().pod(1, func(p *Pod) { p.Mappings[0].NodeIP = netip.MustParseAddr("192.0.2.99") }).has(1, enabled),
			"", "web-1 ForeignNodeAddress"},
		{"unknown Node: does not enter", newWorld().pod(1, nil).with(func(w *world) { w.Endpoints[0].Node = nil }), "", "web-1 NodeUnknown"},
		{"unknown Node: stays", newWorld().pod(1, nil).has(1, enabled).with(func(w *world) { w.Endpoints[0].Node = nil }), "u1:61001 Enabled", ""},
		{"withdrawn from a live Pod drains", newWorld().pod(1, withdrawn(time.Second)).pod(2, nil).has(1, enabled).has(2, enabled),
			"u1:61001 Draining, u2:61002 Enabled", "web-1 NotPublished"},
		{"withdrawn: drained", newWorld().pod(1, withdrawn(time.Second)).pod(2, nil).has(1, draining).connections(1, 0), "u2:61002 Enabled", "web-1 NotPublished"},
		{"withdrawn: until the grace is over", newWorld().pod(1, withdrawn(WithdrawGrace)).pod(2, nil).has(1, draining).connections(1, 1),
			"u2:61002 Enabled", "web-1 NotPublished"},
		{"withdrawn from all Pods: better than an empty pool", newWorld().pod(1, withdrawn(time.Second)).pod(2, both(unready(0), withdrawn(time.Second))).
			has(1, enabled).has(2, enabled), "u1:61001 Enabled, u2:61002 Draining", "web-1 NotPublished"},
		{"withdrawn: never enters", newWorld().pod(1, withdrawn(time.Second)), "", "web-1 NotPublished"},
		{"withdrawn: gone when another Pod claims it", newWorld().pod(1, withdrawn(time.Second)).has(1, enabled).
			pod(2, func(p *Pod) { p.Mappings[0].NodePort = 61001 }), "u2:61001 Enabled", "web-1 NotPublished"},
		{"withdrawn: another port instead", newWorld().pod(1, moved(time.Second)).has(1, enabled), "u1:61001 Draining, u1:61005 Enabled", ""},
		{"contested: neither", newWorld().pod(1, nil).pod(2, func(p *Pod) { p.Mappings[0].NodePort = 61001 }).pod(3, nil).has(1, enabled),
			"u3:61003 Enabled", "web-1 Contested, web-2 Contested"},
		{"contested by a Pod of another Service", newWorld().pod(1, nil).has(1, enabled).with(func(w *world) {
			w.claim(&Pod{Namespace: "other", Name: "thief", UID: "x", Mappings: w.Endpoints[0].Pod.Mappings})
		}), "", "web-1 Contested"},
		{"contested by a finished Pod", newWorld().pod(1, nil).with(func(w *world) {
			w.claim(&Pod{Namespace: "other", Name: "old", UID: "x", Finished: true, Mappings: w.Endpoints[0].Pod.Mappings})
		}), "u1:61001 Enabled", ""},
		{"one node port for two of its own ports", newWorld().pod(1, func(p *Pod) {
			p.Mappings = append(p.Mappings, npl.Mapping{PodPort: 8081, NodeIP: nodeIP, NodePort: 61001, Protocol: npl.TCP, Family: npl.IPv4})
		}), "", "web-1 Contested"},

		{"malformed: the last good member stays", newWorld().pod(1, func(p *Pod) { p.Mappings, p.Malformed = nil, malformed }).has(1, enabled),
			"u1:61001 Enabled", "web-1 MalformedAnnotation"},
		{"malformed: and drains", newWorld().pod(1, both(terminating(0), unready(0), func(p *Pod) { p.Mappings, p.Malformed = nil, malformed })).has(1, enabled),
			"u1:61001 Draining", "web-1 MalformedAnnotation"},
		{"malformed: nothing to keep", newWorld().pod(1, func(p *Pod) { p.Mappings, p.Malformed = nil, malformed }), "", "web-1 MalformedAnnotation"},
		{"malformed: until another Pod claims the port", newWorld().pod(1, func(p *Pod) { p.Mappings, p.Malformed = nil, malformed }).
			has(1, enabled).pod(2, func(p *Pod) { p.Mappings[0].NodePort = 61001 }), "u2:61001 Enabled", "web-1 MalformedAnnotation"},
		{"malformed: what can be read counts", newWorld().pod(1, func(p *Pod) { p.Malformed, p.Mappings[0].NodePort = malformed, 61005 }).has(1, enabled),
			"u1:61005 Enabled", "web-1 MalformedAnnotation"},
		{"malformed: disturbs nobody else", newWorld().pod(1, func(p *Pod) { p.Mappings, p.Malformed = nil, malformed }).pod(2, nil),
			"u2:61002 Enabled", "web-1 MalformedAnnotation"},

		{"full: who is in stays in", newWorld().pod(1, nil).pod(2, nil).pod(3, nil).has(3, enabled).
			with(func(w *world) { w.Capabilities.MaxMembers = 2 }), "u1:61001 Enabled, u3:61003 Enabled", "web-2 PoolFull"},
		{"deleting", newWorld().pod(1, nil).has(1, enabled).with(func(w *world) { w.Service.Deleting = true }), "no pool", ""},
		{"not admitted", newWorld().pod(1, nil).with(func(w *world) { w.Service.Admitted = false }), "no pool", ""},
		{"not admitted any more: members follow", newWorld().pod(1, nil).pod(2, nil).has(1, enabled).with(stripped), "u1:61001 Enabled, u2:61002 Enabled", ""},
		{"not admitted any more, and deleting", newWorld().pod(1, nil).has(1, enabled).with(stripped).with(func(w *world) { w.Service.Deleting = true }), "no pool", ""},
		{"not admitted any more, and managed by another", newWorld().pod(1, nil).has(1, enabled).with(stripped).
			with(func(w *world) { w.Service.ManagedByOther = true }), "no pool", ""},
		{"not admitted, something of another port is there", newWorld().pod(1, nil).has(1, enabled).with(stripped).
			with(func(w *world) { w.Service.Ports[0].Port = 81 }), "no pool", ""},
		{"not ours", newWorld().pod(1, nil).with(func(w *world) { w.Service.On = nil }), "no pool", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			out := Build(test.world.Input)
			got, refused := "no pool", []string{}
			if len(out.State.Pools) > 0 {
				var members []string
				for _, m := range out.State.Pools[0].Members {
					members = append(members, fmt.Sprintf("%s:%d %s", m.UID, m.Address.Port(), m.State))
				}
				got = strings.Join(members, ", ")
			}
			for _, r := range out.Refusals {
				refused = append(refused, r.PodName()+" "+string(r.Reason))
			}
			if got != test.want || strings.Join(refused, ", ") != test.refused {
				t.Errorf("members %q, refused %v; want %q, %q", got, refused, test.want, test.refused)
			}
		})
	}
}

func TestWake(t *testing.T) {
	w := newWorld().pod(1, terminating(time.Minute)).pod(2, unready(2*time.Minute)).pod(3, nil).has(1, providers.Enabled).has(2, providers.Enabled)
	if got, want := Build(w.Input).Wake, now.Add(-2*time.Minute).Add(limit); !got.Equal(want) {
		t.Errorf("Wake %s, want %s, when the first drain limit is reached", got, want)
	}
	if got := Build(newWorld().pod(1, nil).Input).Wake; !got.IsZero() {
		t.Errorf("Wake %s with nothing draining", got)
	}
}

func TestPortsAndVirtualServers(t *testing.T) {
	w := newWorld().pod(1, nil)
	w.Capabilities.Protocols = []providers.Protocol{providers.TCP}
	w.Service.Ports = append(w.Service.Ports, ServicePort{Port: 53, Protocol: providers.UDP, TargetNumber: 53})
	out := Build(w.Input)
	if len(out.Ports) != 2 || !out.Ports[0].Unsupported || out.Ports[1].Unsupported || len(out.State.Pools) != 1 || len(out.State.VirtualServers) != 1 {
		t.Errorf("UDP beside TCP: ports %+v, state\n%s", out.Ports, providertest.Render(out.State))
	}

	w = newWorld().pod(1, nil).has(1, providers.Enabled)
	w.Service.VIPs, w.Service.Wishes.Kept.Pool = nil, true
	w.CurrentVS[key] = &providers.VirtualServer{Key: key, VIPs: []netip.Addr{netip.MustParseAddr("198.51.100.7")}, Port: 80}
	out = Build(w.Input)
	if len(out.State.VirtualServers) != 1 || out.State.VirtualServers[0].VIPs[0].String() != "198.51.100.7" {
		t.Errorf("an assignment that is lost took the virtual server with it:\n%s", providertest.Render(out.State))
	}
	if out.State.Pools[0].Settings.Algorithm != providers.LeastConnections {
		t.Errorf("a malformed algorithm changed the pool to %s", out.State.Pools[0].Settings.Algorithm)
	}
}

// Whoever takes our finalizer off a Service does not take it off the load balancer; nor does he put anything new there.
func TestAdmissionLost(t *testing.T) {
	w := newWorld().pod(1, nil).has(1, providers.Enabled).with(stripped)
	w.Service.Ports = append(w.Service.Ports, ServicePort{Port: 443, Protocol: providers.TCP, TargetNumber: 8080})
	there := netip.MustParseAddr("198.51.100.7")
	w.CurrentVS[key] = &providers.VirtualServer{Key: key, VIPs: []netip.Addr{there}, Port: 80}
	for _, assigned := range [][]netip.Addr{nil, {netip.MustParseAddr("198.51.100.8")}} {
		w.Service.VIPs = map[string][]netip.Addr{"lb": assigned}
		out := Build(w.Input)
		if len(out.Ports) != 1 || len(out.State.Pools) != 1 || len(out.State.VirtualServers) != 1 || out.State.VirtualServers[0].VIPs[0] != there {
			t.Errorf("with %v assigned: ports %+v, state\n%s", assigned, out.Ports, providertest.Render(out.State))
		}
	}
	delete(w.CurrentVS, key)
	if out := Build(w.Input); len(out.State.VirtualServers) != 0 {
		t.Errorf("a new virtual server without a finalizer:\n%s", providertest.Render(out.State))
	}
}

// Whatever the Pods are like: the answer is stable once it is on the load balancer, members are unique and rightful, and
// a pool is not without an enabled member while some selected Pod serves at an address of its own.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.Service.PublishNotReady = rapid.IntRange(0, 4).Draw(t, "publishNotReady") == 0
		ages := rapid.SampledFrom([]time.Duration{0, time.Minute, limit - 1, limit, 2 * limit})
		for n := range rapid.IntRange(0, 6).Draw(t, "pods") {
			w.pod(n, func(p *Pod) {
				p.Ready, p.ReadyChanged = rapid.Bool().Draw(t, "ready"), now.Add(-ages.Draw(t, "ready for"))
				p.Terminating = rapid.Bool().Draw(t, "terminating")
				p.Since = now.Add(-ages.Draw(t, "terminating for"))
				p.Finished = rapid.IntRange(0, 5).Draw(t, "finished") == 0
				p.Mappings[0].NodePort = uint16(rapid.IntRange(61000, 61008).Draw(t, "port"))
				if rapid.IntRange(0, 4).Draw(t, "malformed") == 0 {
					p.Mappings, p.Malformed = nil, malformed
				}
			})
			if rapid.Bool().Draw(t, "is there") {
				w.has(n, rapid.SampledFrom([]providers.MemberState{providers.Enabled, providers.Draining}).Draw(t, "as"))
			}
		}
		first := Build(w.Input)
		pool := first.State.Pools[0]

		again := w.Input
		again.Current = map[providers.Key]*providers.Pool{key: &pool}
		if second := Build(again); providertest.Render(second.State) != providertest.Render(first.State) {
			t.Fatalf("not stable: first\n%sthen\n%s", providertest.Render(first.State), providertest.Render(second.State))
		}

		serving, enabled, seen := 0, 0, map[netip.AddrPort]bool{}
		for _, e := range w.Endpoints {
			if p := e.Pod; p.Ready && !p.Finished && p.Malformed == "" && len(w.claims[Claim{addrPort(p.Mappings[0]), npl.TCP}]) == 1 {
				serving++
			}
		}
		for _, m := range pool.Members {
			at := slices.IndexFunc(w.Endpoints, func(e Endpoint) bool { return e.Pod.UID == m.UID })
			if at < 0 || w.Endpoints[at].Pod.Finished || seen[m.Address] {
				t.Fatalf("member %+v has no business in\n%s", m, providertest.Render(pool))
			}
			seen[m.Address] = true
			if m.State == providers.Enabled {
				enabled++
				if p := w.Endpoints[at].Pod; !p.Ready && !w.Service.PublishNotReady {
					t.Fatalf("%s is enabled and not ready", p.ID())
				}
			}
		}
		if serving > 0 && enabled == 0 {
			t.Fatalf("%d Pods serve and the pool has none enabled:\n%s", serving, providertest.Render(pool))
		}
	})
}

// Each sentence holds for a Pod that is a member at another of its addresses, too.
func TestRefusalSentence(t *testing.T) {
	foreign := func(p *Pod) { p.Mappings[0].NodeIP = netip.MustParseAddr("192.0.2.99") }
	for _, test := range []struct {
		world *world
		want  string
	}{
		{newWorld().pod(1, func(p *Pod) { p.Mappings = nil }),
			"not a member of the pool shop/web:80/TCP: annotation nodeportlocal.antrea.io has no TCP mapping of Pod port 8080 for IPv4"},
		{newWorld().pod(1, foreign),
			"not a member of the pool shop/web:80/TCP with this address: 192.0.2.99:61001 is not on an address of the Pod's Node node-1 (192.0.2.11, 2001:db8::11)"},
		{newWorld().pod(1, nil).pod(2, nil).with(func(w *world) { w.Capabilities.MaxMembers = 1 }),
			"not a member of the pool shop/web:80/TCP with this address: 192.0.2.11:61002 finds no room, the pool has 1 members, the most that memory takes"},
		{newWorld().pod(1, func(p *Pod) { p.Mappings, p.Malformed = nil, malformed }),
			"its annotation cannot be read in full for the pool shop/web:80/TCP: entry 0: nonsense; its last good members, if any, stay"},
	} {
		if got := Build(test.world.Input).Refusals[0].Sentence(); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
