package status

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// desk is a Controller whose every input a test sets.
type desk struct {
	*Controller
	t        *testing.T
	client   *fake.Clientset
	patches  []string // of Services, as sent
	at       map[string]*side
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
}

// side is one load balancer of a desk.
type side struct {
	reports         map[model.ServiceKey]loop.Report
	trouble         error
	pending, silent []string
	ipam            *ipam
}

// ipam is a load balancer that gives addresses from 198.51.100.1 on.
type ipam struct {
	given, released []string
	has             map[string][]netip.Addr
	err             error
	during          func() // a call
}

func (a *ipam) AllocateVIPs(_ context.Context, r providers.VIPRequest) ([]netip.Addr, error) {
	a.given = append(a.given, r.Group)
	if a.during != nil {
		a.during()
	}
	if a.err != nil {
		return nil, a.err
	}
	if len(r.Wanted) > 0 {
		a.has[r.Group] = r.Wanted
	}
	if a.has[r.Group] == nil {
		a.has[r.Group] = []netip.Addr{netip.AddrFrom4([4]byte{198, 51, 100, byte(len(a.has) + 1)})}
	}
	return a.has[r.Group], nil
}

func (a *ipam) ReleaseVIPs(_ context.Context, group string) error {
	a.released = append(a.released, group)
	if a.during != nil {
		a.during()
	}
	if a.err == nil {
		delete(a.has, group)
	}
	return a.err
}

var webKey = model.ServiceKey{Namespace: "shop", Name: "web"}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// newDesk has a load balancer for each name; "haproxy" when there is none. A name with ! gives addresses itself.
func newDesk(t *testing.T, names []string, services ...*corev1.Service) *desk {
	d := &desk{t: t, client: fake.NewClientset(), at: map[string]*side{}, recorder: events.NewFakeRecorder(100), clock: clocktesting.NewFakeClock(now)}
	for _, s := range services {
		if err := d.client.Tracker().Add(s); err != nil {
			t.Fatal(err)
		}
	}
	d.client.PrependReactor("patch", "services", func(a ktesting.Action) (bool, runtime.Object, error) {
		d.patches = append(d.patches, string(a.(ktesting.PatchAction).GetPatch()))
		return false, nil, nil
	})
	if len(names) == 0 {
		names = []string{"haproxy"}
	}
	d.Controller = &Controller{
		Selection: inventory.Selection{Manager: "ns/one/lease", Source: annotations.NodePortLocal, Pools: []vip.Pool{{Name: "default", Ranges: []vip.Range{{
			First: addr("192.0.2.1"), Last: addr("192.0.2.9")}}}}},
		Instance: "ns/one", Client: d.client, Services: d, Clock: d.clock, Log: zaptest.NewLogger(t), Recorder: d.recorder,
	}
	for _, name := range names {
		one := &side{reports: map[model.ServiceKey]loop.Report{}}
		capabilities := providertest.MemoryCapabilities()
		if bare := name[:len(name)-1]; name[len(name)-1] == '!' {
			name, one.ipam = bare, &ipam{has: map[string][]netip.Addr{}}
			d.Selection.Pools = nil
		}
		d.at[name] = one
		b := Balancer{
			Name: name, Capabilities: capabilities,
			Report:  func(key model.ServiceKey) (loop.Report, bool) { r, ok := one.reports[key]; return r, ok },
			Trouble: func() error { return one.trouble },
			Others:  func(model.ServiceKey, string) ([]string, []string) { return one.pending, one.silent },
		}
		if one.ipam != nil {
			b.Allocator = one.ipam
		}
		d.Selection.Instances = append(d.Selection.Instances, name)
		d.Balancers = append(d.Balancers, b)
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

func (d *desk) Services() (out []*corev1.Service) {
	list, err := d.client.CoreV1().Services("").List(d.t.Context(), metav1.ListOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

// web returns the Service as it is now.
func (d *desk) web() *corev1.Service { return d.Service(webKey) }

// restart makes the Controller another Lease holder, which knows only what is in Kubernetes.
func (d *desk) restart() {
	d.queue.ShutDown()
	d.Init()
	d.loadAll(d.Services())
}

func (d *desk) replace(s *corev1.Service) {
	d.t.Helper()
	if _, err := d.client.CoreV1().Services(s.Namespace).Update(d.t.Context(), s, metav1.UpdateOptions{}); err != nil {
		d.t.Fatal(err)
	}
}

// edit changes the Service as its user would.
func (d *desk) edit(change func(*corev1.Service)) {
	d.t.Helper()
	s := d.web()
	change(s)
	d.replace(s)
}

func (d *desk) look() { d.t.Helper(); d.lookAt(webKey) }

func (d *desk) lookAt(key model.ServiceKey) {
	d.t.Helper()
	if _, err := d.sync(d.t.Context(), key); err != nil {
		d.t.Fatal(err)
	}
}

// has returns what the Service holds on a load balancer, and what it has held.
func (d *desk) has(instance string) string {
	return annotations.FormatAddresses(d.vips.of(instance, webKey))
}

// is returns what a condition says, as "Status Reason: message", or "".
func is(s *corev1.Service, kind string) string {
	for _, c := range s.Status.Conditions {
		if c.Type == kind {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

// addresses that the Service publishes.
func publishedBy(s *corev1.Service) string {
	var out []netip.Addr
	for _, i := range s.Status.LoadBalancer.Ingress {
		out = append(out, addr(i.IP))
	}
	return annotations.FormatAddresses(out)
}

// told returns the Events since the last call.
func (d *desk) events() (out []string) {
	for {
		select {
		case e := <-d.recorder.Events:
			out = append(out, e)
		default:
			return out
		}
	}
}

// balanced is a Service of our class as a user writes it.
func balanced(edits ...func(*corev1.Service)) *corev1.Service {
	s := web()
	s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, new("nplbridge.io/haproxy")
	s.Spec.Selector = map[string]string{"app": "web"}
	s.UID, s.ResourceVersion = "svc-web", "1"
	for _, e := range edits {
		e(s)
	}
	return s
}

func annotated(key, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations[key] = value }
}

func without(key string) func(*corev1.Service) {
	return func(s *corev1.Service) { delete(s.Annotations, key) }
}

// there is a report of a Service that the load balancer serves at these addresses.
func there(vips ...string) loop.Report {
	at := func(p *loop.PortReport) {
		p.VIPs = nil
		for _, v := range vips {
			p.VIPs = append(p.VIPs, addr(v))
		}
	}
	return report(port(53, "UDP", at), port(80, "TCP", at))
}

var gone = loop.Report{Gone: true}
