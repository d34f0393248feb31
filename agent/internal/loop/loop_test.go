package loop

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

func TestPublishedAfterProgrammed(t *testing.T) {
	w := newWorld(t)
	w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	w.wantLog(t, "program 61000 10.0.0.1:80", "publish a [192.0.2.1:61000->80/tcp]")
	if got := len(w.kernel.Sockets()); got != 1 {
		t.Errorf("%d sockets held, want 1", got)
	}
}

func TestRuleGoesOnlyAfterTheAnnotationAndTheGrace(t *testing.T) {
	w := newWorld(t)
	w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	w.log = nil

	delete(w.services, "web")
	w.mustSync()
	w.clock.Step(time.Hour) // the API server is slow: the rule waits however long that takes
	w.mustSync()
	w.wantLog(t)
	w.deliver()
	next := w.mustSync()
	w.wantLog(t, "publish a []")
	if want := w.clock.Now().Add(w.settings.WithdrawGrace); next.After(want) {
		t.Errorf("next pass at %s, want %s at the latest", next, want)
	}
	w.after(w.settings.WithdrawGrace - time.Second)
	w.wantLog(t)
	w.after(time.Second)
	w.wantLog(t, "remove 61000")
	if got := len(w.kernel.Sockets()); got != 0 {
		t.Errorf("%d sockets still held", got)
	}
}

func TestWantedAgainWithinTheGraceKeepsThePort(t *testing.T) {
	w := newWorld(t)
	p := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	delete(w.services, "web")
	w.after(w.settings.WithdrawGrace / 2)
	w.log = nil
	w.addService("web", web, 80)
	w.after(time.Hour)
	w.wantLog(t, "publish a [192.0.2.1:61000->80/tcp]")
	if got := w.nodePort(p, 80); got != 61000 {
		t.Errorf("node port %d", got)
	}
}

func TestPodGoneLosesItsRuleAtOnceAndItsPortCools(t *testing.T) {
	w := newWorld(t)
	w.settings.Range.Last = w.settings.Range.First
	w.start()
	a := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	w.log = nil
	delete(w.pods, a.UID)
	b := w.addPod("b", web)
	w.settle()
	w.wantLog(t, "remove 61000")
	if got := w.refusals(PortsExhausted); got != 1 {
		t.Errorf("%d refusals for exhaustion, want 1", got)
	}
	next := w.mustSync()
	if want := w.clock.Now().Add(w.settings.RepairInterval); next.After(want) {
		t.Errorf("next pass at %s, after %s", next, want)
	}
	w.after(w.settings.CoolDown - time.Second)
	w.wantLog(t)
	if next := w.mustSync(); next.After(w.clock.Now().Add(time.Second)) {
		t.Errorf("a Pod waits for a port that is free in a second, and the next pass is at %s", next)
	}
	w.after(time.Second)
	if got := w.nodePort(b, 80); got != 61000 {
		t.Errorf("the waiting Pod has node port %d", got)
	}
}

func TestExhaustionSaysHowManyPortsAreMissing(t *testing.T) {
	w := newWorld(t)
	w.settings.Range.Last = w.settings.Range.First
	w.start()
	w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	w.addPod("one", map[string]string{"app": "one"})
	w.addService("one", map[string]string{"app": "one"}, 1)
	w.addPod("two", map[string]string{"app": "two"})
	w.addService("two", map[string]string{"app": "two"}, 1, 2)
	w.settle()
	for _, want := range []string{
		"Pod default/one needs 1 more node port, and portRange 61000-61000 has none free: ",
		"Pod default/two needs 2 more node ports, and portRange 61000-61000 has not that many free: ",
	} {
		if !slices.ContainsFunc(w.refused, func(r model.Refusal) bool { return strings.HasPrefix(r.Message, want) }) {
			t.Errorf("no refusal %q in %v", want, w.refused)
		}
	}
}

