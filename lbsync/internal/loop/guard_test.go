package loop

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// guarded returns a rig with a guard of a minute and a pool of so many members.
func guarded(t *testing.T, members int) *rig {
	r := newRig(t)
	r.marks, r.version = &fixedMarks{last: watermark.Watermark{Seen: "1"}}, 100
	r.restart()
	r.loop.cfg.GuardHold = time.Minute
	r.loop.source = versionedFeed{r.x, &r.version}
	r.service("a")
	r.pod("other", 99) // so that the cluster has a Pod
	for n := range members {
		r.pod("a", n)
	}
	r.cycle()
	return r
}

// lose has Pods missing from a list, without their deletion having been seen.
func (r *rig) lose(pods ...int) {
	for _, n := range pods {
		r.x.DeletePod("shop", fmt.Sprintf("a-%d", n), false, r.clock.Now())
	}
	r.version++
	r.cycle()
}

func (r *rig) guardMetrics() string {
	return fmt.Sprint(testutil.ToFloat64(r.loop.metrics.guarded), " held, ", testutil.ToFloat64(r.loop.metrics.guards), " times")
}

func TestGuard(t *testing.T) {
	t.Run("holds what is lost without an event, and says so", func(t *testing.T) {
		r := guarded(t, 4)
		r.lose(0, 1, 2)
		r.has("a", "0, 1, 2, 3")
		r.pass(time.Hour)
		r.has("a", "0, 1, 2, 3")
		if p := r.report("a").Ports[0]; p.Guarded != 3 || p.Problem != "" {
			t.Errorf("report %+v", p)
		}
		if got := r.guardMetrics(); got != "3 held, 1 times" {
			t.Error(got)
		}
		if got := r.held(); got != "seen 101 node-1:61000 node-1:61001 node-1:61002" {
			t.Errorf("what it keeps is not held for npl-agents: %s", got)
		}
		if c := r.loop.Planned(); !c.Empty() {
			t.Errorf("planned %+v", c)
		}
		r.pod("a", 5) // others come and go
		r.cycle()
		r.has("a", "0, 1, 2, 3, 5")
	})
	t.Run("until they are back", func(t *testing.T) {
		r := guarded(t, 3)
		r.lose(0, 1)
		r.pod("a", 0)
		r.pod("a", 1)
		r.cycle()
		r.has("a", "0, 1, 2")
		if got := r.guardMetrics(); got != "0 held, 1 times" {
			t.Error(got)
		}
		writes := r.lb.Writes()
		r.pass(time.Hour)
		if r.lb.Writes() != writes {
			t.Errorf("written %v", r.lb.Journal()[writes:])
		}
	})
	t.Run("until it is allowed", func(t *testing.T) {
		r := guarded(t, 3)
		r.lose(0, 1)
		r.has("a", "0, 1, 2")
		r.service("a", func(s *model.Service) { s.Wishes.AllowRemoval = true })
		r.cycle()
		r.has("a", "2")
		if got := r.guardMetrics() + " " + r.held(); got != "0 held, 1 times seen 101" {
			t.Error(got)
		}
	})
	t.Run("at least for its time, then only what is suspicious", func(t *testing.T) {
		r := guarded(t, 4)
		r.lose(0, 1, 2)
		r.pod("a", 1)
		r.pod("a", 2) // one of four is missing now
		r.pass(50 * time.Second)
		r.has("a", "0, 1, 2, 3")
		r.pass(11 * time.Second)
		r.has("a", "1, 2, 3")
	})
	t.Run("counts what goes one by one", func(t *testing.T) {
		r := guarded(t, 5)
		for n := range 5 {
			r.lose(n)
			r.pass(5 * time.Second)
		}
		r.has("a", "2, 3, 4")
		if got := r.guardMetrics(); got != "3 held, 1 times" {
			t.Error(got)
		}
	})
	t.Run("not what goes slowly", func(t *testing.T) {
		r := guarded(t, 4)
		for n := range 3 {
			r.lose(n)
			r.pass(2 * time.Minute)
		}
		r.has("a", "3")
	})
	t.Run("not what an event explains", func(t *testing.T) {
		r := guarded(t, 3)
		for n := range 3 {
			r.x.DeletePod("shop", fmt.Sprintf("a-%d", n), true, r.clock.Now())
		}
		r.cycle()
		r.has("a", "")
	})
	t.Run("not a Service that goes", func(t *testing.T) {
		r := guarded(t, 3)
		r.lose(0, 1, 2)
		r.service("a", func(s *model.Service) { s.Deleting = true })
		r.cycle()
		r.has("a", "none")
		if len(r.loop.guards) > 0 {
			t.Errorf("remembered: %v", r.loop.guards)
		}
	})
	t.Run("never a member that leads to another Pod", func(t *testing.T) {
		r := guarded(t, 3)
		r.lose(0, 1, 2)
		r.pod("other", 1) // has the node port of a-1 now
		r.pass(2 * time.Second)
		r.has("a", "0, 2")
	})
	t.Run("off", func(t *testing.T) {
		r := guarded(t, 3)
		r.loop.cfg.GuardHold = 0
		r.lose(0, 1)
		r.has("a", "2")
	})
	t.Run("switched off while it holds", func(t *testing.T) {
		r := guarded(t, 3)
		r.lose(0, 1)
		cfg := r.loop.cfg
		cfg.GuardHold = 0
		r.loop.Configure(cfg)
		r.cycle()
		r.has("a", "2")
	})
}

