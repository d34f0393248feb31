package lbsync_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// cluster is what a benchmark runs in. Pod i is behind Service i % services, on Node i % nodes.
type cluster struct {
	pods, nodes, services int
	ready                 bool // whether the Pods are at the beginning
}

const instance = "memory"

func (c cluster) vip(service int) netip.Addr {
	return netip.AddrFrom4([4]byte{203, byte(service >> 16), byte(service >> 8), byte(service)})
}

func (c cluster) nodeIP(node int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 100, byte(node >> 8), byte(node)})
}

func (c cluster) node(i int) runtime.Object {
	return &corev1.Node{
		TypeMeta: typeOf("Node"), ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("worker-%d", i), UID: types.UID(fmt.Sprintf("node-%d", i)), ResourceVersion: "1"},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: c.nodeIP(i).String()}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func (c cluster) service(i int) runtime.Object {
	return &corev1.Service{
		TypeMeta: typeOf("Service"),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("web-%d", i), UID: types.UID(fmt.Sprintf("service-%d", i)), ResourceVersion: "1",
			Finalizers:  []string{"nplbridge.io/cleanup"},
			Annotations: map[string]string{"nplbridge.io/managed-by": "a/b/c", "nplbridge.io/load-balancer-ips-assigned": instance + "=" + c.vip(i).String()},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: new("nplbridge.io/" + instance),
			Selector: map[string]string{"app": fmt.Sprintf("web-%d", i)},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
		},
	}
}

// pod is of about 6 KiB of JSON.
func (c cluster) pod(i int, version int, ready bool) *corev1.Pod {
	service, node := i%c.services, i%c.nodes
	mapping := npl.Mapping{PodPort: 8080, NodeIP: c.nodeIP(node), NodePort: uint16(30000 + i/c.nodes), Protocol: npl.TCP, Family: npl.IPv4}
	app := corev1.Container{Name: "app", Image: "registry.example/shop/app@sha256:" + strings.Repeat("ab", 32), Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}
	for n := range 24 {
		app.Env = append(app.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", n), Value: strings.Repeat("value", 6)})
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	ip := netip.AddrFrom4([4]byte{172, 16 + byte(i>>16), byte(i >> 8), byte(i)}).String()
	return &corev1.Pod{
		TypeMeta: typeOf("Pod"),
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", service%100), Name: fmt.Sprintf("web-%d-6d5f8c7b9d-%05d", service, i), UID: types.UID(fmt.Sprintf("pod-%d", i)),
			ResourceVersion: fmt.Sprint(version), Labels: map[string]string{"app": fmt.Sprintf("web-%d", service), "pod-template-hash": "6d5f8c7b9d"},
			Annotations: map[string]string{npl.Annotation: npl.Encode([]npl.Mapping{mapping})},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kube-controller-manager", FieldsV1: metav1.NewFieldsV1(`{"f:` + strings.Repeat("x", 2000) + `":{}}`)},
				{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:` + strings.Repeat("x", 1000) + `":{}}`)},
			},
		},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("worker-%d", node), Containers: []corev1.Container{app}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{{Type: corev1.ContainersReady, Status: status}, {Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}},
		},
	}
}

// bench is a running loop with what it works on: the way from the bytes of an event to the load balancer, without what is written to
// Kubernetes.
type bench struct {
	cluster
	b      *testing.B
	stream *stream
	watch  *inventory.Watch
	lb     *providertest.LoadBalancer
	began  time.Time // the first request to the API server

	mu     sync.Mutex
	tally  tally
	target int
	done   chan time.Time // when target is reached
}

// tally counts what was sent to the load balancer.
type tally struct{ calls, objects, steps int }

type counted struct {
	providers.Provider
	*bench
}

