package loop

import (
	"slices"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// I3: a node port that passes from one Pod to the next leaves the one pool before it enters the other, though both are written at once.
func TestNodePortPassesFromPoolToPool(t *testing.T) {
	for name, concurrency := range map[string]int{"one call for all": 1, "calls at once": 4} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			can := providertest.MemoryCapabilities()
			can.Concurrency = concurrency
			r.lb = providertest.NewLoadBalancer(can)
			r.restart()
			r.service("a") // which comes before the other in every order
			r.service("b")
			r.pod("b", 1)
			r.cycle()
			r.has("b", "1")
			before := len(r.lb.Journal())
			r.x.DeletePod("shop", "b-1", true, r.clock.Now())
			r.pod("a", 1)
			r.cycle()
			r.has("a", "1")
			r.has("b", "")
			var order []string
			for _, op := range r.lb.Journal()[before:] {
				order = append(order, op.What+" "+op.Key.Service)
			}
			if want := []string{"Remove b", "Add a"}; !slices.Equal(order, want) {
				t.Errorf("%v, want %v", order, want)
			}
		})
	}
}

// A pool that cannot be written keeps the port, and who waits for it is told so, and served as soon as it is free.
func TestNodePortWaitsForAPoolThatCannotBeWritten(t *testing.T) {
	r := newRig(t)
	r.service("a")
	r.service("b")
	r.pod("b", 1)
	r.cycle()
	r.lb.FailKey(keyOf("b"), unavailable("b"))
	r.x.DeletePod("shop", "b-1", true, r.clock.Now())
	r.pod("a", 1)
	r.cycle()
	r.has("a", "")
	if refusals := r.report("a").Refusals; len(refusals) != 1 || refusals[0].Reason != model.StillListed {
		t.Errorf("refusals %v", refusals)
	}
	r.lb.FailKey(keyOf("b"), nil)
	r.pass(time.Minute)
	r.has("b", "")
	r.has("a", "1")
	if refusals := r.report("a").Refusals; len(refusals) > 0 {
		t.Errorf("refusals %v", refusals)
	}
}
