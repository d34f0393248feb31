package applied

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

var (
	web   = model.ServiceKey{Namespace: "shop", Name: "web"}
	api   = model.ServiceKey{Namespace: "shop", Name: "api"}
	stand = Standing{
		Instance: "ns/lbsync", Identity: "two", Provider: "haproxy", Seen: "100", At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Pending: []Pending{{"shop/api", "refused"}, {"shop/web", ""}},
	}
)

func TestFormat(t *testing.T) {
	in := stand
	in.Pending = []Pending{stand.Pending[1], stand.Pending[0]}
	in.At = in.At.Add(time.Millisecond)
	text := Encode(in)
	if out, err := Decode(text); err != nil || !reflect.DeepEqual(out, stand) {
		t.Errorf("%+v, %v", out, err)
	}
	if in.Pending[0].Service != "shop/web" {
		t.Error("Encode sorts its argument")
	}
	for n := range 600 {
		in.Pending = append(in.Pending, Pending{fmt.Sprintf("shop/s%d", n), strings.Repeat("ü", 200)})
	}
	text = Encode(in)
	if out, err := Decode(text); err != nil || len(out.Pending) != most || !out.More || len(text) > 40<<10 || len(out.Pending[0].Problem) == 0 || len(out.Pending[3].Problem) > 256 {
		t.Errorf("%d pending, more %v, %d bytes, %v", len(out.Pending), out.More, len(text), err)
	}
	for _, bad := range []string{"", "[]", "{}", `{"instance":"a/b","identity":"c"}`} {
		if _, err := Decode(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Encode(stand))
	f.Add(`{"instance":"a/b","identity":"c","provider":"d","node":"n","content":"e","changes":{"shop/web":{"at":["192.0.2.1","::1"],"failed":[{"port":"80/TCP"}]}}}`)
	f.Add(`{"instance":"a/b","identity":"c","provider":"d","pending":null,"at":"9999-12-31T23:59:59-23:59"}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Decode(text)
		if err != nil || s.At.UTC().Year() > 9999 || s.At.UTC().Year() < 0 {
			return
		}
		if _, err := Decode(Encode(s)); err != nil {
			t.Error(err)
		}
	})
}

// standing is a loop that says what it is told.
type standing struct {
	mu      sync.Mutex
	seen    string
	pending map[model.ServiceKey]string
}

func (s *standing) Standing() (string, map[model.ServiceKey]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen, s.pending
}

func (s *standing) Reports() map[model.ServiceKey]loop.Report { return nil }

func (s *standing) say(seen string, pending map[model.ServiceKey]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.pending = seen, pending
}

// Two processes beside load balancers of their own, one of which leads.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&corev1.ConfigMap{ // of another installation
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", Labels: map[string]string{Label: LabelValue}},
			Data:       map[string]string{DataKey: Encode(Standing{Instance: "ns/other", Identity: "three", Provider: "haproxy", Seen: "1"})},
		})
		one, two := &standing{}, &standing{}
		publisher := func(identity string) *Publisher {
			p := &Publisher{
				Client: client, Namespace: "ns", Heartbeat: "applied-" + identity, Content: "served-" + identity, Instance: "ns/lbsync", Identity: identity, Provider: "haproxy",
				Clock: clock.RealClock{}, Log: zap.NewNop(), Owner: &metav1.OwnerReference{Kind: "Pod", Name: identity},
			}
			p.Init()
			return p
		}
		var running sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		defer func() { stop(); running.Wait() }()
		first, second := publisher("one"), publisher("two")
		living, end := context.WithCancel(ctx)
		running.Go(func() { first.Run(ctx, one) })
		running.Go(func() { second.Run(living, two) })
		var mu sync.Mutex
		told := map[string]bool{}
		g := &Group{
			Client: client, Namespace: "ns", Instance: "ns/lbsync", Identity: "one", Clock: clock.RealClock{}, Log: zap.NewNop(),
			Keys: func() []model.ServiceKey { return []model.ServiceKey{api, web} },
			Tell: func(key model.ServiceKey) { mu.Lock(); told[key.Name] = true; mu.Unlock() },
			Reached: func() map[string]string {
				seen, _ := one.Standing()
				return map[string]string{"haproxy": seen}
			},
		}
		running.Go(func() { g.Run(ctx) })
		wants := func(when string, key model.ServiceKey, seen string, pending, silent []string) {
			t.Helper()
			if p, s := g.Others("haproxy", key, seen); !slices.Equal(p, pending) || !slices.Equal(s, silent) {
				t.Errorf("%s: pending %v, silent %v; want %v and %v", when, p, s, pending, silent)
			}
		}
		wasTold := func(when string, want ...string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			for _, name := range want {
				if !told[name] {
					t.Errorf("%s: nobody was told of %s", when, name)
				}
			}
			clear(told)
		}
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		pass(time.Second)
		wants("before anybody has published", web, "100", nil, nil)

		one.say("100", nil)
		two.say("99", map[model.ServiceKey]string{api: "refused"})
		second.Changed()
		pass(2 * time.Second)
		wants("one event behind", web, "100", []string{"two"}, nil)
		wants("of another provider", model.ServiceKey{}, "", nil, nil)
		if p, _ := g.Others("other", api, "1"); len(p) > 0 {
			t.Errorf("another provider waits for %v", p)
		}
		wasTold("ignored")
		two.say("100", map[model.ServiceKey]string{api: "refused"})
		second.Changed()
		pass(2 * time.Second)
		wasTold("caught up", "web")
		wants("caught up", web, "100", nil, nil)
		wants("pending", api, "100", []string{"two"}, nil)

		two.say("100", nil)
		second.Changed()
		pass(2 * time.Second)
		wasTold("not pending any more", "api")
		wants("not pending any more", api, "100", nil, nil)

		// In a quiet cluster nothing comes to raise its version. What it has not seen after a while is not there to be seen.
		one.say("105", nil)
		wants("at once", web, "105", []string{"two"}, nil)
		pass(31 * time.Second)
		wants("a while later", web, "105", nil, nil)

		end()
		pass(away + Interval)
		wasTold("gone silent", "web", "api")
		wants("gone silent", web, "105", nil, []string{"two"})
		if err := client.CoreV1().ConfigMaps("ns").Delete(t.Context(), "applied-two", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		pass(Interval)
		wants("retired", web, "105", nil, nil)
		wasTold("retired", "web")

		m, err := client.CoreV1().ConfigMaps("ns").Get(t.Context(), "applied-one", metav1.GetOptions{})
		if err != nil || len(m.OwnerReferences) != 1 || m.Labels[Label] != LabelValue {
			t.Errorf("published %+v, %v", m, err)
		}
		s, err := Decode(m.Data[DataKey])
		if err != nil || time.Since(s.At) > Interval || s.Seen != "105" {
			t.Errorf("published %+v, %v", s, err)
		}
	})
}
