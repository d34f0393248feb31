package loop

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

var errRefused = errors.New("the kernel refuses")

// refuse makes the kernel refuse this many changes.
func (w *world) refuse(changes int) {
	w.kernel.Before = func(op string) error {
		if op == "apply" && changes > 0 {
			changes--
			return errRefused
		}
		w.step(op)
		return nil
	}
}

func (w *world) mustFail(t *testing.T) {
	t.Helper()
	if _, _, err := w.sync(); !errors.Is(err, errRefused) {
		t.Fatalf("pass: %v, want %v", err, errRefused)
	}
}

func TestNPL23BusyPortIsPassedOver(t *testing.T) {
	w := newWorld(t)
	w.kernel.SetBusy(tcp4(61000), true)
	a := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	w.wantPublished(t, "with 61000 busy", a, "[192.0.2.1:61001->80/tcp]")
}

// The socket of a Pod whose rule is refused is kept for the next attempt: it is one, however often that fails, and it goes with the Pod.
func TestNPL24SocketsOfServedAndOfRefusedPorts(t *testing.T) {
	w := newWorld(t)
	served := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	if got := fmt.Sprint(w.kernel.Sockets()); got != "[61000/tcp IPv4]" {
		t.Fatalf("sockets %s", got)
	}
	refused := w.addPod("b", web)
	w.refuse(1000)
	for range 5 {
		w.mustFail(t)
		w.deliver()
	}
	if got := len(w.kernel.Sockets()); got != 2 || refused.Annotated || len(w.kernel.Rules()) != 1 {
		t.Errorf("%d sockets, annotation %q, rules %v", got, refused.Annotation, w.kernel.Rules())
	}
	if got := w.loop.Document().Error; !strings.Contains(got, errRefused.Error()) || !strings.Contains(got, "default/b") {
		t.Errorf("the status says %q", got)
	}
	delete(w.pods, refused.UID)
	w.refuse(0)
	w.settle()
	w.wantPublished(t, "without the refused Pod", served, one)
}

func TestNPL25WhatExistsIsNotTouched(t *testing.T) {
	w := newWorld(t)
	a := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	w.kernel.Before = func(op string) error {
		if op != "repair" {
			t.Errorf("%s", op)
		}
		return nil
	}
	w.log = nil
	w.addService("again", web, 80)
	w.settle()
	a.Labels = map[string]string{"app": "web", "version": "2"}
	w.settle()
	w.wantLog(t)
	w.wantPublished(t, "wanted again", a, one)
}

func TestNPL26RemovalIsTriedUntilItWorks(t *testing.T) {
	w := newWorld(t)
	a := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	delete(w.pods, a.UID)
	w.refuse(4) // each pass tries twice: everything, then what is to go
	for range 2 {
		w.mustFail(t)
		if len(w.kernel.Rules()) != 1 || len(w.kernel.Sockets()) != 1 {
			t.Errorf("rules %v, sockets %v: neither goes without the other", w.kernel.Rules(), w.kernel.Sockets())
		}
	}
	w.mustSync()
	writes := w.kernel.Writes()
	w.settle()
	w.settle()
	if len(w.kernel.Rules()) != 0 || len(w.kernel.Sockets()) != 0 || w.kernel.Writes() != writes {
		t.Errorf("rules %v, sockets %v, %d more writes", w.kernel.Rules(), w.kernel.Sockets(), w.kernel.Writes()-writes)
	}
}

func TestNPL30OneOfTwoRulesCannotBeRemoved(t *testing.T) {
	const left = "[192.0.2.1:61001->81/tcp]"
	w := newWorld(t)
	a := w.addPod("a", web)
	w.addService("web", web, 80, 81)
	w.settle()
	w.addService("web", web, 81)
	w.settle()
	w.clock.Step(w.settings.WithdrawGrace)
	patches := w.patches
	w.refuse(2)
	w.mustFail(t)
	w.deliver()
	if got := fmt.Sprint(w.listed(a)); got != left || w.patches != patches || len(w.kernel.Rules()) != 2 {
		t.Errorf("annotation %s, %d patches, rules %v", got, w.patches-patches, w.kernel.Rules())
	}
	w.settle()
	w.wantPublished(t, "after the retry", a, left)
}

