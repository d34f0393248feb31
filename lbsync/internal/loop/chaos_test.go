package loop

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/plan"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// Whatever happens to Pods, Services, the load balancer and lbsync itself, nothing is published that would let an npl-agent give a node
// port away which the load balancer lists (I3), nothing is written on a picture older than what was published (I6), foreign objects
// are untouched (I5), and once the faults are over the load balancer is exactly what the model says, every node port that it lists no
// more is confirmed, and another cycle writes nothing.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newChaos(t, rt)
		names := slices.Sorted(maps.Keys(c.steps))
		for range rapid.IntRange(10, 80).Draw(rt, "steps") {
			name := rapid.SampledFrom(names).Draw(rt, "step")
			c.steps[name]()
			c.judge(name)
			if rapid.IntRange(0, 2).Draw(rt, "lbsync") > 0 {
				c.deliver(rapid.SampledFrom([]int{0, 1, len(c.history)}).Draw(rt, "events"))
				c.cycle()
				c.judge(name + ", cycle")
			}
			if rapid.Bool().Draw(rt, "publish") {
				c.publish()
				c.judge(name + ", publish")
			}
		}
		c.settle()
	})
}

// chaos is a cluster whose truth runs ahead of what lbsync has been told, a load balancer that may not answer, and a watermark.
type chaos struct {
	*rig
	rt    *rapid.T
	steps map[string]func()

	history   []change // of the cluster
	delivered int      // of history
	version   int      // resourceVersion of Pods
	pods      map[string]*model.Pod
	gone      map[withdrawal]int // version of each

	provider *unreliable
	mark     watermark.Watermark // as published
	known    bool
	floor    int // version below which the present loop may write nothing
	foreign  string
}

type change struct {
	version int
	apply   func(*inventory.Feed, time.Time)
}

// withdrawal is a node port that a Pod has no more.
type withdrawal struct {
	uid     string
	address netip.AddrPort
}

// versioned is a Feed that knows versions.
type versioned struct {
	*inventory.Feed
	seen func() string
}

func (v versioned) TakeDirty() (map[model.ServiceKey]time.Time, string) {
	dirty, _ := v.Feed.TakeDirty()
	return dirty, v.seen()
}

// marks is the watermark as the loop sees it.
type marks struct{ *chaos }

func (m marks) Last() (watermark.Watermark, bool) { return m.mark, m.known }
func (m marks) Changed()                          {}

// unreliable applies a change and does not say so, or applies it when nobody waits any more.
type unreliable struct {
	providers.Provider
	lose, delay bool

	mu   sync.Mutex
	late []func()
}

func (u *unreliable) Apply(ctx context.Context, c providers.Changes) providers.Results {
	lost := func() providers.Results {
		out := providers.Results{}
		for _, key := range changed(c) {
			out[key] = &providers.Error{Kind: providers.Unavailable, What: "no answer"}
		}
		return out
	}
	switch {
	case u.delay:
		u.mu.Lock()
		u.late = append(u.late, func() { u.Provider.Apply(context.WithoutCancel(ctx), c) })
		u.mu.Unlock()
		return lost()
	case u.lose:
		u.Provider.Apply(ctx, c)
		return lost()
	}
	return u.Provider.Apply(ctx, c)
}

func newChaos(t *testing.T, rt *rapid.T) *chaos {
	can := providertest.MemoryCapabilities()
	can.Concurrency = rapid.SampledFrom([]int{0, 4}).Draw(rt, "concurrency")
	c := &chaos{rig: newRig(t), rt: rt, version: 100, pods: map[string]*model.Pod{}, gone: map[withdrawal]int{}}
	c.lb = providertest.NewLoadBalancer(can)
	foreign := keyOf("foreign")
	c.lb.Tamper(providers.Owner{ClusterUID: "c2"}, foreign, &providers.Pool{
		Key: foreign, Settings: providers.PoolSettings{Algorithm: providers.RoundRobin},
		Members: []providers.Member{{UID: "theirs", Address: netip.MustParseAddrPort("198.51.100.11:61001"), State: providers.Enabled}},
	}, nil)
	c.foreign = providertest.Render(c.lb.State())
	c.event(func(x *inventory.Feed, now time.Time) {
		x.SetNode(&model.Node{Name: "node-1", UID: "node-1", Addresses: []netip.Addr{nodeIP}}, now)
	})
	c.setPod("other", 99) // so that the cluster always has a Pod
	c.setService("other")
	for n, app := range []string{"a", "b"} {
		c.setService(app)
		c.setPod(app, 2*n+1)
		c.setPod(app, 2*n+2)
	}
	c.restartAt(len(c.history))
	c.cycle()
	c.publish()
	c.wait(10 * time.Second)
	c.publish()
	c.makeSteps()
	return c
}

