package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/lab"
)

// Size is that of a cluster that lbsync is measured in. Pods of one Service are on different Nodes.
type Size struct{ Pods, Nodes, Services int }

// largest is the size that lbsync is to serve on two cores.
var largest = Size{Pods: 100_000, Nodes: 1_000, Services: 10_000}

func (s Size) String() string {
	return fmt.Sprintf("%d Pods, %d Nodes, %d Services", s.Pods, s.Nodes, s.Services)
}

// validate says what is wrong with a size: a Node has a thousand node ports.
func (s Size) validate() error {
	switch {
	case s.Pods < 1 || s.Nodes < 1 || s.Services < 1:
		return fmt.Errorf("size %s: each number is at least 1", s)
	case s.Pods > 1<<19 || s.Nodes > 1<<15 || s.Services > 1<<16:
		return fmt.Errorf("size %s: at most %d Pods, %d Nodes and %d Services have addresses", s, 1<<19, 1<<15, 1<<16)
	case s.Pods > 1000*s.Nodes:
		return fmt.Errorf("size %s: a Node has node ports for 1000 Pods", s)
	}
	return nil
}

const lbsyncNamespaces = 100

func lbsyncVIP(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{203, byte(i >> 16), byte(i >> 8), byte(i)})
}
func lbsyncNodeIP(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 100, byte(i >> 8), byte(i)}) }
func lbsyncNode(i int) string       { return fmt.Sprintf("worker-%d.cluster.example", i) }
func lbsyncNamespace(i int) string  { return fmt.Sprintf("team-%d", i%lbsyncNamespaces) }
func lbsyncApp(service int) string  { return fmt.Sprintf("shop-%d", service) }
func lbsyncUID(kind, i int) types.UID {
	return types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", kind, i))
}

// freeze stops the parts of the control plane that would otherwise work on each Pod, Service and Node that appears: on a machine of this
// size they would be what is measured. Close of the lab ends them like the others.
func freeze() error {
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	stopped := 0
	for _, path := range entries {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		argv := strings.Split(string(line), "\x00")
		if len(argv) < 2 || argv[1] != "kube-controller-manager" && argv[1] != "kube-scheduler" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return fmt.Errorf("stopping %s: %w", argv[1], err)
		}
		stopped++
	}
	if stopped != 2 {
		return fmt.Errorf("%d of 2 controllers found", stopped)
	}
	return nil
}

// templates are a Pod and a Service as the API server keeps them, managed fields and all.
type templates struct {
	of       Size
	provider string // that the Services are for
	pod      *corev1.Pod
	service  *corev1.Service
	size     int // of the Pod, in bytes of JSON
}

const templateNamespace = "template"

// newTemplates makes one of each through the API server.
func newTemplates(ctx context.Context, l *lab.Lab, of Size, provider string) (t templates, err error) {
	t.of, t.provider = of, provider
	s := &site{lab: l, client: l.Client()}
	if err := s.namespace(ctx, templateNamespace); err != nil {
		return t, err
	}
	pod := realisticPod(templateNamespace, "shop", "shop")
	pod.Spec.InitContainers, pod.Spec.Containers = nil, pod.Spec.Containers[:1]
	pod.Annotations = map[string]string{"checksum/config": pod.Annotations["checksum/config"], npl.Annotation: npl.Encode(nil)}
	if err := s.createPod(ctx, pod, running(pod, 1)); err != nil {
		return t, err
	}
	if t.pod, err = s.client.CoreV1().Pods(templateNamespace).Get(ctx, "shop", metav1.GetOptions{}); err != nil {
		return t, err
	}
	svc := enabledService(templateNamespace, "shop")
	svc.Spec.Type, svc.Spec.LoadBalancerClass, svc.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, new("nplbridge.io/"+provider), new(false)
	if err := s.createService(ctx, svc); err != nil {
		return t, err
	}
	t.service, err = s.client.CoreV1().Services(templateNamespace).Get(ctx, "shop", metav1.GetOptions{})
	return t, err
}

// podNumber is the i-th Pod, running and mapped.
func (t templates) podNumber(i int) *corev1.Pod {
	service, node := i%t.of.Services, (i+i/t.of.Nodes)%t.of.Nodes
	app := lbsyncApp(service)
	p := t.pod.DeepCopy()
	p.Namespace, p.Name, p.UID = lbsyncNamespace(service), fmt.Sprintf("%s-6d5f8c7b9d-%05d", app, i), lbsyncUID(1, i)
	p.ResourceVersion = ""
	for key := range p.Labels {
		p.Labels[key] = app
	}
	address := lbsyncNodeIP(node)
	p.Annotations[npl.Annotation] = npl.Encode([]npl.Mapping{{
		PodPort: 8080, NodeIP: address, NodePort: uint16(61000 + i/t.of.Nodes), Protocol: npl.TCP, Family: npl.IPv4,
	}})
	p.Spec.NodeName, p.Status.HostIP = lbsyncNode(node), address.String()
	p.Status.HostIPs = []corev1.HostIP{{IP: address.String()}}
	p.Status.PodIP = netip.AddrFrom4([4]byte{172, 16 + byte(i>>16), byte(i >> 8), byte(i)}).String()
	p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	return p
}

