package loop

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/internal/ports"
	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/agent/watermark"
)

// only makes a world in which the range has this many ports.
func only(t *testing.T, size uint16, confirmed bool) *world {
	w := newWorld(t)
	w.settings.Range = ports.Range{First: 61000, Last: 61000 + size - 1}
	w.confirmed = confirmed
	w.start()
	w.addService("web", web, 80)
	return w
}

func tcp(g *prometheus.GaugeVec) float64 {
	return testutil.ToFloat64(g.WithLabelValues(string(npl.TCP), string(npl.IPv4)))
}

func TestNPL55ExhaustionIsSeenAndWhoWaitsIsServedAtOnce(t *testing.T) {
	w := only(t, 3, false)
	a := w.addPod("a", web)
	w.settle()
	big := w.addPod("big", map[string]string{"app": "big"})
	w.addService("big", map[string]string{"app": "big"}, 1, 2, 3)
	small := w.addPod("small", web)
	w.settle()

	// All or none, and nobody else is held up.
	if big.Annotated || w.nodePort(small, 80) == 0 || len(w.kernel.Rules()) != 2 || len(w.kernel.Sockets()) != 2 {
		t.Errorf("big %q, small %q, rules %v, sockets %v", big.Annotation, small.Annotation, w.kernel.Rules(), w.kernel.Sockets())
	}
	if w.refusals(PortsExhausted) != 1 || testutil.ToFloat64(w.metrics.Refusals.WithLabelValues(string(PortsExhausted))) != 1 || tcp(w.metrics.Missing) != 3 || tcp(w.metrics.Free) != 1 {
		t.Errorf("%d Events, %v missing, %v free", w.refusals(PortsExhausted), tcp(w.metrics.Missing), tcp(w.metrics.Free))
	}
	// The moment the last port is free, all of them are given.
	delete(w.pods, a.UID)
	delete(w.pods, small.UID)
	w.settle()
	if next := w.mustSync(); next.After(w.clock.Now().Add(w.settings.RepairInterval)) {
		t.Errorf("next pass at %s", next)
	}
	w.after(w.settings.CoolDown - time.Second)
	if big.Annotated {
		t.Fatalf("cooling ports were given: %s", big.Annotation)
	}
	if next := w.mustSync(); !next.Equal(w.clock.Now().Add(time.Second)) {
		t.Errorf("ports are free in a second, and the next pass is at %s", next)
	}
	w.after(time.Second)
	if len(w.listed(big)) != 3 || tcp(w.metrics.Missing) != 0 || tcp(w.metrics.Free) != 0 || tcp(w.metrics.InUse) != 3 {
		t.Errorf("big %q, %v missing, %v free, %v in use", big.Annotation, tcp(w.metrics.Missing), tcp(w.metrics.Free), tcp(w.metrics.InUse))
	}
	if got := testutil.ToFloat64(w.metrics.Refusals.WithLabelValues(string(PortsExhausted))); got != 0 {
		t.Errorf("still refused: %v", got)
	}
}

func TestNPL57FreedPortCoolsAlsoAcrossARestart(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := only(t, 1, false)
		a := w.addPod("a", web)
		w.settle()
		delete(w.pods, a.UID)
		w.settle()
		if restart {
			w.start()
		}
		b := w.addPod("b", web)
		w.after(w.settings.CoolDown - time.Second) // the world fails on I2
		if b.Annotated {
			t.Errorf("restart %v: a cooling port was given", restart)
		}
		w.after(time.Second)
		if w.nodePort(b, 80) != 61000 {
			t.Errorf("restart %v: the port was not given after the cool-down", restart)
		}
	}
}

// freed is a world with one port, that was of Pod a and is wanted by Pod b, and the load balancers that knew of a.
func freedPort(t *testing.T, balancers ...string) (w *world, a, b *model.Pod) {
	w = only(t, 1, true)
	a = w.addPod("a", web)
	w.settle()
	for _, name := range balancers {
		w.balance(name, true)
	}
	w.settle()
	delete(w.pods, a.UID)
	w.settle()
	b = w.addPod("b", web)
	return w, a, b
}

