package lease

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
)

func candidate(identity string, client kubernetes.Interface) *Lease {
	return &Lease{Namespace: "ns", Name: "lbsync", Identity: identity, Client: client, Log: zap.NewNop()}
}

func holder(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	lease, err := client.CoordinationV1().Leases("ns").Get(context.Background(), "lbsync", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// The Lease is given up, so that the next one takes over at once, but not before the work has stopped.
func TestReleasedAfterWork(t *testing.T) {
	client := fake.NewClientset()
	one := candidate("one", client)
	ctx, stop := context.WithCancel(context.Background())
	started, finish, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var fenced atomic.Bool
	go func() {
		done <- one.Run(ctx, func(term context.Context) {
			_, err := one.Fence()
			fenced.Store(err != nil)
			close(started)
			<-term.Done()
			<-finish // an Apply that takes its time
			if got := holder(t, client); got != "one" {
				t.Errorf("the Lease belongs to %q while one still works", got)
			}
		})
	}()
	<-started
	if fenced.Load() {
		t.Error("the fence is closed for the holder")
	}
	stop()
	select {
	case <-done:
		t.Error("Run has returned while the work goes on")
		done <- nil
	case <-time.After(100 * time.Millisecond): // long enough to see it go wrong; going right it is only waited for
	}
	close(finish)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := holder(t, client); got != "" {
		t.Errorf("the Lease still belongs to %q", got)
	}
	two := candidate("two", client)
	if _, err := two.Fence(); err == nil {
		t.Error("the fence is open for one that never led")
	}
	ctx, stop = context.WithCancel(context.Background())
	defer stop()
	led := make(chan struct{})
	go func() { done <- two.Run(ctx, func(term context.Context) { close(led); <-term.Done() }) }()
	select {
	case <-led:
	case <-time.After(30 * time.Second):
		t.Fatal("the next candidate did not take over")
	}
	stop()
	<-done
}

// A second candidate does not work while the first holds the Lease.
func TestOneWorks(t *testing.T) {
	client := fake.NewClientset()
	ctx, stop := context.WithCancel(context.Background())
	var working atomic.Int32
	started := make(chan struct{}, 2)
	work := func(term context.Context) {
		if working.Add(1) > 1 {
			t.Error("two work at once")
		}
		started <- struct{}{}
		<-term.Done()
		working.Add(-1)
	}
	done := make(chan error, 2)
	for _, name := range []string{"one", "two"} {
		go func() { done <- candidate(name, client).Run(ctx, work) }()
	}
	<-started
	stop()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
