package loop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

var owner = providers.Owner{ClusterUID: "c1", Instance: "ns/name"}

// rig is a loop driven by hand, one cycle at a time, so that nothing in these tests depends on timing.
type rig struct {
	t       testing.TB
	x       *inventory.Feed
	lb      *providertest.LoadBalancer
	clock   *clocktesting.FakeClock
	loop    *Loop
	next    time.Duration // what the last cycle said
	fence   error
	reports []model.ServiceKey
	members []model.ServiceKey
	marks   Marks
	version int // resourceVersion of Pods, where a test gives them to the loop
}

// versionedFeed is a Feed that has seen a version.
type versionedFeed struct {
	*inventory.Feed
	version *int
}

func (v versionedFeed) TakeDirty() (map[model.ServiceKey]time.Time, string) {
	dirty, _ := v.Feed.TakeDirty()
	return dirty, strconv.Itoa(*v.version)
}

func newRig(t testing.TB) *rig {
	r := &rig{
		t: t, x: inventory.NewIndex().Feed(time.Time{}), lb: providertest.NewLoadBalancer(providertest.MemoryCapabilities()),
		clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)),
	}
	r.x.SetNode(&model.Node{Name: "node-1", Addresses: []netip.Addr{nodeIP}}, r.clock.Now())
	r.restart()
	return r
}

// restart makes a new loop on the same cluster and load balancer.
func (r *rig) restart() {
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		r.t.Fatal(err)
	}
	cfg := Config{Instance: "lb", DrainLimit: 5 * time.Minute, Resync: 5 * time.Minute, DrainPoll: time.Second, CallTimeout: time.Minute}
	links := Links{
		Fence:     func() (time.Time, error) { return time.Time{}, r.fence },
		OnReport:  func(key model.ServiceKey) { r.reports = append(r.reports, key) },
		OnMembers: func(key model.ServiceKey) { r.members = append(r.members, key) },
		Marks:     r.marks,
	}
	r.loop = New(cfg, r.x, r.lb.Open(owner), links, metrics, r.clock, zap.NewNop())
}

// cycle makes cycles until no call is under way.
func (r *rig) cycle() *rig {
	for r.next = r.loop.cycle(context.Background()); len(r.loop.calls) > 0; r.next = r.loop.cycle(context.Background()) {
		r.loop.finish(<-r.loop.ended)
	}
	return r
}

// pass lets time go by, with a cycle whenever the loop asks for one.
func (r *rig) pass(d time.Duration) *rig {
	end := r.clock.Now().Add(d)
	for r.cycle(); r.clock.Now().Add(r.next).Before(end); r.cycle() {
		r.clock.Step(max(r.next, time.Millisecond))
	}
	r.clock.SetTime(end)
	return r.cycle()
}

var nodeIP = netip.MustParseAddr("198.51.100.11")

func aService(name string, edit ...func(*model.Service)) model.Service {
	s := model.Service{
		ServiceKey: model.ServiceKey{Namespace: "shop", Name: name}, UID: name, On: []string{"lb"}, Admitted: true,
		Source: annotations.NodePortLocal, Selector: map[string]string{"app": name}, Families: []npl.Family{npl.IPv4},
		Ports: []model.ServicePort{{Port: 80, Protocol: providers.TCP, TargetNumber: 8080}},
		VIPs:  map[string][]netip.Addr{"lb": {netip.AddrFrom4([4]byte{192, 0, 2, name[len(name)-1]})}},
	}
	for _, e := range edit {
		e(&s)
	}
	return s
}

