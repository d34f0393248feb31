package inventory

import (
	"net/netip"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

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
