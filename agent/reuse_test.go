package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nplbridge/nplbridge/agent/internal/loop"
	"github.com/nplbridge/nplbridge/agent/watermark"
)

// sample returns how often a histogram without labels was observed, or the value of a counter's series with this label value.
func sample(t *testing.T, reg *prometheus.Registry, name, label string) uint64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch {
			case f.GetName() != name:
			case m.GetHistogram() != nil && label == "":
				return m.GetHistogram().GetSampleCount()
			case m.GetCounter() != nil && m.GetLabel()[0].GetValue() == label:
				return uint64(m.GetCounter().GetValue())
			}
		}
	}
	t.Fatalf("no %s with label %q", name, label)
	return 0
}

func (c *cluster) deletePod(name string) {
	if err := c.CoreV1().Pods("default").Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Error(err)
	}
}

// While the agent is about to annotate a Pod, a StatefulSet makes it anew on another Node: same name, other UID.
func TestNPL60RecreatedOnAnotherNode(t *testing.T) {
	c, k := start(t), newKernel()
	c.addService("web", 8080)
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	c.before = func(string) {
		c.before = nil
		recreated := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "new", ResourceVersion: "9000"}, Spec: corev1.PodSpec{NodeName: "node-2"}}
		if err := errors.Join(c.Tracker().Delete(pods, "default", "p"), c.Tracker().Create(pods, recreated, "default")); err != nil {
			t.Error(err)
		}
	}
	c.addPod("node-1", "p", "old", "10.0.0.1")
	_, reg, _ := c.agentOn(k, config())
	eventually(t, "the old Pod's rule is gone", func() bool { return len(k.Rules()) == 0 && k.Writes() > 1 })
	eventually(t, "the patch is given up", func() bool { return sample(t, reg, "npl_agent_annotation_patches_total", "gone") == 1 })
	// A Pod that comes now is annotated by a later pass: there was every opportunity to try again.
	c.addPod("node-1", "late", "late", "10.0.0.2")
	eventually(t, "the late Pod is annotated", func() bool { return c.annotation("late") != "" })
	if got := c.annotation("p"); got != "" || c.patches.Load() != 2 {
		t.Errorf("annotation %q of the Pod on the other Node, %d patches", got, c.patches.Load())
	}
}

func TestPortWaitsForTheWatermarkInItsNamespace(t *testing.T) {
	c, k := start(t), newKernel()
	cfg := config()
	cfg.PortRange, cfg.CoolDown, cfg.PortReuse, cfg.WatermarkNamespace = PortRange{61000, 61000}, 0, ReuseConfirmed, "lb"
	c.addService("web", 8080)
	a, reg, _ := c.agentOn(k, cfg)
	c.addPod("node-1", "first", "u1", "10.0.0.1")
	eventually(t, "annotation", func() bool { return c.annotation("first") != "" })
	c.deletePod("first")
	c.addPod("node-1", "second", "u2", "10.0.0.2")
	refused := func() (message string) {
		for _, r := range a.Status().(StatusDocument).Refusals {
			if r.Reason == "PortsUnconfirmed" && r.Pod == "default/second" {
				message = r.Message
			}
		}
		return message
	}
	mark := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lb", Name: "mark", Labels: map[string]string{watermark.Label: watermark.LabelValue}},
		Data:       map[string]string{watermark.DataKey: watermark.Encode(watermark.Watermark{Instance: "lb/lbsync", LoadBalancer: "haproxy", Seen: "1"})},
	}
	eventually(t, "refusal", func() bool { return strings.Contains(refused(), watermark.NoWatermark) })
	c.must(c.CoreV1().ConfigMaps("lb").Create(t.Context(), mark, metav1.CreateOptions{}))
	eventually(t, "refusal that names the instance", func() bool { return strings.Contains(refused(), "lb/lbsync (haproxy)") })
	eventually(t, "Event", func() bool {
		events, err := c.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		for _, e := range events.Items {
			if e.Reason == "PortsUnconfirmed" && e.Regarding.UID == types.UID("u2") {
				return true
			}
		}
		return err != nil
	})
	if c.annotation("second") != "" || gauge(t, reg, "npl_agent_refusals", "PortsUnconfirmed") != 1 {
		t.Errorf("annotation %q", c.annotation("second"))
	}
	mark = mark.DeepCopy()
	mark.Data[watermark.DataKey] = watermark.Encode(watermark.Watermark{Instance: "lb/lbsync", LoadBalancer: "haproxy", Seen: "99999999999999999999"})
	c.must(c.CoreV1().ConfigMaps("lb").Update(t.Context(), mark, metav1.UpdateOptions{}))
	eventually(t, "annotation", func() bool { return c.annotation("second") != "" })
}

func TestPropagationIsCountedFromTheEventOfThePod(t *testing.T) {
	c, k := start(t), newKernel()
	c.addService("web", 8080)
	a, reg, _ := c.agentOn(k, config())
	c.addPod("node-1", "p", "u", "")
	c.addPod("node-1", "q", "v", "10.0.0.2")
	eventually(t, "annotation", func() bool { return c.annotation("q") != "" })
	eventually(t, "q is counted", func() bool { return sample(t, reg, "npl_agent_propagation_seconds", "") == 1 })
	// A pass that knows of a later Pod has seen that q has what it needs. This one is never served: it has no address of the family.
	c.addPod("node-1", "later", "w", "2001:db8::1")
	eventually(t, "the later Pod is refused", func() bool {
		return slices.ContainsFunc(a.Status().(StatusDocument).Refusals, func(r loop.RefusalStatus) bool { return r.Pod == "default/later" })
	})
	// A Service that comes after that is no event of the Pod.
	c.addService("again", 8081)
	eventually(t, "both ports", func() bool { return strings.Contains(c.annotation("q"), "8081") })
	if got := sample(t, reg, "npl_agent_propagation_seconds", ""); got != 1 {
		t.Errorf("counted %d times", got)
	}
	if got := sample(t, reg, "npl_agent_kernel_transactions_total", "success"); got != uint64(k.Writes()) || got == 0 {
		t.Errorf("%d transactions, the kernel saw %d", got, k.Writes())
	}
}
