package inventory

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

func fullPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "default", UID: "uid", ResourceVersion: "7", CreationTimestamp: metav1.Unix(1000, 0),
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{npl.Annotation: "[]", "other": "x"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}, Finalizers: []string{"f"},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1",
			Containers: []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "SECRET", Value: "x"}},
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: corev1.ProtocolTCP, HostPort: 8080, HostIP: "192.0.2.1"}}}, {Name: "no ports"}},
			InitContainers: []corev1.Container{
				{Name: "once", Ports: []corev1.ContainerPort{{Name: "init", ContainerPort: 1}}},
				{Name: "sidecar", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 9090}}},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Message: "m", HostIP: "192.0.2.1", PodIP: "10.0.0.1",
			PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}, {IP: "127.0.0.1"}, {IP: "junk"}}},
	}
}

func fullService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default", UID: "uid", ResourceVersion: "7",
			Annotations: map[string]string{npl.EnabledAnnotation: "true", "other": "x"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.9", Selector: map[string]string{"app": "web"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports: []corev1.ServicePort{{Name: "a", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("http"), NodePort: 30000}, {Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(5353)}, {Port: 7}}},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}}},
	}
}

func fullNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"l": "x"}, Annotations: map[string]string{"a": "x"}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.0.0.0/24"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "node-1"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
			Images: []corev1.ContainerImage{{Names: []string{"i"}}}},
	}
}

var addresses = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestPodRecord(t *testing.T) {
	want := model.Pod{
		UID: "uid", Namespace: "default", Name: "p", Created: time.Unix(1000, 0), Labels: map[string]string{"app": "web"}, ResourceVersion: "7",
		IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, Annotation: "[]", Annotated: true,
		Ports: []model.ContainerPort{{Name: "http", Port: 80, Protocol: npl.TCP, HostPort: 8080, HostIP: netip.MustParseAddr("192.0.2.1")}, {Name: "metrics", Port: 9090, Protocol: npl.TCP}},
	}
	if diff := cmp.Diff(want, podRecord(fullPod()), addresses); diff != "" {
		t.Error(diff)
	}
	for phase, terminated := range map[corev1.PodPhase]bool{corev1.PodPending: false, corev1.PodUnknown: false, corev1.PodSucceeded: true, corev1.PodFailed: true} {
		p := fullPod()
		p.Status.Phase = phase
		if got := podRecord(p).Terminated; got != terminated {
			t.Errorf("phase %s: terminated %v", phase, got)
		}
	}
}

func TestVanishing(t *testing.T) {
	now := metav1.Now()
	for _, tt := range []struct {
		phase      corev1.PodPhase
		deleted    *metav1.Time
		finalizers []string
		want       bool
	}{
		{corev1.PodSucceeded, &now, nil, true},
		{corev1.PodFailed, &now, nil, true},
		{corev1.PodRunning, &now, nil, false},
		{corev1.PodFailed, nil, nil, false},
		{corev1.PodFailed, &now, []string{"batch.kubernetes.io/job-tracking"}, false},
	} {
		p := fullPod()
		p.Status.Phase, p.DeletionTimestamp, p.Finalizers = tt.phase, tt.deleted, tt.finalizers
		if got := podRecord(p).Vanishing; got != tt.want {
			t.Errorf("%s, deletion %v, finalizers %v: vanishing %v", tt.phase, tt.deleted, tt.finalizers, got)
		}
	}
}

func TestServiceRecord(t *testing.T) {
	want := model.Service{
		Namespace: "default", Name: "s", Type: "LoadBalancer", Selector: map[string]string{"app": "web"}, Families: []npl.Family{npl.IPv4, npl.IPv6},
		Ports: []model.ServicePort{{Protocol: npl.TCP, TargetName: "http"}, {Protocol: npl.UDP, TargetPort: 5353}, {Protocol: npl.TCP, TargetPort: 7}},
	}
	if diff := cmp.Diff(want, serviceRecord(fullService())); diff != "" {
		t.Error(diff)
	}
}

func TestNodeRecord(t *testing.T) {
	want := model.Node{Name: "node-1", Addresses: []model.NodeAddress{{Type: "InternalIP", IP: netip.MustParseAddr("192.0.2.1")}}}
	if diff := cmp.Diff(want, nodeRecord(fullNode()), addresses); diff != "" {
		t.Error(diff)
	}
}

