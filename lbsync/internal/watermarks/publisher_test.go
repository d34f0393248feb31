package watermarks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
)

// source is a loop that holds what it is told.
type source struct {
	mu    sync.Mutex
	h     loop.Holdings
	ok    bool
	wakes int
}

func (s *source) Holdings() (loop.Holdings, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.h, s.ok
}

func (s *source) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakes++
}

// desk is a Publisher in front of a fake API server, in a bubble in which time is nobody's.
type desk struct {
	t      *testing.T
	client *fake.Clientset
	source *source
	p      *Publisher
	start  time.Time

	mu     sync.Mutex
	writes []string // "seen held", with the second of each
	err    error    // of every call
}

// fail makes every call of the API server fail, until it is called with nil.
func (d *desk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// takeWrites returns what was written since the last call.
func (d *desk) takeWrites() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.writes
	d.writes = nil
	return out
}

func newDesk(t *testing.T, objects ...runtime.Object) *desk {
	d := &desk{t: t, client: fake.NewClientset(objects...), source: &source{}, start: time.Now()}
	d.client.PrependReactor("*", "configmaps", func(a ktesting.Action) (bool, runtime.Object, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.err != nil {
			return true, nil, d.err
		}
		if w, is := a.(ktesting.UpdateAction); is && (a.GetVerb() == "create" || a.GetVerb() == "update") {
			mark, err := watermark.Decode(w.GetObject().(*corev1.ConfigMap).Data[watermark.DataKey])
			if err != nil {
				t.Error(err)
			}
			d.writes = append(d.writes, fmt.Sprintf("%s %d at %s", mark.Seen, len(mark.Held), time.Since(d.start)))
		}
		return false, nil, nil
	})
	metrics, err := NewMetrics(prometheus.NewRegistry(), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	d.p = New(Config{
		Client: d.client, Namespace: "ns", Name: Name("lbsync", "lb", "me"), Instance: "ns/lbsync", Provider: "lb", Identity: "me",
		Owner: &metav1.OwnerReference{Kind: "Pod", Name: "me", UID: "1"}, Metrics: metrics, Clock: clock.RealClock{}, Log: zap.NewNop(),
	})
	return d
}

func (d *desk) run() {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); d.p.Run(ctx, d.source) }()
	d.t.Cleanup(func() { stop(); <-done })
	synctest.Wait()
}

// say changes what the loop holds.
func (d *desk) say(seen string, left uint64, ports ...uint16) {
	d.source.mu.Lock()
	d.source.h = loop.Holdings{Seen: seen, Left: left}
	for _, p := range ports {
		d.source.h.Held = append(d.source.h.Held, watermark.NodePort{Node: "n", Protocol: "tcp", Family: "IPv4", Port: p})
	}
	d.source.ok = true
	d.source.mu.Unlock()
	d.p.Changed()
	synctest.Wait()
}

func (d *desk) pass(duration time.Duration) {
	time.Sleep(duration)
	synctest.Wait()
}

// wrote checks what was written since the last call.
func (d *desk) wrote(want ...string) {
	d.t.Helper()
	if got := d.takeWrites(); !slices.Equal(got, want) {
		d.t.Errorf("wrote %q, want %q", got, want)
	}
}

func TestPublishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		if _, known := d.p.Last(); known {
			t.Error("known before it was read")
		}
		d.run()
		if last, known := d.p.Last(); !known || last.Seen != "" {
			t.Errorf("last %+v, %v", last, known)
		}
		d.wrote()
		d.say("10", 0, 1) // the first is at once: the loop waits for it
		d.wrote("10 1 at 0s")
		d.source.mu.Lock()
		if d.source.wakes != 2 {
			t.Errorf("woken %d times, want once it was read and once it was written", d.source.wakes)
		}
		d.source.mu.Unlock()
		d.pass(time.Hour)
		d.say("20", 0, 1)
		d.pass(time.Hour)
		d.wrote("20 1 at 1h0m0s")
		d.say("21", 0, 1, 2)
		d.pass(100 * time.Millisecond)
		d.say("22", 1, 1) // a removal that was acknowledged at once
		d.pass(time.Second)
		d.wrote("22 1 at 2h0m0.5s")
		for n := range 150 { // a burst is one write each five seconds
			d.say(fmt.Sprint(30+n), uint64(2+n), 1)
			d.pass(70 * time.Millisecond)
		}
		d.wrote("92 1 at 2h0m5.5s", "164 1 at 2h0m10.5s")
		d.pass(time.Hour)
		d.wrote("179 1 at 2h0m15.5s")

		m, err := d.client.CoreV1().ConfigMaps("ns").Get(t.Context(), d.p.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if m.Labels[watermark.Label] != watermark.LabelValue || m.Annotations[IdentityAnnotation] != "me" ||
			len(m.OwnerReferences) != 1 || m.OwnerReferences[0].Name != "me" {
			t.Errorf("published %+v", m.ObjectMeta)
		}
		mark, err := watermark.Decode(m.Data[watermark.DataKey])
		if err != nil || mark.Name() != "ns/lbsync (lb/me)" || mark.At.IsZero() {
			t.Errorf("published %+v, %v", mark, err)
		}
	})
}

// How far was seen is told by itself, too, seldom: a Pod that is nobody's here, behind another load balancer or behind none, may wait for a node
// port, and its agent for this very object.
func TestTellsHowFarWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.run()
		d.say("10", 0)
		d.pass(10 * time.Minute)
		d.wrote("10 0 at 0s")
		d.say("11", 0)
		d.say("12", 0)
		d.pass(10 * time.Second)
		d.say("13", 0)
		d.pass(time.Hour)
		d.wrote("11 0 at 10m0s", "13 0 at 10m20s")
	})
}

// A thousand instances write five watermarks a second together: each has its turn, and then a pace.
func TestManyInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.p.Instances = func() int { return 1000 }
		const pace = 200 * time.Second
		d.run()
		d.say("10", 0)
		d.wrote("10 0 at 0s") // the loop waits for the first
		turn := d.p.turn(interval)
		if turn <= 0 || turn >= pace || turn != d.p.turn(refresh) {
			t.Fatalf("the turn is after %s", turn)
		}
		d.pass(time.Hour)
		d.say("11", 0)
		d.pass(time.Hour)
		d.wrote(fmt.Sprintf("11 0 at %s", time.Hour+turn))
		d.say("12", 1)
		if behind := testutil.ToFloat64(d.p.Metrics.behind); behind != 0 {
			t.Errorf("behind for %v s, before its turn", behind)
		}
		d.pass(time.Hour)
		d.wrote(fmt.Sprintf("12 0 at %s", 2*time.Hour+settle+turn))
		for n := range 1000 {
			d.say(fmt.Sprint(13+n), uint64(2+n))
			d.pass(time.Second)
		}
		if got := d.takeWrites(); len(got) < 4 || len(got) > 6 {
			t.Errorf("wrote %q in a thousand seconds", got)
		}
		d.pass(time.Hour)
		if got := d.takeWrites(); len(got) != 1 || !strings.HasPrefix(got[0], "1012 ") {
			t.Errorf("wrote %q in the end", got)
		}
	})
}

