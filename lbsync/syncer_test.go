package lbsync

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zaptest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/applied"
	"github.com/nplbridge/nplbridge/lbsync/internal/status"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// marks returns the watermarks that are published, by load balancer.
func (w *world) marks() map[string]watermark.Watermark {
	list, err := w.client.CoreV1().ConfigMaps("nplbridge-system").List(w.t.Context(), metav1.ListOptions{LabelSelector: watermark.Label})
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]watermark.Watermark{}
	for _, m := range list.Items {
		mark, err := watermark.Decode(m.Data[watermark.DataKey])
		if err != nil {
			w.t.Fatal(err)
		}
		out[mark.LoadBalancer] = mark
	}
	return out
}

// counted counts writes of ConfigMaps.
func (w *world) counted() (writes func() int) {
	var mu sync.Mutex
	n := 0
	w.client.PrependReactor("*", "configmaps", func(a ktesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		if slices.Contains([]string{"create", "update", "patch", "delete"}, a.GetVerb()) {
			n++
		}
		return false, nil, nil
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// The watermark is there before the first member, follows what is acknowledged, and is not written for nothing.
func TestWatermark(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("web", 2))
	var down atomic.Bool
	down.Store(true)
	w.client.PrependReactor("*", "configmaps", func(ktesting.Action) (bool, runtime.Object, error) {
		if down.Load() {
			return true, nil, apierrors.NewInternalError(errors.New("not now"))
		}
		return false, nil, nil
	})
	_, stop := w.start("one")
	w.eventually("the Service may be written", func() bool { return slices.Contains(w.service("web").Finalizers, annotations.Finalizer) })
	start := w.clock.Now()
	w.eventually("some time is over", func() bool { return w.clock.Since(start) > 3*time.Second })
	if w.lb.Writes() > 0 {
		t.Errorf("written before the first watermark: %v", w.lb.Journal())
	}
	down.Store(false)
	w.eventually("programmed", func() bool { return programmed(w.service("web")) })
	before, there := w.marks()["memory"]
	if !there || before.Instance != owner.Instance || len(before.Held) > 0 {
		t.Fatalf("published %+v", w.marks())
	}

	key := providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP}
	w.lb.FailKey(key, &providers.Error{Kind: providers.Unavailable, What: "cable cut"})
	if err := w.client.CoreV1().Pods("shop").Delete(t.Context(), "web-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	port := watermark.NodePort{Node: "node-1", Protocol: "tcp", Family: "IPv4", Port: 61001}
	w.eventually("what cannot be removed is held", func() bool { return slices.Equal(w.marks()["memory"].Held, []watermark.NodePort{port}) })
	stop()
	w.lb.FailObserve(&providers.Error{Kind: providers.Unavailable, What: "cable cut"})
	_, stop = w.start("two")
	w.eventually("another one leads", func() bool { return w.lb.Observations() > 0 })
	w.clock.Step(time.Minute)
	if held := w.marks()["memory"].Held; !slices.Equal(held, []watermark.NodePort{port}) {
		t.Errorf("a new leader that could not read the load balancer holds %v", held)
	}
	w.lb.FailObserve(nil)
	w.lb.FailKey(key, nil)
	w.eventually("the load balancer is back, and nothing is held", func() bool {
		return len(w.marks()["memory"].Held) == 0 && slices.Equal(w.pool("web"), []string{"web-2:Enabled"})
	})
	if c, ok := watermark.CompareVersions(w.marks()["memory"].Seen, before.Seen); !ok || c < 0 {
		t.Errorf("seen %s after %s", w.marks()["memory"].Seen, before.Seen)
	}
	stop()

	writes := w.counted()
	s, _ := w.start("three")
	w.eventually("the third leads and has synced", func() bool { return s.Document().Leading && s.Checks()[1].Check() == nil })
	w.clock.Step(10 * time.Minute)
	w.eventually("a new Pod is a member", func() bool {
		_, err := w.client.CoreV1().Pods("shop").Create(t.Context(), pod("web", 3), metav1.CreateOptions{})
		return err != nil && slices.Contains(w.pool("web"), "web-3:Enabled")
	})
	if n := writes(); n > 0 {
		t.Errorf("%d writes of watermarks though nothing was removed", n)
	}
}

// both returns a world with a local load balancer beside the remote one, and starts Syncers with both.
type both struct {
	*world
	local map[string]*providertest.LoadBalancer // by identity
}

func newBoth(t *testing.T, objects ...runtime.Object) *both {
	return &both{newWorld(t, objects...), map[string]*providertest.LoadBalancer{}}
}

func (b *both) start(identity string, edit ...func(*Config)) (s *Syncer, stop func()) {
	b.t.Helper()
	can := providertest.MemoryCapabilities()
	can.Local = true
	b.local[identity] = providertest.NewLoadBalancer(can)
	cfg := config(identity)
	cfg.Providers = []string{"memory", "beside"}
	for _, e := range edit {
		e(&cfg)
	}
	open := map[string]providers.Provider{"memory": b.lb.Open(owner), "beside": b.local[identity].Open(owner)}
	s, err := newSyncer(cfg, b.client, open, zaptest.NewLogger(b.t), prometheus.NewRegistry(), b.clock)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			b.t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	b.t.Cleanup(stop)
	b.eventually("the caches are filled", func() bool { return s.Checks()[0].Check() == nil })
	return s, stop
}

func membersOf(lb *providertest.LoadBalancer) (out []string) {
	for _, p := range lb.State().Pools {
		for _, m := range p.Members {
			out = append(out, m.UID)
		}
	}
	return out
}

// One process drives a remote load balancer and the one beside it; a second one its own beside it, and what it has applied counts.
func TestLocalAndRemote(t *testing.T) {
	web := service("web")
	web.Annotations = map[string]string{"nplbridge.io/providers": "memory,beside"}
	b := newBoth(t, node(), web, pod("web", 1))
	one, stop := b.start("one")
	b.eventually("the first leads", func() bool { return one.Document().Leading })
	b.start("two")
	for identity, lb := range map[string]*providertest.LoadBalancer{"the remote one": b.lb, "one": b.local["one"], "two": b.local["two"]} {
		b.eventually(identity+" has the member", func() bool { return slices.Equal(membersOf(lb), []string{"web-1"}) })
	}
	b.eventually("programmed", func() bool { return programmed(b.service("web")) })
	b.eventually("one watermark for each", func() bool {
		return slices.Equal(slices.Sorted(maps.Keys(b.marks())), []string{"beside/one", "beside/two", "memory"})
	})

	key := providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP}
	b.local["two"].FailKey(key, &providers.Error{Kind: providers.Rejected, What: "its disk is full"})
	p := pod("web", 2)
	if _, err := b.client.CoreV1().Pods("shop").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b.eventually("the Service says who has not applied it", func() bool {
		c := meta.FindStatusCondition(b.service("web").Status.Conditions, status.Programmed)
		return c != nil && c.Status != metav1.ConditionTrue && strings.Contains(c.Message, "two")
	})
	b.local["two"].FailKey(key, nil)
	b.eventually("all have applied it", func() bool { return programmed(b.service("web")) })
	stop()
	if err := b.client.CoreV1().Pods("shop").Delete(t.Context(), "web-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.eventually("the second goes on with both", func() bool {
		return slices.Equal(membersOf(b.lb), []string{"web-2"}) && slices.Equal(membersOf(b.local["two"]), []string{"web-2"})
	})
	if got := membersOf(b.local["one"]); !slices.Contains(got, "web-1") {
		t.Errorf("nobody is beside it, and it has %v", got)
	}
	list, err := b.client.CoreV1().ConfigMaps("nplbridge-system").List(t.Context(), metav1.ListOptions{LabelSelector: applied.Label})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("%d objects of what was applied, %v", len(list.Items), err)
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	b := newBoth(t, node(), service("web"), pod("web", 1))
	s, _ := b.start("one", func(c *Config) { c.DryRun = true })
	b.eventually("planned", func() bool {
		d := s.Document()
		return len(d.Services) == 1 && len(d.Providers) == 2 && len(d.Providers[0].Planned) > 0
	})
	b.clock.Step(time.Hour)
	b.eventually("looked again", func() bool { return b.lb.Observations() > 1 })
	for _, a := range b.client.Actions() {
		if !slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()) {
			t.Errorf("%s of %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
	if b.lb.Writes()+b.local["one"].Writes() > 0 {
		t.Errorf("written %v, %v", b.lb.Journal(), b.local["one"].Journal())
	}
}

func TestReload(t *testing.T) {
	b := newBoth(t, node(), service("web"), pod("web", 1), pod("web", 2))
	s, _ := b.start("one")
	b.eventually("programmed", func() bool { return programmed(b.service("web")) })
	key := providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP}
	for _, m := range b.lb.State().Pools[0].Members {
		b.lb.SetConnections(key, m.ID(), 1)
	}
	cfg := s.cfg
	cfg.DrainLimit = time.Second
	if err := s.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	leaving := pod("web", 1)
	leaving.DeletionTimestamp, leaving.Finalizers = new(metav1.NewTime(b.clock.Now())), []string{"test"}
	b.update(leaving)
	start := b.clock.Now()
	b.eventually("the member left at the new limit", func() bool { return slices.Equal(b.pool("web"), []string{"web-2:Enabled"}) })
	if took := b.clock.Since(start); took > time.Minute {
		t.Errorf("it took %s", took)
	}

	cfg.Providers, cfg.HandleUnclassed, cfg.Resync = []string{"memory"}, true, time.Hour
	err := s.Reload(cfg)
	if err == nil || !strings.Contains(err.Error(), "providers, handleUnclassed: can only change with a restart") || strings.Contains(err.Error(), "resync") {
		t.Errorf("got %v", err)
	}
	if s.settings.Load().Resync != time.Hour {
		t.Error("what can change did not")
	}
	cfg.Resync = time.Millisecond
	if err := s.Reload(cfg); err == nil || !strings.Contains(err.Error(), "resync") || s.settings.Load().Resync != time.Hour {
		t.Errorf("an invalid configuration: %v, resync %s", err, s.settings.Load().Resync)
	}
}

// panicking is a load balancer whose provider has a defect.
type panicking struct{ providers.Provider }

func (panicking) Observe(context.Context, providers.Scope) (providers.Observed, error) {
	panic("a defect of the provider")
}

// A panic of a loop leaves the loop: what runs beside it must not be waited for, or the process would go on without it, holding the Lease.
func TestPanicIsNotSwallowed(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	s, err := newSyncer(config("one"), w.client, map[string]providers.Provider{"memory": panicking{w.open()["memory"]}}, zaptest.NewLogger(t),
		prometheus.NewRegistry(), w.clock)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	left := make(chan any, 1)
	go func() {
		defer func() { left <- recover() }()
		s.work(ctx, s.balancers[0], func() (time.Time, error) { return time.Time{}, nil })
	}()
	select {
	case what := <-left:
		if what != "a defect of the provider" {
			t.Errorf("recovered %v", what)
		}
	case <-ctx.Done():
		t.Error("the panic is swallowed")
	}
}