func started(t *testing.T, client *fake.Clientset) (*Inventory, *atomic.Int64) {
	t.Helper()
	var changes atomic.Int64
	inv := New(client, "node-1", func() { changes.Add(1) }, func() { t.Error("told of an annotation") })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); inv.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return inv, &changes
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func TestOnlyThisNodesPodsAndEnabledServices(t *testing.T) {
	elsewhere, disabled := fullPod(), fullService()
	elsewhere.Name, elsewhere.Spec.NodeName = "elsewhere", "node-2"
	disabled.Name, disabled.Annotations = "disabled", nil
	client := fake.NewClientset(fullPod(), elsewhere, fullService(), disabled, fullNode())
	selectors := make(chan string, 16)
	client.PrependReactor("list", "*", func(a k8stesting.Action) (bool, runtime.Object, error) {
		selectors <- fmt.Sprint(a.GetResource().Resource, " ", a.(k8stesting.ListAction).GetListRestrictions().Fields)
		return false, nil, nil
	})
	inv, _ := started(t, client)
	eventually(t, "synced", func() bool { return inv.Synced() == nil })
	if pods := inv.Pods(); len(pods) != 1 || pods[0].Name != "p" {
		t.Errorf("Pods %v", pods)
	}
	if services := inv.Services(); len(services) != 1 || services[0].Name != "s" {
		t.Errorf("Services %v", services)
	}
	asked := map[string]bool{}
	for range 3 {
		asked[<-selectors] = true
	}
	for _, want := range []string{"pods spec.nodeName=node-1", "services ", "nodes metadata.name=node-1"} {
		if !asked[want] {
			t.Errorf("the API server was not asked for %q but %v", want, asked)
		}
	}
}

func TestOnlyWhatMattersIsAChange(t *testing.T) {
	client := fake.NewClientset(fullPod(), fullService(), fullNode())
	inv, changes := started(t, client)
	eventually(t, "synced", func() bool { return inv.Synced() == nil && changes.Load() == 3 })
	pods := client.CoreV1().Pods("default")
	pod := fullPod()
	pod.ResourceVersion, pod.Status.Message, pod.Annotations["other"] = "8", "probe failed", "y"
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "new version in the cache", func() bool { return inv.Pods()[0].ResourceVersion == "8" })
	if got := changes.Load(); got != 3 {
		t.Errorf("%d changes, want the first 3 only", got)
	}
	pod = pod.DeepCopy()
	pod.ResourceVersion, pod.Status.PodIPs = "9", nil
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "change", func() bool { return changes.Load() == 4 })
	if err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "deletion", func() bool { return changes.Load() == 5 && len(inv.Pods()) == 0 })
}

func TestNodeWithoutAddressesKeepsTheLastOnes(t *testing.T) {
	node := fullNode()
	addresses := node.Status.Addresses
	node.Status.Addresses = nil
	client := fake.NewClientset(node)
	inv, changes := started(t, client)
	eventually(t, "caches filled", func() bool { return changes.Load() == 1 })
	if inv.Synced() == nil {
		t.Error("synced, and the Node has no address")
	}
	node = node.DeepCopy()
	node.Status.Addresses = addresses
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "synced", func() bool { return inv.Synced() == nil })
	node = node.DeepCopy()
	node.Status.Addresses = nil
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "change", func() bool { return changes.Load() == 3 })
	if got := inv.Node(); len(got.Addresses) != 1 {
		t.Errorf("addresses %v, want the last known one", got.Addresses)
	}
}

func TestAnnotationIsToldApart(t *testing.T) {
	var told []string
	inv := New(fake.NewClientset(), "node-1", func() { told = append(told, "changed") }, func() { told = append(told, "annotated") })
	update := func(change func(*corev1.Pod)) {
		t.Helper()
		p := fullPod()
		change(p)
		if err := inv.pods.Update(p); err != nil {
			t.Fatal(err)
		}
	}
	update(func(*corev1.Pod) {})
	inv.Arrivals()
	update(func(p *corev1.Pod) { p.Annotations[npl.Annotation] = "[{}]" })
	update(func(p *corev1.Pod) { delete(p.Annotations, npl.Annotation) })
	if got := inv.Arrivals(); len(got) != 0 {
		t.Errorf("an annotation is no arrival: %v", got)
	}
	update(func(p *corev1.Pod) { p.Status.PodIPs = nil }) // and the annotation is back
	if want := []string{"changed", "annotated", "annotated", "changed"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}