func (c counted) Apply(ctx context.Context, changes providers.Changes) providers.Results {
	c.mu.Lock()
	c.tally.calls++
	c.tally.objects += len(changes.Pools) + len(changes.VirtualServers)
	c.mu.Unlock()
	results := c.Provider.Apply(ctx, changes)
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, err := range results {
		if err != nil {
			c.b.Errorf("%s: %v", key, err)
		}
	}
	before := c.tally.steps
	for _, p := range changes.Pools {
		c.tally.steps += len(p.Members)
	}
	if before < c.target && c.tally.steps >= c.target {
		c.done <- time.Now()
	}
	return results
}

// expect has done tell when so many more steps are acknowledged, and forgets what was counted.
func (h *bench) expect(steps int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tally, h.target = tally{}, steps
}

func (h *bench) wait() (time.Time, tally) {
	at := <-h.done
	return at, h.counts()
}

func (h *bench) counts() tally {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tally
}

// newBench fills the caches.
func newBench(b *testing.B, c cluster, concurrency int) *bench {
	h := &bench{cluster: c, b: b, done: make(chan time.Time, 1)}
	s, client := newStream(b, map[string]objects{
		"nodes": {c.nodes, c.node}, "services": {c.services, c.service},
		"pods": {c.pods, func(i int) runtime.Object { return c.pod(i, i+1, c.ready) }},
	})
	h.stream = s
	can := providertest.MemoryCapabilities()
	can.Concurrency = concurrency
	h.lb = providertest.NewLoadBalancer(can)
	selection := inventory.Selection{Instances: []string{instance}, Manager: "a/b/c", Source: "NodePortLocal",
		Pools: []vip.Pool{{Name: "all", Ranges: []vip.Range{{First: c.vip(0), Last: c.vip(c.services)}}}}}
	w, err := inventory.NewWatch(client, selection, clock.RealClock{})
	if err != nil {
		b.Fatal(err)
	}
	h.watch = w
	ctx, stop := context.WithCancel(b.Context())
	b.Cleanup(func() { stop(); w.Stop() })
	h.began = time.Now()
	w.Start(ctx)
	if !w.Wait(ctx) {
		b.Fatal("the caches were not filled")
	}
	return h
}

// run runs a loop until stop is called or the benchmark ends. It reads the load balancer once.
func (h *bench) run() (l *loop.Loop, stop func()) {
	metrics, err := loop.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		h.b.Fatal(err)
	}
	cfg := loop.Config{Instance: instance, DrainLimit: 24 * time.Hour, Resync: 24 * time.Hour, DrainPoll: 24 * time.Hour, CallTimeout: time.Hour,
		Gap: 5 * time.Millisecond, GuardHold: time.Minute}
	provider := counted{h.lb.Open(providers.Owner{ClusterUID: "c", Instance: "i/i"}), h}
	feed := h.watch.Index.Feed(time.Now())
	l = loop.New(cfg, feed, provider, loop.Links{}, metrics, clock.RealClock{}, zap.NewNop())
	ctx, cancel := context.WithCancel(h.b.Context())
	ended := make(chan struct{})
	go func() { l.Run(ctx); close(ended) }()
	stop = sync.OnceFunc(func() { cancel(); <-ended; feed.Close() })
	h.b.Cleanup(stop)
	return l, stop
}

// settled waits until every Service was looked at.
func settled(l *loop.Loop) {
	for !l.Health().Ready {
		time.Sleep(time.Millisecond)
	}
}

// The whole model of a cluster from caches that are full, on the load balancer, and then a second loop that finds nothing to do.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		h := newBench(b, cluster{pods: 100_000, nodes: 1_000, services: 10_000, ready: true}, 1)
		filled := time.Now()
		h.expect(h.pods)
		l, stop := h.run()
		at, n := h.wait()
		settled(l)
		b.ReportMetric(filled.Sub(h.began).Seconds(), "s-caches")
		b.ReportMetric(at.Sub(filled).Seconds(), "s-applied")
		b.ReportMetric(float64(n.calls), "calls")
		stop()
		h.expect(1)
		readings, again := h.lb.Observations(), time.Now()
		l, stop = h.run()
		settled(l)
		b.ReportMetric(time.Since(again).Seconds(), "s-restart")
		b.ReportMetric(float64(h.counts().calls), "calls-restart")
		b.ReportMetric(float64(h.lb.Observations()-readings), "readings-restart")
		stop()
	}
}

