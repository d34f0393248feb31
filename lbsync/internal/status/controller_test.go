package status

import (
	"net/netip"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/providers"
)

// desk is a Controller whose every input a test sets.
type desk struct {
	*Controller
	t        *testing.T
	client   *fake.Clientset
	reports  map[model.ServiceKey]loop.Report
	trouble  error
	recorder *events.FakeRecorder
}

var webKey = model.ServiceKey{Namespace: "shop", Name: "web"}

func newDesk(t *testing.T, services ...*corev1.Service) *desk {
	d := &desk{t: t, client: fake.NewClientset(), reports: map[model.ServiceKey]loop.Report{}, recorder: events.NewFakeRecorder(100)}
	for _, s := range services {
		if err := d.client.Tracker().Add(s); err != nil {
			t.Fatal(err)
		}
	}
	d.Controller = &Controller{
		Selection: inventory.Selection{
			Instances: []string{"haproxy"}, Manager: "ns/one/haproxy",
			Pools: []vip.Pool{{Ranges: []vip.Range{{First: netip.MustParseAddr("192.0.2.1"), Last: netip.MustParseAddr("192.0.2.9")}}}},
		},
		Instance: "ns/one", Client: d.client, Services: d,
		Report:  func(key model.ServiceKey) (loop.Report, bool) { r, ok := d.reports[key]; return r, ok },
		Trouble: func() error { return d.trouble },
		Clock:   clocktesting.NewFakeClock(now), Log: zaptest.NewLogger(t), Recorder: d.recorder,
	}
	d.Init()
	t.Cleanup(d.queue.ShutDown)
	return d
}

func (d *desk) Service(key model.ServiceKey) *corev1.Service {
	s, err := d.client.CoreV1().Services(key.Namespace).Get(d.t.Context(), key.Name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return s
}

func (d *desk) Services() []*corev1.Service { return nil }

func (d *desk) replace(s *corev1.Service) {
	d.t.Helper()
	if _, err := d.client.CoreV1().Services(s.Namespace).Update(d.t.Context(), s, metav1.UpdateOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) look() {
	d.t.Helper()
	if _, err := d.sync(d.t.Context(), webKey); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) holds() bool { return len(d.vips.Of("haproxy", webKey.String())) > 0 }

// balanced is a Service of our class as a user writes it.
func balanced() *corev1.Service {
	s := web()
	s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, new("nplbridge.io/haproxy")
	return s
}

// replaced is what a user's manifest with another type makes of a Service: our metadata is lost, our status is not.
func replaced(d *desk) *corev1.Service {
	s := web()
	s.Spec.Type, s.Status = corev1.ServiceTypeClusterIP, d.Service(webKey).Status
	return s
}

var gone = loop.Report{Gone: true}

// serving returns a desk with a Service at an address other than the first of the pool.
func serving(t *testing.T) *desk {
	s := balanced()
	s.Annotations[annotations.AssignedIPs] = "192.0.2.5"
	d := newDesk(t, s)
	d.load(s)
	d.reports[webKey] = report(port(80, "TCP", func(p *loop.PortReport) { p.VIPs = []netip.Addr{netip.MustParseAddr("192.0.2.5")} }))
	d.look()
	if got := d.Service(webKey); len(got.Status.Conditions) != 2 || len(got.Status.LoadBalancer.Ingress) != 1 || len(got.Finalizers) != 1 {
		t.Fatalf("not served: %+v", got)
	}
	return d
}

// Whoever replaces a Service by its manifest gets the same one back.
func TestStrippedServiceIsClaimedAgain(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		d := serving(t)
		bare := balanced()
		bare.Status = d.Service(webKey).Status
		d.replace(bare)
		if restarted { // another holds the Lease now, and knows only what is published
			d.Init()
			d.load(bare)
		}
		d.look()
		if got := d.Service(webKey); got.Annotations[annotations.AssignedIPs] != "haproxy=192.0.2.5" || len(got.Finalizers) != 1 ||
			got.Annotations[npl.EnabledAnnotation] != "true" {
			t.Errorf("restarted %t: annotations %v, finalizers %v", restarted, got.Annotations, got.Finalizers)
		}
	}
}

// A Service that stopped being ours without leaving us our metadata is cleaned up, and its address is free, only when the
// load balancer has confirmed.
func TestStrippedAndNoLongerOurs(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		d := serving(t)
		bare := replaced(d)
		d.replace(bare)
		if restarted {
			d.Init()
			d.load(bare)
		}
		stuck := report(port(80, "TCP", failing(providers.Unavailable, time.Minute)))
		stuck.Wanted = false
		for _, before := range []loop.Report{d.reports[webKey], stuck} {
			d.reports[webKey] = before
			d.look()
			if got := d.Service(webKey); len(got.Status.Conditions) != 2 || !d.holds() {
				t.Errorf("restarted %t: let go of with %+v: holds its address %t, conditions %v", restarted, before, d.holds(), got.Status.Conditions)
			}
		}
		d.reports[webKey] = gone
		d.look()
		if got := d.Service(webKey); len(got.Status.Conditions) > 0 || len(got.Status.LoadBalancer.Ingress) > 0 || d.holds() {
			t.Errorf("restarted %t: holds its address %t, status %+v", restarted, d.holds(), got.Status)
		}
		d.look()
		if got := d.Service(webKey); len(got.Annotations) > 0 || len(got.Finalizers) > 0 {
			t.Errorf("restarted %t: marked again: %v, %v", restarted, got.Annotations, got.Finalizers)
		}
	}
}

// Nor is the address of a deleted Service free before that, finalizer or not.
func TestDeletedPastTheFinalizer(t *testing.T) {
	d := serving(t)
	if err := d.client.CoreV1().Services("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d.look()
	if !d.holds() {
		t.Error("the address is free while the load balancer has it")
	}
	delete(d.reports, webKey) // the loop forgets what is neither here nor there
	d.look()
	if d.holds() {
		t.Error("the address is never free again")
	}
}

// What another lbsync, or another load balancer, has said on a Service stays.
func TestOthersConditionsStay(t *testing.T) {
	for name, edit := range map[string]func(*corev1.Service){
		"another class": func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("nplbridge.io/avi") },
		"a finalizer of nobody knows whom": func(s *corev1.Service) {
			s.Spec.Type, s.Finalizers = corev1.ServiceTypeClusterIP, []string{annotations.Finalizer}
		},
		"another manager, no longer theirs": func(s *corev1.Service) {
			s.Spec.Type, s.Annotations[annotations.ManagedBy] = corev1.ServiceTypeClusterIP, "ns/one/avi"
		},
	} {
		s := balanced()
		edit(s)
		setCondition(s, metav1.Condition{Type: Accepted, Status: metav1.ConditionTrue, Reason: ReasonAccepted}, now)
		d := newDesk(t, s)
		d.reports[webKey] = gone
		d.look()
		if got := d.Service(webKey); len(got.Status.Conditions) != 1 {
			t.Errorf("%s: its conditions were removed", name)
		}
	}
}