func TestDryRunPlansAndWritesNothing(t *testing.T) {
	r := newRig(t)
	r.loop.cfg.DryRun = true
	r.service("a", func(s *model.Service) { s.Admitted = false })
	r.pod("a", 1)
	r.pass(20 * time.Minute)
	if r.lb.Writes() > 0 {
		t.Fatalf("written %v", r.lb.Journal())
	}
	c := r.loop.Planned()
	if len(c.Pools) != 1 || c.Pools[0].Key != keyOf("a") || c.Pools[0].Old != nil || len(c.Pools[0].Members) != 1 || len(c.VirtualServers) != 1 {
		t.Errorf("planned %+v", c)
	}
	if p := r.report("a").Ports[0]; p.Programmed || !strings.Contains(p.Problem, "dry run") {
		t.Errorf("report %+v", p)
	}
	if !r.loop.Health().Ready {
		t.Error("not ready")
	}
}

// What could not be written is planned still; what was is not.
func TestPlanned(t *testing.T) {
	r := newRig(t)
	r.service("a")
	r.service("b")
	r.lb.FailKey(keyOf("a"), unavailable("cut"))
	r.cycle()
	if c := r.loop.Planned(); len(c.Pools) != 1 || c.Pools[0].Key != keyOf("a") || len(c.VirtualServers) != 1 {
		t.Errorf("planned %+v", c)
	}
	r.service("a", func(s *model.Service) { s.PublishNotReady = true }) // looked at again while it waits
	r.cycle()
	if c := r.loop.Planned(); len(c.Pools) != 1 || c.Pools[0].Key != keyOf("a") || len(c.VirtualServers) != 1 || c.VirtualServers[0].Key != keyOf("a") {
		t.Errorf("while it waits planned %+v", c)
	}
	r.lb.FailKey(keyOf("a"), nil)
	r.pass(time.Minute)
	if c := r.loop.Planned(); !c.Empty() {
		t.Errorf("planned %+v", c)
	}
}

// Members go into a pool of somebody else, are found there after a restart, and leave it before they enter another.
func TestAttachedPools(t *testing.T) {
	r := newRig(t)
	r.lb.PlantPool("theirs")
	r.lb.PlantPool("another")
	attach := func(pool string) {
		r.service("a", func(s *model.Service) {
			s.Wishes.Attachments = []annotations.Attachment{{Port: "80", Instance: "lb", Pool: pool}}
			s.VIPs = nil
		})
	}
	attach("theirs")
	r.pod("a", 1)
	r.pass(time.Second)
	r.has("a", "1")
	if p := r.report("a").Ports[0]; p.Attached != "theirs" || !p.Programmed {
		t.Errorf("report %+v", p)
	}
	writes := r.lb.Writes()
	r.restart()
	r.pass(10 * time.Minute)
	if r.lb.Writes() != writes {
		t.Errorf("a restart wrote %v", r.lb.Journal()[writes:])
	}
	r.pod("a", 2)
	r.x.DeletePod("shop", "a-1", true, r.clock.Now())
	r.restart()
	r.pass(10 * time.Minute)
	r.has("a", "2")
	attach("another")
	r.pass(time.Minute)
	if p := r.lb.State().Pools; len(p) != 1 || p[0].Attached != "another" || len(p[0].Members) != 1 {
		t.Errorf("has\n%s", providertest.Render(r.lb.State()))
	}
	r.service("a", func(s *model.Service) { s.Deleting = true })
	r.pass(time.Minute)
	for _, p := range r.lb.State().Pools {
		if len(p.Members) > 0 {
			t.Errorf("left\n%s", providertest.Render(r.lb.State()))
		}
	}
}

// Who listens hears of members and of their health.
func TestOnMembers(t *testing.T) {
	r := newRig(t)
	r.service("a")
	r.service("b")
	r.cycle()
	r.members = nil
	r.pod("a", 1)
	r.cycle()
	if len(r.members) != 1 || r.members[0].Name != "a" {
		t.Errorf("told of %v", r.members)
	}
	r.pass(10 * time.Minute)
	if len(r.members) != 1 {
		t.Errorf("told of %v though nothing changed", r.members)
	}
	r.loop.provider = healthy{r.loop.provider}
	r.pass(5 * time.Minute)
	status := r.report("a").Health[keyOf("a")][id("a", 1)]
	if len(r.members) != 2 || status.Health != providers.HealthUp {
		t.Errorf("told of %v, health %+v", r.members, status)
	}
}

// healthy says of every member that it is up.
type healthy struct{ providers.Provider }

func (h healthy) Observe(ctx context.Context, scope providers.Scope) (providers.Observed, error) {
	o, err := h.Provider.Observe(ctx, scope)
	for _, members := range o.Members {
		for id, s := range members {
			s.Health = providers.HealthUp
			members[id] = s
		}
	}
	return o, err
}
