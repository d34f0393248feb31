package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
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

// memberCase is one world and the members of its pool, with those who are refused.
type memberCase struct {
	name    string
	world   *world
	want    string // "uid:port state", by address; "no pool"
	refused string // "pod reason"
}

func checkMembers(t *testing.T, cases []memberCase) {
	t.Helper()
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			out := Build(test.world.Input)
			if got := members(out); got != test.want {
				t.Errorf("members %q, want %q", got, test.want)
			}
			if got := refused(out); got != test.refused {
				t.Errorf("refused %q, want %q", got, test.refused)
			}
		})
	}
}

func members(out Output) string {
	if len(out.State.Pools) == 0 {
		return "no pool"
	}
	var fields []string
	for _, m := range out.State.Pools[0].Members {
		fields = append(fields, fmt.Sprintf("%s:%d %s", m.UID, m.Address.Port(), m.State))
	}
	return strings.Join(fields, ", ")
}

func refused(out Output) string {
	var fields []string
	for _, r := range out.Refusals {
		fields = append(fields, r.PodName()+" "+string(r.Reason))
	}
	return strings.Join(fields, ", ")
}

// lost prints the losses as "uid:port", by address.
func lost(out Output) string {
	var fields []string
	for _, l := range out.Losses {
		fields = append(fields, fmt.Sprintf("%s:%d", l.Member.UID, l.Member.Address.Port()))
	}
	return strings.Join(fields, ", ")
}

// cannot prints what the first port cannot have; "unserved: ..." when it is not served at all.
func cannot(out Output) string {
	if out.Ports[0].Unsupported {
		return "unserved: " + out.Ports[0].Cannot
	}
	return out.Ports[0].Cannot
}

// apply builds, and makes that what is on the load balancer. Members that drained before still do what they did.
func (w *world) apply() Output {
	out := Build(w.Input)
	w.Current, w.CurrentVS = map[providers.Key]*providers.Pool{}, map[providers.Key]*providers.VirtualServer{}
	for i := range out.State.Pools {
		w.Current[out.State.Pools[i].Key] = &out.State.Pools[i]
	}
	for i := range out.State.VirtualServers {
		w.CurrentVS[out.State.VirtualServers[i].Key] = &out.State.VirtualServers[i]
	}
	return out
}

// onNode puts the latest Pod on a Node.
func (w *world) onNode(n *Node) *world {
	e := &w.Endpoints[len(w.Endpoints)-1]
	e.Node, e.Pod.Node = n, n.Name
	return w
}

// fate says what became of Pods that are not selected.
func (w *world) fate(of map[string]Fate) *world {
	w.Fate = func(uid string) Fate { return of[uid] }
	return w
}

func TestWantedAtAll(t *testing.T) {
	const enabled = providers.Enabled
	checkMembers(t, []memberCase{
		{"deleting", newWorld().pod(1, nil).has(1, enabled).with(func(w *world) { w.Service.Deleting = true }), "no pool", ""},
		{"not admitted", newWorld().pod(1, nil).with(func(w *world) { w.Service.Admitted = false }), "no pool", ""},
		{"not admitted any more: members follow", newWorld().pod(1, nil).pod(2, nil).has(1, enabled).with(stripped), "u1:61001 Enabled, u2:61002 Enabled", ""},
		{"not admitted any more, and deleting", newWorld().pod(1, nil).has(1, enabled).with(stripped).with(func(w *world) { w.Service.Deleting = true }), "no pool", ""},
		{"not admitted any more, and managed by another", newWorld().pod(1, nil).has(1, enabled).with(stripped).
			with(func(w *world) { w.Service.ManagedByOther = true }), "no pool", ""},
		{"not admitted, something of another port is there", newWorld().pod(1, nil).has(1, enabled).with(stripped).
			with(func(w *world) { w.Service.Ports[0].Port = 81 }), "no pool", ""},
		{"not ours", newWorld().pod(1, nil).with(func(w *world) { w.Service.On = nil }), "no pool", ""},
	})
}

func TestPoolFull(t *testing.T) {
	const enabled = providers.Enabled
	checkMembers(t, []memberCase{
		{"full: who is in stays in", newWorld().pod(1, nil).pod(2, nil).pod(3, nil).has(3, enabled).
			with(func(w *world) { w.Capabilities.MaxMembers = 2 }), "u1:61001 Enabled, u3:61003 Enabled", "web-2 PoolFull"},
		{"full: who only drains gives way", newWorld().pod(1, terminating(0)).pod(2, nil).pod(3, nil).has(1, enabled).has(2, enabled).
			with(func(w *world) { w.Capabilities.MaxMembers = 2 }), "u2:61002 Enabled, u3:61003 Enabled", ""},
	})
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

// Each sentence holds for a Pod that is a member at another of its addresses, too.
func TestRefusalSentence(t *testing.T) {
	foreign := func(p *Pod) { p.Mappings[0].NodeIP = netip.MustParseAddr("192.0.2.99") }
	for _, test := range []struct {
		world *world
		want  string
	}{
		{newWorld().pod(1, func(p *Pod) { p.Mappings = nil }),
			"not a member of the pool shop/web:80/TCP: annotation nodeportlocal.antrea.io has no TCP mapping of Pod port 8080 for IPv4; see that npl-agent runs on Node node-1, " +
				"and that the Service's annotation nodeportlocal.antrea.io/enabled is \"true\""},
		{newWorld().pod(1, foreign),
			"not a member of the pool shop/web:80/TCP with this address: 192.0.2.99:61001 is not on an address of the Pod's Node node-1 (192.0.2.11, 2001:db8::11); " +
				"remove the annotation nodeportlocal.antrea.io from the Pod, npl-agent writes it anew"},
		{newWorld().pod(1, nil).pod(2, nil).with(func(w *world) { w.Capabilities.MaxMembers = 1 }),
			"not a member of the pool shop/web:80/TCP with this address: 192.0.2.11:61002 finds no room, the pool has 1 members, the most that memory takes; " +
				"run fewer Pods behind this Service, or spread them over several"},
		{newWorld().pod(1, func(p *Pod) { p.Mappings, p.Malformed = nil, malformed }),
			"its annotation cannot be read in full for the pool shop/web:80/TCP: entry 0: nonsense; its last good members, if any, stay"},
		{newWorld().pod(1, func(p *Pod) { p.Problems = []annotations.Problem{{Key: annotations.Weight, Message: "not a weight"}} }),
			"annotation nplbridge.io/weight: not a weight; what it said last stays"},
	} {
		if got := Build(test.world.Input).Refusals[0].Sentence(); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
