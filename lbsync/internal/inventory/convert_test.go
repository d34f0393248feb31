package inventory

import (
	"errors"
	"net/netip"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
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
				"other": "x", annotations.Weight: "7", npl.Annotation: `[{"podPort":8080,"nodeIP":"192.0.2.11","nodePort":61001,"protocol":"tcp"},{}]`,
			},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1",
			Containers: []corev1.Container{
				{Name: "web", Image: "web", Ports: port("http", 8080)},
				{Name: "quiet", Ports: []corev1.ContainerPort{{ContainerPort: 5353, HostPort: 53, Protocol: corev1.ProtocolUDP}}},
			},
			InitContainers: []corev1.Container{
				{Name: "once", Ports: port("once", 3)},
				{Name: "again", Ports: port("again", 4), RestartPolicy: ptr.To(corev1.ContainerRestartPolicyOnFailure)},
				{Name: "sidecar", Ports: port("metrics", 9090), RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)), Message: "x"},
			},
			PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "2001:db8::1"}, {IP: "nonsense"}},
		},
	}
}

// What the model needs of a Pod is in its record, whatever else the Pod has.
func TestPod(t *testing.T) {
	got := Pod(fullPod())
	want := &model.Pod{
		Namespace: "shop", Name: "web-1", UID: "u1", Labels: map[string]string{"app": "web"}, Node: "node-1",
		IPs:   []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")},
		Ready: true, ReadyChanged: now.Add(-time.Hour), Terminating: true, Since: now.Add(-30 * time.Second),
		Ports:     []model.ContainerPort{{Name: "http", Protocol: providers.TCP, Number: 8080}, {Name: "metrics", Protocol: providers.TCP, Number: 9090}},
		HostPorts: []model.HostPort{{Protocol: providers.UDP, Port: 53}},
		Weight:    7,
		Mappings:  []npl.Mapping{{PodPort: 8080, NodeIP: netip.MustParseAddr("192.0.2.11"), NodePort: 61001, Protocol: npl.TCP, Family: npl.IPv4}},
		Malformed: got.Malformed,
	}
	if !reflect.DeepEqual(got, want) || got.Malformed == "" {
		t.Errorf("record\n%+v\nwant\n%+v", got, want)
	}
	for _, weight := range []string{"", "0", "21", "-1", "many", "1.5"} {
		p := fullPod()
		p.Annotations[annotations.Weight] = weight
		if got := Pod(p); got.Weight != 0 || len(got.Problems) != 1 || got.Problems[0].Key != annotations.Weight {
			t.Errorf("weight %q: %d, problems %+v", weight, got.Weight, got.Problems)
		}
	}
}

// What a list is relieved of is nothing that is read.
func TestLighten(t *testing.T) {
	pod, node := fullPod(), apiNode("n1")
	node.ManagedFields, node.Status.Images = pod.ManagedFields, []corev1.ContainerImage{{Names: []string{"x"}}}
	wantPod, wantNode := Pod(pod), Selection{}.Node(node)
	if err := errors.Join(lighten(pod), lighten(node), lighten(apiService("shop", "web", "web"))); err != nil {
		t.Fatal(err)
	}
	if got := Pod(pod); !reflect.DeepEqual(got, wantPod) {
		t.Errorf("Pod\n%+v\nwant\n%+v", got, wantPod)
	}
	if got := (Selection{}).Node(node); !reflect.DeepEqual(got, wantNode) {
		t.Errorf("Node\n%+v\nwant\n%+v", got, wantNode)
	}
	if pod.ManagedFields != nil || pod.Spec.Containers[0].Image != "" || node.ManagedFields != nil || node.Status.Images != nil {
		t.Error("not relieved of what is large")
	}
}

