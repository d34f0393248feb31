package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// gated is a provider whose calls for some Services wait until they are released, and that sees what runs beside what.
type gated struct {
	providers.Provider
	mu       sync.Mutex
	gates    map[string]chan struct{} // by name of the Service
	running  map[string]bool
	problems []string
	most     int
	begun    chan string
}

func (g *gated) Apply(ctx context.Context, c providers.Changes) providers.Results {
	names := []string{}
	for _, key := range changed(c) {
		names = append(names, key.Service)
	}
	names = slices.Compact(names)
	g.mu.Lock()
	var wait []chan struct{}
	for _, name := range names {
		if g.running[name] {
			g.problems = append(g.problems, "two calls for "+name)
		}
		g.running[name] = true
		wait = append(wait, g.gates[name])
	}
	g.most = max(g.most, len(g.running))
	g.mu.Unlock()
	g.begun <- strings.Join(names, "+")
	for _, gate := range wait {
		if gate != nil {
			select {
			case <-gate:
			case <-ctx.Done():
			}
		}
	}
	out := g.Provider.Apply(ctx, c)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		delete(g.running, name)
	}
	return out
}

func (g *gated) Observe(ctx context.Context, scope providers.Scope) (providers.Observed, error) {
	g.mu.Lock()
	if len(g.running) > 0 {
		g.problems = append(g.problems, fmt.Sprintf("read beside calls for %v", g.running))
	}
	g.mu.Unlock()
	return g.Provider.Observe(ctx, scope)
}

// newGated returns a rig whose load balancer takes three calls at once, and whose calls do not end by themselves.
func newGated(t *testing.T, apps ...string) (*rig, *gated) {
	r := newRig(t)
	can := providertest.MemoryCapabilities()
	can.Concurrency = 3
	r.lb = providertest.NewLoadBalancer(can)
	r.marks = &fixedMarks{}
	r.restart()
	g := &gated{Provider: r.lb.Open(owner), gates: map[string]chan struct{}{}, running: map[string]bool{}, begun: make(chan string, 100)}
	r.loop.provider = g
	for n, app := range apps {
		r.service(app)
		r.pod(app, 10*n)
	}
	r.loop.source = versionedFeed{r.x, &r.version}
	r.version = 100
	r.cycle()
	for range apps {
		<-g.begun
	}
	t.Cleanup(func() {
		if len(g.problems) > 0 {
			t.Error(g.problems)
		}
	})
	return r, g
}

// hold makes calls for a Service wait until the returned function is called.
func (g *gated) hold(app string) (release func()) {
	gate := make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gates[app] = gate
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.gates, app)
		close(gate)
	}
}

// step makes one cycle, and returns the calls that it began.
func (r *rig) step(g *gated) []string {
	before := maps.Clone(r.loop.calls)
	r.next = r.loop.cycle(context.Background()) // which also enters what has ended meanwhile
	var out []string
	for c := range r.loop.calls {
		if !before[c] {
			out = append(out, <-g.begun)
		}
	}
	slices.Sort(out)
	return out
}

// end waits for the end of a call and enters it.
func (r *rig) end() { r.loop.finish(<-r.loop.ended) }

// I7: a slow pool delays no other, and what is newest of it is written when it answers.
func TestSlowPoolDelaysNoOther(t *testing.T) {
	r, g := newGated(t, "a", "b")
	release := g.hold("a")
	r.pod("a", 1)
	if got := r.step(g); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("began %v", got)
	}
	for n := 11; n < 15; n++ {
		r.pod("b", n)
		r.pod("a", n-10, func(p *model.Pod) { p.Ready = n%2 == 0 })
		if got := r.step(g); !slices.Equal(got, []string{"b"}) {
			t.Fatalf("began %v while a is under way", got)
		}
		r.end()
	}
	r.has("b", "10, 11, 12, 13, 14")
	r.x.DeletePod("shop", "a-0", true, r.clock.Now())
	r.pod("a", 5)
	r.step(g)
	release()
	r.end()
	if got := r.step(g); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("began %v after a had answered", got)
	}
	r.end()
	r.has("a", "2, 4, 5")
}

func TestAsManyCallsAsTheLoadBalancerTakes(t *testing.T) {
	apps := []string{"a", "b", "c", "d", "e"}
	r, g := newGated(t, apps...)
	var releases []func()
	for n, app := range apps {
		releases = append(releases, g.hold(app))
		r.pod(app, 10*n+1)
	}
	if got := r.step(g); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Fatalf("began %v", got)
	}
	if got := r.step(g); len(got) > 0 {
		t.Fatalf("began %v more", got)
	}
	// A member that leads to another Pod is urgent: e goes ahead of d.
	r.pod("x", 40) // claims the node port of e-40
	for _, release := range releases {
		release()
	}
	r.end()
	if got := r.step(g); len(got) < 1 || got[0] != "e" && !slices.Contains(got, "e") {
		t.Errorf("began %v, want e first", got)
	}
	for len(r.loop.calls) > 0 {
		r.end()
		r.step(g)
	}
	r.has("d", "30, 31")
	r.has("e", "41")
	if g.most != 3 {
		t.Errorf("%d calls at once, want 3", g.most)
	}
}