func (c *chaos) event(apply func(*inventory.Feed, time.Time)) {
	c.version++
	c.history = append(c.history, change{c.version, apply})
}

// deliver tells lbsync of the next events.
func (c *chaos) deliver(n int) {
	for ; n > 0 && c.delivered < len(c.history); n-- {
		c.history[c.delivered].apply(c.x, c.clock.Now())
		c.delivered++
	}
}

// restartAt begins a new loop, in this or another process, that has been told of n events: it may be behind or ahead of the one before.
func (c *chaos) restartAt(n int) {
	c.x, c.delivered = inventory.NewIndex().Feed(c.clock.Now()), 0
	c.deliver(n)
	next := &unreliable{Provider: c.lb.Open(owner)}
	if c.provider != nil {
		next.late = c.provider.late
	}
	c.provider = next
	c.marks, c.floor = marks{c}, 0
	if c.mark.Seen != "" {
		c.floor, _ = strconv.Atoi(c.mark.Seen)
	}
	c.restart()
	c.loop.source = versioned{c.x, func() string { return strconv.Itoa(c.history[c.delivered-1].version) }}
	c.loop.provider = c.provider
	c.loop.cfg.Late, c.loop.cfg.Settle, c.loop.cfg.GuardHold = 4*time.Second, 5*time.Second, time.Minute
}

// publish writes the watermark, as a watermarks.Publisher would.
func (c *chaos) publish() {
	c.known = true
	h, ok := c.loop.Holdings()
	if !ok {
		return
	}
	if order, comparable := watermark.CompareVersions(h.Seen, c.mark.Seen); c.mark.Seen != "" && (!comparable || order < 0) {
		return
	}
	c.mark = watermark.Watermark{Instance: "ns/name", LoadBalancer: "lb", Seen: h.Seen, Held: h.Held}
}

func (c *chaos) setService(name string, edit ...func(*model.Service)) {
	s := aService(name, edit...)
	c.event(func(x *inventory.Feed, now time.Time) { x.SetService(s, now) })
}

func (c *chaos) setPod(app string, n int, edit ...func(*model.Pod)) {
	c.enter(aPod(app, n, edit...))
}

func (c *chaos) enter(p *model.Pod) {
	c.withdraw(p.ID(), p)
	c.pods[p.ID()] = p
	c.event(func(x *inventory.Feed, now time.Time) { x.SetPod(p, now) })
}

func (c *chaos) deletePod(app string, n int, seen bool) {
	name := fmt.Sprintf("%s-%d", app, n)
	c.withdraw("shop/"+name, nil)
	delete(c.pods, "shop/"+name)
	c.event(func(x *inventory.Feed, now time.Time) { x.DeletePod("shop", name, seen, now) })
}

// withdraw notes which node ports the Pod of a name has no more once it is next.
func (c *chaos) withdraw(name string, next *model.Pod) {
	old := c.pods[name]
	if next != nil {
		for _, m := range next.Mappings {
			delete(c.gone, withdrawal{next.UID, netip.AddrPortFrom(m.NodeIP, m.NodePort)})
		}
	}
	if old == nil {
		return
	}
	for _, m := range old.Mappings {
		if next == nil || next.UID != old.UID || !slices.Contains(next.Mappings, m) {
			c.gone[withdrawal{old.UID, netip.AddrPortFrom(m.NodeIP, m.NodePort)}] = c.version + 1
		}
	}
}