func TestNPL31RemovalFailsAndThePortIsWantedAgain(t *testing.T) {
	w := newWorld(t)
	a := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	delete(w.services, "web")
	w.settle()
	w.clock.Step(w.settings.WithdrawGrace)
	w.refuse(2)
	w.mustFail(t)
	w.addService("web", web, 80)
	a.IPs[0] = w.newIP() // the old rule is good for nothing
	w.settle()
	w.wantPublished(t, "wanted again", a, one)
}

func TestNPL36NothingIsPublishedBeforeTheKernelTakesIt(t *testing.T) {
	for _, failures := range []int{1, 10} {
		for _, family := range []npl.Family{npl.IPv4, npl.IPv6} {
			w := newWorld(t)
			w.node.Addresses = append(w.node.Addresses, model.NodeAddress{Type: "InternalIP", IP: netip.MustParseAddr("2001:db8::1")})
			w.addService("web", web, 80)
			w.edit("web", func(s *model.Service) { s.Families = []npl.Family{family} })
			var pods []*model.Pod
			for i := range 3 {
				p := w.addPod(string(rune('a'+i)), web)
				p.IPs = append(p.IPs, netip.MustParseAddr(fmt.Sprintf("fd00::%d", i+1)))
				pods = append(pods, p)
			}
			failed := 0
			w.kernel.Before = func(op string) error {
				if op == "apply" && failed < failures*4 { // each pass tries everything, and then each Pod
					failed++
					return errRefused
				}
				return nil
			}
			for failed < failures*4 {
				w.mustFail(t)
				w.deliver()
				for _, p := range pods {
					if p.Annotated {
						t.Fatalf("%d failures, %s: Pod %s is published at %s", failures, family, p, p.Annotation)
					}
				}
			}
			w.settle()
			for _, p := range pods {
				if len(w.listed(p)) != 1 || w.listed(p)[0].Family != family {
					t.Errorf("%d failures, %s: Pod %s is published at %q", failures, family, p, p.Annotation)
				}
			}
		}
	}
}

// A Node comes up again: annotations are there, tables and sockets are not.
func TestNPL37EverythingIsRestoredInOneChange(t *testing.T) {
	w := newWorld(t)
	w.addService("web", web, 80)
	w.edit("web", func(s *model.Service) {
		s.Ports = append(s.Ports, model.ServicePort{Protocol: npl.UDP, TargetPort: 53})
	})
	for _, name := range []string{"a", "b"} {
		w.addPod(name, web)
	}
	w.settle()
	before, patches := w.kernel.Rules(), w.patches
	w.flush()
	w.start()
	var changes []dataplane.Change
	committed := w.kernel.Committed
	w.kernel.Committed = func(c dataplane.Change) {
		changes = append(changes, c)
		committed(c)
	}
	w.settle()
	if len(changes) != 1 || len(changes[0].Set) != 4 || fmt.Sprint(w.kernel.Rules()) != fmt.Sprint(before) {
		t.Errorf("%d changes, rules %v, want one change that sets %v", len(changes), w.kernel.Rules(), before)
	}
	if got, want := w.kernel.Sockets(), slices.SortedFunc(maps.Keys(before), dataplane.Key.Compare); len(got) != 4 || !slices.Equal(got, want) {
		t.Errorf("sockets %v, want %v", got, want)
	}
	if w.patches != patches {
		t.Errorf("%d patches", w.patches-patches)
	}
}