// A reading waits for the calls under way. Others go on beside a slow one, but not for ever, and not with what was slow itself.
func TestReadingWaitsForCalls(t *testing.T) {
	r, g := newGated(t, "a", "b")
	release := g.hold("a")
	r.pod("a", 1)
	r.step(g)
	r.clock.Step(5 * time.Minute) // a reading is due
	observations := r.lb.Observations()
	r.pod("b", 11)
	if got := r.step(g); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("began %v beside the slow call", got)
	}
	r.end()
	r.clock.Step(r.loop.cfg.CallTimeout)
	r.pod("b", 12)
	if got := r.step(g); len(got) > 0 {
		t.Fatalf("began %v though the reading has waited long enough", got)
	}
	if r.lb.Observations() != observations {
		t.Fatal("read beside a call")
	}
	release()
	r.end()
	if got := r.step(g); !slices.Equal(got, []string{"b"}) || r.lb.Observations() != observations+1 {
		t.Errorf("began %v, %d readings; want b after one reading", got, r.lb.Observations()-observations)
	}
	r.end()
	r.clock.Step(5 * time.Minute)
	r.pod("a", 2) // was slow
	release = g.hold("b")
	r.pod("b", 13)
	r.loop.service(model.ServiceKey{Namespace: "shop", Name: "b"}).slow = false
	r.step(g) // reads, and begins both
	release()
	for len(r.loop.calls) > 0 {
		r.end()
	}
}

func TestUnattemptedIsNotUnsure(t *testing.T) {
	r := newRig(t)
	r.service("a")
	r.pod("a", 1)
	r.cycle()
	observations := r.lb.Observations()
	r.loop.provider = forgetful{r.loop.provider}
	r.pod("a", 2)
	r.cycle()
	if p := r.report("a").Ports[0]; p.Programmed || !strings.Contains(p.Problem, "not attempted") {
		t.Errorf("report %+v", p)
	}
	r.loop.provider = r.loop.provider.(forgetful).Provider
	r.pass(time.Second)
	r.has("a", "1, 2")
	if r.lb.Observations() != observations {
		t.Error("read because of what was not attempted")
	}
}

// forgetful attempts nothing.
type forgetful struct{ providers.Provider }

func (forgetful) Apply(context.Context, providers.Changes) providers.Results { return nil }

// fixedMarks is a watermark that says what it is told.
type fixedMarks struct {
	last    watermark.Watermark
	unknown bool
	changes int
}

func (m *fixedMarks) Last() (watermark.Watermark, bool) {
	if m.last.Seen == "" && !m.unknown {
		return watermark.Watermark{Seen: "1"}, true
	}
	return m.last, !m.unknown
}
func (m *fixedMarks) Changed() { m.changes++ }

// held returns what is held, as ports.
func (r *rig) held() string {
	h, ok := r.loop.Holdings()
	if !ok {
		return "nothing can be said"
	}
	out := []string{"seen " + h.Seen}
	for _, p := range h.Held {
		out = append(out, fmt.Sprintf("%s:%d", p.Node, p.Port))
	}
	return strings.Join(out, " ")
}

// What became withdrawn while a call was under way is held as soon as it is seen.
func TestHeldWhileUnderWay(t *testing.T) {
	r, g := newGated(t, "a", "b")
	release := g.hold("a")
	r.pod("a", 1)
	r.step(g)
	r.version = 101
	r.x.DeletePod("shop", "a-0", true, r.clock.Now()) // is a member
	r.x.DeletePod("shop", "a-1", true, r.clock.Now()) // is about to be one
	r.step(g)
	if got := r.held(); got != "seen 101 node-1:61000 node-1:61001" {
		t.Errorf("%s", got)
	}
	release()
	r.end()
	r.step(g)
	if got := r.held(); got != "seen 101 node-1:61000 node-1:61001" {
		t.Errorf("while they are removed: %s", got)
	}
	r.end()
	r.step(g)
	if got := r.held(); got != "seen 101" {
		t.Errorf("after they are removed: %s", got)
	}
	if h, _ := r.loop.Holdings(); h.Left != 2 {
		t.Errorf("%d left, want 2", h.Left)
	}
}