func (c *chaos) makeSteps() {
	app := func() string { return rapid.SampledFrom([]string{"a", "a", "b", "b", "c"}).Draw(c.rt, "app") }
	number := func() int { return rapid.IntRange(1, 4).Draw(c.rt, "n") }
	kind := func() providers.Kind {
		return rapid.SampledFrom([]providers.Kind{
			providers.Unavailable, providers.Throttled, providers.Conflict, providers.Rejected, providers.Misconfigured,
		}).Draw(c.rt, "kind")
	}
	newPod := func() {
		c.setPod(app(), number(), func(p *model.Pod) {
			p.Ready, p.ReadyChanged = rapid.IntRange(0, 3).Draw(c.rt, "ready") > 0, c.clock.Now()
			p.Mappings[0].NodePort = uint16(rapid.IntRange(61000, 61006).Draw(c.rt, "port"))
		})
	}
	c.steps = map[string]func(){
		"service":                   func() { c.setService(app()) },
		"service again":             func() { c.setService(app()) },
		"service with another port": func() { c.setService(app(), func(s *model.Service) { s.Ports[0].Port = 81 }) },
		"service with another selector": func() {
			c.setService(app(), func(s *model.Service) { s.Selector = map[string]string{"app": app()} })
		},
		"service of no class": func() { c.setService(app(), func(s *model.Service) { s.On = nil }) },
		"service that is let go": func() {
			c.setService(app(), func(s *model.Service) { s.On, s.Admitted = nil, false })
		},
		"no service": func() {
			key := model.ServiceKey{Namespace: "shop", Name: app()}
			c.event(func(x *inventory.Feed, now time.Time) { x.DeleteService(key, true, now) })
		},
		"pod": newPod, "pod again": newPod, "pod and again": newPod,
		"another pod of the name": func() {
			c.setPod(app(), number(), func(p *model.Pod) { p.UID += "x" })
		},
		"pod with other labels": func() {
			other := app()
			c.setPod(app(), number(), func(p *model.Pod) { p.Labels = map[string]string{"app": other} })
		},
		"pod is relabelled": c.relabel, "pod is relabelled again": c.relabel,
		"pod without annotation": func() { c.setPod(app(), number(), func(p *model.Pod) { p.Mappings = nil }) },
		"terminating pod":        func() { c.setPod(app(), number(), c.terminating) },
		"malformed pod": func() {
			c.setPod(app(), number(), func(p *model.Pod) { p.Mappings, p.Malformed = nil, "nonsense" })
		},
		"no pod":           func() { c.deletePod(app(), number(), true) },
		"no pod again":     func() { c.deletePod(app(), number(), true) },
		"no pod once more": func() { c.deletePod(app(), number(), true) },
		"missing pod":      func() { c.deletePod(app(), number(), false) },
		"no node": func() {
			c.event(func(x *inventory.Feed, now time.Time) { x.DeleteNode("node-1", true, now) })
		},
		"node": func() {
			c.event(func(x *inventory.Feed, now time.Time) {
				x.SetNode(&model.Node{Name: "node-1", UID: "node-1", Addresses: []netip.Addr{nodeIP}}, now)
			})
		},
		"fault again": func() { c.lb.FailKey(keyOf(app()), &providers.Error{Kind: kind(), What: "fault"}) },
		"fault":       func() { c.lb.FailKey(keyOf(app()), &providers.Error{Kind: kind(), What: "fault"}) },
		"cure":        func() { c.lb.FailKey(keyOf(app()), nil) },
		"unreadable":  func() { c.lb.FailObserve(&providers.Error{Kind: kind(), What: "fault"}) },
		"readable":    func() { c.lb.FailObserve(nil) },
		"lose":        func() { c.provider.lose = true },
		"delay":       func() { c.provider.delay = true },
		"answer":      func() { c.provider.lose, c.provider.delay = false, false },
		"land":        c.land,
		"tamper":      func() { c.lb.Tamper(owner, keyOf(app()), nil, nil) },
		"lb restart":  c.lb.Restart,
		"restart":     func() { c.restartAt(c.delivered) },
		"failover": func() { // to one whose picture is another
			c.known = false
			c.restartAt(rapid.IntRange(3, len(c.history)).Draw(c.rt, "told"))
		},
		"time":    func() { c.wait(time.Duration(rapid.IntRange(1, 400).Draw(c.rt, "seconds")) * time.Second) },
		"deliver": func() { c.deliver(rapid.IntRange(1, 5).Draw(c.rt, "events")) },
		"all":     func() { c.deliver(len(c.history)) },
	}
}

// relabel takes a Pod out of one Service, and into another, and leaves it what it has.
func (c *chaos) relabel() {
	names := slices.Sorted(maps.Keys(c.pods))
	p := *c.pods[rapid.SampledFrom(names).Draw(c.rt, "pod")]
	p.Labels = map[string]string{"app": rapid.SampledFrom([]string{"a", "b", "c", "nobody"}).Draw(c.rt, "label")}
	c.enter(&p)
}

