package agent

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/loop/kerneltest"
	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/internal/nodecheck"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// facts of a Node that forwards, with what edit does to them.
func facts(s nodecheck.Subject, edit func(*nodecheck.Facts)) nodecheck.Facts {
	f := nodecheck.Facts{Subject: s, Forwarding: map[npl.Family]bool{npl.IPv4: true, npl.IPv6: true}, Ephemeral: nodecheck.Ports{First: 32768, Last: 60999}}
	if edit != nil {
		edit(&f)
	}
	return f
}

func drops(f *nodecheck.Facts) {
	f.ForwardChains = []nodecheck.ForwardChain{{Family: npl.IPv4, Chain: "chain FORWARD of iptables-nft", Why: "policy drop"}}
}

// antreaAtWork is a chain of Antrea's on whose port somebody listens.
func antreaAtWork(f *nodecheck.Facts) {
	f.AntreaChains = []nodecheck.AntreaChain{{Tool: nodecheck.IPTables, Ports: []nodecheck.AntreaPort{{Protocol: npl.TCP, Port: 61000}}}}
	f.Listeners = []nodecheck.Listener{{Protocol: npl.TCP, Address: netip.MustParseAddrPort("0.0.0.0:61000")}}
}

func atWork(found []Finding) bool {
	return slices.ContainsFunc(found, func(f Finding) bool { return f.Check == nodecheck.Antrea && f.Severity == nodecheck.Error })
}

// askedClock remembers for how long it was asked to wait.
type askedClock struct {
	*clocktesting.FakeClock
	asked atomic.Int64
}

func (c *askedClock) After(d time.Duration) <-chan time.Time {
	c.asked.Store(int64(d))
	return c.FakeClock.After(d)
}

// A finding is told once when it begins and once when it ends, whatever its numbers do meanwhile; the clock decides when the Node is
// tested again.
func TestFindingsBeginAndEnd(t *testing.T) {
	c := start(t)
	core, logs := observer.New(zap.InfoLevel)
	reg := prometheus.NewRegistry()
	clk := &askedClock{FakeClock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
	var tested atomic.Int64
	var wrong atomic.Pointer[func(*nodecheck.Facts)]
	e, err := newExaminer("node-1", func(context.Context) nodecheck.Facts {
		defer tested.Add(1)
		f := facts(nodecheck.Subject{Settings: nodecheck.Settings{PortRange: nodecheck.Ports{First: 61000, Last: 62000}, Families: []npl.Family{npl.IPv4}}}, nil)
		if w := wrong.Load(); w != nil {
			(*w)(&f)
		}
		return f
	}, clk, zap.New(core), reg)
	if err != nil {
		t.Fatal(err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.EventsV1()})
	defer broadcaster.Shutdown()
	ctx, cancel := context.WithCancel(t.Context())
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	e.recorder = broadcaster.NewRecorder(scheme.Scheme, "npl-agent")
	done := make(chan struct{})
	go func() { defer close(done); e.run(ctx) }()
	defer func() { cancel(); <-done }()

	again := func(edit func(*nodecheck.Facts)) {
		t.Helper()
		eventually(t, "the test waits for the clock", clk.HasWaiters)
		before := tested.Load()
		wrong.Store(&edit)
		if got := time.Duration(clk.asked.Load()); got != 5*time.Minute {
			t.Errorf("the next test comes in %s", got)
		}
		clk.Step(5 * time.Minute)
		eventually(t, "another test", func() bool { return tested.Load() == before+1 && clk.HasWaiters() })
	}
	gauge := func() float64 {
		return testutil.ToFloat64(e.gauge.WithLabelValues("ForwardPolicy", "warning"))
	}
	begun := func() int { return logs.FilterMessageSnippet("chain FORWARD of iptables-nft: policy drop").Len() }

	eventually(t, "first test", func() bool { return tested.Load() == 1 })
	if n, _ := testutil.GatherAndCount(reg, "npl_agent_findings"); n != len(nodecheck.Checks())*len(nodecheck.Severities()) || gauge() != 0 || logs.Len() > 0 {
		t.Errorf("%d series, gauge %v, log %v", n, gauge(), logs.All())
	}
	again(drops)
	again(func(f *nodecheck.Facts) { drops(f); f.ForwardChains[0].Why = "policy drop, said otherwise" })
	if begun() != 1 || gauge() != 1 {
		t.Errorf("told %d times, gauge %v", begun(), gauge())
	}
	eventually(t, "Event", func() bool {
		list, err := c.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			return false
		}
		event := list.Items[0]
		return event.Regarding.Kind == "Node" && event.Regarding.Name == "node-1" && event.Regarding.Namespace == "" && event.Reason == "ForwardPolicy" && event.Type == "Warning" &&
			strings.Contains(event.Note, "forwardAccept: true")
	})
	again(func(*nodecheck.Facts) {})
	if logs.FilterMessageSnippet("no longer found: chain FORWARD").Len() != 1 || gauge() != 0 {
		t.Errorf("the end was not told, gauge %v: %v", gauge(), logs.All())
	}
	again(func(f *nodecheck.Facts) { f.Unread = map[nodecheck.Check]string{nodecheck.Kernel: "denied"} })
	if logs.FilterMessage("denied").FilterLevelExact(zap.InfoLevel).Len() != 1 || testutil.ToFloat64(e.gauge.WithLabelValues("Kernel", "unknown")) != 1 {
		t.Errorf("an unknown: %v", logs.All())
	}
	again(drops)
	if n := logs.FilterMessageSnippet("policy drop").FilterLevelExact(zap.WarnLevel).Len(); n != 2 {
		t.Errorf("begun twice, told %d times: %v", n, logs.All())
	}
}

