package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/status"
	"github.com/nplbridge/nplbridge/providers"
)

var (
	now    = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	podKey = inventory.PodKey{Namespace: "shop", Name: "web-1"}
	webKey = model.ServiceKey{Namespace: "shop", Name: "web"}
)

const timeout = 10 * time.Minute

// porch is a Controller whose every input a test sets.
type porch struct {
	*Controller
	t        *testing.T
	client   *fake.Clientset
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	pods     map[inventory.PodKey]inventory.GatedPod
	services map[model.ServiceKey]*corev1.Service
	reports  map[string]map[model.ServiceKey]loop.Report
	pending  map[string][]string
	doubtful bool
	failure  error // of the API server
	patches  []string
}

func newPorch(t *testing.T, names ...string) *porch {
	w := &porch{
		t: t, clock: clocktesting.NewFakeClock(now), recorder: events.NewFakeRecorder(10),
		pods: map[inventory.PodKey]inventory.GatedPod{}, services: map[model.ServiceKey]*corev1.Service{},
		reports: map[string]map[model.ServiceKey]loop.Report{}, pending: map[string][]string{},
	}
	w.client = fake.NewClientset(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "u1"},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}},
	})
	w.client.PrependReactor("patch", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
		w.patches = append(w.patches, a.GetSubresource()+" "+string(a.(ktesting.PatchAction).GetPatch()))
		return w.failure != nil, nil, w.failure
	})
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w.Controller = &Controller{
		Selection: inventory.Selection{Instances: names, Manager: "ns/one/lease", Source: annotations.NodePortLocal}, Pods: w, Services: w,
		Client: w.client, Timeout: func() time.Duration { return timeout }, Recorder: w.recorder, Metrics: metrics, Clock: w.clock, Log: zaptest.NewLogger(t),
	}
	for _, name := range names {
		w.reports[name] = map[model.ServiceKey]loop.Report{}
		w.Balancers = append(w.Balancers, status.Balancer{
			Name:   name,
			Report: func(key model.ServiceKey) (loop.Report, bool) { r, ok := w.reports[name][key]; return r, ok },
			Others: func(model.ServiceKey, string) ([]string, []string) { return w.pending[name], []string{"mute"} },
		})
	}
	w.Init()
	t.Cleanup(w.queue.ShutDown)
	return w
}

func (w *porch) GatedPods() []inventory.PodKey { return []inventory.PodKey{podKey} }

func (w *porch) GatedPod(key inventory.PodKey) (inventory.GatedPod, bool) {
	g, ok := w.pods[key]
	return g, ok
}

func (w *porch) Believable() bool                             { return !w.doubtful }
func (w *porch) Service(key model.ServiceKey) *corev1.Service { return w.services[key] }
func (w *porch) ServicesIn(namespace string) (out []*corev1.Service) {
	for _, s := range w.services {
		if s.Namespace == namespace {
			out = append(out, s)
		}
	}
	return out
}

// pod enters the Pod web-1, ready but for its gate.
func (w *porch) pod(edits ...func(*model.Pod)) *porch {
	p := &model.Pod{Namespace: "shop", Name: "web-1", UID: "u1", Ready: true, ReadyChanged: now, Gated: true, Labels: map[string]string{"app": "web"}}
	for _, e := range edits {
		e(p)
	}
	g := inventory.GatedPod{Pod: p}
	for key, s := range w.services {
		if w.Selection.Ours(s) {
			g.Services = append(g.Services, key)
		}
	}
	w.pods[podKey] = g
	return w
}

// service enters a Service with the ports 80/TCP and 53/UDP.
func (w *porch) service(name string, edits ...func(*corev1.Service)) *porch {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{}, Finalizers: []string{annotations.Finalizer}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("nplbridge.io/" + w.Selection.Instances[0]), Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}, {Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}},
		},
	}
	for _, e := range edits {
		e(s)
	}
	w.services[model.ServiceKey{Namespace: "shop", Name: name}] = s
	return w
}