func TestHeldOnNodesThatAreGone(t *testing.T) {
	start := func(t *testing.T) *rig {
		r, _ := newGated(t, "a")
		r.lb.FailKey(keyOf("a"), errors.New("no"))
		r.x.DeletePod("shop", "a-0", true, r.clock.Now())
		r.x.DeleteNode("node-1", true, r.clock.Now())
		r.pod("other", 50, func(p *model.Pod) { p.Node = "node-2" })
		r.cycle()
		return r
	}
	r := start(t)
	if got := r.held(); got != "seen 100 node-1:61000" {
		t.Errorf("%s", got)
	}
	again := func(marks *fixedMarks) string {
		r.marks = marks
		r.restart()
		r.loop.source = versionedFeed{r.x, &r.version}
		r.cycle()
		return r.held()
	}
	if got := again(&fixedMarks{last: watermark.Watermark{Seen: "90", Held: []watermark.NodePort{{Node: "node-1", Protocol: "tcp", Family: "IPv4", Port: 61000}}}}); got != "seen 100 node-1:61000" {
		t.Errorf("after a restart: %s", got)
	}
	if got := again(&fixedMarks{}); got != "nothing can be said" {
		t.Errorf("after a restart without a watermark that names the Node: %s", got)
	}
	r.lb.FailKey(keyOf("a"), nil)
	r.pass(10 * time.Minute)
	if got := r.held(); got != "seen 100" {
		t.Errorf("after it was removed: %s", got)
	}
}

// Nodes as members, and Pods' own addresses, are no node ports that an npl-agent gives away.
func TestOnlyNodePortsOfPodsAreHeld(t *testing.T) {
	r, _ := newGated(t, "a")
	r.x.SetNode(&model.Node{Name: "node-1", UID: "uid-of-node-1", Addresses: slices.Clone(r.x.Nodes()[0].Addresses)}, r.clock.Now())
	pool, vs := r.lb.State().Pools[0], r.lb.State().VirtualServers[0]
	pool.Members = append(slices.Clone(pool.Members), providers.Member{UID: "uid-of-node-1", Address: id("a", 1).Address, State: providers.Enabled})
	r.lb.Tamper(owner, keyOf("a"), &pool, &vs)
	r.lb.FailKey(keyOf("a"), errors.New("no"))
	r.lb.Restart()
	r.cycle()
	if got := r.held(); got != "seen 100" {
		t.Errorf("%s", got)
	}
}

// Nothing is written before the first watermark is there, nor on a picture of the cluster that is older than the last one.
func TestWritesWaitForTheWatermark(t *testing.T) {
	r := newRig(t)
	m := &fixedMarks{unknown: true}
	r.marks, r.version = m, 100
	r.restart()
	r.loop.source = versionedFeed{r.x, &r.version}
	r.service("a")
	r.pod("a", 1)
	quiet := func(why string) {
		t.Helper()
		r.pass(time.Minute)
		if r.lb.Writes() > 0 {
			t.Fatalf("written %s: %v", why, r.lb.Journal())
		}
		if h := r.loop.Health(); h.Ready || h.Waiting == nil || !strings.Contains(r.report("a").Ports[0].Problem, "watermark") {
			t.Errorf("%s: health %+v, report %+v", why, h, r.report("a"))
		}
	}
	quiet("before the watermark was read")
	if got := r.held(); got != "nothing can be said" {
		t.Error(got)
	}
	m.unknown, m.last = false, watermark.Watermark{Seen: "101"}
	quiet("on an old picture")
	if got := r.held(); got != "nothing can be said" {
		t.Error(got)
	}
	r.version = 101
	r.pass(2 * time.Second)
	r.has("a", "1")
	if h := r.loop.Health(); !h.Ready || h.Waiting != nil || !r.report("a").Ports[0].Programmed {
		t.Errorf("health %+v, report %+v", h, r.report("a"))
	}
}

// What nobody answered may arrive later than the reading that follows: it is held until one that begins when it must have arrived.
func TestHeldUntilItMustHaveArrived(t *testing.T) {
	r, _ := newGated(t, "a")
	r.loop.cfg.Late = 4 * time.Second
	late := &unreliable{Provider: r.lb.Open(owner), delay: true}
	r.loop.provider = late
	r.pod("a", 1)
	r.cycle()
	observations := r.lb.Observations()
	late.delay = false
	r.lb.FailKey(keyOf("a"), errors.New("no")) // so that nothing else is written
	r.version = 101
	r.x.DeletePod("shop", "a-1", true, r.clock.Now())
	r.pass(3 * time.Second)
	if r.lb.Observations() == observations {
		t.Fatal("not read")
	}
	if got := r.held(); got != "seen 101 node-1:61001" {
		t.Errorf("%s", got)
	}
	r.pass(10 * time.Minute)
	if got := r.held(); got != "seen 101" {
		t.Errorf("after it must have arrived: %s", got)
	}
}
