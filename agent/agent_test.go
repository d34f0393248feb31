package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/loop/kerneltest"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// cluster is an API server in memory that minds what client-go's does not: resourceVersions, and the UID a patch names.
type cluster struct {
	*fake.Clientset
	t       *testing.T
	version atomic.Int64
	patches atomic.Int64
	// forbid makes patches of this Pod fail.
	forbid string
	// before, if set, is called before each patch.
	before func(pod string)
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{Clientset: fake.NewClientset(), t: t}
	c.version.Store(100)
	stamp := func(a k8stesting.Action) (bool, runtime.Object, error) {
		var obj runtime.Object
		switch a := a.(type) {
		case k8stesting.CreateActionImpl:
			obj = a.Object
		case k8stesting.UpdateActionImpl:
			obj = a.Object
		}
		if m, err := meta.Accessor(obj); err == nil {
			m.SetResourceVersion(strconv.FormatInt(c.version.Add(1), 10))
		}
		return false, nil, nil
	}
	c.PrependReactor("create", "*", stamp)
	c.PrependReactor("update", "*", stamp)
	c.PrependReactor("patch", "pods", c.patch)
	return c
}

func (c *cluster) patch(action k8stesting.Action) (bool, runtime.Object, error) {
	a := action.(k8stesting.PatchActionImpl)
	c.patches.Add(1)
	if c.before != nil {
		c.before(a.Name)
	}
	if a.PatchType != types.MergePatchType || a.Subresource != "status" {
		c.t.Errorf("patch of type %s on subresource %q", a.PatchType, a.Subresource)
	}
	if a.Name == c.forbid {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, a.Name, fmt.Errorf("not allowed"))
	}
	obj, err := c.Tracker().Get(a.GetResource(), a.Namespace, a.Name)
	if err != nil {
		return true, nil, err
	}
	pod := obj.(*corev1.Pod).DeepCopy()
	var body struct {
		Metadata struct {
			UID         types.UID
			Annotations map[string]*string
		}
	}
	if err := json.Unmarshal(a.Patch, &body); err != nil {
		return true, nil, err
	}
	if body.Metadata.UID != pod.UID {
		path := field.NewPath("metadata", "uid")
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, a.Name, field.ErrorList{field.Invalid(path, body.Metadata.UID, "field is immutable")})
	}
	for k, v := range body.Metadata.Annotations {
		if v == nil {
			delete(pod.Annotations, k)
			continue
		}
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, *v)
	}
	pod.ResourceVersion = strconv.FormatInt(c.version.Add(1), 10)
	return true, pod, c.Tracker().Update(a.GetResource(), pod, a.Namespace)
}

func (c *cluster) addNode(name, address string) {
	c.must(c.CoreV1().Nodes().Create(c.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}},
	}, metav1.CreateOptions{}))
}

func (c *cluster) addPod(node, name, uid, ip string) {
	c.must(c.CoreV1().Pods("default").Create(c.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(uid), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}},
	}, metav1.CreateOptions{}))
}

func (c *cluster) addService(name string, port int32) {
	c.must(c.CoreV1().Services("default").Create(c.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{npl.EnabledAnnotation: "true"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": "web"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(port)}},
		},
	}, metav1.CreateOptions{}))
}

func (c *cluster) must(_ any, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) annotation(pod string) string {
	p, err := c.CoreV1().Pods("default").Get(context.Background(), pod, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return p.Annotations[npl.Annotation]
}

// agentOn runs an agent until stop is called or the test ends.
func (c *cluster) agentOn(k *kerneltest.Kernel, cfg Config) (a *Agent, reg *prometheus.Registry, stop func()) {
	c.t.Helper()
	reg = prometheus.NewRegistry()
	a, err := newAgent(cfg, c, zaptest.NewLogger(c.t), reg, func(dataplane.Config) (kernel, error) { return k, nil })
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			c.t.Errorf("Run: %v", err)
		}
	}
	c.t.Cleanup(stop)
	return a, reg, stop
}

func newKernel() *kerneltest.Kernel { return kerneltest.New(clock.RealClock{}) }

func config() Config {
	cfg := DefaultConfig()
	cfg.NodeName = "node-1"
	return cfg
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func ready(a *Agent) bool {
	for _, c := range a.Checks() {
		if c.Check() != nil {
			return false
		}
	}
	return true
}

func start(t *testing.T) *cluster {
	c := newCluster(t)
	c.must(c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "cluster-uid"}}, metav1.CreateOptions{}))
	c.addNode("node-1", "192.0.2.1")
	return c
}

