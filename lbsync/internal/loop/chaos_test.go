package loop

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/plan"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// Whatever happens to Pods, Services, the load balancer and lbsync itself, once the faults are over the load balancer is
// exactly what the model says, foreign objects are untouched, and another cycle writes nothing.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t)
		foreign := keyOf("foreign")
		r.lb.Tamper(providers.Owner{ClusterUID: "c2"}, foreign, &providers.Pool{Key: foreign, Settings: providers.PoolSettings{Algorithm: providers.RoundRobin}}, nil)
		r.pod("other", 99) // so that the cluster always has a Pod
		app := rapid.SampledFrom([]string{"a", "b", "c"})
		kinds := rapid.SampledFrom([]providers.Kind{
			providers.Unavailable, providers.Throttled, providers.Conflict, providers.Rejected, providers.Misconfigured,
		})
		steps := map[string]func(){
			"service": func() { r.service(app.Draw(rt, "app")) },
			"service with another port": func() {
				r.service(app.Draw(rt, "app"), func(s *model.Service) { s.Ports[0].Port = 81 })
			},
			"service of no class": func() {
				r.service(app.Draw(rt, "app"), func(s *model.Service) { s.On = nil })
			},
			"no service": func() {
				r.x.DeleteService(model.ServiceKey{Namespace: "shop", Name: app.Draw(rt, "app")}, true, r.clock.Now())
			},
			"pod": func() {
				r.pod(app.Draw(rt, "app"), rapid.IntRange(1, 5).Draw(rt, "n"), func(p *model.Pod) {
					p.Ready, p.ReadyChanged = rapid.Bool().Draw(rt, "ready"), r.clock.Now()
					p.Mappings[0].NodePort = uint16(rapid.IntRange(61000, 61006).Draw(rt, "port"))
				})
			},
			"terminating pod": func() { r.pod(app.Draw(rt, "app"), rapid.IntRange(1, 5).Draw(rt, "n"), r.terminating) },
			"malformed pod": func() {
				r.pod(app.Draw(rt, "app"), rapid.IntRange(1, 5).Draw(rt, "n"), func(p *model.Pod) { p.Mappings, p.Malformed = nil, "nonsense" })
			},
			"no pod": func() {
				r.x.DeletePod("shop", fmt.Sprintf("%s-%d", app.Draw(rt, "app"), rapid.IntRange(1, 5).Draw(rt, "n")), true, r.clock.Now())
			},
			"fault": func() {
				r.lb.FailKey(keyOf(app.Draw(rt, "app")), &providers.Error{Kind: kinds.Draw(rt, "kind"), What: "fault"})
			},
			"cure":       func() { r.lb.FailKey(keyOf(app.Draw(rt, "app")), nil) },
			"unreadable": func() { r.lb.FailObserve(&providers.Error{Kind: kinds.Draw(rt, "kind"), What: "fault"}) },
			"readable":   func() { r.lb.FailObserve(nil) },
			"tamper":     func() { r.lb.Tamper(owner, keyOf(app.Draw(rt, "app")), nil, nil) },
			"restart":    r.restart,
			"lb restart": r.lb.Restart,
			"time":       func() { r.pass(time.Duration(rapid.IntRange(1, 400).Draw(rt, "seconds")) * time.Second) },
			"cycle":      func() { r.cycle() },
		}
		names := []string{
			"service", "service", "service with another port", "service of no class", "no service", "pod", "pod", "pod", "pod", "terminating pod", "malformed pod",
			"no pod", "fault", "cure", "unreadable", "readable", "tamper", "lb restart", "restart", "time", "cycle", "cycle", "cycle",
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			steps[rapid.SampledFrom(names).Draw(rt, "step")]()
		}
		r.lb.FailObserve(nil)
		for _, name := range []string{"a", "b", "c"} {
			r.lb.FailKey(keyOf(name), nil)
		}
		r.pass(20 * time.Minute)

		all := newPictureOf(rt, r)
		for _, name := range []string{"a", "b", "c"} {
			key := model.ServiceKey{Namespace: "shop", Name: name}
			var want providers.State
			if view, exists := r.x.View(key); exists {
				want = (&Loop{cfg: r.loop.cfg, source: r.x, provider: r.loop.provider, can: r.loop.can, picture: all}).build(key, view, r.clock.Now()).State
			}
			if c := plan.Between(all.state(key), want); !c.Empty() {
				rt.Fatalf("%s did not converge: has\n%swant\n%sfailures %v", name, providertest.Render(all.state(key)), providertest.Render(want), r.loop.failures)
			}
		}
		if got := r.lb.State(); findPool(got, foreign) == nil {
			rt.Fatal("the foreign pool is gone")
		}
		writes := r.lb.Writes()
		r.pass(20 * time.Minute)
		if r.lb.Writes() != writes {
			rt.Fatalf("with nothing changed it wrote %v", r.lb.Journal()[writes:])
		}
	})
}

func newPictureOf(t *rapid.T, r *rig) picture {
	observed, err := r.loop.provider.Observe(t.Context(), providers.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	return newPicture(observed)
}

// One Pod of one of 1,000 Services with 10 members each changes: the cost of a whole cycle (I8).
func BenchmarkPodChange(b *testing.B) {
	r := newRig(b)
	const services, members = 1000, 10
	for s := range services {
		app := fmt.Sprintf("s%d", s)
		r.service(app, func(m *model.Service) { m.VIPs = nil })
		for n := range members {
			benchPod(r, app, s, n, true)
		}
	}
	r.cycle()
	if got := len(r.lb.State().Pools); got != services {
		b.Fatalf("%d pools, want %d", got, services)
	}
	ready := false
	for b.Loop() {
		benchPod(r, "s500", 500, 5, ready)
		r.cycle()
		ready = !ready
	}
}

func benchPod(r *rig, app string, s, n int, ready bool) {
	r.pod(app, n, func(p *model.Pod) {
		p.Ready, p.Mappings[0].NodePort = ready, uint16(1000+s*10+n)
		p.ReadyChanged = r.clock.Now()
	})
}
