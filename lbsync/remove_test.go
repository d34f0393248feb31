package lbsync

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// Two processes are told to go, one after the other: each cleans up the load balancer beside it, and nothing is left at last.
func TestRemove(t *testing.T) {
	web := service("web")
	web.Annotations = map[string]string{"nplbridge.io/providers": "memory,beside"}
	b := newBoth(t, slices.Concat([]runtime.Object{node(), web, pod("web", 1)}, publication("other/nplbridge", "one", time.Second))...)
	_, stopOne := b.start("one")
	_, stopTwo := b.start("two")
	b.eventually("programmed", func() bool {
		return programmed(b.service("web")) && len(membersOf(b.local["one"])) == 1 && len(membersOf(b.local["two"])) == 1
	})

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var mu sync.Mutex
	told := map[string][]string{}
	goes := func(identity string) <-chan error {
		cfg := config(identity)
		cfg.Providers = []string{"memory", "beside"}
		open := map[string]providers.Provider{"memory": b.lb.Open(owner), "beside": b.local[identity].Open(owner)}
		done := make(chan error, 1)
		go func() {
			done <- Remove(ctx, cfg, b.client, open, zaptest.NewLogger(t), func(left string) {
				mu.Lock()
				defer mu.Unlock()
				told[identity] = append(told[identity], left)
			})
		}()
		return done
	}
	stopOne()
	one := goes("one")
	b.eventually("the first is clean", func() bool { return len(membersOf(b.local["one"])) == 0 })
	b.eventually("the second, which knows nothing yet, serves on", func() bool { return len(membersOf(b.local["two"])) == 1 })
	stopTwo()
	two := goes("two")
	for identity, done := range map[string]<-chan error{"one": one, "two": two} {
		if err := <-done; err != nil {
			t.Errorf("%s: %v, told %q", identity, err, told[identity])
		}
	}
	for name, lb := range map[string]*providertest.LoadBalancer{"the remote one": b.lb, "one": b.local["one"], "two": b.local["two"]} {
		if state := lb.State(); len(state.Pools) > 0 || len(state.VirtualServers) > 0 {
			t.Errorf("%s still has\n%s", name, providertest.Render(state))
		}
	}
	left := trace(b.service("web"))
	if want := []string{"nplbridge.io/providers"}; !slices.Equal(left, want) {
		t.Errorf("shop/web still has %q", left)
	}
	list, err := b.client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 3 || slices.ContainsFunc(list.Items, func(m corev1.ConfigMap) bool { return !strings.Contains(m.Name, "other-nplbridge") }) {
		t.Errorf("%v, ConfigMaps: %+v", err, list.Items)
	}
	published, services, err := Remains(t.Context(), b.client, config("x"))
	if err != nil || len(published)+len(services) > 0 {
		t.Errorf("%v, %q, %v", published, services, err)
	}

	// And back: nothing stands in the way.
	b.start("one")
	b.eventually("served again", func() bool { return programmed(b.service("web")) && len(membersOf(b.local["one"])) == 1 })
	published, services, err = Remains(t.Context(), b.client, config("x"))
	if err != nil || len(published) == 0 || !slices.Equal(services, []string{"shop/web"}) {
		t.Errorf("%v, %q, %v", published, services, err)
	}
}

// Who has written nothing removes nothing.
func TestRemoveOnADryRun(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	_, stop := w.start("one")
	w.eventually("programmed", func() bool { return programmed(w.service("web")) })
	stop()
	cfg := config("two")
	cfg.DryRun = true
	before := w.lb.Writes()
	w.client.PrependReactor("*", "*", func(a ktesting.Action) (bool, runtime.Object, error) {
		if a.GetResource().Resource != "events" { // the last one of the process before may still be on its way
			t.Errorf("%s of %s", a.GetVerb(), a.GetResource().Resource)
		}
		return false, nil, nil
	})
	if err := Remove(t.Context(), cfg, w.client, w.open(), zaptest.NewLogger(t), func(string) {}); err != nil || w.lb.Writes() != before {
		t.Errorf("%v, %d writes", err, w.lb.Writes()-before)
	}
}
