package applied

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// Who was frozen has heard of nobody, and that says nothing about them: they are waited for.
func TestFrozenTakesNobodyForAway(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	g := &Group{
		Instance: "ns/lbsync", Identity: "one", Clock: clk, Log: zap.NewNop(), Tell: func(model.ServiceKey) {},
		Keys:    func() []model.ServiceKey { return []model.ServiceKey{web} },
		Reached: func() map[string]string { return map[string]string{"haproxy": "100"} },
	}
	receive := func() {
		hear(t, g, "1", said{Standing: Standing{Instance: "ns/lbsync", Identity: "two", Provider: "haproxy", Seen: "99"}}, "")
	}
	two := []string{"two"}
	wants := func(when string, pending, silent []string) {
		t.Helper()
		if p, s := g.Others("haproxy", web, "100"); !slices.Equal(p, pending) || !slices.Equal(s, silent) {
			t.Errorf("%s: pending %v, silent %v; want %v and %v", when, p, s, pending, silent)
		}
	}
	ticks := func(n int) {
		for range n {
			clk.Step(Interval)
			g.tick()
		}
	}
	g.tick()
	receive()
	wants("behind", two, nil)
	clk.Step(time.Minute)
	wants("thawed, before the tick", two, nil)
	receive() // what was on its way for a minute says nothing of what was seen when
	wants("thawed, with old news", two, nil)
	clk.Step(time.Second)
	g.tick()
	if g.wereAway != "" {
		t.Errorf("told that %q is away", g.wereAway)
	}
	wants("thawed", two, nil)
	ticks(2)
	wants("silent for a while", two, nil)
	ticks(1)
	wants("silent for long", nil, two)
	clk.Step(time.Minute)
	g.tick()
	wants("frozen again", two, nil)
	for range 3 {
		ticks(1)
		receive()
	}
	wants("it saw what we saw", nil, nil)
}
