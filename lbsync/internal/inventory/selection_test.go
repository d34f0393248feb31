package inventory

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/providers"
)

func TestSelection(t *testing.T) {
	c := Selection{Instances: []string{"haproxy"}, Source: annotations.NodePortLocal, Manager: "ns/name/haproxy", Pools: []vip.Pool{{Ranges: []vip.Range{{First: netip.MustParseAddr("192.0.2.1"), Last: netip.MustParseAddr("192.0.2.9")}}}}}
	service := func(edit func(*corev1.Service)) *corev1.Service {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "web", Finalizers: []string{annotations.Finalizer}, Annotations: map[string]string{annotations.ManagedBy: c.Manager},
			},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("nplbridge.io/haproxy")},
		}
		edit(s)
		return s
	}
	for _, test := range []struct {
		name                 string
		unclassed            bool
		edit                 func(*corev1.Service)
		ours, admitted, vips bool
	}{
		{"ours", false, func(*corev1.Service) {}, true, true, false},
		{"another class", false, func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("nplbridge.io/avi") }, false, true, false},
		{"another class and manager", false, func(s *corev1.Service) {
			s.Spec.LoadBalancerClass, s.Annotations[annotations.ManagedBy] = new("nplbridge.io/avi"), "ns/name/avi"
		}, false, false, false},
		{"another class, no manager", false, func(s *corev1.Service) { s.Spec.LoadBalancerClass, s.Annotations = new("nplbridge.io/avi"), nil }, false, false, false},
		{"a class of somebody else", false, func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("haproxy") }, false, true, false},
		{"no class", false, func(s *corev1.Service) { s.Spec.LoadBalancerClass = nil }, false, true, false},
		{"no class, and we take those", true, func(s *corev1.Service) { s.Spec.LoadBalancerClass = nil }, true, true, false},
		{"another type", true, func(s *corev1.Service) { s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil }, false, true, false},
		{"no finalizer", false, func(s *corev1.Service) { s.Finalizers = nil }, true, false, false},
		{"no manager", false, func(s *corev1.Service) { s.Annotations = nil }, true, true, false},
		{"an address", false, func(s *corev1.Service) { s.Annotations[annotations.AssignedIPs] = "192.0.2.5" }, true, true, true},
		{"an address that is not in a pool", false, func(s *corev1.Service) { s.Annotations[annotations.AssignedIPs] = "203.0.113.5" }, true, true, false},
		{"nonsense for an address", false, func(s *corev1.Service) { s.Annotations[annotations.AssignedIPs] = "x" }, true, true, false},
	} {
		c.Unclassed = ""
		if test.unclassed {
			c.Unclassed = "haproxy"
		}
		got := c.Service(service(test.edit))
		if got.Ours() != test.ours || got.Admitted != test.admitted || (len(got.VIPs["haproxy"]) > 0) != test.vips {
			t.Errorf("%s: ours %t, admitted %t, VIPs %v; want %t, %t, %t", test.name, got.Ours(), got.Admitted, got.VIPs, test.ours, test.admitted, test.vips)
		}
	}
	for manager, want := range map[string]bool{"": false, c.Manager: false, "ns/other/haproxy": true} {
		if got := c.Service(service(func(s *corev1.Service) { s.Annotations[annotations.ManagedBy] = manager })); got.ManagedByOther != want {
			t.Errorf("managed by %q: ManagedByOther %t", manager, got.ManagedByOther)
		}
	}
	ports := c.Service(service(func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{
			{Port: 80},
			{Port: 81, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(8081)},
			{Port: 82, TargetPort: intstr.FromString("http")},
		}
	})).Ports
	want := []model.ServicePort{
		{Port: 80, Protocol: providers.TCP, TargetNumber: 80},
		{Port: 81, Protocol: providers.UDP, TargetNumber: 8081},
		{Port: 82, Protocol: providers.TCP, TargetName: "http"},
	}
	if !reflect.DeepEqual(ports, want) {
		t.Errorf("ports %+v, want %+v", ports, want)
	}
}

