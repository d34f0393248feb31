package lbsync

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/status"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

var owner = providers.Owner{ClusterUID: "c1", Instance: "nplbridge-system/nplbridge"}

// open returns the load balancer as one provider instance.
func (w *world) open() map[string]providers.Provider {
	return map[string]providers.Provider{"memory": w.lb.Open(owner)}
}

// world is a fake API server and a load balancer in memory.
type world struct {
	t      *testing.T
	client *fake.Clientset
	lb     *providertest.LoadBalancer
	clock  *clocktesting.FakeClock // everybody's but the Lease's; eventually makes it run
	pools  []AddressPool           // of those that are started; nil is config's

	mu       sync.Mutex
	writes   []string // of Services, as "verb resource/subresource name"
	watching map[string]bool
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	w := &world{
		t: t, client: fake.NewClientset(objects...), watching: map[string]bool{},
		lb:    providertest.NewLoadBalancer(providertest.MemoryCapabilities()),
		clock: clocktesting.NewFakeClock(time.Now()),
	}
	w.client.PrependReactor("patch", "services", func(a ktesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.writes = append(w.writes, fmt.Sprintf("%s/%s %s", a.GetResource().Resource, a.GetSubresource(), a.(ktesting.PatchAction).GetName()))
		return false, nil, nil
	})
	w.client.PrependWatchReactor("*", func(a ktesting.Action) (bool, watch.Interface, error) {
		stream, err := w.client.Tracker().Watch(a.GetResource(), a.GetNamespace())
		w.mu.Lock()
		defer w.mu.Unlock()
		w.watching[a.GetResource().Resource] = true
		return true, stream, err
	})
	return w
}

func config(identity string) Config {
	c := DefaultConfig()
	c.Instance, c.Providers, c.Identity = owner.Instance, []string{"memory"}, identity
	c.LeaseNamespace, c.LeaseName = "nplbridge-system", "nplbridge-lbsync"
	c.AddressPools = []AddressPool{{Name: "default", Ranges: []AddressRange{{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.9")}}}}
	return c
}

// start runs a Syncer until stop is called or the test ends.
func (w *world) start(identity string) (s *Syncer, stop func()) {
	w.t.Helper()
	cfg := config(identity)
	if w.pools != nil {
		cfg.AddressPools = w.pools
	}
	s, err := newSyncer(cfg, w.client, w.open(), zaptest.NewLogger(w.t), prometheus.NewRegistry(), w.clock)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(stop)
	w.eventually("the caches are filled and watched", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return s.Checks()[0].Check() == nil && w.watching["services"] && w.watching["pods"] && w.watching["nodes"]
	})
	return s, stop
}

func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			w.t.Fatalf("never: %s\nload balancer:\n%swrites: %v", what, providertest.Render(w.lb.State()), w.writes)
		}
		w.clock.Step(20 * time.Millisecond)
		time.Sleep(time.Millisecond)
	}
}

func (w *world) service(name string) *corev1.Service {
	w.t.Helper()
	s, err := w.client.CoreV1().Services("shop").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) update(o runtime.Object) {
	w.t.Helper()
	var err error
	switch o := o.(type) {
	case *corev1.Service:
		_, err = w.client.CoreV1().Services(o.Namespace).Update(w.t.Context(), o, metav1.UpdateOptions{})
	case *corev1.Pod:
		_, err = w.client.CoreV1().Pods(o.Namespace).Update(w.t.Context(), o, metav1.UpdateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) serviceWrites() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.writes)
}

// pool returns the members of the pool as "pod:state", sorted.
func (w *world) pool(name string) []string {
	for _, p := range w.lb.State().Pools {
		if p.Key.Service == name {
			out := []string{}
			for _, m := range p.Members {
				out = append(out, m.UID+":"+string(m.State))
			}
			slices.Sort(out)
			return out
		}
	}
	return nil
}

func programmed(s *corev1.Service) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, status.Programmed)
}

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("svc-" + name)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("nplbridge.io/memory"),
			Selector: map[string]string{"app": name}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