func aPod(app string, n int, edit ...func(*model.Pod)) *model.Pod {
	p := &model.Pod{
		Namespace: "shop", Name: fmt.Sprintf("%s-%d", app, n), UID: fmt.Sprintf("%s-%d", app, n), Node: "node-1", Ready: true,
		Labels:   map[string]string{"app": app},
		Mappings: []npl.Mapping{{PodPort: 8080, NodeIP: nodeIP, NodePort: uint16(61000 + n), Protocol: npl.TCP, Family: npl.IPv4}},
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

func (r *rig) service(name string, edit ...func(*model.Service)) {
	r.x.SetService(aService(name, edit...), r.clock.Now())
}

func (r *rig) pod(app string, n int, edit ...func(*model.Pod)) {
	r.x.SetPod(aPod(app, n, edit...), r.clock.Now())
}

func (r *rig) terminating(p *model.Pod) { p.Terminating, p.Since = true, r.clock.Now() }

func keyOf(app string) providers.Key {
	return providers.Key{Namespace: "shop", Service: app, Port: 80, Protocol: providers.TCP}
}

func id(app string, n int) providers.MemberID {
	return providers.MemberID{UID: fmt.Sprintf("%s-%d", app, n), Address: netip.AddrPortFrom(nodeIP, uint16(61000+n))}
}

// has checks the members of a pool, written "n" or "n draining"; "none" is a pool that does not exist.
func (r *rig) has(app string, want string) {
	r.t.Helper()
	got := "none"
	for _, p := range r.lb.State().Pools {
		if p.Key == keyOf(app) {
			var members []string
			for _, m := range p.Members {
				_, n, _ := strings.Cut(m.UID, "-")
				if m.State == providers.Draining {
					n += " draining"
				}
				members = append(members, n)
			}
			got = strings.Join(members, ", ")
		}
	}
	if got != want {
		r.t.Errorf("pool %s has %q, want %q", app, got, want)
	}
}

func (r *rig) report(app string) Report {
	report, _ := r.loop.Report(model.ServiceKey{Namespace: "shop", Name: app})
	return report
}

func unavailable(what string) error {
	return &providers.Error{Kind: providers.Unavailable, What: what, Err: errors.New("no answer")}
}

func TestRollingUpdateNeverEmpties(t *testing.T) {
	r := newRig(t)
	r.service("a")
	for n := range 3 {
		r.pod("a", n)
	}
	r.cycle()
	from := r.lb.Writes()
	for n := range 3 { // each old Pod goes when its replacement is there, as a Deployment would have it
		r.pod("a", n+10, func(p *model.Pod) { p.Ready = false })
		r.cycle()
		r.pod("a", n+10)
		r.pod("a", n, r.terminating)
		r.cycle()
		r.pass(1500 * time.Millisecond)
		r.x.DeletePod("shop", fmt.Sprintf("a-%d", n), true, r.clock.Now())
		r.cycle()
	}
	r.has("a", "10, 11, 12")
	if len(r.lb.Journal()[from:]) < 9 {
		t.Errorf("only %d writes", len(r.lb.Journal()[from:]))
	}
	for _, op := range r.lb.Journal()[from:] {
		if op.Enabled < 3 {
			t.Errorf("%d enabled after %s of %s, never fewer than 3 were ready", op.Enabled, op.What, op.Member.UID)
		}
	}
}

func TestDrain(t *testing.T) {
	start := func(t *testing.T) *rig {
		r := newRig(t)
		r.service("a")
		r.pod("a", 1)
		r.pod("a", 2)
		r.cycle()
		r.lb.SetConnections(keyOf("a"), id("a", 1), 2)
		r.pod("a", 1, r.terminating)
		r.cycle()
		r.has("a", "1 draining, 2")
		return r
	}
	t.Run("until the last connection is gone", func(t *testing.T) {
		r := start(t)
		r.pass(time.Minute)
		r.has("a", "1 draining, 2")
		r.lb.SetConnections(keyOf("a"), id("a", 1), 0)
		r.pass(1100 * time.Millisecond)
		r.has("a", "2")
	})
	t.Run("until the limit", func(t *testing.T) {
		r := start(t)
		r.pass(5*time.Minute - time.Second)
		r.has("a", "1 draining, 2")
		r.pass(time.Second)
		r.has("a", "2")
	})
	t.Run("until the Pod is gone", func(t *testing.T) {
		r := start(t)
		r.x.DeletePod("shop", "a-1", true, r.clock.Now())
		r.cycle()
		r.has("a", "2")
	})
	t.Run("over a restart", func(t *testing.T) {
		r := start(t)
		r.pass(4 * time.Minute)
		writes := r.lb.Writes()
		r.restart()
		r.cycle()
		r.has("a", "1 draining, 2")
		if r.lb.Writes() != writes {
			t.Errorf("a restart wrote %v", r.lb.Journal()[writes:])
		}
		r.pass(time.Minute)
		r.has("a", "2")
	})
	t.Run("what was counted before it was enabled again does not count", func(t *testing.T) {
		r := start(t)
		r.lb.SetConnections(keyOf("a"), id("a", 1), 0)
		r.x.DeletePod("shop", "a-2", true, r.clock.Now())
		r.clock.Step(time.Second)
		r.cycle() // reads zero, and enables what still serves rather than nothing
		r.has("a", "1")
		r.lb.SetConnections(keyOf("a"), id("a", 1), 5)
		r.pod("a", 3)
		r.cycle()
		r.has("a", "1 draining, 3")
		r.pod("a", 4)
		r.cycle()
		r.has("a", "1 draining, 3, 4")
	})
	t.Run("nothing is read while nothing drains", func(t *testing.T) {
		r := start(t)
		r.x.DeletePod("shop", "a-1", true, r.clock.Now())
		r.cycle()
		before := r.lb.Observations()
		r.pass(2 * time.Minute)
		if n := r.lb.Observations() - before; n != 0 {
			t.Errorf("%d readings", n)
		}
	})
}

// I7: a pool that fails delays no other, and is retried by itself.
func TestIsolation(t *testing.T) {
	for _, kind := range []providers.Kind{providers.Unavailable, providers.Throttled, providers.Conflict, providers.Rejected, providers.Misconfigured} {
		t.Run(string(kind), func(t *testing.T) {
			r := newRig(t)
			r.service("a")
			r.service("b")
			r.lb.FailKey(keyOf("a"), &providers.Error{Kind: kind, What: "refused"})
			r.pod("a", 1)
			r.pod("b", 2)
			r.cycle()
			r.has("a", "none")
			r.has("b", "2")
			if p := r.report("a").Ports[0]; p.Programmed || p.Kind != kind || !strings.Contains(p.Problem, "refused") ||
				len(p.VIPs) > 0 || len(r.report("a").Pools) > 0 {
				t.Errorf("report %+v", p)
			}
			if p := r.report("b").Ports[0]; !p.Programmed || len(p.VIPs) != 1 {
				t.Errorf("report of the good one %+v", p)
			}
			for n := range 10 { // while one waits, the other follows at once
				r.pod("b", 10+n)
				before := r.lb.Writes()
				r.cycle()
				if r.lb.Writes() != before+1 {
					t.Errorf("Pod %d of the good pool was not taken up in its cycle", 10+n)
				}
			}
			observations := r.lb.Observations()
			r.pass(20 * time.Minute)
			if attempts := r.lb.Observations() - observations; attempts < 3 {
				t.Errorf("%d attempts in 20 minutes", attempts)
			}
			r.lb.FailKey(keyOf("a"), nil)
			r.pass(10 * time.Minute)
			r.has("a", "1")
			if p := r.report("a").Ports[0]; !p.Programmed || p.Problem != "" {
				t.Errorf("report after it was cured %+v", p)
			}
		})
	}
}

// A refused change is tried again at once when it is another change.
func TestRejectedUntilChanged(t *testing.T) {
	r := newRig(t)
	r.service("a")
	r.pod("a", 1)
	r.lb.FailKey(keyOf("a"), &providers.Error{Kind: providers.Rejected, What: "refused"})
	r.cycle()
	r.lb.FailKey(keyOf("a"), nil)
	r.pod("b", 9) // something else
	r.cycle()
	r.has("a", "none")
	r.service("a", func(s *model.Service) { s.Wishes.Pool.Algorithm = providers.LeastConnections })
	r.pass(time.Millisecond)
	r.has("a", "1")
}

// After an error nothing is changed before the load balancer was read again.
func TestObserveAfterError(t *testing.T) {
	r := newRig(t)
	r.service("a")
	r.pod("a", 1)
	r.cycle()
	r.lb.FailKey(keyOf("a"), unavailable("cut"))
	r.pod("a", 2)
	r.cycle()
	// The change got through after all; only the answer was lost.
	pool := r.lb.State().Pools[0]
	vs := r.lb.State().VirtualServers[0]
	pool.Members = append(slices.Clone(pool.Members), providers.Member{UID: "a-2", Address: id("a", 2).Address, State: providers.Enabled})
	r.lb.Tamper(owner, keyOf("a"), &pool, &vs)
	r.lb.FailKey(keyOf("a"), nil)
	writes, observations := r.lb.Writes(), r.lb.Observations()
	r.pass(time.Minute)
	if r.lb.Writes() != writes || r.lb.Observations() != observations+1 {
		t.Errorf("%d writes, %d readings; want none and one: what was lost was only the answer", r.lb.Writes()-writes, r.lb.Observations()-observations)
	}
	if !r.report("a").Ports[0].Programmed {
		t.Errorf("report %+v", r.report("a"))
	}
	if testutil.ToFloat64(r.loop.metrics.drift.WithLabelValues(causeEdited)) != 0 {
		t.Error("our own change counts as drift")
	}
}

func TestDriftIsRepaired(t *testing.T) {
	r := newRig(t)
	r.service("a")
	r.pod("a", 1)
	r.cycle()
	want := providertest.Render(r.lb.State())
	orphan := keyOf("z")
	for _, tamper := range []func(){
		func() { r.lb.Tamper(owner, keyOf("a"), nil, nil) },
		func() {
			r.lb.Tamper(owner, keyOf("a"), &providers.Pool{Key: keyOf("a"), Settings: providers.PoolSettings{Algorithm: providers.LeastConnections}}, nil)
		},
		func() {
			r.lb.Tamper(owner, orphan, &providers.Pool{Key: orphan, Settings: providers.PoolSettings{Algorithm: providers.RoundRobin}}, nil)
		},
	} {
		writes := r.lb.Writes()
		r.pass(5*time.Minute + time.Second)
		if r.lb.Writes() != writes {
			t.Errorf("with nothing changed a resync wrote %v", r.lb.Journal()[writes:])
		}
		tamper()
		r.pass(5 * time.Minute)
		if got := providertest.Render(r.lb.State()); got != want {
			t.Errorf("after a resync\n%swant\n%s", got, want)
		}
	}
	if n := testutil.ToFloat64(r.loop.metrics.drift.WithLabelValues(causeEdited)); n != 3 {
		t.Errorf("lbsync_drift_total %v, want 3", n)
	}
}

// A load balancer that says it was restarted is read at once, and repaired if it lost something.
func TestRestartOfTheLoadBalancer(t *testing.T) {
	r := newRig(t)
	r.service("a")
	r.pod("a", 1)
	r.pod("a", 2)
	r.cycle()
	writes, observations := r.lb.Writes(), r.lb.Observations()
	r.lb.Restart()
	r.cycle().cycle()
	if r.lb.Writes() != writes || r.lb.Observations() != observations+1 {
		t.Errorf("it lost nothing: %d writes and %d readings, want none and one", r.lb.Writes()-writes, r.lb.Observations()-observations)
	}

	forget := func() {
		pool, vs := r.lb.State().Pools[0], r.lb.State().VirtualServers[0]
		pool.Members = pool.Members[:1]
		r.lb.Tamper(owner, keyOf("a"), &pool, &vs)
		r.lb.Restart()
	}
	forget()
	r.cycle()
	r.has("a", "1, 2")

	r.lb.FailObserve(unavailable("starting")) // what cannot be read yet is read when it can be, whatever the back-off
	forget()
	r.pass(time.Minute)
	r.has("a", "1")
	r.lb.FailObserve(nil)
	r.lb.Restart()
	r.cycle()
	r.has("a", "1, 2")

	for cause, want := range map[string]float64{causeRestarted: 2, causeEdited: 0} {
		if n := testutil.ToFloat64(r.loop.metrics.drift.WithLabelValues(cause)); n != want {
			t.Errorf("lbsync_drift_total{cause=%q} %v, want %v", cause, n, want)
		}
	}
}

// I4: a restart with nothing changed writes nothing, and reads once.
func TestRestartWritesNothing(t *testing.T) {
	r := newRig(t)
	for _, app := range []string{"a", "b"} {
		r.service(app)
	}
	r.pod("a", 1)
	r.pod("a", 2, func(p *model.Pod) { p.Ready, p.ReadyChanged = false, r.clock.Now() })
	r.pod("b", 3)
	r.cycle()
	writes, observations := r.lb.Writes(), r.lb.Observations()
	r.restart()
	r.cycle().cycle()
	if r.lb.Writes() != writes || r.lb.Observations() != observations+1 {
		t.Errorf("%d writes, %d readings; want 0 and 1", r.lb.Writes()-writes, r.lb.Observations()-observations)
	}
	if !r.report("a").Ports[0].Programmed || r.report("a").Pools[0].Members[0].Name != "shop/a-1" {
		t.Errorf("report %+v", r.report("a"))
	}
}

// I6: while the load balancer cannot be read, nothing is written to it.
func TestUnreadable(t *testing.T) {
	r := newRig(t)
	r.lb.FailObserve(unavailable("cut"))
	r.service("a")
	r.pod("a", 1)
	r.pass(time.Minute)
	if r.lb.Writes() != 0 {
		t.Errorf("written blindly: %v", r.lb.Journal())
	}
	if h := r.loop.Health(); h.Ready || h.Observe == nil {
		t.Errorf("health %+v", h)
	}
	if !slices.Contains(r.reports, model.ServiceKey{Namespace: "shop", Name: "a"}) {
		t.Error("nobody was told")
	}
	r.lb.FailObserve(nil)
	r.pass(time.Minute)
	r.has("a", "1")

	// Later on it keeps going on what is known, and resumes reading when it can.
	r.lb.FailObserve(unavailable("cut"))
	r.pass(6 * time.Minute)
	r.pod("a", 2)
	r.cycle()
	r.has("a", "1, 2")
	if h := r.loop.Health(); h.Observe == nil {
		t.Error("the failure is not in the health")
	}
	r.lb.FailObserve(nil)
	r.reports = nil
	r.pass(time.Minute)
	if h := r.loop.Health(); h.Observe != nil {
		t.Errorf("health %+v after the cure", h)
	}
	if !slices.Contains(r.reports, model.ServiceKey{Namespace: "shop", Name: "a"}) {
		t.Error("nobody was told that it can be read again")
	}
}

// I6: an answer that cannot be the whole cluster removes nothing, except what a Service itself says.
func TestEmptyAnswer(t *testing.T) {
	r := newRig(t)
	r.service("a")
	r.service("b")
	r.service("c")
	for n, app := range []string{"a", "b", "c"} {
		r.pod(app, n+1)
	}
	r.cycle()
	for n, app := range []string{"a", "b", "c"} { // a list without any Pods
		r.x.DeletePod("shop", fmt.Sprintf("%s-%d", app, n+1), false, r.clock.Now())
	}
	r.service("b", func(s *model.Service) { s.Deleting = true })
	r.x.DeleteService(model.ServiceKey{Namespace: "shop", Name: "c"}, false, r.clock.Now())
	r.pass(time.Minute)
	r.has("a", "1")
	r.has("b", "none")
	r.has("c", "3")
	if !r.loop.Health().Held || testutil.ToFloat64(r.loop.metrics.held) != 1 {
		t.Error("nobody is told that removals are held")
	}
	if r.report("a").Ports[0].Programmed {
		t.Error("programmed, with removals held")
	}
	r.pod("x", 9) // the cluster is back, without the Pod and the Service
	r.pass(2 * time.Second)
	r.has("a", "")
	r.has("c", "none")
	if r.loop.Health().Held || !r.report("a").Ports[0].Programmed {
		t.Errorf("still held: %+v", r.report("a"))
	}
}

func TestFence(t *testing.T) {
	r := newRig(t)
	r.service("a")
	r.cycle()
	r.fence = errors.New("the Lease is not ours")
	r.pod("a", 1)
	writes := r.lb.Writes()
	r.pass(10 * time.Second)
	if r.lb.Writes() != writes {
		t.Error("written behind the fence")
	}
	r.fence = nil
	r.pass(2 * time.Second)
	r.has("a", "1")
}

func TestServiceLifecycle(t *testing.T) {
	r := newRig(t)
	udp := model.ServicePort{Port: 53, Protocol: providers.SCTP, TargetNumber: 53}
	r.service("a", func(s *model.Service) { s.Ports = append(s.Ports, udp) })
	r.pod("a", 1)
	r.cycle()
	report := r.report("a")
	if len(report.Ports) != 2 || !report.Ports[0].Unsupported || !report.Ports[1].Programmed || report.Gone || !report.Wanted {
		t.Errorf("report %+v", report)
	}
	if testutil.ToFloat64(r.loop.metrics.unsupported) != 1 || testutil.ToFloat64(r.loop.metrics.members.WithLabelValues("Enabled")) != 1 {
		t.Error("metrics do not show one unsupported port and one member")
	}
	r.service("a", func(s *model.Service) { s.Deleting = true })
	r.lb.FailKey(keyOf("a"), unavailable("cut"))
	r.cycle()
	if report := r.report("a"); report.Gone || report.Wanted || len(report.Ports) != 1 || report.Ports[0].Problem == "" {
		t.Errorf("report while the deletion fails %+v", report)
	}
	r.lb.FailKey(keyOf("a"), nil)
	r.pass(time.Minute)
	if report := r.report("a"); !report.Gone {
		t.Errorf("report after the deletion %+v", report)
	}
	if left := providertest.Render(r.lb.State()); left != "" {
		t.Errorf("left:\n%s", left)
	}
	if testutil.ToFloat64(r.loop.metrics.unsupported) != 0 || testutil.ToFloat64(r.loop.metrics.members.WithLabelValues("Enabled")) != 0 {
		t.Error("metrics still show it")
	}
	r.x.DeleteService(model.ServiceKey{Namespace: "shop", Name: "a"}, true, r.clock.Now())
	r.cycle()
	if len(r.loop.Reports()) != 0 {
		t.Errorf("reports of nobody: %+v", r.loop.Reports())
	}
}

// A refusal of the load balancer that was there before says nothing about the one that is there now.
func TestRestartEndsTheWait(t *testing.T) {
	r := newRig(t)
	r.service("a")
	r.cycle()
	r.lb.FailKey(keyOf("a"), &providers.Error{Kind: providers.Rejected, What: "change", Err: errors.New("no")})
	r.pod("a", 1)
	r.cycle()
	r.lb.FailKey(keyOf("a"), nil)
	r.cycle()
	r.has("a", "") // it waits
	r.lb.Restart()
	r.cycle()
	r.has("a", "1")
}

// Run itself: it wakes on events, also of the load balancer, and ends with its context.
func TestRun(t *testing.T) {
	r := newRig(t)
	r.service("a")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.loop.Run(ctx) }()
	deadline := time.Now().Add(30 * time.Second)
	for n := 1; n <= 3; n++ {
		r.pod("a", n)
		for r.lb.Writes() < 1+n { // the pool, its virtual server, the members: the first comes with the pool
			if time.Now().After(deadline) {
				t.Fatalf("Pod %d never became a member: %v", n, r.lb.Journal())
			}
			time.Sleep(time.Millisecond)
		}
	}
	for range 2 { // the second time it surely sleeps, and the clock stands still: nothing else wakes it
		r.lb.Tamper(owner, keyOf("a"), nil, nil)
		r.lb.Restart()
		for len(r.lb.State().VirtualServers) == 0 || !r.clock.HasWaiters() {
			if time.Now().After(deadline) {
				t.Fatalf("the restart of the load balancer did not wake it: %v", r.lb.Journal())
			}
			time.Sleep(time.Millisecond)
		}
	}
	cancel()
	<-done
}