func TestAgentServesItsNodeOnly(t *testing.T) {
	c, k := start(t), newKernel()
	c.addPod("node-1", "here", "u1", "10.0.0.1")
	c.addPod("node-2", "there", "u2", "10.0.1.1")
	c.addService("web", 8080)
	a, reg, _ := c.agentOn(k, config())
	eventually(t, "annotation", func() bool { return c.annotation("here") != "" })
	ms, err := npl.Decode(c.annotation("here"))
	if err != nil || len(ms) != 1 || ms[0].PodPort != 8080 || ms[0].NodeIP.String() != "192.0.2.1" {
		t.Errorf("annotation %s: %v", c.annotation("here"), err)
	}
	if got := c.annotation("there"); got != "" {
		t.Errorf("the Pod of another Node is annotated: %s", got)
	}
	eventually(t, "ready", func() bool { return ready(a) })
	if n, err := testutil.GatherAndCount(reg, "npl_agent_ports_in_use"); n != 6 || err != nil {
		t.Errorf("%d series of npl_agent_ports_in_use, %v", n, err)
	}
	if problems, err := testutil.GatherAndLint(reg); len(problems) > 0 || err != nil {
		t.Errorf("%v %v", problems, err)
	}
	b, err := json.Marshal(a.Status())
	if err != nil || !strings.Contains(string(b), `"target":"10.0.0.1:8080"`) {
		t.Errorf("status %s, %v", b, err)
	}
}

func TestRestartPatchesNothing(t *testing.T) {
	c, k := start(t), newKernel()
	c.addService("web", 8080)
	for i := range 20 {
		c.addPod("node-1", fmt.Sprintf("p%d", i), fmt.Sprintf("u%d", i), fmt.Sprintf("10.0.0.%d", i+1))
	}
	_, _, stop := c.agentOn(k, config())
	eventually(t, "20 patches", func() bool { return c.patches.Load() == 20 })
	eventually(t, "all annotated", func() bool { return c.annotation("p19") != "" && c.annotation("p0") != "" })
	stop()
	if got := len(k.Sockets()); got != 0 {
		t.Errorf("%d sockets outlive the agent", got)
	}
	writes := k.Writes()
	a, _, stop := c.agentOn(k, config())
	eventually(t, "ready", func() bool { return ready(a) })
	// A Pod that comes now is served by a later pass than the one that adopted the others.
	c.addPod("node-1", "late", "u-late", "10.0.0.99")
	eventually(t, "late Pod", func() bool { return c.annotation("late") != "" })
	stop()
	if p, w := c.patches.Load()-20, k.Writes()-writes; p != 1 || w != 1 {
		t.Errorf("%d patches and %d kernel writes after the restart, want 1 of each, for the late Pod", p, w)
	}
}

func TestReplacedPodIsNotTouched(t *testing.T) {
	c, k := start(t), newKernel()
	c.addService("web", 8080)
	_, _, _ = c.agentOn(k, config())
	c.addPod("node-1", "p", "old", "10.0.0.1")
	eventually(t, "annotation", func() bool { return c.annotation("p") != "" })
	was := c.annotation("p")
	if err := c.CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.addPod("node-1", "p", "new", "10.0.0.2")
	eventually(t, "new annotation", func() bool { return c.annotation("p") != "" })
	if got := c.annotation("p"); got == was {
		t.Errorf("the new Pod of the same name has the port of the old one: %s", got)
	}
}

func TestOnePodThatCannotBePatchedDelaysNoOther(t *testing.T) {
	c, k := start(t), newKernel()
	c.forbid = "a"
	c.addService("web", 8080)
	c.addPod("node-1", "a", "ua", "10.0.0.1")
	c.addPod("node-1", "b", "ub", "10.0.0.2")
	a, reg, _ := c.agentOn(k, config())
	eventually(t, "b is annotated", func() bool { return c.annotation("b") != "" })
	eventually(t, "refusal", func() bool {
		doc := a.Status().(StatusDocument)
		return len(doc.Refusals) == 1 && doc.Refusals[0].Reason == "PublishFailed" && doc.Refusals[0].Pod == "default/a"
	})
	eventually(t, "Event", func() bool {
		events, err := c.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(events.Items) > 0 && events.Items[0].Reason == "PublishFailed" && events.Items[0].Regarding.UID == "ua"
	})
	if got := gauge(t, reg, "npl_agent_refusals", "PublishFailed"); got != 1 {
		t.Errorf("npl_agent_refusals %v, want 1", got)
	}
}