func annotated(key, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations[key] = value }
}

// port is how the Pod stands in one pool.
type port struct {
	number      uint16
	protocol    providers.Protocol
	absent      bool // the pool is not made
	unsupported bool
	members     []string // "state" or "state health" of each member of the Pod
	refused     model.Reason
}

// on has a load balancer report of a Service.
func (w *porch) on(name, service string, ports ...port) *porch {
	r := loop.Report{Wanted: true, Health: map[providers.Key]map[providers.MemberID]providers.MemberStatus{}}
	for _, p := range ports {
		key := providers.Key{Namespace: "shop", Service: service, Port: p.number, Protocol: p.protocol}
		if p.absent {
			continue
		}
		r.Ports = append(r.Ports, loop.PortReport{Key: key, Unsupported: p.unsupported, Programmed: !p.unsupported})
		pool := providers.Pool{Key: key, Members: []providers.Member{{UID: "another", Address: netip.MustParseAddrPort("192.0.2.99:1"), State: providers.Draining}}}
		r.Health[key] = map[providers.MemberID]providers.MemberStatus{}
		for i, text := range p.members {
			state, health, _ := strings.Cut(text, " ")
			m := providers.Member{UID: "u1", Address: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(61000+i)), State: providers.MemberState(state)}
			pool.Members = append(pool.Members, m)
			r.Health[key][m.ID()] = providers.MemberStatus{Health: providers.Health(health)}
		}
		if p.refused != "" {
			r.Refusals = append(r.Refusals, model.Refusal{Key: key, Pod: "shop/web-1", PodUID: "u1", Reason: p.refused, Message: "it is refused"})
		}
		r.Pools = append(r.Pools, pool)
	}
	w.reports[name][model.ServiceKey{Namespace: "shop", Name: service}] = r
	return w
}

func tcp(members ...string) port { return port{number: 80, protocol: providers.TCP, members: members} }
func udp(members ...string) port { return port{number: 53, protocol: providers.UDP, members: members} }

func (p port) but(edit func(*port)) port { edit(&p); return p }