// What is to be told since a while is told when its turn comes, whatever becomes news meanwhile; news alone still wait for more.
func TestNewsPutNothingOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.p.Instances = func() int { return 1000 }
		d.run()
		d.say("10", 0)
		turn := d.p.turn(refresh)
		d.pass(time.Hour)
		d.say("11", 0) // somebody's withdrawal, who is nobody's here
		d.pass(turn - time.Second)
		d.say("12", 0, 1) // a node port is held
		d.pass(time.Hour)
		d.wrote("10 0 at 0s", fmt.Sprintf("12 1 at %s", time.Hour+turn))
	})
	synctest.Test(t, func(t *testing.T) { // few: there is no turn, and what is ahead waits for the pace
		d := newDesk(t)
		d.run()
		d.say("10", 0)
		d.pass(10 * time.Second)
		d.say("11", 0)
		d.say("12", 0, 1)
		d.pass(100 * time.Millisecond)
		d.say("13", 1)
		d.pass(time.Hour)
		d.wrote("10 0 at 0s", "13 0 at 10.5s")
	})
}

func TestTurns(t *testing.T) {
	of := func(instances int, least time.Duration) (out []time.Duration) {
		for n := range instances {
			p := &Publisher{Config: Config{Name: Name("lbsync", "haproxy", fmt.Sprint("pod-", n)), Instances: func() int { return instances }}}
			out = append(out, p.turn(least))
			if pacing := p.pacing(least); pacing != max(least, time.Duration(instances)*time.Second/rate) {
				t.Errorf("%d: %s", instances, pacing)
			}
		}
		return out
	}
	for _, turn := range slices.Concat(of(25, interval), of(100, refresh)) {
		if turn != 0 {
			t.Errorf("few wait %s", turn)
		}
	}
	each := map[time.Duration]int{}
	for _, turn := range of(1000, refresh) {
		each[turn/(20*time.Second)]++
	}
	for n := range time.Duration(10) {
		if each[n] < 60 || each[n] > 140 {
			t.Errorf("of a thousand, %d have their turn in the same 20 s", each[n])
		}
	}
	if p := (&Publisher{}); p.pacing(interval) != interval || p.turn(interval) != 0 {
		t.Error("a single one waits")
	}
}

// Seen never goes back, and what another has written since is not overwritten unread.
func TestNeverGoesBack(t *testing.T) {
	published := func(seen string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: Name("lbsync", "lb", "me"), Labels: map[string]string{"theirs": "1"}},
			Data:       map[string]string{watermark.DataKey: watermark.Encode(watermark.Watermark{Instance: "ns/lbsync", LoadBalancer: "lb", Seen: seen})},
		}
	}
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, published("100"))
		d.run()
		if last, _ := d.p.Last(); last.Seen != "100" {
			t.Errorf("last %+v", last)
		}
		d.say("99", 5, 1, 2)
		d.pass(time.Hour)
		d.wrote()
		d.say("100", 5, 1, 2)
		d.pass(time.Hour)
		d.wrote("100 2 at 1h0m0.5s")
		if m, err := d.client.CoreV1().ConfigMaps("ns").Get(t.Context(), d.p.Name, metav1.GetOptions{}); err != nil || m.Labels["theirs"] != "1" {
			t.Errorf("%+v, %v", m, err)
		}
		// Another leader wrote meanwhile: the fake does not compare versions, so the refusal is made up.
		var conflicts atomic.Int32
		d.client.PrependReactor("update", "configmaps", func(ktesting.Action) (bool, runtime.Object, error) {
			if conflicts.Add(1) > 1 {
				return false, nil, nil
			}
			if err := d.client.Tracker().Update(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, published("200"), "ns"); err != nil {
				t.Error(err)
			}
			return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, d.p.Name, errors.New("changed"))
		})
		d.say("150", 6)
		d.pass(time.Hour)
		d.wrote()
		if last, _ := d.p.Last(); last.Seen != "200" {
			t.Errorf("last %+v", last)
		}
		d.say("201", 6)
		d.pass(time.Hour)
		if got := d.takeWrites(); len(got) != 1 || !strings.HasPrefix(got[0], "201 ") {
			t.Errorf("wrote %v", got)
		}
		// It was deleted by hand, or by a cleanup that came too early.
		if err := d.client.CoreV1().ConfigMaps("ns").Delete(t.Context(), d.p.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		d.say("202", 7)
		d.pass(time.Hour)
		if _, err := d.client.CoreV1().ConfigMaps("ns").Get(t.Context(), d.p.Name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.fail(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no")))
		d.run()
		d.say("10", 0)
		d.pass(time.Minute)
		if _, known := d.p.Last(); known {
			t.Error("known though it could not be read")
		}
		d.fail(nil)
		d.pass(time.Minute)
		if got := d.takeWrites(); len(got) != 1 {
			t.Errorf("wrote %v", got)
		}
		d.fail(apierrors.NewInternalError(errors.New("no")))
		d.say("11", 1, 1)
		d.pass(10 * time.Minute)
		if behind := testutil.ToFloat64(d.p.Metrics.behind); behind < 599 || behind > 601 {
			t.Errorf("behind for %v s, want ten minutes", behind)
		}
		d.fail(nil)
		d.pass(time.Minute)
		if behind := testutil.ToFloat64(d.p.Metrics.behind); len(d.takeWrites()) != 1 || behind != 0 || testutil.ToFloat64(d.p.Metrics.failure) < 5 {
			t.Errorf("not written once, or behind for %v s", behind)
		}
		// One that does not fit is not written, so nothing new is confirmed.
		ports := make([]uint16, 20000)
		for i := range ports {
			ports[i] = uint16(i + 1)
		}
		d.say("12", 2, ports...)
		d.pass(time.Hour)
		d.wrote()
		if last, _ := d.p.Last(); last.Seen != "11" {
			t.Errorf("last %+v", last)
		}
	})
}

func TestFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		var open atomic.Bool
		d.p.Fence = func() (time.Time, error) {
			if !open.Load() {
				return time.Time{}, errors.New("the Lease is not ours")
			}
			return time.Now().Add(time.Second), nil
		}
		d.run()
		d.say("10", 0)
		d.pass(time.Hour)
		d.wrote()
		open.Store(true)
		d.pass(time.Minute)
		if got := d.takeWrites(); len(got) != 1 {
			t.Errorf("wrote %v", got)
		}
	})
}

func TestNames(t *testing.T) {
	seen := map[string]string{}
	for _, words := range [][2]string{
		{"haproxy", ""}, {"haproxy", "one"}, {"haproxy", "two"}, {"haproxy-one", ""}, {"HAProxy", ""}, {"ha_proxy", ""}, {"ha-proxy", ""},
		{"a", "b-c"}, {"a-b", "c"}, {"haproxy", "Node_1.example"}, {"haproxy", strings.Repeat("x", 300)}, {"haproxy", strings.Repeat("x", 301)},
		{"haproxy", "."}, {"haproxy", "ü"},
	} {
		name := Name("lbsync", words[0], words[1])
		if other, taken := seen[name]; taken || len(validation.IsDNS1123Subdomain(name)) > 0 || !strings.HasPrefix(name, "lbsync-watermark-") {
			t.Errorf("%q: %q (also of %q)", words, name, other)
		}
		seen[name] = fmt.Sprint(words)
	}
	if name := Name("nplbridge-lbsync", "avi", ""); name != "nplbridge-lbsync-watermark-avi" {
		t.Error(name)
	}
}

func TestOwnPod(t *testing.T) {
	env := map[string]string{"POD_NAMESPACE": "ns", "POD_NAME": "lbsync-1", "POD_UID": "u"}
	get := func(name string) string { return env[name] }
	if o := OwnPod("ns", get); o == nil || o.Name != "lbsync-1" || o.UID != "u" || o.Kind != "Pod" || o.APIVersion != "v1" {
		t.Errorf("%+v", o)
	}
	if o := OwnPod("other", get); o != nil {
		t.Errorf("of another Namespace: %+v", o)
	}
	delete(env, "POD_UID")
	if o := OwnPod("ns", get); o != nil {
		t.Errorf("without a UID: %+v", o)
	}
}