func pod(app string, n int) *corev1.Pod {
	name := fmt.Sprintf("%s-%d", app, n)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), Labels: map[string]string{"app": app},
			Annotations: map[string]string{npl.Annotation: npl.Encode([]npl.Mapping{{
				PodPort: 8080, NodeIP: netip.MustParseAddr("198.51.100.11"), NodePort: uint16(61000 + n), Protocol: npl.TCP, Family: npl.IPv4,
			}})},
		},
		Spec: corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "198.51.100.11"}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func TestEndToEnd(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	s, _ := w.start("one")
	w.eventually("the Service is programmed", func() bool { return programmed(w.service("web")) })

	got := w.service("web")
	if ingress := got.Status.LoadBalancer.Ingress; len(ingress) != 1 || ingress[0].IP != "192.0.2.1" || *ingress[0].IPMode != corev1.LoadBalancerIPModeProxy {
		t.Errorf("ingress %+v", ingress)
	}
	if !slices.Contains(got.Finalizers, annotations.Finalizer) || got.Annotations[npl.EnabledAnnotation] != "true" ||
		got.Annotations[annotations.EnabledBy] != owner.Instance || got.Annotations[annotations.AssignedIPs] != "memory=192.0.2.1" {
		t.Errorf("finalizers %v, annotations %v", got.Finalizers, got.Annotations)
	}

	if _, err := w.client.CoreV1().Pods("shop").Create(t.Context(), pod("web", 2), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the new Pod is a member", func() bool { return slices.Equal(w.pool("web"), []string{"web-1:Enabled", "web-2:Enabled"}) })
	for _, check := range s.Checks() {
		if err := check.Check(); err != nil {
			t.Errorf("%s: %v", check.Name, err)
		}
	}
	w.eventually("the status page shows both members", func() bool {
		d := s.Status().(Document)
		return d.Leading && len(d.Services) == 1 && len(d.Services[0].Ports) == 1 && len(d.Services[0].Ports[0].Members) == 2
	})
}

// I4: with nothing changed, a restart writes nothing anywhere.
func TestRestartWritesNothing(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("api", 2))
	s, stop := w.start("one")
	w.eventually("web is programmed", func() bool { return programmed(w.service("web")) })
	// The second one has the second address, though by name and UID it is the first.
	if _, err := w.client.CoreV1().Services("shop").Create(t.Context(), service("api"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("both are programmed", func() bool { return programmed(w.service("web")) && programmed(w.service("api")) })
	stop()
	before, serviceWrites := w.lb.Writes(), w.serviceWrites()
	s, _ = w.start("two")
	w.eventually("the new one leads and has synced", func() bool {
		d := s.Status().(Document)
		return d.Leading && s.Checks()[1].Check() == nil && len(d.Services) == 2 && len(d.Services[1].Ports) == 1 && d.Services[1].Ports[0].Programmed
	})
	// A change that is made now is made after everything that the restart itself would have written.
	p := pod("web", 3)
	if _, err := w.client.CoreV1().Pods("shop").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the new Pod is a member", func() bool { return slices.Contains(w.pool("web"), "web-3:Enabled") })
	if n := w.lb.Writes() - before; n != 1 {
		t.Errorf("%d writes to the load balancer since the restart, want 1, the new member: %v", n, w.lb.Journal()[before:])
	}
	if n := w.serviceWrites() - serviceWrites; n != 0 {
		t.Errorf("%d writes to Services since the restart: %v", n, w.writes[serviceWrites:])
	}
}

// The finalizer is there before the first write to the load balancer, and stays until the load balancer has confirmed.
func TestFinalizerOrder(t *testing.T) {
	w := newWorld(t, node(), pod("web", 1))
	key := providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP}
	var done atomic.Bool
	w.client.PrependReactor("patch", "services", func(a ktesting.Action) (bool, runtime.Object, error) {
		before, err := w.client.Tracker().Get(a.GetResource(), "shop", "web")
		if err != nil {
			t.Error(err)
			return false, nil, nil
		}
		if !slices.Contains(before.(*corev1.Service).Finalizers, annotations.Finalizer) && w.lb.Writes() > 0 && !done.Load() {
			t.Error("written to the load balancer before the finalizer")
		}
		return false, nil, nil
	})
	w.start("one")
	if _, err := w.client.CoreV1().Services("shop").Create(t.Context(), service("web"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("programmed", func() bool { return programmed(w.service("web")) })
	if !slices.Contains(w.service("web").Finalizers, annotations.Finalizer) {
		t.Fatal("programmed without a finalizer")
	}

	w.lb.FailKey(key, &providers.Error{Kind: providers.Unavailable, What: "cable cut"})
	deleting := w.service("web")
	deleting.DeletionTimestamp = new(metav1.Now())
	w.update(deleting)
	w.eventually("the deletion was tried and failed, and the Service says so", func() bool {
		c := meta.FindStatusCondition(w.service("web").Status.Conditions, status.Programmed)
		return c.Status == metav1.ConditionFalse && c.Reason == "ProviderUnavailable"
	})
	if !slices.Contains(w.service("web").Finalizers, annotations.Finalizer) {
		t.Fatal("the finalizer is gone while the pool is there")
	}
	w.lb.FailKey(key, nil)
	done.Store(true)
	w.eventually("the finalizer is removed", func() bool { return !slices.Contains(w.service("web").Finalizers, annotations.Finalizer) })
	if left := providertest.Render(w.lb.State()); left != "" {
		t.Errorf("left on the load balancer:\n%s", left)
	}
}

// I6: an API server that does not answer, or answers with nothing, deletes nothing.
func TestUnreachableOrEmptyDeletesNothing(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	_, stop := w.start("one")
	w.eventually("programmed", func() bool { return programmed(w.service("web")) })
	stop()
	before := w.lb.Writes()

	t.Run("empty", func(t *testing.T) {
		empty := newWorld(t)
		empty.lb = w.lb
		s, stop := empty.start("two")
		defer stop()
		empty.eventually("synced", func() bool { return s.Status().(Document).Providers[0].RemovalsHeld })
		if w.lb.Writes() != before {
			t.Errorf("written: %v", w.lb.Journal()[before:])
		}
	})
	t.Run("unreachable", func(t *testing.T) {
		mute := newWorld(t, node())
		mute.lb = w.lb
		tried := make(chan struct{}, 100)
		mute.client.PrependReactor("list", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
			select {
			case tried <- struct{}{}:
			default:
			}
			return true, nil, apierrors.NewServerTimeout(schema.GroupResource{Resource: "pods"}, "list", 1)
		})
		s, err := New(config("three"), mute.client, w.open(), zaptest.NewLogger(t), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		<-tried
		if s.Checks()[0].Check() == nil {
			t.Error("ready without an answer")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if w.lb.Writes() != before {
			t.Errorf("written: %v", w.lb.Journal()[before:])
		}
	})
}

// A Service that stops being ours is cleaned up as if it were deleted, and what the user set himself stays.
func TestTypeChange(t *testing.T) {
	web := service("web")
	web.Annotations = map[string]string{npl.EnabledAnnotation: "true"}
	w := newWorld(t, node(), web, service("api"), pod("web", 1), pod("api", 2))
	w.start("one")
	w.eventually("programmed", func() bool { return programmed(w.service("web")) && programmed(w.service("api")) })
	for _, name := range []string{"web", "api"} {
		s := w.service(name)
		s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
		w.update(s)
		w.eventually(name+" is let go of", func() bool { return len(w.service(name).Finalizers) == 0 })
		s = w.service(name)
		if w.pool(name) != nil || len(s.Status.LoadBalancer.Ingress) > 0 || len(s.Status.Conditions) > 0 {
			t.Errorf("%s: pool %v, status %+v", name, w.pool(name), s.Status)
		}
		if _, enabled := s.Annotations[npl.EnabledAnnotation]; enabled != (name == "web") {
			t.Errorf("%s: annotations %v", name, s.Annotations)
		}
		delete(s.Annotations, npl.EnabledAnnotation)
		if len(s.Annotations) > 0 {
			t.Errorf("%s: left %v", name, s.Annotations)
		}
	}
}

// I5: a Service that another lbsync manages is left alone, and one Event says so.
func TestManagedByOther(t *testing.T) {
	web := service("web")
	web.Annotations = map[string]string{annotations.ManagedBy: "other/one/lease"}
	web.Finalizers = []string{annotations.Finalizer}
	w := newWorld(t, node(), web, pod("web", 1))
	w.start("one")
	w.eventually("an Event", func() bool {
		events, err := w.client.EventsV1().Events("shop").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(events.Items) == 1 && events.Items[0].Reason == status.ReasonManagedByOther
	})
	if w.serviceWrites() > 0 || w.lb.Writes() > 0 {
		t.Errorf("written: %v, %v", w.writes, w.lb.Journal())
	}
	free := w.service("web")
	delete(free.Annotations, annotations.ManagedBy)
	w.update(free)
	w.eventually("taken over", func() bool { return programmed(w.service("web")) })
}

// A Service whose address another one has is told so, and served when that one goes.
func TestAddressConflict(t *testing.T) {
	first, second := service("web"), service("api")
	first.Spec.LoadBalancerIP, second.Spec.LoadBalancerIP = "192.0.2.7", "192.0.2.7"
	w := newWorld(t, node(), first, pod("web", 1), pod("api", 2))
	w.start("one")
	w.eventually("the first is programmed", func() bool { return programmed(w.service("web")) })
	if _, err := w.client.CoreV1().Services("shop").Create(t.Context(), second, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the second is told", func() bool {
		c := meta.FindStatusCondition(w.service("api").Status.Conditions, status.Accepted)
		return c != nil && c.Reason == "AddressConflict"
	})
	if w.pool("api") != nil || len(w.service("api").Finalizers) > 0 {
		t.Error("the second is on the load balancer without an address")
	}
	gone := w.service("web")
	gone.DeletionTimestamp = new(metav1.Now())
	w.update(gone)
	w.eventually("the second has the address", func() bool {
		s := w.service("api")
		return programmed(s) && s.Status.LoadBalancer.Ingress[0].IP == "192.0.2.7"
	})
}

// Two beside two load balancers of their own: both program, one writes Services.
func TestLocal(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	capabilities := providertest.MemoryCapabilities()
	capabilities.Local = true
	w.lb = providertest.NewLoadBalancer(capabilities)
	one, stop := w.start("one")
	first := w.lb
	w.eventually("the first leads", func() bool { return programmed(w.service("web")) })
	w.lb = providertest.NewLoadBalancer(capabilities)
	two, _ := w.start("two")
	w.eventually("the second has it, too", func() bool { return slices.Equal(w.pool("web"), []string{"web-1:Enabled"}) })
	if providertest.Render(first.State()) != providertest.Render(w.lb.State()) {
		t.Errorf("the two differ:\n%s\n%s", providertest.Render(first.State()), providertest.Render(w.lb.State()))
	}
	if !one.Status().(Document).Leading || two.Status().(Document).Leading || !two.Status().(Document).Providers[0].Writing {
		t.Error("one leads, both write their load balancers")
	}
	stop()
	w.eventually("the second takes over", func() bool { return two.Status().(Document).Leading })
}
