package loop

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// One Pod, one reason, one Service: that is one thing to tell, however many messages there are about it, and it lasts although they change.
func TestARefusalIsOneHoweverItsMessagesChange(t *testing.T) {
	w := newWorld(t)
	w.addPod("a", web)
	ask := func(names ...string) {
		w.addService("web", web)
		w.edit("web", func(s *model.Service) {
			for _, n := range names {
				s.Ports = append(s.Ports, model.ServicePort{Protocol: npl.TCP, TargetName: n})
			}
		})
		w.mustSync()
	}
	all := func(r model.Refusal, names ...string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !strings.Contains(r.Message, n) })
	}
	ask("alpha", "beta")
	if len(w.refused) != 1 || !all(w.refused[0], "alpha", "beta") {
		t.Fatalf("refused %v, want one with both messages", w.refused)
	}
	if got := testutil.ToFloat64(w.metrics.Refusals.WithLabelValues("TargetPortUnknown")); got != 2 || len(w.loop.Document().Refusals) != 2 {
		t.Errorf("%v in the metric, %v in the status, want each by itself", got, w.loop.Document().Refusals)
	}
	w.clock.Step(time.Minute)
	for _, names := range [][]string{{"alpha", "gamma"}, {"gamma"}, {"alpha", "gamma"}, {"delta"}} { // a new text, and then a busy minute
		ask(names...)
	}
	if len(w.changed) != 1 || !all(w.changed[0], "alpha", "gamma") {
		t.Errorf("changed %v, want one in a minute", w.changed)
	}
	w.clock.Step(time.Minute)
	w.mustSync()
	w.mustSync()
	if len(w.changed) != 2 || !all(w.changed[1], "delta") || len(w.refused) != 1 || len(w.withdrawn) != 0 {
		t.Errorf("refused %v, changed %v, withdrawn %v: the last text is told in the end, and the refusal lasts", w.refused, w.changed, w.withdrawn)
	}
	ask()
	ask("delta")
	if len(w.withdrawn) != 1 || !all(w.withdrawn[0], "delta") || len(w.refused) != 2 || len(w.changed) != 2 {
		t.Errorf("refused %v, changed %v, withdrawn %v, want an end and a new beginning", w.refused, w.changed, w.withdrawn)
	}
}

// With one number for all protocols, one that is taken for TCP is no good for UDP.
func TestFreePortsWithOneNumberForAllProtocols(t *testing.T) {
	for joint, want := range map[bool]float64{false: 6, true: 5} {
		w := newWorld(t)
		w.settings.JointPorts = joint
		w.start()
		w.addPod("a", web)
		w.addService("web", web, 80)
		w.settle()
		w.mustSync()
		free := func(p npl.Protocol, f npl.Family) float64 {
			return testutil.ToFloat64(w.metrics.Free.WithLabelValues(string(p), string(f)))
		}
		if free(npl.TCP, npl.IPv4) != 5 || free(npl.UDP, npl.IPv4) != want || free(npl.SCTP, npl.IPv4) != want || free(npl.UDP, npl.IPv6) != 6 {
			t.Errorf("joint %v: %v, %v, %v and, of IPv6, %v free", joint, free(npl.TCP, npl.IPv4), free(npl.UDP, npl.IPv4), free(npl.SCTP, npl.IPv4), free(npl.UDP, npl.IPv6))
		}
	}
}