func TestPodThatChangesItsAddressKeepsItsPort(t *testing.T) {
	w := newWorld(t)
	p := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	w.log = nil
	p.IPs[0] = w.newIP()
	w.settle()
	w.wantLog(t, "program 61000 10.0.0.2:80")

	// Without any address the rule goes at once: the address may be another Pod's by now.
	ip := p.IPs
	p.IPs = nil
	w.settle()
	w.wantLog(t, "remove 61000", "publish a []")
	p.IPs = ip
	w.settle()
	w.wantLog(t, "program 61000 10.0.0.2:80", "publish a [192.0.2.1:61000->80/tcp]")
}

func TestJunkAnnotationIsReplacedAndBlocksNobody(t *testing.T) {
	w := newWorld(t)
	a, b := w.addPod("a", web), w.addPod("b", web)
	a.Annotated, a.Annotation = true, "{junk"
	w.addService("web", web, 80)
	w.settle()
	if w.nodePort(a, 80) == 0 || w.nodePort(b, 80) == 0 {
		t.Errorf("a %q, b %q", a.Annotation, b.Annotation)
	}
	if got := w.refusals(AnnotationUnreadable); got != 1 {
		t.Errorf("%d reports of the junk, want 1", got)
	}
	// Nothing wants the Pod any more: junk does not block the way back either.
	a.Annotation = "null"
	delete(w.services, "web")
	w.settle()
	w.after(w.settings.WithdrawGrace)
	if a.Annotated || len(w.kernel.Rules()) != 0 {
		t.Errorf("annotation %q, rules %v", a.Annotation, w.kernel.Rules())
	}
}

func TestEditedAnnotationIsPutBack(t *testing.T) {
	w := newWorld(t)
	p := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	was := p.Annotation
	p.Annotated, p.Annotation = false, ""
	w.settle()
	if p.Annotation != was {
		t.Errorf("annotation %q, want %q", p.Annotation, was)
	}
}

func TestRestartWritesNothing(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c"} {
		w.addPod(name, web)
	}
	w.addService("web", web, 80, 81)
	w.settle()
	writes, patches := w.kernel.Writes(), w.patches
	w.start()
	w.settle()
	if w.kernel.Writes() != writes || w.patches != patches {
		t.Errorf("%d kernel writes and %d patches after a restart, want none", w.kernel.Writes()-writes, w.patches-patches)
	}
	if got := len(w.kernel.Sockets()); got != 6 {
		t.Errorf("%d sockets after the restart, want 6", got)
	}
}

func TestRebootKeepsPublishedPortsAndRestsTheOthers(t *testing.T) {
	w := newWorld(t)
	a, b := w.addPod("a", web), w.addPod("b", web)
	w.addService("web", web, 80)
	w.settle()
	portA := w.nodePort(a, 80)
	delete(w.pods, b.UID) // while the Node is down
	w.flush()
	a.IPs[0] = w.newIP()
	w.start()
	c := w.addPod("c", web)
	w.settle()
	if got := w.nodePort(a, 80); got != portA {
		t.Errorf("Pod a moved from %d to %d", portA, got)
	}
	if c.Annotated {
		t.Error("a new Pod got a port right after a reboot: what was freed lately is not known")
	}
	w.start() // killed again: the kernel remembers the rest
	w.after(w.settings.CoolDown - time.Second)
	if c.Annotated {
		t.Error("the second start forgot the rest")
	}
	w.after(time.Second)
	if !c.Annotated {
		t.Error("the new Pod got no port after the cool-down")
	}
}

func TestFirstStartOnANodeServesAtOnce(t *testing.T) {
	w := newWorld(t)
	a := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	if !a.Annotated {
		t.Error("nothing was ever freed here, yet the Pod waits")
	}
}

func TestBusyPortIsPassedOverButAdoptedOneStays(t *testing.T) {
	w := newWorld(t)
	w.kernel.SetBusy(tcp4(61000), true)
	p := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	if got := w.nodePort(p, 80); got != 61001 {
		t.Fatalf("node port %d, want 61001: 61000 is busy", got)
	}
	w.kernel.SetBusy(tcp4(61001), true)
	w.start()
	w.settle()
	if got := w.nodePort(p, 80); got != 61001 {
		t.Errorf("a published port moved to %d because its socket is busy", got)
	}
	if w.refusals(PortBusy) != 1 {
		t.Errorf("%d reports, want 1", w.refusals(PortBusy))
	}
	w.kernel.SetBusy(tcp4(61001), false)
	w.settle()
	if got := len(w.kernel.Sockets()); got != 1 {
		t.Errorf("%d sockets: the port was not taken once it could be", got)
	}
}