func TestJudge(t *testing.T) {
	unsupported := func(p *port) { p.unsupported = true }
	notMade := func(p *port) { p.absent = true }
	refused := func(r model.Reason) func(*port) { return func(p *port) { p.refused = r } }
	unserved := func(s *corev1.Service) {
		s.Generation = 3
		s.Status.Conditions = []metav1.Condition{{Type: status.Programmed, Reason: status.ReasonNotAccepted, ObservedGeneration: 3}}
	}
	for _, test := range []struct {
		name  string
		porch func(*porch) *porch
		want  string // the reason, or part of what is waited for after a question mark
	}{
		{"in every pool", func(w *porch) *porch { return w.service("web").on("a", "web", tcp("Enabled"), udp("Enabled Up")) }, Confirmed},
		{"no Service", func(w *porch) *porch { return w }, NotApplicable},
		{"not in one pool", func(w *porch) *porch { return w.service("web").on("a", "web", tcp("Enabled"), udp()) }, "?the Pod to be in the pool shop/web:53/UDP on load balancer a"},
		{"a pool is not made", func(w *porch) *porch { return w.service("web").on("a", "web", tcp("Enabled"), udp().but(notMade)) }, "?shop/web:53/UDP to be made"},
		{"a port that is not served", func(w *porch) *porch {
			return w.service("web").on("a", "web", tcp("Enabled"), udp().but(unsupported))
		}, Confirmed},
		{"no port is served", func(w *porch) *porch {
			return w.service("web").on("a", "web", tcp().but(unsupported), udp().but(unsupported))
		}, NotApplicable},
		{"a port that the Pod has not", func(w *porch) *porch {
			return w.service("web").on("a", "web", tcp("Enabled"), udp().but(refused(model.TargetPortUnresolved)))
		}, Confirmed},
		{"refused", func(w *porch) *porch {
			return w.service("web").on("a", "web", tcp("Enabled"), udp().but(refused(model.Contested)))
		}, "?53/UDP on load balancer a: it is refused"},
		{"refused with one address", func(w *porch) *porch {
			return w.service("web").on("a", "web", tcp("Enabled"), udp("Enabled").but(refused(model.Contested)))
		}, Confirmed},
		{"not enabled", func(w *porch) *porch { return w.service("web").on("a", "web", tcp("Draining"), udp("Enabled")) }, "?to be enabled"},
		{"down", func(w *porch) *porch { return w.service("web").on("a", "web", tcp("Enabled Down"), udp("Enabled")) }, "?down"},
		{"down in one family", func(w *porch) *porch {
			return w.service("web").on("a", "web", tcp("Enabled Up", "Enabled Down"), udp("Enabled"))
		}, "?192.0.2.1:61001"},
		{"not reported", func(w *porch) *porch { return w.service("web") }, "?load balancer a to be read"},
		{"other processes have not applied it", func(w *porch) *porch {
			w.pending["a"] = []string{"lb-2"}
			return w.service("web").on("a", "web", tcp("Enabled"), udp("Enabled"))
		}, "?load balancer a of lb-2"},
		{"on two load balancers", func(w *porch) *porch {
			return w.service("web", annotated(annotations.Providers, "a,b")).on("a", "web", tcp("Enabled"), udp("Enabled")).on("b", "web", tcp("Enabled"), udp("Enabled"))
		}, Confirmed},
		{"not on the second", func(w *porch) *porch {
			return w.service("web", annotated(annotations.Providers, "a,b")).on("a", "web", tcp("Enabled"), udp("Enabled")).on("b", "web", tcp(), udp())
		}, "?load balancer b"},
		{"the second is gone for good", func(w *porch) *porch {
			return w.service("web", annotated(annotations.Providers, "a,b"), annotated(annotations.Abandon, "b")).on("a", "web", tcp("Enabled"), udp("Enabled"))
		}, Confirmed},
		{"behind two Services", func(w *porch) *porch {
			return w.service("web").service("api").on("a", "web", tcp("Enabled"), udp("Enabled")).on("a", "api", tcp(), udp("Enabled"))
		}, "?shop/api:80/TCP"},
		{"Nodes are the members", func(w *porch) *porch {
			return w.service("web", annotated(annotations.ServiceType, "NodePort")).on("a", "web", tcp(), udp())
		}, NotApplicable},
		{"a Service that cannot be served", func(w *porch) *porch { return w.service("web", unserved).on("a", "web") }, NotApplicable},
		{"one that could not, as it was", func(w *porch) *porch {
			return w.service("web", unserved, func(s *corev1.Service) { s.Generation++ }).on("a", "web")
		}, "?to be made"},
		{"a Service that is being deleted", func(w *porch) *porch {
			return w.service("web", func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.NewTime(now)) }).on("a", "web")
		}, NotApplicable},
		{"a pool of somebody else", func(w *porch) *porch {
			return w.service("web", annotated(annotations.Pool, "http=a:p")).on("a", "web", tcp("Enabled"))
		}, Confirmed},
		{"not in the pool of somebody else", func(w *porch) *porch {
			return w.service("web", annotated(annotations.Pool, "http=a:p")).on("a", "web", tcp())
		}, "?80/TCP"},
		{"a Service of another lbsync", func(w *porch) *porch { return w.service("web", annotated(annotations.ManagedBy, "ns/two/lease")) }, "?another lbsync"},
		{"a class of another lbsync", func(w *porch) *porch {
			return w.service("web", func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("nplbridge.io/elsewhere") })
		}, "?another lbsync"},
		{"another lbsync's, for other Pods", func(w *porch) *porch {
			return w.service("web", annotated(annotations.ManagedBy, "ns/two/lease"), func(s *corev1.Service) { s.Spec.Selector["app"] = "db" })
		}, NotApplicable},
		{"the answers are not to be believed", func(w *porch) *porch { w.doubtful = true; return w }, "?believable"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := test.porch(newPorch(t, "a", "b")).pod()
			g := w.pods[podKey]
			slices.SortFunc(g.Services, func(x, y model.ServiceKey) int { return strings.Compare(x.Name, y.Name) })
			reason, waitingFor := w.judge(g)
			part, waits := strings.CutPrefix(test.want, "?")
			if waits && (reason != "" || !strings.Contains(waitingFor, part)) || !waits && (reason != test.want || waitingFor != "") {
				t.Errorf("%q, waiting for %q; want %q", reason, waitingFor, test.want)
			}
		})
	}
}