// One Pod that becomes not ready, or ready again, in clusters of three sizes: processor time from the bytes of the event to the load
// balancer's acknowledgement, and exactly what the load balancer was asked for (I8).
func BenchmarkPodChange(b *testing.B) {
	for _, pods := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			h := newBench(b, cluster{pods: pods, nodes: pods / 100, services: pods / 10, ready: true}, 1)
			h.expect(pods)
			l, _ := h.run()
			h.wait()
			settled(l)
			var changes [][]byte
			for i := range 200 { // a hundred Pods, each of another Service
				changes = append(changes, event(b, watch.Modified, h.pod(i%100, pods+10+i, i >= 100)))
			}
			var total tally
			readings := h.lb.Observations()
			n, began := 0, processorTime(b)
			for b.Loop() {
				h.expect(1)
				h.stream.pods <- changes[n%len(changes)]
				_, t := h.wait()
				total.calls, total.objects, total.steps = total.calls+t.calls, total.objects+t.objects, total.steps+t.steps
				n++
			}
			per := func(count int) float64 { return float64(count) / float64(n) }
			b.ReportMetric(float64((processorTime(b)-began).Microseconds())/float64(n), "cpu-us")
			b.ReportMetric(per(total.calls), "calls")
			b.ReportMetric(per(total.objects), "objects")
			b.ReportMetric(per(total.steps), "steps")
			b.ReportMetric(per(h.lb.Observations()-readings), "readings")
		})
	}
}

// processorTime is that of this process so far, the garbage collector's and the kernel's for it included.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// onlyWaits is what so many writes take on this machine, now, by a program that does nothing else.
func onlyWaits(writes, concurrency int, delay time.Duration) time.Duration {
	began := time.Now()
	var group errgroup.Group
	group.SetLimit(concurrency)
	for range writes {
		group.Go(func() error {
			<-time.After(delay)
			return nil
		})
	}
	_ = group.Wait() // nothing in it fails
	return time.Since(began)
}

// 3,000 Pods that change together, with 5 ms for each object that is written to the load balancer: all become ready, then not ready, and
// so on. The least it can take is what the load balancer takes for one write of each pool.
func BenchmarkBurst(b *testing.B) {
	const (
		pods  = 3_000
		delay = 5 * time.Millisecond
	)
	for _, services := range []int{300, 3_000} {
		for _, concurrency := range []int{1, 4, 8} {
			b.Run(fmt.Sprintf("%d-services/concurrency-%d", services, concurrency), func(b *testing.B) {
				h := newBench(b, cluster{pods: pods, nodes: 30, services: services}, concurrency)
				l, _ := h.run()
				settled(l)
				h.lb.SetDelay(delay)
				var bursts [2][]byte
				for i := range pods {
					bursts[0] = append(bursts[0], event(b, watch.Modified, h.pod(i, pods+10+i, true))...)
					bursts[1] = append(bursts[1], event(b, watch.Modified, h.pod(i, 2*pods+10+i, false))...)
				}
				var worst, sum, only time.Duration
				var total tally
				n := 0
				for b.Loop() {
					h.expect(pods)
					began := time.Now()
					h.stream.pods <- bursts[n%2]
					at, t := h.wait()
					took := at.Sub(began)
					worst, sum = max(worst, took), sum+took
					total.calls, total.objects = total.calls+t.calls, total.objects+t.objects
					only += onlyWaits(services, concurrency, delay)
					n++
				}
				b.ReportMetric(sum.Seconds()/float64(n), "s-mean")
				b.ReportMetric(only.Seconds()/float64(n), "s-only")
				b.ReportMetric(worst.Seconds(), "s-worst")
				b.ReportMetric(float64(total.calls)/float64(n), "calls")
				b.ReportMetric(float64(total.objects)/float64(n), "objects")
				b.ReportMetric(delay.Seconds()*float64(services)/float64(concurrency), "s-least")
			})
		}
	}
}
