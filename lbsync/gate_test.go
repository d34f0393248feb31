package lbsync

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

// A Pod whose readiness waits for the load balancer is a member before it is ready, and its gate opens when it is.
func TestReadinessGate(t *testing.T) {
	gated := pod("web", 1)
	gated.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: annotations.Gate}}
	at := metav1.NewTime(time.Now())
	gated.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: at},
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ReadinessGatesNotReady", LastTransitionTime: at},
	}
	alone := gated.DeepCopy()
	alone.Name, alone.UID, alone.Labels, alone.Annotations = "alone", "alone", nil, nil
	w := newWorld(t, node(), gated, alone, service("web"))
	key := providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP}
	w.lb.FailKey(key, &providers.Error{Kind: providers.Unavailable, What: "cable cut"})
	gate := func(name string) string {
		p, err := w.client.CoreV1().Pods("shop").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Status.Conditions) < 2 {
			t.Fatalf("conditions of %s were lost: %+v", name, p.Status.Conditions)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == annotations.Gate && c.Status == corev1.ConditionTrue {
				return c.Reason
			}
		}
		return ""
	}
	w.start("one")
	w.eventually("the gate of a Pod of no Service is open", func() bool { return gate("alone") == "NotApplicable" })
	w.eventually("the load balancer refused the member", func() bool { return len(w.service("web").Status.Conditions) == 2 })
	if got := gate("web-1"); got != "" {
		t.Errorf("open before the load balancer has the Pod: %s", got)
	}
	w.lb.FailKey(key, nil)
	w.eventually("the gate is open", func() bool { return gate("web-1") == "Confirmed" })
	if got := w.pool("web"); len(got) != 1 || got[0] != "web-1:Enabled" {
		t.Errorf("open with the pool %v", got)
	}
}