// look syncs the Pod and returns when it is looked at again.
func (w *porch) look() time.Duration {
	w.t.Helper()
	again, err := w.sync(w.t.Context(), podKey)
	if err != nil {
		w.t.Fatal(err)
	}
	return again
}

// gate returns the condition as "Status Reason", and "" without it; no other condition may be lost.
func (w *porch) gate() (out string) {
	w.t.Helper()
	p, err := w.client.CoreV1().Pods("shop").Get(context.Background(), "web-1", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	others := 0
	for _, c := range p.Status.Conditions {
		if c.Type == annotations.Gate {
			out = fmt.Sprintf("%s %s", c.Status, c.Reason)
		} else {
			others++
		}
	}
	if others != 1 {
		w.t.Errorf("conditions %+v", p.Status.Conditions)
	}
	return out
}

func TestOpens(t *testing.T) {
	w := newPorch(t, "a").service("web").on("a", "web", tcp("Enabled"), udp()).pod()
	if again := w.look(); again != poll || w.gate() != "" {
		t.Errorf("not in every pool: %q, again %s", w.gate(), again)
	}
	w.on("a", "web", tcp("Enabled"), udp("Enabled"))
	if again := w.look(); again != 0 || w.gate() != "True Confirmed" {
		t.Errorf("in every pool: %q, again %s", w.gate(), again)
	}
	var patch struct {
		Metadata struct{ UID types.UID }
		Status   struct{ Conditions []corev1.PodCondition }
	}
	subresource, body, _ := strings.Cut(w.patches[0], " ")
	if err := json.Unmarshal([]byte(body), &patch); err != nil || subresource != "status" || patch.Metadata.UID != "u1" || len(patch.Status.Conditions) != 1 ||
		!patch.Status.Conditions[0].LastTransitionTime.Time.Equal(now) {
		t.Errorf("%s: %s (%v)", subresource, body, err)
	}
	if n := testutil.ToFloat64(w.Metrics.opened.WithLabelValues(Confirmed)); n != 1 || len(w.recorder.Events) > 0 {
		t.Errorf("counted %v", n)
	}
}

// It opens after a while, and one Event says for what it waited. The while begins when the Pod is ready but for the gate.
func TestTimesOut(t *testing.T) {
	w := newPorch(t, "a").service("web").on("a", "web", tcp("Enabled"), udp()).pod()
	w.clock.Step(timeout - time.Second)
	if again := w.look(); again != time.Second || w.gate() != "" {
		t.Errorf("before: %q, again %s", w.gate(), again)
	}
	w.clock.Step(time.Second)
	w.look()
	if w.gate() != "True GateTimedOut" || len(w.recorder.Events) != 1 {
		t.Fatalf("after: %q, %d Events", w.gate(), len(w.recorder.Events))
	}
	if e := <-w.recorder.Events; !strings.HasPrefix(e, "Warning GateTimedOut opened after 10m0s; still waiting for the Pod to be in the pool shop/web:53/UDP") {
		t.Error(e)
	}

	never := newPorch(t, "a").service("web").pod()
	never.Timeout = func() time.Duration { return 0 }
	never.clock.Step(1000 * time.Hour)
	if again := never.look(); again != poll || never.gate() != "" {
		t.Errorf("without a limit: %q, again %s", never.gate(), again)
	}
	unknown := newPorch(t, "a").service("web").pod(func(p *model.Pod) { p.ReadyChanged = time.Time{} })
	if again := unknown.look(); again != poll || unknown.gate() != "" {
		t.Errorf("ready since nobody knows when: %q, again %s", unknown.gate(), again)
	}
}

// There is nothing to open for a Pod that is not ready otherwise, or ends, or is open.
func TestLeavesAlone(t *testing.T) {
	for name, edit := range map[string]func(*model.Pod){
		"not ready": func(p *model.Pod) { p.Ready = false }, "terminating": func(p *model.Pod) { p.Terminating = true }, "finished": func(p *model.Pod) { p.Finished = true },
	} {
		w := newPorch(t, "a").pod(edit)
		if again := w.look(); again != 0 || len(w.patches) > 0 {
			t.Errorf("%s: again %s, patches %q", name, again, w.patches)
		}
	}
	w := newPorch(t, "a")
	if again := w.look(); again != 0 || len(w.patches) > 0 {
		t.Errorf("not gated: again %s, patches %q", again, w.patches)
	}
}

// Another Pod of the same name is not opened in its place; what else goes wrong is tried again.
func TestFailures(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, test := range map[string]struct {
		failure error
		retried bool
	}{
		"gone": {apierrors.NewNotFound(pods, "web-1"), false},
		"replaced": {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-1", field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), "u1", "field is immutable")}), false},
		"replaced, as a conflict": {apierrors.NewConflict(pods, "web-1", errors.New("Precondition failed: UID in precondition: u1, UID in object meta: u2")), false},
		"changed meanwhile":       {apierrors.NewConflict(pods, "web-1", errors.New("the object has been modified")), true},
		"forbidden":               {apierrors.NewForbidden(pods, "web-1", errors.New("no rights")), true},
		"another field is wrong": {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-1", field.ErrorList{
			field.Invalid(field.NewPath("status", "conditions"), "x", "wrong")}), true},
	} {
		w := newPorch(t, "a").pod()
		w.failure = test.failure
		if _, err := w.sync(t.Context(), podKey); (err != nil) != test.retried {
			t.Errorf("%s: %v", name, err)
		}
		if n := testutil.ToFloat64(w.Metrics.opened.WithLabelValues(NotApplicable)); n != 0 {
			t.Errorf("%s: counted %v", name, n)
		}
	}
}