// Which load balancers a Service is on, by its type, class and annotations.
func TestOn(t *testing.T) {
	c := Selection{Instances: []string{"core", "edge"}, Source: annotations.NodePortLocal, Manager: "ns/name", BlockedNamespaces: []string{"kube-system"}}
	const balanced, inside, external = corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName
	type values map[string]string
	for _, test := range []struct {
		name   string
		kind   corev1.ServiceType
		class  string
		values values
		want   string
	}{
		{"by class", balanced, "nplbridge.io/edge", nil, "edge"},
		{"another class", balanced, "nplbridge.io/other", nil, ""},
		{"no class", balanced, "", nil, ""},
		{"on two", balanced, "nplbridge.io/edge", values{annotations.Providers: "edge, core"}, "core edge"},
		{"on another", balanced, "nplbridge.io/edge", values{annotations.Providers: "core"}, "core"},
		{"the annotation alone is no class", balanced, "", values{annotations.Providers: "core"}, ""},
		{"nor does it make another class ours", balanced, "example.com/lb", values{annotations.Providers: "core"}, ""},
		{"on one that there is not", balanced, "nplbridge.io/edge", values{annotations.Providers: "nowhere"}, "edge"},
		{"which was on another", balanced, "nplbridge.io/edge", values{annotations.Providers: "nowhere", annotations.AssignedIPs: "core=192.0.2.1"}, "core"},
		{"which was who knows where", balanced, "nplbridge.io/edge", values{annotations.Providers: "nowhere", annotations.AssignedIPs: "core=x"}, "core edge"},
		{"members only", inside, "", values{annotations.Pool: "80=edge:/Common/web"}, "edge"},
		{"members only, of two", inside, "", values{annotations.Pool: "80=edge:a,81=core:b"}, "core edge"},
		{"members only, of a class of ours", balanced, "nplbridge.io/edge", values{annotations.Pool: "80=core:b"}, "core"},
		{"members only, of somebody else's class", balanced, "example.com/lb", values{annotations.Pool: "80=core:b"}, "core"},
		{"members only, of a name outside", external, "", values{annotations.Pool: "80=core:b"}, ""},
		{"members only, written wrong", inside, "", values{annotations.Pool: "80"}, "core edge"},
		{"of type NodePort, without node ports of Pods", corev1.ServiceTypeNodePort, "", values{annotations.Pool: "80=core:b"}, ""},
		{"of type NodePort, with its own", corev1.ServiceTypeNodePort, "", values{annotations.Pool: "80=core:b", annotations.ServiceType: "NodePort"}, "core"},
		{"of type NodePort, with who knows what", corev1.ServiceTypeNodePort, "", values{annotations.Pool: "80=core:b", annotations.ServiceType: "Magic"}, "core"},
		{"an empty pool is none", inside, "", values{annotations.Pool: ""}, ""},
		{"another annotation written wrong", balanced, "nplbridge.io/edge", values{annotations.ServiceType: "Magic"}, "edge"},
	} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Annotations: test.values}, Spec: corev1.ServiceSpec{Type: test.kind}}
		if test.class != "" {
			s.Spec.LoadBalancerClass = &test.class
		}
		record := c.Service(s)
		if got := strings.Join(record.On, " "); got != test.want || !slices.Equal(c.On(s), record.On) || c.Ours(s) != (got != "") {
			t.Errorf("%s: on %q, want %q", test.name, got, test.want)
		}
		s.Namespace = "kube-system"
		if c.Ours(s) {
			t.Errorf("%s: ours in a Namespace that is blocked", test.name)
		}
	}
}

