package bench

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/e2e/load"
)

func TestSightings(t *testing.T) {
	s := newSightings(func(p *corev1.Pod) string { return p.Status.PodIP })
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	pod := func(ip string, ready, ending bool) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{PodIP: ip}}
		if ready {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		if ending {
			p.DeletionTimestamp = &metav1.Time{Time: start}
		}
		return p
	}
	answer := func(ip string, ms int) { s.answered("", load.Answer{UID: ip}, at(ms)) }
	s.pod(pod("", false, false), false, false, at(0)) // nobody knows who it is
	s.pod(pod("old", true, false), true, false, at(0))
	answer("old", 1)
	s.pod(pod("new", false, false), false, false, at(5))
	s.pod(pod("new", true, false), false, false, at(10))
	s.pod(pod("new", true, false), false, false, at(11))
	answer("new", 14)
	answer("new", 40)
	s.pod(pod("new", true, true), false, false, at(50))
	answer("new", 57)
	s.pod(pod("new", true, true), false, true, at(60))
	answer("new", 63)
	s.pod(pod("early", true, false), false, false, at(20))
	answer("early", 19) // the load balancer knew before our watch told
	s.pod(pod("early", true, true), false, false, at(30))
	s.pod(pod("shy", true, false), false, false, at(20))
	s.pod(pod("shy", true, true), false, true, at(30))
	got := s.since(at(1))
	slices.Sort(got.begin)
	slices.Sort(got.end)
	want := lives{begin: []time.Duration{-time.Millisecond, 4 * time.Millisecond}, end: []time.Duration{0, 13 * time.Millisecond}, never: 1, late: 1}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(lives{})); diff != "" {
		t.Error(diff)
	}
	if later := s.since(at(100)); len(later.begin)+len(later.end)+later.never+later.late > 0 {
		t.Errorf("after everything: %+v", later)
	}
}

func TestProcessorTime(t *testing.T) {
	got, err := processorTime("42 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20")
	if err != nil || got != 1750*time.Millisecond {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := processorTime("42 (a) S 1 2"); err == nil {
		t.Error("a line that ends early was read")
	}
}

func TestSeries(t *testing.T) {
	s := series{}
	ctx, stop := context.WithCancel(t.Context())
	done := s.record(ctx, map[string]int{"me": os.Getpid()}, time.Millisecond)
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(s["me"]) == 0 || s["me"][0].rss < 1<<20 {
		t.Fatalf("%+v", s)
	}
	if err := <-(series{}).record(t.Context(), map[string]int{"nobody": -1}, time.Second); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("a process that there is not: %v", err)
	}
	start := time.Unix(1000, 0)
	s = series{"a": {{start, 3 << 20, time.Second}, {start.Add(time.Second), 5 << 20, 3 * time.Second}, {start.Add(2 * time.Second), 4 << 20, 4 * time.Second}}}
	want := taken{cpu: 3 * time.Second, span: 2 * time.Second, begin: 3 << 20, end: 4 << 20, most: 5 << 20}
	if got := s.taken("a"); got != want {
		t.Errorf("%+v", got)
	}
	var text strings.Builder
	if err := s.write(&text, 10, start); err != nil || !strings.Contains(text.String(), "10,1.0,a,5242880,3.00\n") {
		t.Errorf("%v %s", err, text.String())
	}
}

func TestOptions(t *testing.T) {
	if err := DefaultOptions().Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Options){
		"rate 0":      func(o *Options) { o.Rates = []int{0} },
		"rate 5":      func(o *Options) { o.Rates = []int{10, 5} },
		"0 requests":  func(o *Options) { o.Requests = 0 },
		"0 members":   func(o *Options) { o.Members = 0 },
		"0s left":     func(o *Options) { o.Steady = 0 },
		"at least 1s": func(o *Options) { o.For = 0 },
		"1000 Pods":   func(o *Options) { o.Sizes = []Size{{Pods: 1001, Nodes: 1, Services: 1}} },
		"addresses":   func(o *Options) { o.Sizes = []Size{{Pods: 1, Nodes: 1, Services: 1 << 17}} },
	} {
		o := DefaultOptions()
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if s, err := ParseSize("10/2/3"); err != nil || s != (Size{Pods: 10, Nodes: 2, Services: 3}) {
		t.Errorf("%v, %v", s, err)
	}
	for _, bad := range []string{"", "1/2", "1/x/3", "0/1/1"} {
		if _, err := ParseSize(bad); err == nil || !strings.Contains(err.Error(), "size") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestChangeCost(t *testing.T) {
	start := time.Unix(1000, 0)
	got := changeCost{
		n:      10,
		begin:  moment{At: start, Processor: time.Second, Calls: 100, Sent: 1 << 20, Received: 1 << 20},
		steady: moment{At: start.Add(100 * time.Second), Processor: 2 * time.Second, Calls: 110, Sent: 2 << 20, Received: 3 << 20, Applications: 5, Steps: 50, Observations: 7},
		changed: moment{
			At: start.Add(110 * time.Second), Processor: 2150 * time.Millisecond, Calls: 115, Sent: 2<<20 + 100, Received: 3<<20 + 2000,
			Applications: 15, Steps: 60, Observations: 8,
		},
	}.figures()
	want := []Figure{
		{What: "nothing happens: processor", Measured: "1.00% of one; API server: 10 calls, 1.0 MiB and 2.0 MiB in 100.00 s"},
		{What: "a Pod that changes: processor time, without what passes when nothing happens", Measured: "5.0 ms (mean of 10)"},
		{What: "a Pod that changes, load balancer: calls, writes in them, readings", Measured: "1.00, 1.00, 0.10"},
		{What: "a Pod that changes, API server: calls, bytes to and from it", Measured: "0.50 calls, 10 and 200 bytes"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
