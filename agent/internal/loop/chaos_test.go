package loop

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/internal/ports"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// TestWhateverHappens lets Pods, Services, the API server, the kernel and the process do anything in any order. The world fails on a
// breach of I1 or I2 at any moment; and when it calms down, everything wanted is served, nothing else is, and neither another pass nor
// a restart writes anything (I4).
func TestWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		w.confirmed = rapid.Bool().Draw(rt, "confirmed")
		w.settings.JointPorts = rapid.Bool().Draw(rt, "one number per protocol")
		w.start()
		w.node.Addresses = append(w.node.Addresses, model.NodeAddress{Type: "InternalIP", IP: netip.MustParseAddr("2001:db8::1")})
		c := &chaos{world: w}
		c.kernel.Before = func(op string) error {
			if op == "apply" && c.refuse > 0 {
				c.refuse--
				return errors.New("the kernel refuses")
			}
			c.step(op)
			return nil
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add a Pod": c.addRandomPod, "delete a Pod": c.deletePod, "terminate a Pod": c.terminatePod, "vanish a Pod": c.vanishPod, "change addresses": c.changeAddresses,
			"set a Service": c.setService, "delete a Service": c.deleteService, "edit an annotation": c.editAnnotation,
			"time passes": c.timePasses, "pass": c.pass, "API takes a patch": c.takePatch, "API takes all": c.takeAll,
			"kill": func(*rapid.T) { c.start() }, "die soon": c.dieSoon, "flush": c.flushRunning, "reboot": c.reboot,
			"busy port": c.toggleBusy, "kernel refuses": c.refuseSome, "kernel refuses to free a port": c.refusePort,
			"change the range": c.changeRange, "lbsync hears of Pods": c.lbsyncHears, "lbsync removes": c.lbsyncRemoves,
			"watermarks unreadable": func(*rapid.T) { c.marksErr = errors.New("the API server is down") },
			"watermarks readable":   func(*rapid.T) { c.marksErr = nil },
		})
		c.calmDown()
	})
}

type chaos struct {
	*world
	refuse int
	named  int
	busy   map[dataplane.Key]bool
}

func (c *chaos) somePod(t *rapid.T) *model.Pod {
	if len(c.pods) == 0 {
		t.Skip("no Pod")
	}
	return c.pods[rapid.SampledFrom(slices.Sorted(maps.Keys(c.pods))).Draw(t, "pod")]
}

func (c *chaos) addRandomPod(t *rapid.T) {
	c.named++
	p := c.addPod(fmt.Sprintf("p%d", c.named), map[string]string{"app": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "app")})
	c.randomAddresses(t, p)
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		p.Ports = []model.ContainerPort{{Port: 80, Protocol: npl.TCP, HostPort: uint16(rapid.IntRange(61000, 61005).Draw(t, "host port"))}}
	case 1:
		p.Annotated, p.Annotation = true, "junk"
	}
}

func (c *chaos) randomAddresses(t *rapid.T, p *model.Pod) {
	p.IPs = nil
	if rapid.IntRange(0, 4).Draw(t, "v4") > 0 {
		p.IPs = append(p.IPs, c.newIP())
	}
	if rapid.IntRange(0, 4).Draw(t, "v6") > 0 {
		four := c.newIP().As4()
		p.IPs = append(p.IPs, netip.AddrFrom16([16]byte{0: 0xfd, 12: four[0], 13: four[1], 14: four[2], 15: four[3]}))
	}
}

func (c *chaos) deletePod(t *rapid.T)       { delete(c.pods, c.somePod(t).UID) }
func (c *chaos) terminatePod(t *rapid.T)    { c.somePod(t).Terminated = true }
func (c *chaos) vanishPod(t *rapid.T)       { p := c.somePod(t); p.Terminated, p.Vanishing = true, true }
func (c *chaos) changeAddresses(t *rapid.T) { c.randomAddresses(t, c.somePod(t)) }

func (c *chaos) setService(t *rapid.T) {
	s := model.Service{
		Namespace: "default",
		Name:      rapid.SampledFrom([]string{"s1", "s2", "s3"}).Draw(t, "service"),
		Type:      rapid.SampledFrom([]string{"ClusterIP", "ClusterIP", "LoadBalancer", "NodePort"}).Draw(t, "type"),
		Selector:  map[string]string{"app": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "selects")},
		Families:  rapid.SampledFrom([][]npl.Family{{npl.IPv4}, {npl.IPv6}, {npl.IPv4, npl.IPv6}}).Draw(t, "families"),
	}
	for _, p := range []model.ServicePort{{Protocol: npl.TCP, TargetPort: 80}, {Protocol: npl.TCP, TargetPort: 81}, {Protocol: npl.UDP, TargetPort: 80}} {
		if rapid.Bool().Draw(t, "port") {
			s.Ports = append(s.Ports, p)
		}
	}
	c.services[s.Name] = s
}

