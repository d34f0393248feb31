package model

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

var ages = rapid.SampledFrom([]time.Duration{0, time.Second, WithdrawGrace, time.Minute, limit - 1, limit, 2 * limit})

func often(t *rapid.T, what string) bool { return rapid.IntRange(0, 3).Draw(t, what) < 3 }

func seldom(t *rapid.T, what string) bool { return rapid.IntRange(0, 5).Draw(t, what) == 5 }

// drawWorld draws three Nodes, up to six Pods on them in any state, and a load balancer that has any of their members, of any source.
func drawWorld(t *rapid.T) *world {
	w := newWorld()
	w.Service.Source = rapid.SampledFrom(annotations.Sources()).Draw(t, "source")
	w.Service.Ports[0].NodePort = nodePort
	w.Service.PublishNotReady = seldom(t, "publishNotReady")
	w.Service.LocalOnly = rapid.Bool().Draw(t, "local only")
	w.PortRange = PortRange{61000, 61007}
	w.Capabilities.MaxMembers = rapid.SampledFrom([]int{0, 0, 0, 1, 2, 4}).Draw(t, "most members")
	if rapid.Bool().Draw(t, "says nothing of health") {
		w.Capabilities.Features = nil
	}
	var gone [3]bool
	for n := range 3 {
		gone[n] = seldom(t, "Node gone")
		if !gone[n] {
			w.Nodes = append(w.Nodes, drawNode(t, n))
		}
	}
	for n := range rapid.IntRange(0, 6).Draw(t, "Pods") {
		on := rapid.IntRange(0, 2).Draw(t, "on Node")
		e := Endpoint{Pod: drawPod(t, n, on), NodeGone: gone[on]}
		if at := slices.IndexFunc(w.Nodes, func(n *Node) bool { return n.Name == e.Pod.Node }); at >= 0 && !seldom(t, "Node not known") {
			e.Node = w.Nodes[at]
		}
		w.Endpoints = append(w.Endpoints, e)
		for _, c := range Claims(e.Pod, e.Node) {
			w.claims[c] = append(w.claims[c], e.Pod)
		}
	}
	for n := range rapid.IntRange(0, 3).Draw(t, "Pods that are not selected") {
		e := Endpoint{Pod: drawPod(t, 7+n, n), NodeGone: gone[n]}
		if at := slices.IndexFunc(w.Nodes, func(n *Node) bool { return n.Name == e.Pod.Node }); at >= 0 && !seldom(t, "Node not known") {
			e.Node = w.Nodes[at]
		}
		w.Deselected = append(w.Deselected, Deselected{e, now.Add(-ages.Draw(t, "not selected for"))})
		for _, c := range Claims(e.Pod, e.Node) {
			w.claims[c] = append(w.claims[c], e.Pod)
		}
	}
	w.drawLoadBalancer(t)
	fates := map[string]Fate{}
	for n := 7; n < 10; n++ {
		fates[fmt.Sprintf("u%d", n)] = rapid.SampledFrom([]Fate{Gone, Present, Lost}).Draw(t, "fate")
	}
	for _, d := range w.Deselected {
		fates[d.Pod.UID] = Present
	}
	since := now.Add(-ages.Draw(t, "draining for"))
	w.DrainingSince = func(providers.Key, providers.MemberID) time.Time { return since }
	return w.fate(fates)
}

func drawNode(t *rapid.T, n int) *Node {
	return machine(n, func(m *Node) {
		m.NotReady, m.ReadyChanged = seldom(t, "Node not ready"), now.Add(-ages.Draw(t, "Node changed"))
		m.Draining = seldom(t, "Node draining")
		m.Excluded = seldom(t, "Node excluded")
	})
}

func drawPod(t *rapid.T, n, on int) *Pod {
	address := machine(on).Internal[0]
	p := &Pod{
		Namespace: "shop", Name: fmt.Sprintf("web-%d", n), UID: fmt.Sprintf("u%d", n), Node: machine(on).Name,
		IPs:   []netip.Addr{podIP(rapid.IntRange(0, 9).Draw(t, "Pod IP"))},
		Ready: often(t, "ready"), ReadyChanged: now.Add(-ages.Draw(t, "ready for")),
		Terminating: seldom(t, "terminating"), Since: now.Add(-ages.Draw(t, "terminating for")),
		Finished: seldom(t, "finished"), Weight: uint8(rapid.IntRange(0, 3).Draw(t, "weight")),
	}
	if seldom(t, "address of another Node") {
		address = machine((on + 1) % 3).Internal[0]
	}
	mapping := npl.Mapping{PodPort: 8080, NodeIP: address, NodePort: uint16(rapid.IntRange(61000, 61008).Draw(t, "node port")), Protocol: npl.TCP, Family: npl.IPv4}
	switch rapid.IntRange(0, 7).Draw(t, "annotation") {
	case 0:
		p.Malformed = malformed
	case 1:
		p.Withdrawn = []Withdrawal{{mapping, now.Add(-ages.Draw(t, "withdrawn for"))}}
	case 2: // none
	default:
		p.Mappings = []npl.Mapping{mapping}
	}
	return p
}