// A Pod with our readiness gate is judged by its other conditions, until the kubelet has taken the gate into Ready.
func TestReadiness(t *testing.T) {
	const other = "example.com/warm"
	at := func(minutes int) metav1.Time { return metav1.NewTime(now.Add(time.Duration(minutes) * time.Minute)) }
	is := func(of corev1.PodConditionType, status corev1.ConditionStatus, minutes int) corev1.PodCondition {
		return corev1.PodCondition{Type: of, Status: status, LastTransitionTime: at(minutes)}
	}
	because := func(c corev1.PodCondition, reason string) corev1.PodCondition {
		c.Reason = reason
		return c
	}
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	const ready, containers, gate = corev1.PodReady, corev1.ContainersReady, corev1.PodConditionType(annotations.Gate)
	for _, test := range []struct {
		name       string
		gates      []corev1.PodConditionType
		conditions []corev1.PodCondition
		ready      bool
		since      int // minutes
		gated      bool
	}{
		{"no gate, ready", nil, []corev1.PodCondition{is(ready, yes, 3), is(containers, no, 4)}, true, 3, false},
		{"no gate, not ready", nil, []corev1.PodCondition{is(ready, no, 3), is(containers, yes, 2)}, false, 3, false},
		{"a gate of others", []corev1.PodConditionType{other}, []corev1.PodCondition{is(ready, no, 3), is(containers, yes, 2), is(other, yes, 2)}, false, 3, false},
		{"waits for us alone", []corev1.PodConditionType{gate}, []corev1.PodCondition{is(ready, no, 1), is(containers, yes, 2)}, true, 2, true},
		{"our gate is False", []corev1.PodConditionType{gate}, []corev1.PodCondition{is(ready, no, 1), is(containers, yes, 2), is(gate, no, 3)}, true, 2, true},
		{"containers are not ready", []corev1.PodConditionType{gate}, []corev1.PodCondition{is(ready, no, 1), is(containers, no, 2)}, false, 2, true},
		{"and another gate is not True", []corev1.PodConditionType{gate, other}, []corev1.PodCondition{is(ready, no, 1), is(containers, yes, 2), is(other, no, 4)}, false, 4, true},
		{"neither is", []corev1.PodConditionType{gate, other}, []corev1.PodCondition{is(containers, no, 2), is(other, no, 4)}, false, 2, true},
		{"and another gate is True", []corev1.PodConditionType{other, gate}, []corev1.PodCondition{is(ready, no, 1), is(containers, yes, 2), is(other, yes, 4)}, true, 4, true},
		{"the kubelet has yet to see it", []corev1.PodConditionType{gate}, []corev1.PodCondition{is(ready, no, 1), is(containers, yes, 2), is(gate, yes, 3)}, true, 2, false},
		{"so it has, by a clock that is ahead", []corev1.PodConditionType{gate},
			[]corev1.PodCondition{because(is(ready, no, 4), reasonGates), is(containers, yes, 2), is(gate, yes, 3)}, true, 2, false},
		{"all is well", []corev1.PodConditionType{gate}, []corev1.PodCondition{is(ready, yes, 4), is(containers, yes, 2), is(gate, yes, 3)}, true, 4, false},
		{"the Node is not ready", []corev1.PodConditionType{gate}, []corev1.PodCondition{is(ready, no, 9), is(containers, yes, 2), is(gate, yes, 3)}, false, 9, false},
		{"the containers are no more", []corev1.PodConditionType{gate}, []corev1.PodCondition{is(ready, no, 9), is(containers, no, 9), is(gate, yes, 3)}, false, 9, false},
	} {
		p := &corev1.Pod{Status: corev1.PodStatus{Conditions: test.conditions}}
		for _, g := range test.gates {
			p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: g})
		}
		got := Pod(p)
		if want := now.Add(time.Duration(test.since) * time.Minute); got.Ready != test.ready || !got.ReadyChanged.Equal(want) || got.Gated != test.gated {
			t.Errorf("%s: ready %t since %s, gated %t; want %t since %s, gated %t", test.name, got.Ready, got.ReadyChanged, got.Gated, test.ready, want, test.gated)
		}
	}
}

func TestNode(t *testing.T) {
	node := func(edit func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "n1", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{}},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}},
				Addresses: []corev1.NodeAddress{
					{Type: corev1.NodeInternalIP, Address: "192.0.2.11"}, {Type: corev1.NodeHostName, Address: "node-1"}, {Type: corev1.NodeHostName, Address: "192.0.2.99"},
					{Type: corev1.NodeExternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::b"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.11"},
				},
			},
		}
		edit(n)
		return n
	}
	addr := netip.MustParseAddr
	want := model.Node{
		Name: "node-1", UID: "n1", Labels: map[string]string{"zone": "a"}, ReadyChanged: now,
		Addresses: []netip.Addr{addr("192.0.2.1"), addr("192.0.2.11"), addr("2001:db8::b")},
		Internal:  []netip.Addr{addr("192.0.2.11"), addr("2001:db8::b")},
	}
	for _, test := range []struct {
		name  string
		edit  func(*corev1.Node)
		apply func(*model.Node)
	}{
		{"as it is", func(*corev1.Node) {}, func(*model.Node) {}},
		{"not ready", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, func(n *model.Node) { n.NotReady = true }},
		{"no condition", func(n *corev1.Node) { n.Status.Conditions = nil }, func(n *model.Node) { n.NotReady, n.ReadyChanged = true, time.Time{} }},
		{"excluded", func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" },
			func(n *model.Node) {
				n.Excluded, n.Labels = true, map[string]string{"zone": "a", corev1.LabelNodeExcludeBalancers: ""}
			}},
		{"drained", func(n *corev1.Node) { n.Annotations[annotations.Drain] = "true" }, func(n *model.Node) { n.Draining = true }},
		{"not drained", func(n *corev1.Node) { n.Annotations[annotations.Drain] = "false" }, func(*model.Node) {}},
	} {
		want := want
		test.apply(&want)
		if got := (Selection{}).Node(node(test.edit)); !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, want %+v", test.name, *got, want)
		}
	}
	wrong := Selection{}.Node(node(func(n *corev1.Node) { n.Annotations[annotations.Drain] = "please" }))
	if wrong.Draining || len(wrong.Problems) != 1 || wrong.Problems[0].Key != annotations.Drain {
		t.Errorf("a word that means nothing: %+v", wrong)
	}
	cordon := node(func(n *corev1.Node) { n.Spec.Unschedulable = true })
	if (Selection{}).Node(cordon).Draining || !(Selection{DrainOnCordon: true}).Node(cordon).Draining {
		t.Error("a cordon drains where that is configured, and only there")
	}
}