func TestPortWaitsForEveryWatermark(t *testing.T) {
	w, _, b := freedPort(t, "one", "two")
	w.after(w.settings.CoolDown)
	for range 100 { // however long
		w.after(12 * time.Hour)
	}
	if b.Annotated {
		t.Fatal("the port was given, and nobody has confirmed")
	}
	const who = "waiting for lb/one (haproxy), lb/two (haproxy);"
	if w.refusals(PortsUnconfirmed) != 1 || !strings.Contains(w.refused[len(w.refused)-1].Message, who) {
		t.Errorf("refusals %v", w.refused)
	}
	if tcp(w.metrics.Unconfirmed) != 1 || tcp(w.metrics.Cooling) != 1 || tcp(w.metrics.Free) != 0 || tcp(w.metrics.Missing) != 1 {
		t.Errorf("%v unconfirmed, %v cooling, %v free, %v missing", tcp(w.metrics.Unconfirmed), tcp(w.metrics.Cooling), tcp(w.metrics.Free), tcp(w.metrics.Missing))
	}
	if c := w.loop.Document().Cooling; len(c) != 1 || fmt.Sprint(c[0].WaitingFor) != "[lb/one (haproxy) lb/two (haproxy)]" {
		t.Errorf("status %+v", c)
	}
	w.balance("one", true)
	w.settle()
	if b.Annotated || fmt.Sprint(w.loop.Document().Cooling[0].WaitingFor) != "[lb/two (haproxy)]" {
		t.Errorf("b %q, waiting for %v", b.Annotation, w.loop.Document().Cooling)
	}
	w.balance("two", true) // no time passes
	w.settle()
	if w.nodePort(b, 80) != 61000 || tcp(w.metrics.Unconfirmed) != 0 {
		t.Errorf("b %q: a waiter is served the moment the last watermark arrives", b.Annotation)
	}
}

func TestWatermarkDoesNotShortenTheCoolDown(t *testing.T) {
	w, _, b := freedPort(t, "one")
	w.balance("one", true)
	w.after(w.settings.CoolDown - time.Second)
	if b.Annotated {
		t.Error("the port was given before its time")
	}
	w.after(time.Second)
	if !b.Annotated {
		t.Error("the port was never given")
	}
}

// It does not pass over a watermark that cannot be read, and waits where it does not know which there are.
func TestWhatIsNotConfirmed(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*world)
		want   string
	}{
		"none":              {func(w *world) { w.retire("one") }, watermark.NoWatermark},
		"older":             {func(w *world) { w.balancers["one"].mark.Seen = "1" }, "lb/one (haproxy)"},
		"without a version": {func(w *world) { w.balancers["one"].mark.Seen = "" }, "lb/one (haproxy)"},
		"held": {func(w *world) {
			w.balancers["one"].mark.Held = []watermark.NodePort{{Node: "node-1", Protocol: "tcp", Family: "IPv4", Port: 61000}}
		}, "lb/one (haproxy)"},
		"nobody knows": {func(w *world) { w.marksErr = errors.New("forbidden") }, "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, b := freedPort(t, "one")
			w.balance("one", true)
			tt.change(w)
			w.after(w.settings.CoolDown)
			w.after(time.Hour)
			if b.Annotated || w.refusals(PortsUnconfirmed) != 1 || fmt.Sprint(w.loop.Document().Cooling[0].WaitingFor) != "["+tt.want+"]" {
				t.Errorf("b %q, %d refusals, %+v", b.Annotation, w.refusals(PortsUnconfirmed), w.loop.Document().Cooling)
			}
		})
	}
}

func TestRetiredInstanceIsNotWaitedFor(t *testing.T) {
	w, _, b := freedPort(t, "one", "two")
	w.balance("one", true)
	w.after(w.settings.CoolDown)
	if b.Annotated {
		t.Error("two has not confirmed")
	}
	w.retire("two")
	w.settle()
	if !b.Annotated {
		t.Error("it is retired, and the port still waits for it")
	}
}

// A passed watermark is one that has seen the withdrawal itself: our patch, or the deletion.
func TestWithdrawalIsAtItsOwnVersion(t *testing.T) {
	for name, withdraw := range map[string]func(w *world, a *model.Pod){
		"patch":    func(w *world, a *model.Pod) { delete(w.services, "web") },
		"deletion": func(w *world, a *model.Pod) { delete(w.pods, a.UID) },
		"address":  func(w *world, a *model.Pod) { a.IPs = nil },
		"edit":     func(w *world, a *model.Pod) { delete(w.services, "web"); a.Annotated, a.Annotation = false, "" },
	} {
		t.Run(name, func(t *testing.T) {
			w := only(t, 1, true)
			a := w.addPod("a", web)
			w.settle()
			w.balance("one", true)
			before := w.balancers["one"].mark.Seen
			withdraw(w, a)
			w.settle()
			at := w.Version()
			for range 5 { // other Pods go on
				w.addPod(fmt.Sprint("other", w.version), nil)
				w.settle()
			}
			w.settings.WithdrawGrace = 0
			w.after(time.Minute)
			w.after(w.settings.CoolDown)
			if waiting := w.loop.waitingFor(model.Key(tcp4(61000))); len(waiting) != 1 {
				t.Errorf("seen %s: waiting for %q", before, waiting)
			}
			w.balancers["one"].mark.Seen = at // exactly
			w.settle()
			if waiting := w.loop.waitingFor(model.Key(tcp4(61000))); len(waiting) != 0 || len(w.loop.alloc.Cooling()) != 0 {
				t.Errorf("seen %s: waiting for %q, %d cooling", at, waiting, len(w.loop.alloc.Cooling()))
			}
		})
	}
}