// What the record has of the spec and the annotations.
func TestServiceRecord(t *testing.T) {
	c := Selection{Instances: []string{"lb"}, Source: annotations.NodePortLocal, Manager: "ns/name"}
	got := c.Service(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "u", CreationTimestamp: metav1.NewTime(now), DeletionTimestamp: new(metav1.NewTime(now)),
			Annotations: map[string]string{annotations.ServiceType: "NodePort", annotations.Abandon: "lb", annotations.Algorithm: "LeastConnections"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("nplbridge.io/lb"), Selector: map[string]string{"a": "b"},
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, PublishNotReadyAddresses: true,
			IPFamilies:      []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol},
			Ports:           []corev1.ServicePort{{Name: "http", Port: 80, NodePort: 30080}},
			SessionAffinity: corev1.ServiceAffinityClientIP, SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(60))}},
			LoadBalancerSourceRanges: []string{"192.0.2.0/24"}, LoadBalancerIP: "198.51.100.1",
		},
	})
	want := model.Service{
		ServiceKey: model.ServiceKey{Namespace: "shop", Name: "web"}, UID: "u", Created: now, On: []string{"lb"}, Deleting: true, Abandoned: []string{"lb"},
		Source: annotations.NodePort, Selector: map[string]string{"a": "b"}, Families: []npl.Family{npl.IPv6, npl.IPv4}, PublishNotReady: true, LocalOnly: true,
		Ports:  []model.ServicePort{{Name: "http", Port: 80, Protocol: providers.TCP, TargetNumber: 80, NodePort: 30080}},
		Wishes: got.Wishes,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("record\n%+v\nwant\n%+v", got, want)
	}
	w := got.Wishes
	if w.Pool.Algorithm != providers.LeastConnections || w.Pool.Persistence.Timeout != time.Minute || len(w.Virtual.SourceRanges) != 1 || len(w.Addresses) != 1 {
		t.Errorf("wishes %+v", w)
	}
}

// An assigned address counts only where the address pools let the Service have it.
func TestAssigned(t *testing.T) {
	addr := netip.MustParseAddr
	of := func(name string, last byte, edit func(*vip.Pool)) vip.Pool {
		a := netip.AddrFrom4([4]byte{192, 0, 2, last})
		p := vip.Pool{Name: name, Ranges: []vip.Range{{First: a, Last: a}}}
		edit(&p)
		return p
	}
	c := Selection{Instances: []string{"edge", "core", "own"}, Pools: []vip.Pool{
		of("all", 1, func(p *vip.Pool) { p.Providers = []string{"edge", "core"} }),
		of("edge", 2, func(p *vip.Pool) { p.Providers = []string{"edge"} }),
		of("bank", 3, func(p *vip.Pool) { p.Namespaces = []string{"bank"} }),
		of("tier", 4, func(p *vip.Pool) { p.Selector = map[string]string{"tier": "web"} }),
	}}
	c.Pools[2].Providers, c.Pools[3].Providers = []string{"edge"}, []string{"edge"}
	for assigned, want := range map[string]bool{
		"edge=192.0.2.1": true, "core=192.0.2.1": true, "192.0.2.1": true, "own=192.0.2.1": false,
		"edge=192.0.2.2": true, "core=192.0.2.2": false,
		"edge=192.0.2.3": false, "edge=192.0.2.4": true, "edge=203.0.113.1": false,
		"own=203.0.113.1": true, // its addresses are its own business
	} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Labels: map[string]string{"tier": "web"}, Annotations: map[string]string{annotations.AssignedIPs: assigned},
		}}
		instance, value, named := strings.Cut(assigned, "=")
		if !named {
			instance, value = "edge", assigned
		}
		if got := c.Service(s).VIPs[instance]; slices.Contains(got, addr(value)) != want {
			t.Errorf("%s: VIPs %v, want it %t", assigned, got, want)
		}
	}
	// A load balancer with an address management gives what is in no pool, and nothing that is in one.
	c.Allocate = []string{"edge"}
	for assigned, want := range map[string]int{"edge=203.0.113.1": 1, "edge=192.0.2.3": 0, "core=203.0.113.1": 0} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Annotations: map[string]string{annotations.AssignedIPs: assigned}}}
		if got := c.Service(s).VIPs; len(got["edge"])+len(got["core"]) != want {
			t.Errorf("%s: VIPs %v, want %d", assigned, got, want)
		}
	}
}