// land has the load balancer get what was on its way.
func (c *chaos) land() {
	late := c.provider.late
	c.provider.late = nil
	for _, apply := range late {
		apply()
	}
}

// wait lets time go by. What is on its way arrives sooner than a call may last.
func (c *chaos) wait(d time.Duration) {
	for c.land(); c.provider.delay && d > 0; d -= time.Second {
		c.pass(min(d, time.Second))
		c.land()
	}
	if d > 0 {
		c.pass(d)
	}
}

// judge looks at it as the npl-agents would.
func (c *chaos) judge(step string) {
	for _, pool := range c.lb.State().Pools {
		if pool.Key == keyOf("foreign") {
			continue
		}
		for _, m := range pool.Members {
			at, withdrawn := c.gone[withdrawal{m.UID, m.Address}]
			port := watermark.NodePort{Node: "node-1", Protocol: string(npl.TCP), Family: string(npl.IPv4), Port: m.Address.Port()}
			if !withdrawn || c.mark.Seen == "" {
				continue
			}
			if free, _ := watermark.Confirmed([]watermark.Watermark{c.mark}, port, strconv.Itoa(at)); free {
				c.rt.Fatalf("after %q: %s, withdrawn by %s at %d, is on the load balancer under %s, and free by the watermark %s, which holds %v",
					step, m.Address, m.UID, at, pool.Key, c.mark.Seen, c.mark.Held)
			}
		}
	}
	if seen := c.history[c.delivered-1].version; seen < c.floor && c.loop.caughtUp {
		c.rt.Fatalf("after %q: it may write with a picture of %d, older than the watermark of %d", step, seen, c.floor)
	}
}

// settle ends all faults and checks where that leads.
func (c *chaos) settle() {
	c.lb.FailObserve(nil)
	for _, name := range []string{"a", "b", "c"} {
		c.lb.FailKey(keyOf(name), nil)
		key := keyOf(name)
		key.Port = 81
		c.lb.FailKey(key, nil)
	}
	c.provider.lose, c.provider.delay = false, false
	c.steps["node"]()
	c.deliver(len(c.history))
	c.loop.Configure(Config{DrainLimit: 5 * time.Minute, Resync: 5 * time.Minute, DrainPoll: time.Second, CallTimeout: time.Minute, Late: 4 * time.Second})
	for range 4 {
		c.wait(10 * time.Minute)
		c.publish()
		c.judge("settle")
	}
	observed, err := c.loop.provider.Observe(context.Background(), providers.Scope{})
	if err != nil {
		c.rt.Fatal(err)
	}
	all := newPicture(observed)
	for _, name := range []string{"a", "b", "c"} {
		key := model.ServiceKey{Namespace: "shop", Name: name}
		var want providers.State
		if view, exists := c.x.View(key); exists {
			want = (&Loop{cfg: c.loop.cfg, source: c.x, can: c.loop.can, picture: all}).build(key, view, c.clock.Now()).State
		}
		if diff := plan.Between(all.state(key), want); !diff.Empty() {
			c.rt.Fatalf("%s did not converge: has\n%swant\n%sfailures %v, blocked %v", name, providertest.Render(all.state(key)), providertest.Render(want), c.loop.failures, c.loop.blocked)
		}
	}
	listed := map[withdrawal]bool{}
	var theirs providers.State
	for _, pool := range c.lb.State().Pools {
		if pool.Key == keyOf("foreign") {
			theirs.Pools = append(theirs.Pools, pool)
			continue
		}
		for _, m := range pool.Members {
			listed[withdrawal{address: m.Address}] = true
		}
	}
	if got := providertest.Render(theirs); got != c.foreign {
		c.rt.Fatalf("the foreign pool is\n%swant\n%s", got, c.foreign)
	}
	for w, at := range c.gone {
		port := watermark.NodePort{Node: "node-1", Protocol: string(npl.TCP), Family: string(npl.IPv4), Port: w.address.Port()}
		if free, waiting := watermark.Confirmed([]watermark.Watermark{c.mark}, port, strconv.Itoa(at)); !free && !listed[withdrawal{address: w.address}] {
			c.rt.Fatalf("%s, withdrawn at %d, is on no load balancer and waits for %v: %+v", w.address, at, waiting, c.mark)
		}
	}
	writes := c.lb.Writes()
	c.wait(20 * time.Minute)
	if c.lb.Writes() != writes {
		c.rt.Fatalf("with nothing changed it wrote %v", c.lb.Journal()[writes:])
	}
}
