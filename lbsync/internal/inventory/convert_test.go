package inventory

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/providers"
)

func fullPod() *corev1.Pod {
	port := func(name string, number int32) []corev1.ContainerPort {
		return []corev1.ContainerPort{{Name: name, ContainerPort: number}, {ContainerPort: 1}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", UID: "u1", ResourceVersion: "7", Labels: map[string]string{"app": "web"},
			ManagedFields:              []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
			DeletionTimestamp:          new(metav1.NewTime(now)),
			DeletionGracePeriodSeconds: new(int64(30)),
			Annotations: map[string]string{
				"other": "x", npl.Annotation: `[{"podPort":8080,"nodeIP":"192.0.2.11","nodePort":61001,"protocol":"tcp"},{}]`,
			},
		},
		Spec: corev1.PodSpec{
			NodeName:   "node-1",
			Containers: []corev1.Container{{Name: "web", Image: "web", Ports: port("http", 8080)}, {Name: "quiet", Ports: port("", 2)}},
			InitContainers: []corev1.Container{
				{Name: "once", Ports: port("once", 3)},
				{Name: "sidecar", Ports: port("metrics", 9090), RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)), Message: "x"},
			},
			PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
		},
	}
}

// A reflector may transform twice, so the transform accepts its own output; and what the model needs survives it.
func TestTransform(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"a": "b"}},
		Status: corev1.NodeStatus{
			Images:    []corev1.ContainerImage{{Names: []string{"x"}}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.11"}, {Type: corev1.NodeHostName, Address: "node-1"}},
		},
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}}}}
	for _, in := range []any{fullPod(), node, service} {
		once, err := Transform(in)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := Transform(reflect.ValueOf(once).MethodByName("DeepCopyObject").Call(nil)[0].Interface())
		if err != nil || !reflect.DeepEqual(once, twice) {
			t.Errorf("%T: not idempotent: %v\nonce  %+v\ntwice %+v", in, err, once, twice)
		}
	}
	slim, _ := Transform(fullPod())
	if p := slim.(*corev1.Pod); len(p.ManagedFields) > 0 || p.Annotations["other"] != "" || len(p.Status.PodIPs) > 0 || len(p.Spec.Containers) != 1 {
		t.Errorf("not slim: %+v", p)
	}
	got := Pod(slim.(*corev1.Pod))
	want := &model.Pod{
		Namespace: "shop", Name: "web-1", UID: "u1", Labels: map[string]string{"app": "web"}, Node: "node-1",
		Ready: true, ReadyChanged: now.Add(-time.Hour), Terminating: true, Since: now.Add(-30 * time.Second),
		Ports:     []model.ContainerPort{{Name: "http", Protocol: providers.TCP, Number: 8080}, {Name: "metrics", Protocol: providers.TCP, Number: 9090}},
		Mappings:  []npl.Mapping{{PodPort: 8080, NodeIP: netip.MustParseAddr("192.0.2.11"), NodePort: 61001, Protocol: npl.TCP, Family: npl.IPv4}},
		Malformed: got.Malformed,
	}
	if !reflect.DeepEqual(got, want) || got.Malformed == "" {
		t.Errorf("record\n%+v\nwant\n%+v", got, want)
	}
	if n := Node(node); len(n.Addresses) != 1 {
		t.Errorf("addresses %v, want the one that is an address", n.Addresses)
	}
}

func TestSelection(t *testing.T) {
	c := Selection{Instances: []string{"haproxy"}, Source: annotations.NodePortLocal, Manager: "ns/name/haproxy", Pools: []vip.Range{{First: netip.MustParseAddr("192.0.2.1"), Last: netip.MustParseAddr("192.0.2.9")}}}
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