// gauge returns the value of the series whose only label has this value.
func gauge(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == label {
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no %s with label %s", name, label)
	return 0
}

func TestFlushIsRepairedAtOnce(t *testing.T) {
	c, k := start(t), newKernel()
	c.addService("web", 8080)
	c.addPod("node-1", "p", "u", "10.0.0.1")
	cfg := config()
	cfg.RepairInterval = time.Hour
	a, _, _ := c.agentOn(k, cfg)
	eventually(t, "annotation", func() bool { return c.annotation("p") != "" && ready(a) })
	k.Flush()
	eventually(t, "rule is back", func() bool { return len(k.Rules()) == 1 })
}

func TestCleanupTakesEverythingOff(t *testing.T) {
	c, k := start(t), newKernel()
	c.addService("web", 8080)
	c.addPod("node-1", "p", "u", "10.0.0.1")
	_, _, stop := c.agentOn(k, config())
	eventually(t, "annotation", func() bool { return c.annotation("p") != "" })
	stop()
	c.addPod("node-2", "other", "u2", "10.0.1.1")
	c.must(c.CoreV1().Pods("default").Patch(t.Context(), "other", types.MergePatchType, []byte(`{"metadata":{"uid":"u2","annotations":{"`+npl.Annotation+`":"[]"}}}`), metav1.PatchOptions{}, "status"))
	k.Before = func(op string) error {
		if op == "cleanup" && c.annotation("p") != "" {
			t.Error("the tables go before the annotation")
		}
		return nil
	}
	cfg := config()
	cfg.WithdrawGrace = 0
	if err := cleanup(t.Context(), cfg, c, zaptest.NewLogger(t), func(dataplane.Config) (kernel, error) { return k, nil }, nothing); err != nil {
		t.Fatal(err)
	}
	if s, _ := k.Load(); !s.Fresh || c.annotation("p") != "" {
		t.Errorf("left: fresh %v, annotation %q", s.Fresh, c.annotation("p"))
	}
	if c.annotation("other") == "" {
		t.Error("the Pod of another Node lost its annotation")
	}
}

func TestCleanupFailsIfAnAgentPutsAnnotationsBack(t *testing.T) {
	c, k := start(t), newKernel()
	c.addService("web", 8080)
	c.addPod("node-1", "p", "u", "10.0.0.1")
	_, _, stop := c.agentOn(k, config())
	eventually(t, "annotation", func() bool { return c.annotation("p") != "" })
	stop()
	before := c.annotation("p")
	lists := 0
	c.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		if lists++; lists == 1 {
			return false, nil, nil
		}
		return true, &corev1.PodList{Items: []corev1.Pod{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u", Annotations: map[string]string{npl.Annotation: before}},
			Spec:       corev1.PodSpec{NodeName: "node-1"},
		}}}, nil
	})
	cfg := config()
	cfg.WithdrawGrace = 0
	err := cleanup(t.Context(), cfg, c, zaptest.NewLogger(t), func(dataplane.Config) (kernel, error) { return k, nil }, nothing)
	if err == nil || !strings.Contains(err.Error(), "Pod default/p") || !strings.Contains(err.Error(), "stop npl-agent") || len(k.Rules()) != 1 {
		t.Errorf("error %v, rules %v", err, k.Rules())
	}
}

// Nobody waited for the agent to put the annotation back, so it did so when the tables were gone already.
func TestCleanupBesideAnAgentThatIsSlower(t *testing.T) {
	c, k := start(t), newKernel()
	c.addPod("node-1", "p", "u", "10.0.0.1")
	k.Before = func(op string) error {
		if op == "cleanup" {
			c.must(c.CoreV1().Pods("default").Patch(t.Context(), "p", types.MergePatchType, []byte(`{"metadata":{"uid":"u","annotations":{"`+npl.Annotation+`":"[]"}}}`), metav1.PatchOptions{}, "status"))
		}
		return nil
	}
	err := cleanup(t.Context(), config(), c, zaptest.NewLogger(t), func(dataplane.Config) (kernel, error) { return k, nil }, nothing)
	if err == nil || !strings.Contains(err.Error(), "Pod default/p") || !strings.Contains(err.Error(), "stop npl-agent") {
		t.Errorf("error %v", err)
	}
}

func TestCleanupKeepsTheTablesWhenAnAnnotationStays(t *testing.T) {
	c, k := start(t), newKernel()
	c.addService("web", 8080)
	c.addPod("node-1", "p", "u", "10.0.0.1")
	_, _, stop := c.agentOn(k, config())
	eventually(t, "annotation", func() bool { return c.annotation("p") != "" })
	stop()
	c.forbid = "p"
	err := cleanup(t.Context(), config(), c, zaptest.NewLogger(t), func(dataplane.Config) (kernel, error) { return k, nil }, nothing)
	if err == nil || !strings.Contains(err.Error(), "Pod default/p") || len(k.Rules()) != 1 {
		t.Errorf("error %v, rules %v", err, k.Rules())
	}
}