// drawLoadBalancer puts any members into the pool, each address once.
func (w *world) drawLoadBalancer(t *rapid.T) {
	candidates := map[netip.AddrPort]string{}
	for n := range 3 {
		candidates[netip.AddrPortFrom(machine(n).Internal[0], nodePort)] = machine(n).UID
		candidates[netip.AddrPortFrom(machine(n).Internal[0], uint16(61000+n))] = fmt.Sprintf("u%d", 7+n) // Pods that are not selected
	}
	all := slices.Clone(w.Endpoints)
	for _, d := range w.Deselected {
		all = append(all, d.Endpoint)
	}
	for _, e := range all {
		candidates[netip.AddrPortFrom(e.Pod.IPs[0], 8080)] = e.Pod.UID
		for _, m := range e.Pod.Mappings {
			candidates[addrPort(m)] = e.Pod.UID
		}
		for _, wd := range e.Pod.Withdrawn {
			candidates[addrPort(wd.Mapping)] = e.Pod.UID
		}
	}
	w.Status[key] = map[providers.MemberID]providers.MemberStatus{}
	addresses := make([]netip.AddrPort, 0, len(candidates))
	for a := range candidates {
		addresses = append(addresses, a)
	}
	slices.SortFunc(addresses, netip.AddrPort.Compare)
	for _, a := range addresses {
		if !rapid.Bool().Draw(t, "is there") || w.Capabilities.MaxMembers > 0 && w.Current[key] != nil && len(w.Current[key].Members) >= w.Capabilities.MaxMembers {
			continue
		}
		m := providers.Member{UID: candidates[a], Address: a, State: rapid.SampledFrom([]providers.MemberState{providers.Enabled, providers.Draining}).Draw(t, "as")}
		w.hasMember(m)
		w.drawStatus(t, m.ID())
	}
}

func (w *world) drawStatus(t *rapid.T, id providers.MemberID) {
	if often(t, "status known") {
		w.Status[key][id] = providers.MemberStatus{
			Connections: rapid.IntRange(-1, 1).Draw(t, "connections"),
			Health:      rapid.SampledFrom([]providers.Health{providers.HealthUnknown, providers.HealthUp, providers.HealthUp, providers.HealthDown}).Draw(t, "health"),
		}
	}
}

// good reports whether a Pod serves and the source gives it an address that is its own.
func (w *world) good(e Endpoint) bool {
	p := e.Pod
	if p.Finished || e.NodeGone || !w.Service.PublishNotReady && (!p.Ready || p.Terminating) {
		return false
	}
	switch w.Service.Source {
	case annotations.ClusterIP:
		return true
	case annotations.NodePort:
		at := slices.IndexFunc(w.Nodes, func(n *Node) bool { return n.Name == p.Node })
		return at >= 0 && !w.Nodes[at].Excluded
	default:
		return len(p.Mappings) == 1 && e.Node != nil && e.Node.Has(p.Mappings[0].NodeIP) && w.PortRange.has(p.Mappings[0].NodePort) &&
			len(w.claims[Claim{addrPort(p.Mappings[0]), npl.TCP}]) == 1
	}
}

func enabledOf(p providers.Pool) (out []providers.MemberID) {
	for _, m := range p.Members {
		if m.State == providers.Enabled {
			out = append(out, m.ID())
		}
	}
	return out
}