// serviceNumber is the i-th Service, with what our lbsync has written on it; only its conditions are not there yet. It has no ClusterIP, so
// that the API server need not repair its allocation.
func (t templates) serviceNumber(i int) *corev1.Service {
	app := lbsyncApp(i)
	s := t.service.DeepCopy()
	s.Namespace, s.Name, s.UID, s.ResourceVersion = lbsyncNamespace(i), app, lbsyncUID(2, i), ""
	s.Spec.Selector = map[string]string{"app": app}
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
	if t.provider != lbsyncProvider { // another lbsync than ours does it
		return s
	}
	s.Finalizers = append(s.Finalizers, "nplbridge.io/cleanup")
	s.Annotations["nplbridge.io/managed-by"] = lbsyncInstance + "/" + lbsyncLease
	s.Annotations["nplbridge.io/load-balancer-ips-assigned"] = lbsyncProvider + "=" + lbsyncVIP(i).String()
	return s
}

func nodeNumber(i int) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: lbsyncNode(i), UID: lbsyncUID(3, i), CreationTimestamp: metav1.Now(), Labels: map[string]string{
			"kubernetes.io/hostname": lbsyncNode(i), "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a",
		}},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: lbsyncNodeIP(i).String()}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
		},
	}
}

// stored is an object for etcd.
type stored struct {
	key    string
	object runtime.Object
}

// fill writes the cluster into etcd as the API server would have: to make it there takes two requests for each Pod.
func (t *templates) fill(ctx context.Context, r *runner, l *lab.Lab) error {
	etcd := newEtcd(l)
	put := func(kind string, n int, make func(int) stored) error {
		const each = 100 // a transaction of etcd has at most 128 operations
		err := inParallel((n+each-1)/each, func(batch int) error {
			var objects []stored
			for i := batch * each; i < min(n, (batch+1)*each); i++ {
				objects = append(objects, make(i))
			}
			return etcd.put(ctx, objects)
		})
		r.say("%d %s in etcd", n, kind)
		return err
	}
	meta := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: kind} }
	first := t.podNumber(0)
	if text, err := json.Marshal(first); err == nil {
		t.size = len(text)
	}
	r.say("each Pod has %d bytes of JSON", t.size)
	return errors.Join(
		put("Namespaces", lbsyncNamespaces, func(i int) stored {
			ns := &corev1.Namespace{TypeMeta: meta("Namespace"), ObjectMeta: metav1.ObjectMeta{Name: lbsyncNamespace(i), UID: lbsyncUID(4, i)}}
			ns.Status.Phase = corev1.NamespaceActive
			return stored{"namespaces/" + ns.Name, ns}
		}),
		put("Nodes", t.of.Nodes, func(i int) stored {
			n := nodeNumber(i)
			n.TypeMeta = meta("Node")
			return stored{"minions/" + n.Name, n}
		}),
		put("Services", t.of.Services, func(i int) stored {
			s := t.serviceNumber(i)
			s.TypeMeta = meta("Service")
			return stored{"services/specs/" + s.Namespace + "/" + s.Name, s}
		}),
		put("Pods", t.of.Pods, func(i int) stored {
			p := t.podNumber(i)
			p.TypeMeta = meta("Pod")
			return stored{"pods/" + p.Namespace + "/" + p.Name, p}
		}))
}

// etcd is the lab's, by its gateway for JSON.
type etcd struct {
	client     *http.Client
	serializer *protobuf.Serializer
}

func newEtcd(l *lab.Lab) *etcd {
	dial := func(ctx context.Context, protocol, address string) (net.Conn, error) {
		return l.Dial(ctx, "", protocol, address)
	}
	return &etcd{
		client:     &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 8}},
		serializer: protobuf.NewSerializer(scheme.Scheme, scheme.Scheme),
	}
}

// put writes objects in one transaction.
func (e *etcd) put(ctx context.Context, objects []stored) error {
	type request struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	var operations []map[string]request
	for _, o := range objects {
		var value bytes.Buffer
		if err := e.serializer.Encode(o.object, &value); err != nil {
			return fmt.Errorf("encoding %s: %w", o.key, err)
		}
		operations = append(operations, map[string]request{"requestPut": {[]byte("/registry/" + o.key), value.Bytes()}})
	}
	body, err := json.Marshal(map[string]any{"success": operations})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:2379/v3/kv/txn", bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := e.client.Do(r)
	if err != nil {
		return fmt.Errorf("writing %s into etcd: %w", objects[0].key, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("writing %s into etcd: %s", objects[0].key, answer.Status)
	}
	return nil
}

// caughtUp waits until the API server's own cache has everything that was written into etcd.
func caughtUp(ctx context.Context, l *lab.Lab) error {
	pods := l.Client().CoreV1().Pods("")
	now, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	return poll(ctx, func() error {
		_, err := pods.List(ctx, metav1.ListOptions{Limit: 1, ResourceVersion: now.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		return err
	})
}