func TestPodWithAHostPortWins(t *testing.T) {
	w := newWorld(t)
	a := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	w.log = nil
	h := w.addPod("h", nil)
	h.Ports = []model.ContainerPort{{Port: 9000, Protocol: "tcp", HostPort: 61000}}
	w.mustSync()
	for _, k := range w.kernel.Sockets() {
		if k == tcp4(61000) {
			t.Error("the socket of the taken port is still held")
		}
	}
	w.settle()
	w.wantLog(t, "program 61001 10.0.0.1:80", "publish a [192.0.2.1:61001->80/tcp]")
	if got := w.nodePort(a, 80); got != 61001 {
		t.Errorf("node port %d", got)
	}
	w.after(w.settings.WithdrawGrace)
	w.wantLog(t, "remove 61000")
	w.start()
	w.settle()
	w.wantLog(t)
}

func TestPortRangeChangeMovesEveryPod(t *testing.T) {
	w := newWorld(t)
	p := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	w.log = nil
	w.settings.Range.First, w.settings.Range.Last = 62000, 62001
	w.start()
	w.settle()
	w.wantLog(t, "program 62000 10.0.0.1:80", "publish a [192.0.2.1:62000->80/tcp]")
	w.after(w.settings.WithdrawGrace)
	w.wantLog(t, "remove 61000")
	if got := w.nodePort(p, 80); got != 62000 {
		t.Errorf("node port %d", got)
	}
	for _, k := range w.kernel.Sockets() {
		if k.NodePort < 62000 {
			t.Errorf("socket of %s is still held", k)
		}
	}
}

func TestEveryRefusalAfterARestartNamesItsPod(t *testing.T) {
	w := newWorld(t)
	a, b := w.addPod("a", web), w.addPod("b", web)
	w.addService("web", web, 80)
	w.settle()
	w.settings.Range.First, w.settings.Range.Last = 62000, 62000
	w.start()
	w.settle()
	if got := w.refusals(PortTaken); got != 1 {
		t.Errorf("%d refusals, want 1: one Pod moves, the other cannot", got)
	}
	for _, r := range w.refused {
		if r.Pod != a.String() && r.Pod != b.String() {
			t.Errorf("refusal of Pod %q: %s", r.Pod, r.Message)
		}
	}
}

func TestFlushedRulesComeBack(t *testing.T) {
	w := newWorld(t)
	a, b := w.addPod("a", web), w.addPod("b", web)
	w.addService("web", web, 80)
	w.settle()
	delete(w.pods, b.UID)
	w.settle()
	patches := w.patches
	w.flush()
	w.loop.Repair()
	w.settle()
	w.settle()
	if got := w.kernel.Rules()[tcp4(w.nodePort(a, 80))]; got.Addr() != a.IPs[0] {
		t.Errorf("the rule leads to %v", got)
	}
	if w.patches != patches {
		t.Error("annotations were patched for a repair")
	}
	if s, _ := w.kernel.Load(); len(s.Cooling) != 1 {
		t.Errorf("%d ports cool in the kernel, want the one freed before the flush", len(s.Cooling))
	}
}

func TestOnePodTheKernelRefusesHoldsUpNoOther(t *testing.T) {
	w := newWorld(t)
	a, b := w.addPod("a", web), w.addPod("b", web)
	w.addService("web", web, 80)
	calls := 0
	w.kernel.Before = func(op string) error {
		if op != "apply" {
			return nil
		}
		if calls++; calls <= 2 { // the transaction for all, and the one for Pod a
			return errors.New("no")
		}
		return nil
	}
	if _, _, err := w.sync(); err == nil {
		t.Error("no error")
	}
	w.deliver()
	if a.Annotated || !b.Annotated {
		t.Errorf("a %q, b %q", a.Annotation, b.Annotation)
	}
	if w.loop.Kernel() == nil || w.loop.FirstSync() == nil {
		t.Error("readiness does not show the failure")
	}
	w.settle()
	if !a.Annotated || w.loop.Kernel() != nil || w.loop.FirstSync() != nil {
		t.Error("no recovery")
	}
}

