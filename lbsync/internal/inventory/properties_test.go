package inventory

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"k8s.io/client-go/tools/cache"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// cluster is an Index without any index.
type cluster struct {
	services map[string]model.Service
	pods     map[string]*model.Pod
	nodes    map[string]*model.Node
	gone     map[string]bool       // Nodes that were seen to go
	fates    map[string]model.Fate // of every Pod there ever was, by UID
	followed map[string][]Member   // by Services that do not select them
}

// views renders what the model is told of each Service.
func (c *cluster) views() map[string]string {
	out := map[string]string{}
	for name, s := range c.services {
		var lines []string
		for _, p := range c.pods {
			if !s.Ours() || !matches(s.Selector, p.Labels) {
				continue
			}
			lines = append(lines, c.line(p))
		}
		slices.Sort(lines)
		if s.Ours() && s.Source == annotations.NodePort {
			for _, n := range slices.Sorted(maps.Keys(c.nodes)) {
				lines = append(lines, fmt.Sprint(*c.nodes[n]))
			}
		}
		out[name] = fmt.Sprint(s.On, s.Source, strings.Join(lines, "\n"))
	}
	return out
}

// line renders what the model is told of a Pod.
func (c *cluster) line(p *model.Pod) string {
	line := fmt.Sprintf("%s %s %v %t %t %v", p.ID(), p.UID, p.Mappings, p.Gated, c.gone[p.Node], unlabelled(c.nodes[p.Node]))
	for _, claim := range model.Claims(p, c.nodes[p.Node]) {
		line += c.claimed(claim, p.UID)
	}
	return line
}

// claimed renders who claims an address, other than the Pod with the UID.
func (c *cluster) claimed(claim model.Claim, uid string) (line string) {
	for _, other := range slices.Sorted(maps.Keys(c.pods)) {
		if o := c.pods[other]; o.UID != uid && slices.Contains(model.Claims(o, c.nodes[o.Node]), claim) {
			line += " contested by " + o.ID()
		}
	}
	return line
}

// follow has every Service follow members of some Pods, whether it selects them or not, and compares what it is told of those.
func (c *cluster) follow(t *rapid.T, x *Feed) {
	c.followed = map[string][]Member{}
	for _, name := range slices.Sorted(maps.Keys(c.services)) {
		var members []Member
		var want, got []string
		for _, pod := range slices.Sorted(maps.Keys(c.pods)) {
			p := c.pods[pod]
			if !rapid.Bool().Draw(t, name+" has a member of "+pod) {
				continue
			}
			at := p.Mappings[0]
			m := Member{p.UID, model.Claim{Address: netip.AddrPortFrom(at.NodeIP, at.NodePort), Protocol: at.Protocol}}
			members = append(members, m, Member{"nobody", m.Claim})
			if s := c.services[name]; s.Ours() && !matches(s.Selector, p.Labels) {
				c.followed[name] = append(c.followed[name], m)
				want = append(want, c.line(p))
			}
		}
		v, _ := x.Follow(model.ServiceKey{Namespace: "shop", Name: name}, slices.Values(members), now)
		for _, d := range v.Deselected {
			got = append(got, x.line(d.Endpoint))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s follows %q, want %q", name, got, want)
		}
	}
}

// tracks renders what concerns a Service of what it follows, though it does not select it.
func (c *cluster) tracks(service string) string {
	var lines []string
	for _, m := range c.followed[service] {
		line := "gone"
		for _, p := range c.pods {
			if p.UID == m.UID {
				line = c.line(p)
			}
		}
		lines = append(lines, line, c.claimed(m.Claim, m.UID))
	}
	return strings.Join(lines, "\n")
}

// following returns the Services that follow any of the Pods, or what any of them claims.
func (c *cluster) following(pods ...*model.Pod) set[string] {
	out := set[string]{}
	for name, members := range c.followed {
		for _, m := range members {
			for _, p := range pods {
				if p != nil && (p.UID == m.UID || slices.ContainsFunc(p.Mappings, func(n npl.Mapping) bool {
					return m.Claim == model.Claim{Address: netip.AddrPortFrom(n.NodeIP, n.NodePort), Protocol: n.Protocol}
				})) {
					out.add(name)
				}
			}
		}
	}
	return out
}

// selecting returns the Services of ours that select any of the Pods, or follow them.
func (c *cluster) selecting(pods ...*model.Pod) set[string] {
	out := c.following(pods...)
	for name, s := range c.services {
		for _, p := range pods {
			if p != nil && s.Ours() && matches(s.Selector, p.Labels) {
				out.add(name)
			}
		}
	}
	return out
}

// unlabelled renders a Node without its labels, which mean nothing where Pods are members.
func unlabelled(n *model.Node) string {
	if n == nil {
		return "unknown"
	}
	out := *n
	out.Labels = nil
	return fmt.Sprint(out)
}