func (c *chaos) deleteService(t *rapid.T) {
	delete(c.services, rapid.SampledFrom([]string{"s1", "s2", "s3"}).Draw(t, "service"))
}

func (c *chaos) editAnnotation(t *rapid.T) {
	p := c.somePod(t)
	p.Annotation = rapid.SampledFrom([]string{"", "junk", "[]"}).Draw(t, "annotation")
	p.Annotated = p.Annotation != ""
}

func (c *chaos) timePasses(t *rapid.T) {
	c.clock.Step(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)
}

func (c *chaos) pass(*rapid.T) {
	if c.amnesia() {
		clear(c.freed)
	}
	if lived, _, _ := c.sync(); !lived {
		c.start()
	}
}

// amnesia reports whether a starting process finds neither tables nor annotations: nothing tells that the Node ever had node
// ports. See coolUnclaimed.
func (c *chaos) amnesia() bool {
	if c.confirmed && (c.marksErr != nil || len(c.balancers) > 0) {
		return false
	}
	return !c.loop.adopted && !c.kernel.HasTables() &&
		!slices.ContainsFunc(c.Pods(), func(p model.Pod) bool {
			return !p.Terminated && slices.ContainsFunc(c.listed(&p), func(m npl.Mapping) bool { return !isHostPort(p, m) })
		})
}

func isHostPort(p model.Pod, m npl.Mapping) bool {
	return slices.ContainsFunc(p.Ports, func(c model.ContainerPort) bool { return c.HostPort == m.NodePort && c.Protocol == m.Protocol })
}

func (c *chaos) takePatch(t *rapid.T) {
	if len(c.desired) == 0 {
		t.Skip("no patch")
	}
	uid := rapid.SampledFrom(slices.Sorted(maps.Keys(c.desired))).Draw(t, "patch")
	if !c.survives(func() { c.deliverOne(uid) }) {
		c.start()
	}
}

func (c *chaos) takeAll(*rapid.T) {
	if !c.survives(c.deliver) {
		c.start()
	}
}

func (c *chaos) dieSoon(t *rapid.T) { c.crashIn = rapid.IntRange(1, 6).Draw(t, "writes") }

func (c *chaos) flushRunning(*rapid.T) {
	c.refuse, c.picky = 0, nil
	c.flush()
	c.loop.Repair()
}

func (c *chaos) reboot(*rapid.T) {
	c.refuse, c.picky = 0, nil
	c.flush()
	c.start()
}

// refuseSome makes the kernel refuse transactions, but not while the tables are lost: if they are flushed, then the one transaction
// that restores them is refused, then the process dies between those it makes instead, and then a Pod is deleted before the next
// process starts, nothing is left that knew of that Pod's port.
func (c *chaos) refuseSome(t *rapid.T) {
	if !c.kernel.HasTables() {
		t.Skip("no tables")
	}
	c.refuse = rapid.IntRange(1, 4).Draw(t, "times")
}

// refusePort makes the kernel refuse whatever frees a port, until something calms down.
func (c *chaos) refusePort(t *rapid.T) {
	if !c.kernel.HasTables() {
		t.Skip("no tables")
	}
	c.picky = map[dataplane.Key]bool{tcp4(uint16(rapid.IntRange(61000, 61005).Draw(t, "port"))): true}
}

func (c *chaos) changeRange(t *rapid.T) {
	first := uint16(rapid.SampledFrom([]int{61000, 61002, 61100}).Draw(t, "first"))
	c.settings.Range = ports.Range{First: first, Last: first + 5}
	c.start()
}

func (c *chaos) lbsyncHears(t *rapid.T) {
	c.balance(rapid.SampledFrom([]string{"lbsync-1", "lbsync-2"}).Draw(t, "instance"), false)
}

func (c *chaos) lbsyncRemoves(t *rapid.T) {
	c.balance(rapid.SampledFrom([]string{"lbsync-1", "lbsync-2"}).Draw(t, "instance"), true)
}

func (c *chaos) toggleBusy(t *rapid.T) {
	k := tcp4(uint16(rapid.IntRange(61000, 61005).Draw(t, "port")))
	if c.busy == nil {
		c.busy = map[dataplane.Key]bool{}
	}
	c.busy[k] = !c.busy[k]
	c.kernel.SetBusy(k, c.busy[k])
}

