package status

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/providers"
)

func netipAddrPort(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

// onIPAM returns a desk with a Service whose address the load balancer gave.
func onIPAM(t *testing.T) (*desk, *ipam) {
	d := newDesk(t, []string{"haproxy!"}, balanced())
	d.look()
	d.at["haproxy"].reports[webKey] = there("198.51.100.1")
	d.look()
	if got := d.web(); got.Annotations[annotations.AssignedIPs] != "haproxy=198.51.100.1" || publishedBy(got) != "198.51.100.1" {
		t.Fatalf("not served: %v, %s", got.Annotations, is(got, Accepted))
	}
	return d, d.at["haproxy"].ipam
}

func TestAddressOfTheLoadBalancer(t *testing.T) {
	d, ipam := onIPAM(t)
	for range 3 {
		d.look()
		d.restart()
	}
	if len(ipam.given) != 1 || ipam.given[0] != "shop/web" {
		t.Errorf("asked for %v, want once", ipam.given)
	}
	// It is given back when nothing is left, before the finalizer goes.
	d.edit(deleted)
	d.look()
	if len(ipam.released) > 0 {
		t.Error("given back while a virtual server has it")
	}
	d.at["haproxy"].reports[webKey] = gone
	ipam.err = &providers.Error{Kind: providers.Unavailable, What: "no answer"}
	if _, err := d.sync(t.Context(), webKey); !errors.Is(err, ipam.err) {
		t.Errorf("%v", err)
	}
	if got := d.web(); len(got.Finalizers) != 1 || d.has("haproxy") == "" {
		t.Errorf("let go of before the address was given back: %v", got.Finalizers)
	}
	ipam.err = nil
	d.look()
	if got := d.web(); got != nil && len(got.Finalizers) > 0 || len(ipam.has) > 0 {
		t.Errorf("not given back: %v", ipam.has)
	}
}

// What our pools serve, or refuse, is no question to the load balancer.
func TestPoolsBeforeTheLoadBalancer(t *testing.T) {
	pool := vip.Pool{Name: "default", Ranges: []vip.Range{{First: addr("192.0.2.1"), Last: addr("192.0.2.1")}}}
	for name, test := range map[string]struct {
		edit          func(*corev1.Service)
		pool          func(*vip.Pool)
		assigned      string
		reason        string
		asked, taken  bool
		ipv6OfService bool
	}{
		"served by a pool":                {assigned: "haproxy=192.0.2.1"},
		"its pool is exhausted":           {reason: "AddressPoolExhausted", taken: true},
		"it names a pool":                 {edit: annotated(annotations.AddressPool, "gold"), reason: "NoAddressPool"},
		"an address in a pool":            {edit: annotated(annotations.LoadBalancerIPs, "192.0.2.1"), assigned: "haproxy=192.0.2.1"},
		"another's address in a pool":     {edit: annotated(annotations.LoadBalancerIPs, "192.0.2.1"), taken: true, reason: "AddressConflict"},
		"an address outside the pools":    {edit: annotated(annotations.LoadBalancerIPs, "198.51.100.77"), assigned: "haproxy=198.51.100.77", asked: true},
		"the pool is for others":          {pool: func(p *vip.Pool) { p.Namespaces = []string{"bank"} }, assigned: "haproxy=198.51.100.1", asked: true},
		"the pool is another balancer's":  {pool: func(p *vip.Pool) { p.Providers = []string{"other"} }, assigned: "haproxy=198.51.100.1", asked: true},
		"an address of the wrong family":  {edit: annotated(annotations.LoadBalancerIPs, "2001:db8::1"), reason: "AddressFamily"},
		"the pool has no such family":     {edit: func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }, assigned: "haproxy=2001:db8::5", asked: true, ipv6OfService: true},
		"its addresses cannot be read":    {edit: annotated(annotations.LoadBalancerIPs, "x"), reason: "InvalidAnnotation"},
		"what it is on cannot be read":    {edit: annotated(annotations.Providers, "x"), reason: "InvalidAnnotation"},
		"who may come in cannot be read":  {edit: annotated(annotations.SourceRanges, "x"), reason: "InvalidAnnotation"},
		"it is a member of another's":     {edit: annotated(annotations.Pool, "80=haproxy:p")},
		"the load balancer is abandoned":  {edit: annotated(annotations.Abandon, "haproxy")},
		"its source can not be what's it": {edit: annotated(annotations.ServiceType, "x"), reason: "InvalidAnnotation"},
	} {
		t.Run(name, func(t *testing.T) {
			s := balanced()
			if test.edit != nil {
				test.edit(s)
			}
			d := newDesk(t, []string{"haproxy!"}, s)
			one := pool
			if test.pool != nil {
				test.pool(&one)
			}
			d.Selection.Pools = []vip.Pool{one}
			d.restart()
			ipam := d.at["haproxy"].ipam
			if test.ipv6OfService {
				ipam.has["shop/web"] = addrs{addr("2001:db8::5")}
			}
			if test.taken {
				r := askFor("192.0.2.1")
				if _, no, err := d.vips.assign(t.Context(), d.Balancers[0], r); no != nil || err != nil {
					t.Fatal(no, err)
				}
			}
			d.look()
			got := d.web()
			asked := len(ipam.given)
			d.restart()
			d.look()
			if len(ipam.given) != asked && test.reason == "" {
				t.Errorf("asked again: %v", ipam.given)
			}
			if got.Annotations[annotations.AssignedIPs] != test.assigned || (len(ipam.given) > 0) != test.asked || test.reason != "" && !strings.Contains(is(got, Accepted), test.reason) {
				t.Errorf("assigned %q, asked %v, %s", got.Annotations[annotations.AssignedIPs], ipam.given, is(got, Accepted))
			}
		})
	}
}