// The kernel counts in milliseconds.
func TestTheShortestRestIsAMillisecond(t *testing.T) {
	w := newWorld(t)
	w.settings.CoolDown = 500 * time.Microsecond
	w.settings.Range.Last = w.settings.Range.First
	w.start()
	w.addService("web", web, 80)
	a := w.addPod("a", web)
	w.settle()
	delete(w.pods, a.UID)
	w.settle()
	b := w.addPod("b", web)
	w.after(time.Millisecond)
	w.wantPublished(t, "after a", b, one)
}

func TestOneRemovalThatIsRefusedHoldsUpNoOther(t *testing.T) {
	w := newWorld(t)
	w.addService("web", web, 80)
	a, b, c := w.addPod("a", web), w.addPod("b", web), w.addPod("c", web)
	w.settle()
	stuck := tcp4(w.nodePort(a, 80))
	w.picky = map[dataplane.Key]bool{stuck: true}
	delete(w.pods, a.UID)
	delete(w.pods, b.UID)
	late := w.addPod("late", web)
	w.kernel.Remove(tcp4(w.nodePort(c, 80)))
	w.loop.Repair()
	for range 3 {
		w.mustFail(t)
		w.deliver()
	}
	if !late.Annotated || late.Annotation == "" {
		t.Error("a Pod that came later is not published")
	}
	rules := w.kernel.Rules()
	if len(rules) != 3 || !rules[stuck].IsValid() || !rules[tcp4(w.nodePort(c, 80))].IsValid() || !rules[tcp4(w.nodePort(late, 80))].IsValid() {
		t.Errorf("rules %v, want that of a, which cannot go, that of c, repaired, and that of the late Pod", rules)
	}
	if got := w.loop.Document().Error; !strings.Contains(got, stuck.String()) {
		t.Errorf("the status says %q", got)
	}
	w.picky = nil
	w.settle()
	if n := len(w.kernel.Rules()); n != 2 {
		t.Errorf("%d rules after the kernel gave in, want 2", n)
	}
}

// An annotation may be all that tells the next process that a port must rest: while the kernel refuses to remember it, that one stays.
func TestAnnotationStaysWhileTheKernelRefusesToRemember(t *testing.T) {
	w := newWorld(t)
	w.addService("web", web, 80)
	a := w.addPod("a", web)
	w.settle()
	byHand := strings.Replace(a.Annotation, "61000", "61003", 1)
	a.Annotation = byHand
	w.picky = map[dataplane.Key]bool{tcp4(61003): true}
	b := w.addPod("b", web)
	for range 3 {
		w.mustFail(t)
		w.deliver()
	}
	if a.Annotation != byHand || !b.Annotated {
		t.Errorf("a is published at %q, want %q; b at %q", a.Annotation, byHand, b.Annotation)
	}
	w.picky = nil
	w.settle()
	if got := fmt.Sprint(w.listed(a)); got != one {
		t.Errorf("a is published at %s when the kernel remembers, want %s", got, one)
	}
}

// That there are no tables may tell the same of all ports: nothing makes them before all of it is in.
func TestNothingIsWrittenWithoutTablesUnlessItIsAll(t *testing.T) {
	w := newWorld(t)
	w.addService("web", web, 80)
	a := w.addPod("a", web)
	w.settle()
	w.flush()
	w.start()
	w.picky = map[dataplane.Key]bool{tcp4(61004): true} // it was free: nothing says that nobody had it
	b := w.addPod("b", web)
	for range 3 {
		w.mustFail(t)
		w.deliver()
	}
	if w.kernel.HasTables() || b.Annotated {
		t.Errorf("tables %v, b is published at %q", w.kernel.HasTables(), b.Annotation)
	}
	w.picky = nil
	w.settle()
	w.after(w.settings.CoolDown)
	if got := fmt.Sprint(w.listed(a)); got != one || !b.Annotated {
		t.Errorf("when the kernel takes it all, a is published at %s, want %s; b at %q", got, one, b.Annotation)
	}
}