func TestTerminatedPodGivesUpEverything(t *testing.T) {
	w := newWorld(t)
	p := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	w.log = nil
	p.Terminated = true
	w.settle()
	w.wantLog(t, "remove 61000", "publish a []")
}

func TestVanishingPodIsNotPatchedAndKeepsItsRule(t *testing.T) {
	w := newWorld(t)
	p := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	w.log = nil
	p.Terminated, p.Vanishing = true, true
	w.settle()
	w.after(time.Hour)
	w.wantLog(t)
	delete(w.pods, p.UID)
	w.settle()
	w.wantLog(t, "remove 61000")
	if s, _ := w.kernel.Load(); s.Cooling[tcp4(61000)] != w.settings.CoolDown {
		t.Errorf("cooling %v", s.Cooling)
	}
}

func TestRuleOfAVanishingPodGoesAtOnceIfItIsNotPublishedOrLeadsElsewhere(t *testing.T) {
	for name, vanish := range map[string]func(w *world, p *model.Pod){
		"not published":   func(_ *world, p *model.Pod) { p.Annotation = "[]" },
		"another address": func(w *world, p *model.Pod) { p.IPs = []netip.Addr{w.newIP()} },
		"no address":      func(_ *world, p *model.Pod) { p.IPs = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.addPod("a", web)
			w.addService("web", web, 80)
			w.settle()
			w.log = nil
			vanish(w, p)
			p.Terminated, p.Vanishing = true, true
			w.settle()
			w.wantLog(t, "remove 61000")
		})
	}
}

func TestRuleOfAVanishingPodGoesWhenSomebodyElseNeedsWhatItHas(t *testing.T) {
	for name, arrive := range map[string]func(w *world, vanishing, other *model.Pod){
		"its address": func(_ *world, vanishing, other *model.Pod) { other.IPs = vanishing.IPs },
		"its port": func(_ *world, _, other *model.Pod) {
			other.Ports = []model.ContainerPort{{Port: 9000, Protocol: npl.TCP, HostPort: 61000}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.addPod("a", web)
			w.addService("web", web, 80)
			w.settle()
			w.log = nil
			p.Terminated, p.Vanishing = true, true
			w.settle()
			arrive(w, p, w.addPod("b", nil))
			w.after(2 * w.settings.CoolDown)
			w.wantLog(t, "remove 61000")
			if s, _ := w.kernel.Load(); s.Cooling[tcp4(61000)] == 0 {
				t.Error("the port does not rest while the annotation lists it")
			}
		})
	}
}

func TestPortOfATerminatedPodRestsUntilItsAnnotationIsOff(t *testing.T) {
	w := newWorld(t)
	w.settings.Range.Last = w.settings.Range.First
	w.start()
	p := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	p.Terminated = true
	w.mustSync()
	b := w.addPod("b", web)
	w.clock.Step(10 * w.settings.CoolDown) // the API server takes no patch all the while
	w.mustSync()
	w.mustSync()
	if len(w.kernel.Rules()) != 0 {
		t.Error("the port was given to another Pod while the annotation still listed it")
	}
	w.deliver()
	w.settle()
	w.after(w.settings.CoolDown - time.Second)
	if b.Annotated {
		t.Error("the port was given before it had cooled since the annotation went off")
	}
	w.after(time.Second)
	if !b.Annotated {
		t.Error("the port was never given")
	}
}