func TestTheLoadBalancerGivesNone(t *testing.T) {
	for kind, permanent := range map[providers.Kind]bool{providers.Unavailable: false, providers.Throttled: false, providers.Conflict: false, providers.Rejected: true, providers.Misconfigured: true} {
		d := newDesk(t, []string{"haproxy!"}, balanced())
		ipam := d.at["haproxy"].ipam
		ipam.err = &providers.Error{Kind: kind, What: "the network is full"}
		again, err := d.sync(t.Context(), webKey)
		if got := is(d.web(), Accepted); !strings.HasPrefix(got, "False AddressNotAllocated: ") || !strings.Contains(got, "the network is full") {
			t.Errorf("%s: %s", kind, got)
		}
		if permanent != (err == nil && again == patience) || !permanent && !errors.Is(err, ipam.err) {
			t.Errorf("%s: again %s, %v", kind, again, err)
		}
		ipam.err = nil
		d.look()
		if got := d.web(); got.Annotations[annotations.AssignedIPs] != "haproxy=198.51.100.1" {
			t.Errorf("%s: %v", kind, got.Annotations)
		}
	}
	d := newDesk(t, []string{"haproxy!"}, balanced())
	d.at["haproxy"].ipam.err = &providers.Error{Kind: providers.Throttled, What: "slow down", RetryAfter: 7 * time.Second}
	if again, err := d.sync(t.Context(), webKey); again != 7*time.Second || err != nil {
		t.Errorf("again %s, %v", again, err)
	}
}

// The load balancer may give what somebody has already.
func TestTheLoadBalancerGivesAnothers(t *testing.T) {
	d := newDesk(t, []string{"haproxy!"}, balanced())
	r := askFor("198.51.100.1")
	if _, no, err := d.vips.assign(t.Context(), d.Balancers[0], r); no != nil || err != nil {
		t.Fatal(no, err)
	}
	d.look()
	if got := d.web(); !strings.HasPrefix(is(got, Accepted), "False AddressConflict: the load balancer gives 198.51.100.1, which belongs to Service shop/other") || len(got.Finalizers) > 0 {
		t.Errorf("%s", is(got, Accepted))
	}
}