// sound checks what holds of every answer.
func (w *world) sound(t *rapid.T, out Output) {
	pool := out.State.Pools[0]
	if !slices.IsSortedFunc(pool.Members, providers.CompareMembers) {
		t.Fatalf("not sorted:\n%s", providertest.Render(pool))
	}
	if err := w.Capabilities.CheckPool(pool); err != nil {
		t.Fatalf("%v:\n%s", err, providertest.Render(pool))
	}
	seen := map[netip.AddrPort]bool{}
	for _, m := range pool.Members {
		if seen[m.Address] {
			t.Fatalf("two members at %s", m.Address)
		}
		seen[m.Address] = true
		if others := w.Claimants(Claim{m.Address, npl.TCP}, m.UID); len(others) > 0 {
			t.Fatalf("%s at %s, which %v claims", m.UID, m.Address, others)
		}
		if m.State == providers.Draining && (w.Current[key] == nil || !slices.ContainsFunc(w.Current[key].Members, func(o providers.Member) bool { return o.ID() == m.ID() })) {
			t.Fatalf("%s at %s enters to drain", m.UID, m.Address)
		}
		at := slices.IndexFunc(w.Endpoints, func(e Endpoint) bool { return e.Pod.UID == m.UID })
		switch {
		case at < 0 && m.UID[0] == 'u':
			w.lingers(t, pool, m)
		case at < 0:
		case w.Endpoints[at].Pod.Finished || w.Endpoints[at].NodeGone:
			t.Fatalf("%s is a member and gone", m.UID)
		case m.State == providers.Enabled && !w.Endpoints[at].Pod.Ready && !w.Service.PublishNotReady:
			t.Fatalf("%s is enabled and not ready:\n%s", m.UID, providertest.Render(pool))
		}
	}
	if slices.ContainsFunc(w.Endpoints, w.good) && len(enabledOf(pool)) == 0 {
		t.Fatalf("Pods serve and the pool has none enabled:\n%s", providertest.Render(pool))
	}
	for _, l := range out.Losses {
		at := slices.IndexFunc(w.Endpoints, func(e Endpoint) bool { return e.Pod.UID == l.Member.UID })
		lent := at >= 0 && slices.ContainsFunc(w.Endpoints[at].Pod.Withdrawn, func(w Withdrawal) bool { return addrPort(w.Mapping) == l.Member.Address })
		if slices.Contains(enabledOf(pool), l.Member) && !lent || len(w.Claimants(Claim{l.Member.Address, npl.TCP}, l.Member.UID)) > 0 || l.Why == "" {
			t.Fatalf("no loss: %+v in\n%s", l, providertest.Render(pool))
		}
	}
}

// lingers checks that a member may be there though the Service does not select its Pod.
func (w *world) lingers(t *rapid.T, pool providers.Pool, m providers.Member) {
	at := slices.IndexFunc(w.Deselected, func(d Deselected) bool { return d.Pod.UID == m.UID })
	if at < 0 {
		t.Fatalf("%s is a member and not selected", m.UID)
	}
	d, p := w.Deselected[at], w.Deselected[at].Pod
	leads := slices.ContainsFunc(p.Mappings, func(n npl.Mapping) bool { return addrPort(n) == m.Address }) ||
		slices.ContainsFunc(p.Withdrawn, func(o Withdrawal) bool { return addrPort(o.Mapping) == m.Address && w.Now.Sub(o.At) < WithdrawGrace })
	if w.Service.Source == annotations.ClusterIP {
		leads = m.Address == netip.AddrPortFrom(p.IPs[0], 8080)
	}
	if !leads || p.Finished || d.NodeGone || w.Now.Sub(d.Since) >= WithdrawGrace {
		t.Fatalf("%s is a member, not selected for %s, and its Pod is %+v on %v", m.Address, w.Now.Sub(d.Since), *p, d.Node)
	}
	if m.State != providers.Enabled {
		return
	}
	was := slices.ContainsFunc(w.Current[key].Members, func(o providers.Member) bool { return o.ID() == m.ID() && o.State == providers.Enabled })
	waits := slices.ContainsFunc(w.Endpoints, func(e Endpoint) bool { return !e.Pod.Finished && (e.Pod.Ready || w.Service.PublishNotReady) })
	others := slices.ContainsFunc(enabledOf(pool), func(id providers.MemberID) bool {
		return !slices.ContainsFunc(w.Deselected, func(d Deselected) bool { return d.Pod.UID == id.UID })
	})
	if !was || !waits || others || !p.Ready && !w.Service.PublishNotReady {
		t.Fatalf("%s, which is not selected, takes connections: it did %t, somebody is waited for %t, others do %t, ready %t:\n%s",
			m.Address, was, waits, others, p.Ready, providertest.Render(pool))
	}
}

// Whatever the cluster and the load balancer are like: each answer is sound, the same whichever way round the Pods come, and building and
// applying comes to rest.
func TestBuildIsSoundAndSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		back := w.Input
		back.Endpoints = slices.Clone(w.Endpoints)
		slices.Reverse(back.Endpoints)
		back.Deselected = slices.Clone(w.Deselected)
		slices.Reverse(back.Deselected)
		if a, b := Build(w.Input), Build(back); fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("the order of Pods matters:\n%v\n%v", a, b)
		}
		last := ""
		for range 6 {
			out := Build(w.Input)
			w.sound(t, out)
			w.apply()
			text := providertest.Render(out.State)
			if text == last {
				return
			}
			last = text
		}
		t.Fatalf("it does not settle, last\n%s", last)
	})
}