// The deletion is known before the event that tells its version: nothing is guessed meanwhile.
func TestDeletionWhoseVersionIsNotKnownYetConfirmsNothing(t *testing.T) {
	w := only(t, 1, true)
	a := w.addPod("a", web)
	w.settle()
	w.balance("one", true)
	delete(w.pods, a.UID)
	w.happen()
	event := w.deletions
	w.deletions = map[string]string{}
	w.balance("one", true)
	w.settle()
	w.after(w.settings.CoolDown)
	if got := fmt.Sprint(w.loop.waitingFor(model.Key(tcp4(61000)))); got != "["+stillListed+"]" {
		t.Errorf("waiting for %s", got)
	}
	w.deletions = event
	w.settle()
	w.after(w.settings.CoolDown)
	if got := w.loop.waitingFor(model.Key(tcp4(61000))); len(got) != 0 {
		t.Errorf("waiting for %q", got)
	}
}

func TestUnconfirmedPortOutlivesEveryRestart(t *testing.T) {
	w, _, b := freedPort(t, "one")
	for range 4 { // years
		w.start()
		w.settle()
		for range 30 {
			w.after(12 * 24 * time.Hour) // the agent runs
		}
		w.start()
		w.clock.Step(14 * 24 * time.Hour) // it is down
	}
	w.start()
	w.settle()
	w.after(w.settings.CoolDown)
	if b.Annotated {
		t.Fatal("the port was given")
	}
	w.balance("one", true)
	w.settle()
	if !b.Annotated {
		t.Error("the port was not given when it was confirmed")
	}
	delete(w.pods, b.UID)
	w.settle()
	w.balance("one", true)
	w.after(w.settings.CoolDown)
	if s, _ := w.kernel.Load(); tcp(w.metrics.Free) != 1 {
		t.Errorf("%v free, the kernel remembers %v", tcp(w.metrics.Free), s.Cooling)
	}
	w.after(time.Millisecond)
	if s, _ := w.kernel.Load(); len(s.Cooling) != 0 {
		t.Errorf("the kernel remembers a port that is free: %v", s.Cooling)
	}
}

// After a reboot every port may be listed by somebody, even if no annotated Pod survived it. Only where no load balancer has ever
// appeared there is nothing to wait for.
func TestRebootMakesEveryPortWaitForAWatermark(t *testing.T) {
	w, _, b := freedPort(t, "one")
	w.flush()
	w.start()
	w.settle()
	w.after(w.settings.CoolDown)
	if b.Annotated {
		t.Error("the port was given after the reboot")
	}
	w.balance("one", true)
	w.settle()
	if !b.Annotated {
		t.Error("the port was never given")
	}

	first := only(t, 1, true)
	c := first.addPod("c", web)
	first.settle()
	if !c.Annotated {
		t.Error("the first Pod of a cluster without load balancers waits for one")
	}
}

// What an annotation of somebody else's making lists is believed by load balancers all the same.
func TestForgedPortRests(t *testing.T) {
	for _, confirmed := range []bool{false, true} {
		w := only(t, 1, confirmed)
		w.settle()
		forger := w.addPod("forger", nil)
		forger.Annotated, forger.Annotation = true, `[{"podPort":80,"nodeIP":"192.0.2.1","nodePort":61000}]`
		w.balance("one", true)
		w.settle()
		w.start() // the agent does not forget it
		b := w.addPod("b", web)
		w.settle()
		if forger.Annotated || b.Annotated {
			t.Errorf("confirmed %v: forger %q, b %q", confirmed, forger.Annotation, b.Annotation)
		}
		w.after(w.settings.CoolDown) // the world fails on I3
		if b.Annotated == confirmed {
			t.Errorf("confirmed %v: after the cool-down b is published at %q", confirmed, b.Annotation)
		}
		w.balance("one", true)
		w.settle()
		if !b.Annotated {
			t.Errorf("confirmed %v: the port was never given", confirmed)
		}
	}
}