// Services of a group have what the load balancer gave to any of them; it is given back with the last.
func TestGroupOfTheLoadBalancer(t *testing.T) {
	one, two := balanced(annotated(annotations.SharedVIP, "edge")), balanced(annotated(annotations.SharedVIP, "edge"))
	two.Name, two.Spec.Ports = "api", []corev1.ServicePort{{Port: 443, Protocol: corev1.ProtocolTCP}}
	apiKey := model.ServiceKey{Namespace: "shop", Name: "api"}
	for _, restarted := range []bool{false, true} {
		d := newDesk(t, []string{"haproxy!"}, one.DeepCopy(), two.DeepCopy())
		ipam, reports := d.at["haproxy"].ipam, d.at["haproxy"].reports
		d.look()
		d.lookAt(apiKey)
		if got := d.Service(apiKey).Annotations[annotations.AssignedIPs]; got != "haproxy=198.51.100.1" || !slices.Equal(ipam.given, []string{"shop/edge"}) {
			t.Fatalf("%q, asked for %v", got, ipam.given)
		}
		if restarted {
			d.restart()
		}
		reports[webKey], reports[apiKey] = gone, there("198.51.100.1")
		d.edit(deleted)
		d.look()
		if len(ipam.released) > 0 {
			t.Error("given back while another has it")
		}
		api := d.Service(apiKey)
		deleted(api)
		d.replace(api)
		reports[apiKey] = gone
		d.lookAt(apiKey)
		if !slices.Equal(ipam.released, []string{"shop/edge"}) {
			t.Errorf("restarted %t: given back %v", restarted, ipam.released)
		}
	}
}

// A Service that turns from an address of the load balancer to one of ours gives that back when it is not announced any more.
func TestFromTheLoadBalancerToAPool(t *testing.T) {
	d, ipam := onIPAM(t)
	d.Selection.Pools = []vip.Pool{{Name: "default", Ranges: []vip.Range{{First: addr("192.0.2.1"), Last: addr("192.0.2.9")}}}}
	d.restart()
	d.look()
	if got := d.web(); got.Annotations[annotations.AssignedIPs] != "haproxy=192.0.2.1" || publishedBy(got) != "198.51.100.1" || len(ipam.released) > 0 {
		t.Errorf("%v, published %q, given back %v", got.Annotations, publishedBy(got), ipam.released)
	}
	d.at["haproxy"].reports[webKey] = there("192.0.2.1")
	d.look()
	if got := d.web(); publishedBy(got) != "192.0.2.1" || !slices.Equal(ipam.released, []string{"shop/web"}) {
		t.Errorf("published %q, given back %v", publishedBy(got), ipam.released)
	}
}

// While the load balancer is called, everybody else goes on; nobody gets what is being given back.
func TestCallsHoldNoLock(t *testing.T) {
	d := newDesk(t, []string{"haproxy!"}, balanced())
	ipam := d.at["haproxy"].ipam
	calls := 0
	ipam.during = func() { calls++; d.vips.of("haproxy", webKey) }
	d.look()
	d.at["haproxy"].reports[webKey] = gone
	d.edit(deleted)
	ipam.during = func() {
		calls++
		r := askFor("")
		r.Service, r.key, r.group = "shop/web2", model.ServiceKey{Namespace: "shop", Name: "web2"}, "shop/web" // of the same group
		if has, no, err := d.vips.assign(t.Context(), d.Balancers[0], r); len(has) > 0 || no == nil || err == nil {
			t.Errorf("given what is being given back: %v, %v, %v", has, no, err)
		}
	}
	d.look()
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}

func TestFenced(t *testing.T) {
	inner := &ipam{has: map[string][]netip.Addr{}}
	closed := errors.New("the Lease is not ours")
	a := Fenced(inner, func() (time.Time, error) { return time.Time{}, closed })
	if _, err := a.AllocateVIPs(t.Context(), providers.VIPRequest{Group: "g"}); !errors.Is(err, closed) {
		t.Error(err)
	}
	if err := a.ReleaseVIPs(t.Context(), "g"); !errors.Is(err, closed) || len(inner.given)+len(inner.released) > 0 {
		t.Error(err)
	}
	var limited bool
	a = Fenced(deadlines{&limited}, func() (time.Time, error) { return time.Now().Add(time.Second), nil })
	if _, err := a.AllocateVIPs(t.Context(), providers.VIPRequest{}); err != nil || !limited {
		t.Errorf("%v, limited %t", err, limited)
	}
	limited = false
	if err := a.ReleaseVIPs(t.Context(), "g"); err != nil || !limited {
		t.Errorf("%v, limited %t", err, limited)
	}
}

// deadlines notes whether a call is limited in time.
type deadlines struct{ limited *bool }

func (d deadlines) AllocateVIPs(ctx context.Context, _ providers.VIPRequest) ([]netip.Addr, error) {
	_, *d.limited = ctx.Deadline()
	return nil, nil
}

func (d deadlines) ReleaseVIPs(ctx context.Context, _ string) error {
	_, *d.limited = ctx.Deadline()
	return nil
}