// Frozen, nothing enters and nobody gets another Pod's address, from any state.
func TestFrozenIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t).with(freeze)
		if w.Current[key] == nil {
			return
		}
		before := *w.Current[key]
		out := w.apply()
		for _, m := range out.State.Pools[0].Members {
			if !slices.ContainsFunc(before.Members, func(o providers.Member) bool { return o.ID() == m.ID() }) {
				t.Fatalf("%s entered", m.Address)
			}
			if others := w.Claimants(Claim{m.Address, npl.TCP}, m.UID); len(others) > 0 {
				t.Fatalf("%s at %s, which %v claims", m.UID, m.Address, others)
			}
		}
		if again := Build(w.Input); providertest.Render(again.State) != providertest.Render(out.State) {
			t.Fatalf("it does not settle:\n%s%s", providertest.Render(out.State), providertest.Render(again.State))
		}
	})
}

// From any source to any other, while agents publish, monitors find out and readings come when they like: at no step has the pool fewer
// than one enabled member that the load balancer had enabled before, and in the end all are of the new source.
func TestSwitchNeverEmpties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld().onNodes(machine(0), machine(1), machine(2))
		sources := rapid.Permutation(annotations.Sources()).Draw(t, "sources")
		healthTold := rapid.Bool().Draw(t, "health is told")
		for n := range rapid.IntRange(1, 4).Draw(t, "Pods") {
			on := rapid.IntRange(0, 2).Draw(t, "on Node")
			w.pod(n, func(p *Pod) {
				p.IPs, p.Mappings[0].NodeIP = []netip.Addr{podIP(n)}, machine(on).Internal[0]
			}).onNode(machine(on))
		}
		mappings := func(publish func(n int) bool) {
			for n, e := range w.Endpoints {
				e.Pod.Mappings = nil
				if publish(n) {
					e.Pod.Mappings = []npl.Mapping{{PodPort: 8080, NodeIP: e.Node.Internal[0], NodePort: uint16(61000 + n), Protocol: npl.TCP, Family: npl.IPv4}}
				}
			}
		}
		// settleHealth has every monitor find out.
		settleHealth := func() {
			w.Status[key] = map[providers.MemberID]providers.MemberStatus{}
			for _, m := range w.Current[key].Members {
				w.Status[key][m.ID()] = providers.MemberStatus{Health: providers.HealthUp}
			}
		}
		w.Service.Source = sources[0]
		for range 3 {
			w.apply()
			settleHealth()
		}
		w.Service.Source = sources[1]
		published := map[int]bool{}
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			if sources[0] != annotations.NodePortLocal {
				mappings(func(n int) bool {
					published[n] = published[n] || rapid.Bool().Draw(t, "published")
					return published[n]
				})
			}
			w.Status[key] = map[providers.MemberID]providers.MemberStatus{}
			for _, m := range w.Current[key].Members {
				if healthTold && rapid.Bool().Draw(t, "read") {
					w.Status[key][m.ID()] = providers.MemberStatus{
						Connections: 1, Health: rapid.SampledFrom([]providers.Health{providers.HealthUp, providers.HealthDown}).Draw(t, "health"),
					}
				}
			}
			before := enabledOf(*w.Current[key])
			after := enabledOf(w.apply().State.Pools[0])
			if !slices.ContainsFunc(before, func(id providers.MemberID) bool { return slices.Contains(after, id) }) {
				t.Fatalf("from %v to %v", before, after)
			}
		}
		mappings(func(int) bool { return true })
		for range 4 {
			settleHealth()
			w.apply()
		}
		former := w.Service.Source
		for _, m := range w.Current[key].Members {
			is := annotations.NodePort
			switch {
			case m.UID[0] == 'n':
			case m.Address.Port() == 8080:
				is = annotations.ClusterIP
			default:
				is = annotations.NodePortLocal
			}
			if is != former {
				t.Fatalf("%s is still there:\n%s", m.Address, providertest.Render(*w.Current[key]))
			}
		}
	})
}

// The cost of one Service with so many Pods, all there already.
func BenchmarkBuild(b *testing.B) {
	for _, pods := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			w := newWorld()
			for n := range pods {
				w.pod(n, nil)
			}
			w.apply()
			for b.Loop() {
				Build(w.Input)
			}
		})
	}
}