// examinedAgent runs an agent whose Node looks as edit says.
func (c *cluster) examinedAgent(k *kerneltest.Kernel, edit func(*nodecheck.Facts)) (*Agent, <-chan error) {
	c.t.Helper()
	a, err := newAgent(config(), c, zaptest.NewLogger(c.t), prometheus.NewRegistry(), func(dataplane.Config) (kernel, error) { return k, nil })
	if err != nil {
		c.t.Fatal(err)
	}
	a.collect = func(s nodecheck.Subject) nodecheck.Facts { return facts(s, edit) }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	finished := make(chan struct{})
	go func() { defer close(finished); done <- a.Run(ctx) }()
	c.t.Cleanup(func() { cancel(); <-finished })
	return a, done
}

func TestRefusesToStartBesideAntrea(t *testing.T) {
	c, k := start(t), newKernel()
	c.addService("web", 8080)
	c.addPod("node-1", "p", "u", "10.0.0.1")
	_, done := c.examinedAgent(k, antreaAtWork)
	err := <-done
	for _, want := range []string{"Antrea's NodePortLocal is at work", "nodePortLocal.enable: false", "ANTREA-NODE-PORT-LOCAL", "uninstall npl-agent"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want one line with %q", err, want)
		}
	}
	list, err := c.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Reason != "Antrea" || list.Items[0].Regarding.Name != "node-1" || !strings.Contains(list.Items[0].Note, "iptables-nft -t nat -X") {
		t.Errorf("Events %v, %v", list, err)
	}
	if len(k.Rules()) > 0 || k.Writes() > 0 || c.annotation("p") != "" {
		t.Errorf("it served: %v, annotation %q", k.Rules(), c.annotation("p"))
	}
}

// An agent that serves already does not stop when Antrea's comes, nor when it is restarted then: it says so.
func TestAntreaThatComesLater(t *testing.T) {
	c, k := start(t), newKernel()
	c.addService("web", 8080)
	c.addPod("node-1", "p", "u", "10.0.0.1")
	_, _, stop := c.agentOn(k, config())
	eventually(t, "annotation", func() bool { return c.annotation("p") != "" })
	stop()
	a, done := c.examinedAgent(k, antreaAtWork)
	eventually(t, "ready, and the finding in the status", func() bool {
		return ready(a) && atWork(a.Status().(StatusDocument).Findings)
	})
	eventually(t, "Event on the Node", func() bool {
		list, err := c.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Reason == "Antrea" && e.Regarding.Kind == "Node" })
	})
	select {
	case err := <-done:
		t.Errorf("it stopped: %v", err)
	default:
	}
}

// What Antrea leaves behind keeps nobody from starting.
func TestStartsOverAntreasLeftovers(t *testing.T) {
	c, k := start(t), newKernel()
	c.addService("web", 8080)
	c.addPod("node-1", "p", "u", "10.0.0.1")
	a, _ := c.examinedAgent(k, func(f *nodecheck.Facts) { antreaAtWork(f); f.Listeners = nil })
	eventually(t, "annotation, and the first test of the Node", func() bool {
		return c.annotation("p") != "" && ready(a) && len(a.Status().(StatusDocument).Findings) > 0
	})
	body, err := json.Marshal(a.Status())
	for _, want := range []string{`"check":"Antrea","severity":"warning","object":"leftover"`, `"node":"node-1"`, `"mappings":[{"pod":"default/p"`} {
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("no %s in %s, %v", want, body, err)
		}
	}
}

func TestSubject(t *testing.T) {
	ip := netip.MustParseAddr
	s := subject(config(), model.Node{Addresses: []model.NodeAddress{{Type: "InternalIP", IP: ip("192.0.2.1")}}}, []model.Pod{
		{Namespace: "shop", Name: "web", IPs: []netip.Addr{ip("10.0.0.1"), ip("fd00::1")}},
		{Namespace: "shop", Name: "done", IPs: []netip.Addr{ip("10.0.0.2")}, Terminated: true},
		{Namespace: "kube-system", Name: "antrea-agent-x", IPs: []netip.Addr{ip("192.0.2.1")}, Labels: map[string]string{"app": "antrea", "component": "antrea-agent"}},
		{Namespace: "kube-system", Name: "antrea-controller", IPs: []netip.Addr{ip("192.0.2.1")}, Labels: map[string]string{"app": "antrea", "component": "antrea-controller"}},
	})
	if want := []netip.Addr{ip("10.0.0.1"), ip("fd00::1")}; !slices.Equal(s.Pods, want) || s.AntreaPod != "kube-system/antrea-agent-x" || !slices.Equal(s.Nodes, []netip.Addr{ip("192.0.2.1")}) {
		t.Errorf("got %+v", s)
	}
	if s.Settings.PortRange != (nodecheck.Ports{First: 61000, Last: 62000}) || s.Settings.Masquerade != "auto" || len(s.Settings.Families) != 2 {
		t.Errorf("got %+v", s.Settings)
	}
}
