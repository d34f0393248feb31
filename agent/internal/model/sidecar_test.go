package model_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nplbridge/nplbridge/agent/internal/inventory"
	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// A named target port is looked up in containers first, then in init containers that restart always; one that ends before the Pod
// starts serves nobody. From the API's objects on, since it is they that tell the kinds of container apart.
func TestNPL64NamedPortOfASidecar(t *testing.T) {
	port := func(name string, number int32) []corev1.ContainerPort {
		return []corev1.ContainerPort{{Name: name, ContainerPort: number, Protocol: corev1.ProtocolTCP}}
	}
	inv := inventory.New(fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "uid-a", Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{
				NodeName:   "node-1",
				Containers: []corev1.Container{{Name: "main", Ports: port("http", 8080)}},
				InitContainers: []corev1.Container{
					{Name: "migrate", Ports: port("admin", 7000)},
					{Name: "proxy", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Ports: append(port("http", 9999), port("admin", 9000)...)},
				},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}},
		},
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default", Annotations: map[string]string{npl.EnabledAnnotation: "true"}},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": "web"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{
				{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("http")}, {Port: 81, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("admin")},
			}},
		}), "node-1", func() {}, func() {})
	go inv.Run(t.Context())
	if !inv.WaitForSync(t.Context()) {
		t.Fatal("the caches do not fill")
	}
	m := model.Build(model.Input{Node: inv.Node(), Pods: inv.Pods(), Services: inv.Services(), Addresses: model.AddressPolicy{Types: []string{"InternalIP"}},
		IPFamilies: []npl.Family{npl.IPv4}, KernelFamilies: []npl.Family{npl.IPv4}})
	var got []string
	for _, w := range m.Pods[0].Wants {
		got = append(got, w.Target.String())
	}
	if diff := cmp.Diff([]string{"10.0.0.1:8080", "10.0.0.1:9000"}, got); diff != "" || len(m.Refusals) > 0 {
		t.Errorf("targets (-want +got):\n%s\nrefusals %v", diff, m.Refusals)
	}
}