// A host port inside the range is published, too, and its Pod may go while the agent is down.
func TestPublishedHostPortIsRemembered(t *testing.T) {
	w := only(t, 1, true)
	h := w.addPod("h", web)
	h.Ports = []model.ContainerPort{{Port: 80, Protocol: npl.TCP, HostPort: 61000}}
	w.settle()
	w.balance("one", true)
	delete(w.pods, h.UID)
	w.start()
	b := w.addPod("b", web)
	w.settle()
	w.after(w.settings.CoolDown) // the world fails on I3
	if b.Annotated {
		t.Error("the port was given, and nobody has confirmed")
	}
	w.balance("one", true)
	w.settle()
	if !b.Annotated {
		t.Error("the port was never given")
	}
}

func TestAgentThatDiesAfterTheRemovalHasTakenNoteOfThePort(t *testing.T) {
	w := only(t, 1, true)
	a := w.addPod("a", web)
	w.settle()
	w.balance("one", true)
	delete(w.pods, a.UID)
	w.crashIn = 2 // the change, and that it was made
	if lived, _, _ := w.sync(); lived || len(w.kernel.Rules()) != 0 {
		t.Fatalf("lived %v, rules %v", lived, w.kernel.Rules())
	}
	w.clock.Step(24 * time.Hour)
	w.start()
	b := w.addPod("b", web)
	w.settle()
	w.after(w.settings.CoolDown)
	if b.Annotated {
		t.Error("the port was given, and nobody has confirmed")
	}
}

// The grace ends early where every load balancer has confirmed, and never makes a rule wait longer.
func TestWatermarkEndsTheGrace(t *testing.T) {
	for _, confirmed := range []bool{true, false} {
		w := only(t, 1, true)
		a := w.addPod("a", web)
		w.settle()
		w.balance("one", true)
		delete(w.services, "web")
		w.settle()
		if a.Annotated || len(w.kernel.Rules()) != 1 {
			t.Errorf("annotation %q, rules %v: the rule stays", a.Annotation, w.kernel.Rules())
		}
		if confirmed {
			w.balance("one", true)
			w.settle()
		} else {
			w.after(w.settings.WithdrawGrace)
		}
		if len(w.kernel.Rules()) != 0 {
			t.Errorf("confirmed %v: rules %v", confirmed, w.kernel.Rules())
		}
	}
}

func TestTimeAloneFreesAPortAgainWhenTheSettingIsTakenBack(t *testing.T) {
	w, _, b := freedPort(t, "one")
	w.settle()
	w.confirmed = false
	w.start()
	w.settle()
	w.after(w.settings.CoolDown)
	if !b.Annotated {
		t.Error("the port was not given after the cool-down")
	}
}

func TestSwitchToConfirmedMakesCoolingPortsWait(t *testing.T) {
	w := only(t, 1, false)
	a := w.addPod("a", web)
	w.settle()
	w.balance("one", true)
	delete(w.pods, a.UID)
	w.settle()
	w.confirmed = true
	w.start()
	b := w.addPod("b", web)
	w.settle()
	w.start()
	w.after(2 * w.settings.CoolDown)
	if b.Annotated {
		t.Error("the port was given, and nobody has confirmed")
	}
}

// A port that is freed in the pass in which somebody misses one is looked at again without delay.
func TestPortFreedInThisPassServesTheNextAtOnce(t *testing.T) {
	for _, confirmed := range []bool{false, true} {
		w := newWorld(t)
		w.settings.Range.Last, w.settings.CoolDown, w.confirmed = w.settings.Range.First, 0, confirmed
		w.start()
		w.addService("web", web, 80)
		a := w.addPod("a", web)
		w.settle()
		delete(w.pods, a.UID)
		b := w.addPod("b", web)
		if next := w.mustSync(); !next.Equal(w.clock.Now()) {
			t.Errorf("confirmed %v: the next pass is at %s, not at once", confirmed, next)
		}
		w.settle()
		if b.Annotated == confirmed || confirmed && w.refusals(PortsUnconfirmed) != 1 {
			t.Errorf("confirmed %v: b %q, refusals %v", confirmed, b.Annotation, w.refused)
		}
	}
}
