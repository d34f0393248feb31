package inventory

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// The cluster of the benchmarks has ten Pods behind each Service and a hundred on each Node.
const (
	perService = 10
	perNode    = 100
)

func benchNode(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(i / 250), byte(1 + i%250)})
}

// benchPod is the i-th Pod as an API server has it, about 8 KiB of JSON.
func benchPod(i int, version int) *corev1.Pod {
	node, service := i/perNode, i/perService // neighbours are of one Service, on one Node: the order does not matter here
	var containers []corev1.Container
	var statuses []corev1.ContainerStatus
	for _, name := range []string{"app", "proxy"} {
		c := corev1.Container{Name: name, Image: "registry.example.com/shop/" + name + "@sha256:" + strings.Repeat("ab", 32)}
		for n := range 12 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", n), Value: strings.Repeat("value", 6)})
		}
		c.Ports = []corev1.ContainerPort{{Name: name, ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}}
		containers = append(containers, c)
		statuses = append(statuses, corev1.ContainerStatus{Name: name, Image: c.Image, ImageID: c.Image, ContainerID: "containerd://" + strings.Repeat("cd", 32),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}}, Ready: true})
	}
	condition := func(of corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{Type: of, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}
	}
	ip := netip.AddrFrom4([4]byte{172, 16 + byte(i>>16), byte(i >> 8), byte(i)}).String()
	mapping := npl.Mapping{PodPort: 8080, NodeIP: benchNode(node), NodePort: uint16(61000 + i%perNode), Protocol: npl.TCP, Family: npl.IPv4}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", service%100), Name: fmt.Sprintf("web-%d-6d5f8c7b9d-%05d", service, i%100000), UID: types.UID(fmt.Sprintf("6f1f6a5e-0000-4000-8000-%012d", i)),
			ResourceVersion: fmt.Sprint(version),
			Labels: map[string]string{
				"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": fmt.Sprintf("web-%d", service), "pod-template-hash": "6d5f8c7b9d",
				"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "1.2.3",
			},
			Annotations: map[string]string{npl.Annotation: npl.Encode([]npl.Mapping{mapping}), "checksum/config": strings.Repeat("ef", 32)},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kube-controller-manager", FieldsV1: metav1.NewFieldsV1(`{"f:` + strings.Repeat("x", 2000) + `":{}}`)},
				{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:` + strings.Repeat("x", 1000) + `":{}}`)},
			},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("worker-%d.cluster.example.com", node), Containers: containers,
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(300))}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, ContainerStatuses: statuses,
			Conditions: []corev1.PodCondition{condition(corev1.PodScheduled), condition(corev1.PodInitialized), condition(corev1.ContainersReady), condition(corev1.PodReady)},
		},
	}
}

// received returns the Pod as a client decodes it, with memory of its own.
func received(tb testing.TB, p *corev1.Pod) *corev1.Pod {
	raw, err := p.Marshal()
	out := &corev1.Pod{}
	if err == nil {
		err = out.Unmarshal(raw)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func benchService(i int) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("web-%d", i), UID: types.UID(fmt.Sprintf("service-%d", i)),
			Finalizers: []string{"nplbridge.io/cleanup"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("nplbridge.io/lb"),
			Selector: map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": fmt.Sprintf("web-%d", i)},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("app")}},
		},
	}
}

// fill returns an Index of n Pods, their Services and Nodes; Pods come as a streamed first list.
func fill(tb testing.TB, n int) *Index {
	x := NewIndex()
	for i := range n / perNode {
		name := fmt.Sprintf("worker-%d.cluster.example.com", i)
		x.SetNode(&model.Node{Name: name, Addresses: []netip.Addr{benchNode(i)}}, now)
	}
	for i := range n / perService {
		x.SetService(testSelection.Service(benchService(i)), now)
	}
	s := &store[*model.Pod]{convert: readPod, into: podTarget{x, fixed(now), func(PodKey) {}}}
	items := make([]any, n)
	for i := range items {
		var err error
		if items[i], err = s.transform(received(tb, benchPod(i, i+1))); err != nil {
			tb.Fatal(err)
		}
	}
	if err := s.Replace(items, fmt.Sprint(n)); err != nil {
		tb.Fatal(err)
	}
	return x
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// What the Index keeps of a large cluster.
func BenchmarkMemory(b *testing.B) {
	const pods = 100_000
	for b.Loop() {
		before := heap()
		x := fill(b, pods)
		kept := heap() - before
		b.ReportMetric(float64(kept)/pods, "bytes/Pod")
		b.ReportMetric(float64(kept)/(1<<20), "MiB")
		runtime.KeepAlive(x)
	}
}

func build(x *Feed, key model.ServiceKey) model.Output {
	v, _ := x.View(key)
	return model.Build(model.Input{
		Instance: "lb", Service: v.Service, Endpoints: v.Endpoints, Nodes: v.Nodes, Claimants: x.Claimants, Fate: x.Fate,
		Capabilities: providers.Capabilities{Protocols: []providers.Protocol{providers.TCP}}, DrainLimit: time.Minute, Now: now,
	})
}

// The first list entered, and then the whole model, from caches that are synced.
func BenchmarkFirstModel(b *testing.B) {
	const pods = 100_000
	for b.Loop() {
		x := fill(b, pods).Feed(now)
		b.StopTimer()
		start, members := time.Now(), 0
		for _, key := range x.Keys() {
			for _, pool := range build(x, key).State.Pools {
				members += len(pool.Members)
			}
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/model")
		if members != pods {
			b.Fatalf("%d members", members)
		}
		b.StartTimer()
	}
}

// One Pod that becomes ready or not, with the pools it is in, in clusters of three sizes (I8).
func BenchmarkPodChange(b *testing.B) {
	for _, pods := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			x := fill(b, pods).Feed(now)
			s := &store[*model.Pod]{convert: readPod, into: podTarget{x.Index, fixed(now), func(PodKey) {}}}
			x.TakeDirty()
			var changes []*corev1.Pod
			for i := range 200 { // a hundred Pods all over the cluster, not ready and ready again
				p := received(b, benchPod(i%100*(pods/100), pods+i))
				if i < 100 {
					p.Status.Conditions[3].Status = corev1.ConditionFalse
				}
				changes = append(changes, p)
			}
			pools := 0
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Update(changes[n%len(changes)]); err != nil {
					b.Fatal(err)
				}
				n++
				dirty, _ := x.TakeDirty()
				for key := range dirty {
					pools += len(build(x, key).State.Pools)
				}
			}
			if pools != n {
				b.Fatalf("%d pools for %d changes", pools, n)
			}
		})
	}
}