func TestPortThatAnotherAnnotationListsIsPassedOver(t *testing.T) {
	w := newWorld(t)
	w.settings.Range.Last, w.settings.CoolDown = w.settings.Range.First, 0 // it does not have to rest, but it is listed
	w.start()
	w.addService("web", web, 80)
	w.settle()
	forger := w.addPod("forger", nil)
	forger.Annotated, forger.Annotation = true, `[{"podPort":80,"nodeIP":"192.0.2.1","nodePort":61000}]`
	a := w.addPod("a", web)
	w.mustSync()
	if rules := w.kernel.Rules(); len(rules) != 0 {
		t.Errorf("rules %v: somebody may take 61000 for the other Pod's", rules)
	}
	w.settle()
	w.settle()
	if forger.Annotated || w.nodePort(a, 80) != 61000 {
		t.Errorf("the false annotation is %q, Pod a is published at %q", forger.Annotation, a.Annotation)
	}
}

// As long as the kernel does not take note of the ports that have to cool, the annotations must go on telling of them.
func TestAnnotationStaysUntilTheKernelRemembers(t *testing.T) {
	w := newWorld(t)
	a := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	delete(w.services, "web")
	w.flush()
	w.start()
	w.kernel.Before = func(op string) error { return errors.New("no") }
	if _, _, err := w.sync(); err == nil {
		t.Error("no error")
	}
	w.deliver()
	if !a.Annotated || w.kernel.HasTables() {
		t.Errorf("annotated %v, tables %v: the next process will not know that 61000 has to cool", a.Annotated, w.kernel.HasTables())
	}
	w.kernel.Before = nil
	w.start()
	w.settle()
	if s, _ := w.kernel.Load(); a.Annotated || s.Cooling[tcp4(61000)] == 0 {
		t.Errorf("annotated %v, cooling %v", a.Annotated, s.Cooling)
	}
}

// Where no other port is free, the rule stays and people are told; the Pod moves, in the same order as ever, as soon as one is.
func TestHostPortOfAnotherPodAndNoPortToMoveTo(t *testing.T) {
	w := newWorld(t)
	w.settings.Range.Last = w.settings.Range.First + 1
	w.start()
	a, b := w.addPod("a", web), w.addPod("b", web)
	w.addService("web", web, 80)
	w.settle()
	w.log = nil
	h := w.addPod("h", nil)
	h.Ports = []model.ContainerPort{{Port: 9000, Protocol: "tcp", HostPort: 61000}}
	w.settle()
	w.after(time.Hour)
	w.wantLog(t)
	if w.refusals(PortTaken) != 1 || w.nodePort(a, 80) != 61000 {
		t.Errorf("%d refusals, Pod a at %s", w.refusals(PortTaken), a.Annotation)
	}
	delete(w.pods, b.UID)
	w.settle()
	w.after(w.settings.CoolDown)
	w.after(w.settings.WithdrawGrace)
	w.wantLog(t, "remove 61001", "program 61001 10.0.0.1:80", "publish a [192.0.2.1:61001->80/tcp]", "remove 61000")
}

// The first process of another range takes off what is of the old one, and nothing else.
func TestPortRangeChangeMovesOnlyWhatMustMove(t *testing.T) {
	w := newWorld(t)
	w.settings.Range.First, w.settings.Range.Last = 61000, 61003
	w.start()
	pods := []*model.Pod{w.addPod("a", web), w.addPod("b", web), w.addPod("c", web), w.addPod("d", web)}
	w.addService("web", web, 80)
	w.settle()
	w.log = nil
	w.settings.Range.First, w.settings.Range.Last = 61002, 61005
	w.start()
	w.settle()
	w.after(w.settings.WithdrawGrace)
	w.wantLog(t, "program 61004 10.0.0.1:80", "program 61005 10.0.0.2:80",
		"publish a [192.0.2.1:61004->80/tcp]", "publish b [192.0.2.1:61005->80/tcp]", "remove 61000", "remove 61001")
	for i, want := range []uint16{61004, 61005, 61002, 61003} {
		if got := w.nodePort(pods[i], 80); got != want {
			t.Errorf("Pod %s has node port %d, want %d", pods[i], got, want)
		}
	}
	w.after(w.settings.CoolDown)
	s, err := w.kernel.Load()
	if err != nil || len(s.Mappings) != 4 || len(s.Cooling) != 0 || len(w.kernel.Sockets()) != 4 {
		t.Errorf("left: %v, cooling %v, sockets %v, %v", s.Mappings, s.Cooling, w.kernel.Sockets(), err)
	}
}
