package node

import (
	"context"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

func TestHeartbeats(t *testing.T) {
	c := theCluster(t)
	renewed := func() (at time.Time) { // zero is not there
		lease, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "node-1", metav1.GetOptions{})
		if err == nil {
			at = lease.Spec.RenewTime.Time
		}
		return at
	}
	poll(t, func() string { return "there is no Lease" }, func() bool { return !renewed().IsZero() })
	first := renewed()
	poll(t, func() string { return "the Lease is not renewed" }, func() bool { return renewed().After(first) })
	// Somebody cleaned up too much: the Lease comes back.
	if err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(t.Context(), "node-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll(t, func() string { return "the Lease does not come back" }, func() bool {
		_, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "node-1", metav1.GetOptions{})
		return err == nil
	})
}

func TestPausedHeartbeats(t *testing.T) {
	client := fake.NewClientset()
	cfg := Config{
		Name: "n", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, RESTConfig: &rest.Config{}, Network: ownNetwork{},
		NetNSPath: "/proc/self/ns/net", StateDir: t.TempDir(),
	}
	if err := cfg.complete(); err != nil {
		t.Fatal(err)
	}
	n := newNode(cfg, client)
	if err := n.register(t.Context()); err != nil {
		t.Fatal(err)
	}
	client.ClearActions()
	ctx, cancel := context.WithCancel(t.Context())
	ticks, done := make(chan time.Time), make(chan struct{})
	go func() { n.heartbeat(ctx, ticks); close(done) }()
	// tick returns when the tick before it has been dealt with.
	tick := func() { ticks <- time.Now() }
	count := func(resource string) (updates int) {
		for _, a := range client.Actions() {
			if a.GetVerb() == "update" && a.GetResource().Resource == resource {
				updates++
			}
		}
		return updates
	}
	tick()
	tick()
	tick()
	if got := count("leases"); got < 2 {
		t.Errorf("%d renewals after two ticks", got)
	}
	n.PauseHeartbeats(true)
	tick() // the one before may still have renewed
	before := count("leases")
	for range 2 * statusEvery {
		tick()
	}
	if leases, reports := count("leases"), count("nodes"); leases != before || reports != 0 {
		t.Errorf("paused: %d renewals, %d reports", leases-before, reports)
	}
	n.PauseHeartbeats(false)
	poll(t, func() string { return "resumed without a renewal and a report" }, func() bool { return count("leases") > before && count("nodes") > 0 })
	cancel()
	<-done
}