// line renders what the model is told of a Pod.
func (x *Index) line(e model.Endpoint) string {
	line := fmt.Sprintf("%s %s %v %t %t %v", e.Pod.ID(), e.Pod.UID, e.Pod.Mappings, e.Pod.Gated, e.NodeGone, unlabelled(e.Node))
	for _, c := range model.Claims(e.Pod, e.Node) {
		for _, o := range x.Claimants(c, e.Pod.UID) {
			line += " contested by " + o
		}
	}
	return line
}

func indexed(x *Index) map[string]string {
	out := map[string]string{}
	for _, key := range x.Keys() {
		v, _ := x.View(key)
		var lines []string
		for _, e := range v.Endpoints {
			lines = append(lines, x.line(e))
		}
		for _, n := range v.Nodes {
			lines = append(lines, fmt.Sprint(*n))
		}
		out[key.Name] = fmt.Sprint(v.Service.On, v.Service.Source, strings.Join(lines, "\n"))
	}
	return out
}

// The Index against a naive one, fed like a reflector does: after any event or list every View is the same; the Services whose View
// changed are dirty, and of the others only those that select or follow a Pod which changed, or is on a Node that did (I8).
func TestIndexProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := NewIndex().Feed(now)
		c := &cluster{map[string]model.Service{}, map[string]*model.Pod{}, map[string]*model.Node{}, map[string]bool{}, map[string]model.Fate{}, nil}
		pods, nodes := podTarget{x.Index, fixed(now), func(PodKey) {}}, nodeTarget{x.Index, fixed(now)}
		if rapid.Bool().Draw(t, "all labels hash alike") {
			x.groups.hash = func(string, map[string]string) uint64 { return 0 }
		}
		version := 0
		next := func() string { version++; return fmt.Sprint(version) }
		which := func(what string) string { return fmt.Sprint(rapid.IntRange(1, 3).Draw(t, what)) }
		app := rapid.SampledFrom([]string{"a", "b", "c"})

		drawPod := func(name string) *model.Pod {
			p := testPod(name, app.Draw(t, "app"), "n"+which("node"), uint16(rapid.IntRange(1, 2).Draw(t, "port")))
			if rapid.Bool().Draw(t, "labelled alike") {
				delete(p.Labels, "pod")
			}
			if second := uint16(rapid.IntRange(1, 4).Draw(t, "second port")); second < 3 {
				m := p.Mappings[0]
				m.PodPort, m.NodePort = 81, second
				p.Mappings = append(p.Mappings, m)
			}
			p.Labels["tier"] = app.Draw(t, "tier")
			p.UID, p.Gated = name+which("UID"), rapid.Bool().Draw(t, "gated")
			return p
		}
		drawNode := func(name string) *model.Node {
			n := testNode(name)
			n.NotReady, n.Labels = rapid.Bool().Draw(t, "not ready"), map[string]string{"zone": which("zone")}
			return n
		}
		fate := func(p *model.Pod, f model.Fate) {
			if p != nil {
				c.fates[p.UID] = f
			}
		}
		takePod := func(name string, p *model.Pod) (old *model.Pod) {
			old = c.pods[name]
			fate(old, model.Gone)
			fate(p, model.Present)
			c.pods[name] = p
			return old
		}
		// Each step returns the Services that may be dirty though their View is what it was.
		steps := map[string]func() set[string]{
			"service": func() set[string] {
				s := testService("s"+which("service"), app.Draw(t, "app"))
				if rapid.Bool().Draw(t, "of one tier") {
					s.Selector["tier"] = app.Draw(t, "tier")
				}
				s.Source = rapid.SampledFrom(annotations.Sources()).Draw(t, "source")
				if rapid.IntRange(0, 3).Draw(t, "foreign") == 0 {
					s.On = nil
				}
				if rapid.Bool().Draw(t, "of a VIP") {
					s.VIPs = map[string][]netip.Addr{"lb": {netip.MustParseAddr("198.51.100.1")}}
				}
				c.services[s.Name] = s
				x.SetService(s, now)
				return maps.Collect(func(yield func(string, struct{}) bool) { // whoever shares the VIP
					for name := range c.services {
						if !yield(name, struct{}{}) {
							return
						}
					}
				})
			},
			"no service": func() set[string] {
				name := "s" + which("service")
				delete(c.services, name)
				x.DeleteService(model.ServiceKey{Namespace: "shop", Name: name}, true, now)
				return set[string]{"s1": {}, "s2": {}, "s3": {}}
			},
			"pod": func() set[string] {
				p := drawPod("p" + which("pod"))
				old := takePod(p.Name, p)
				pods.set(p, next())
				return c.selecting(old, p)
			},
			"the same pod": func() set[string] {
				if p := c.pods["p1"]; p != nil {
					same := *p
					same.Labels = maps.Clone(p.Labels)
					pods.set(&same, next())
				}
				return nil
			},
			"no pod": func() set[string] {
				name := "p" + which("pod")
				old := takePod(name, nil)
				delete(c.pods, name)
				pods.gone(nameOf(name), next())
				return c.selecting(old)
			},
			"list of pods": func() set[string] {
				listed, changed := map[string]*model.Pod{}, []*model.Pod{}
				for _, name := range []string{"p1", "p2", "p3"} {
					old := c.pods[name]
					switch rapid.IntRange(0, 2).Draw(t, name+" in the list") {
					case 0:
						listed[name] = old
					case 1:
						listed[name] = drawPod(name)
						changed = append(changed, old, listed[name])
						takePod(name, listed[name])
					default:
						fate(old, model.Lost)
						changed = append(changed, old)
					}
					if listed[name] == nil {
						delete(listed, name)
					}
				}
				c.pods = listed
				pods.replace(named(listed), next())
				return c.selecting(changed...)
			},
			"node": func() set[string] {
				n := drawNode("n" + which("node"))
				c.nodes[n.Name], c.gone[n.Name] = n, false
				nodes.set(n, next())
				return c.selecting(on(c, n.Name)...)
			},
			"no node": func() set[string] {
				name := "n" + which("node")
				c.gone[name] = c.gone[name] || c.nodes[name] != nil
				delete(c.nodes, name)
				nodes.gone(nameOf(name), next())
				return c.selecting(on(c, name)...)
			},
			"list of nodes": func() set[string] {
				listed, changed := map[cache.ObjectName]*model.Node{}, []*model.Pod{}
				for _, name := range []string{"n1", "n2", "n3"} {
					changed = append(changed, on(c, name)...)
					delete(c.nodes, name)
					if rapid.Bool().Draw(t, name+" in the list") {
						c.nodes[name], c.gone[name] = drawNode(name), false
						listed[nameOf(name)] = c.nodes[name]
					}
				}
				nodes.replace(listed, next())
				return c.selecting(changed...)
			},
		}
		names := rapid.SampledFrom(slices.Sorted(maps.Keys(steps)))
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			c.follow(t, x)
			before, tracked := c.views(), map[string]string{}
			for service := range c.services {
				tracked[service] = c.tracks(service)
			}
			x.TakeDirty()
			name := names.Draw(t, "step")
			maybe := steps[name]()
			after := c.views()
			if got := indexed(x.Index); !maps.Equal(got, after) {
				t.Fatalf("after %q the Index has\n%v\nwant\n%v", name, got, after)
			}
			dirty, _ := x.TakeDirty()
			for service, view := range after {
				_, is := dirty[model.ServiceKey{Namespace: "shop", Name: service}]
				old, had := before[service]
				_, may := maybe[service]
				s := c.services[service]
				switch changed := !had || old != view; {
				case c.tracks(service) != tracked[service] && !is && had && s.Ours():
					t.Fatalf("%q changed what %s follows from\n%s\nto\n%s\nand it is not dirty", name, service, tracked[service], c.tracks(service))
				case changed && !is && (s.Ours() || s.Admitted):
					t.Fatalf("%q changed %s from\n%s\nto\n%s\nand it is not dirty", name, service, old, view)
				case !changed && is && !may && c.tracks(service) == tracked[service]:
					t.Fatalf("%q made %s dirty, which stayed\n%s", name, service, view)
				}
			}
			for uid, want := range c.fates {
				if got := x.Fate(uid); got != want {
					t.Fatalf("after %q the fate of %s is %d, want %d", name, uid, got, want)
				}
			}
			var waiting []PodKey
			for _, name := range slices.Sorted(maps.Keys(c.pods)) {
				if c.pods[name].Gated {
					waiting = append(waiting, PodKey{"shop", name})
				}
			}
			if got := x.GatedPods(); !slices.Equal(got, waiting) {
				t.Fatalf("after %q, %v wait, want %v", name, got, waiting)
			}
		}

		// Nothing is left of what is gone.
		later := now.Add(memory)
		for name := range c.pods {
			x.DeletePod("shop", name, true, later)
		}
		for _, name := range []string{"n1", "n2", "n3"} {
			x.SetNode(testNode(name), later)
			x.DeleteNode(name, false, later)
		}
		for name := range c.services {
			x.DeleteService(model.ServiceKey{Namespace: "shop", Name: name}, true, later)
		}
		podTarget{x.Index, fixed(later), nil}.reached(next())
		for _, name := range []string{"s1", "s2", "s3"} {
			x.Follow(model.ServiceKey{Namespace: "shop", Name: name}, slices.Values([]Member{}), later)
		}
		left := len(x.services) + len(x.pods) + len(x.hosts) + len(x.bySelector) + len(x.groups.byHash) + len(x.groups.in) + len(x.byUID) + len(x.gated) +
			len(x.claims.one) + len(x.claims.more) + len(x.vips.one) + len(x.vips.more) + len(x.ofNodes) + len(x.lost.at) +
			len(x.by) + len(x.ofPod) + len(x.ofClaim)
		if s, p, n := x.Counts(); left+s+p+n > 0 {
			t.Fatalf("left: %+v", x.Index)
		}
	})
}

// on returns the Pods on a Node.
func on(c *cluster, node string) (out []*model.Pod) {
	for _, p := range c.pods {
		if p.Node == node {
			out = append(out, p)
		}
	}
	return out
}
