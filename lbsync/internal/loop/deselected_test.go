package loop

import (
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

func selecting(app string) func(*model.Service) {
	return func(s *model.Service) { s.Selector = map[string]string{"app": app} }
}

func labelled(app string) func(*model.Pod) {
	return func(p *model.Pod) { p.Labels = map[string]string{"app": app} }
}

func unpublished(p *model.Pod) { p.Mappings = nil }

// From blue to green, which has no node ports before the Service selects it: at no moment does nobody take connections.
func TestSelectorSwitchNeverEmpties(t *testing.T) {
	r := newRig(t)
	r.service("a")
	for n := range 2 {
		r.pod("a", n+1)
		r.pod("b", n+11, unpublished)
	}
	r.cycle().has("a", "1, 2")
	from := r.lb.Writes()
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"another selector", func() { r.service("a", selecting("b")) }, "1, 2"},
		{"npl-agent finds out about one", func() { r.pod("a", 1, unpublished) }, "1, 2"},
		{"and the other", func() { r.pod("a", 2, unpublished) }, "1, 2"},
		{"time goes by", func() { r.pass(5 * time.Second) }, "1, 2"},
		{"the first new one is published", func() { r.pod("b", 11) }, "1 draining, 2 draining, 11"},
		{"all are", func() { r.pod("b", 12) }, "1 draining, 2 draining, 11, 12"},
		{"they are drained", func() { r.pass(2 * time.Second) }, "11, 12"},
	} {
		step.do()
		r.cycle()
		t.Log(step.name)
		r.has("a", step.want)
	}
	for _, op := range r.lb.Journal()[from:] {
		if op.Enabled == 0 {
			t.Errorf("nobody takes connections after %s of %s", op.What, op.Member.UID)
		}
	}
}

// Nothing to turn to: who takes Pods out on purpose gets them out at once, with time for their connections.
func TestSelectorOfNobody(t *testing.T) {
	r := newRig(t)
	r.service("a")
	r.pod("a", 1)
	r.cycle()
	r.lb.SetConnections(keyOf("a"), id("a", 1), 1)
	r.service("a", selecting("b"))
	r.cycle().has("a", "1 draining")
	r.pass(model.WithdrawGrace-time.Second).has("a", "1 draining")
	r.pass(2*time.Second).has("a", "")
}

// A member whose Pod an edit took out leaves by the event that ends its Pod, or its right to the address, and not when its time is over.
func TestDeselectedLeaveByEvents(t *testing.T) {
	for name, do := range map[string]func(*rig){
		"deleted":      func(r *rig) { r.x.DeletePod("shop", "a-1", true, r.clock.Now()) },
		"finished":     func(r *rig) { r.pod("a", 1, labelled("b"), func(p *model.Pod) { p.Finished = true }) },
		"replaced":     func(r *rig) { r.pod("a", 1, labelled("b"), func(p *model.Pod) { p.UID = "next" }) },
		"another port": func(r *rig) { r.pod("a", 1, labelled("b"), func(p *model.Pod) { p.Mappings[0].PodPort = 1 }) },
		"claimed":      func(r *rig) { r.pod("c", 1) },
		"claimed when withdrawn": func(r *rig) {
			r.pod("a", 1, labelled("b"), unpublished)
			r.cycle().has("a", "1 draining, 2")
			r.pod("c", 1)
		},
		"its Node is gone": func(r *rig) { r.x.DeleteNode("node-1", true, r.clock.Now()) },
	} {
		r := newRig(t)
		r.service("a")
		r.pod("a", 1)
		r.pod("a", 2, func(p *model.Pod) {
			if name == "its Node is gone" {
				p.Node = "node-2"
			}
		})
		r.cycle()
		r.lb.SetConnections(keyOf("a"), id("a", 1), 1)
		r.pod("a", 1, labelled("b"))
		r.cycle()
		r.lb.SetConnections(keyOf("a"), id("a", 1), 1)
		t.Log(name)
		do(r)
		r.cycle()
		for _, m := range r.report("a").Pools[0].Members {
			if m.UID == "a-1" {
				t.Errorf("%s: it is still a member, %s", name, m.State)
			}
		}
	}
}

// While it drains its node port is held, whatever is seen of its Pod (I3).
func TestDeselectedAreHeld(t *testing.T) {
	r, _ := newGated(t, "a")
	held := func(when, want string) {
		t.Helper()
		r.cycle()
		if got := r.held(); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	r.pod("a", 1)
	held("both are selected", "seen 100")
	r.version = 101
	r.pod("a", 1, labelled("b"))
	held("one is not", "seen 101 node-1:61001")
	r.has("a", "0, 1 draining")
	r.lb.FailKey(keyOf("a"), unavailable("cut"))
	r.version = 102
	r.x.DeletePod("shop", "a-1", true, r.clock.Now())
	held("it is deleted, and the load balancer does not hear of it", "seen 102 node-1:61001")
	r.version = 200
	held("more is seen", "seen 200 node-1:61001")
	r.lb.FailKey(keyOf("a"), nil)
	r.pass(time.Minute)
	held("the load balancer let go", "seen 200")
}

// A restart writes nothing (I4), and the drain goes on.
func TestDeselectedAcrossARestart(t *testing.T) {
	r := newRig(t)
	r.service("a")
	r.pod("a", 1)
	r.pod("a", 2)
	r.cycle()
	r.pod("a", 1, labelled("b"))
	r.cycle()
	r.lb.SetConnections(keyOf("a"), id("a", 1), 1)
	writes := r.lb.Writes()
	r.restart()
	r.pass(model.WithdrawGrace-time.Second).has("a", "1 draining, 2")
	if r.lb.Writes() != writes {
		t.Errorf("it wrote %v", r.lb.Journal()[writes:])
	}
	r.pass(2*time.Second).has("a", "2")
}