// A change of a Service's pools has the Pods looked at that wait for it, and no others.
func TestWakes(t *testing.T) {
	w := newPorch(t, "a").service("web").service("api").pod()
	w.pods[podKey] = inventory.GatedPod{Pod: w.pods[podKey].Pod, Services: []model.ServiceKey{webKey}}
	w.look()
	w.OnMembers(model.ServiceKey{Namespace: "shop", Name: "api"})
	if w.queue.Len() != 0 {
		t.Error("looked at for another Service's pools")
	}
	w.OnMembers(webKey)
	if key, _ := w.queue.Get(); key != podKey {
		t.Errorf("%v", key)
	}
	w.queue.Done(podKey)
	w.on("a", "web", tcp("Enabled"), udp("Enabled"))
	w.look()
	w.OnMembers(webKey)
	if w.queue.Len() != 0 || len(w.waiting) != 0 || len(w.of) != 0 {
		t.Errorf("still waiting: %v", w.waiting)
	}
}

// What is gated when a term begins is looked at; what fails is tried again.
func TestRun(t *testing.T) {
	w := newPorch(t, "a").service("web").on("a", "web", tcp("Enabled"), udp("Enabled")).pod()
	var tries atomic.Int32
	w.client.PrependReactor("patch", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
		if tries.Add(1) == 1 {
			return true, nil, errors.New("no answer")
		}
		return false, nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	for deadline := time.Now().Add(30 * time.Second); w.gate() == ""; w.clock.Step(time.Second) {
		if time.Now().After(deadline) {
			t.Fatal("never opened")
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	if n := tries.Load(); n != 2 {
		t.Errorf("%d patches", n)
	}
}