func (c *chaos) calmDown() {
	c.t.Helper()
	c.refuse, c.crashIn, c.picky = 0, 0, nil
	maps.DeleteFunc(c.pods, func(_ string, p *model.Pod) bool { return p.Vanishing }) // the kubelet does, sooner or later
	c.marksErr = nil
	for range 4 {
		c.settleFaults()
		c.clock.Step(c.settings.CoolDown)
		c.balance("lbsync-1", true)
		for name := range c.balancers {
			c.balance(name, true)
		}
	}
	c.settle()
	c.served()

	writes, patches := c.kernel.Writes(), c.patches
	c.clock.Step(time.Hour)
	c.settle()
	c.start()
	c.settle()
	c.clock.Step(time.Hour)
	c.settle()
	if c.kernel.Writes() != writes || c.patches != patches {
		c.t.Fatalf("I4: %d kernel writes and %d patches with nothing changed", c.kernel.Writes()-writes, c.patches-patches)
	}
	c.served()
}

// settleFaults settles where the first passes may still report what went wrong before.
func (c *chaos) settleFaults() {
	c.t.Helper()
	for range 3 {
		c.pass(nil)
		c.deliver()
	}
	c.settle()
}

// served holds the end state against the model.
func (c *chaos) served() {
	c.t.Helper()
	m := model.Build(model.Input{Node: c.node, Pods: c.Pods(), Services: c.Services(), Addresses: c.settings.Addresses, IPFamilies: c.settings.IPFamilies, KernelFamilies: c.kernel.Families()})
	rules := c.kernel.Rules()
	expected := map[dataplane.Key]netip.AddrPort{}
	for _, p := range m.Pods {
		listed := map[model.ID]npl.Mapping{}
		for _, l := range c.listed(&p.Pod) {
			listed[model.ID{PodUID: p.Pod.UID, PodPort: l.PodPort, Protocol: l.Protocol, Family: l.Family}] = l
		}
		var missing []model.ID
		numbers := map[model.ID]uint16{} // by Pod port and family
		for _, want := range p.Wants {
			got, ok := listed[want.ID]
			delete(listed, want.ID)
			switch {
			case !ok:
				missing = append(missing, want.ID)
			case want.HostPort != 0 && got.NodePort != want.HostPort:
				c.t.Fatalf("Pod %s: %v instead of host port %d", p.Pod, got, want.HostPort)
			case want.HostPort == 0:
				expected[dataplane.Key{Protocol: got.Protocol, Family: got.Family, NodePort: got.NodePort}] = want.Target
				bundle := want.ID
				bundle.Protocol = ""
				if n, other := numbers[bundle]; other && n != got.NodePort && c.settings.JointPorts && !c.exhausted(m, []model.ID{want.ID}) {
					c.t.Fatalf("Pod %s: port %d has node ports %d and %d", p.Pod, got.PodPort, n, got.NodePort)
				}
				numbers[bundle] = got.NodePort
			}
		}
		if len(listed) > 0 {
			c.t.Fatalf("Pod %s is published with what nobody wants: %v", p.Pod, listed)
		}
		if len(missing) > 0 && !c.exhausted(m, missing) {
			c.t.Fatalf("Pod %s lacks %v, and there are free ports", p.Pod, missing)
		}
	}
	if !maps.Equal(rules, expected) {
		c.t.Fatalf("rules %v, want %v", rules, expected)
	}
	sockets := slices.DeleteFunc(slices.SortedFunc(maps.Keys(rules), dataplane.Key.Compare), func(k dataplane.Key) bool {
		_, hostPort := m.HostPorts[model.Key(k)]
		return c.busy[k] || hostPort
	})
	held := slices.DeleteFunc(c.kernel.Sockets(), func(k dataplane.Key) bool { return c.busy[k] })
	if !slices.Equal(held, sockets) {
		c.t.Fatalf("sockets %v, want %v", held, sockets)
	}
}

// exhausted reports whether some protocol and family has fewer free ports than are missing; with one number per protocol, whether a
// family has fewer numbers that no protocol uses than Pod ports are missing.
func (c *chaos) exhausted(m model.Model, missing []model.ID) bool {
	rules := c.kernel.Rules()
	free := func(p npl.Protocol, f npl.Family, port uint16) bool {
		k := dataplane.Key{Protocol: p, Family: f, NodePort: port}
		_, used := rules[k]
		_, host := m.HostPorts[model.Key(k)]
		return !used && !host && !c.busy[k]
	}
	type need struct {
		family   npl.Family
		protocol npl.Protocol // empty: all
	}
	needs := map[need]map[model.ID]bool{}
	for _, id := range missing {
		n := need{id.Family, id.Protocol}
		if c.settings.JointPorts {
			n.protocol, id.Protocol = "", ""
		}
		if needs[n] == nil {
			needs[n] = map[model.ID]bool{}
		}
		needs[n][id] = true
	}
	for n, ids := range needs {
		left := 0
		for port := c.settings.Range.First; port <= c.settings.Range.Last; port++ {
			if n.protocol != "" && free(n.protocol, n.family, port) ||
				n.protocol == "" && free(npl.TCP, n.family, port) && free(npl.UDP, n.family, port) && free(npl.SCTP, n.family, port) {
				left++
			}
		}
		if left < len(ids) {
			return true
		}
	}
	return false
}
