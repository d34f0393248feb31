package chart

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	mapping = `[{"podPort":8080,"nodeIP":"172.30.0.11","nodePort":61999,"protocol":"tcp","ipFamily":"IPv4"}]`
	publish = `{"metadata":{"annotations":{"nodeportlocal.antrea.io":"[]"}}}`
)

// refusedBy checks that err is the refusal by a policy of the chart, of this reason.
func refusedBy(err error, policy, reason string) error {
	if err == nil {
		return errors.New("it was allowed")
	}
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'nplbridge-"+policy+"'") || !strings.Contains(err.Error(), reason) {
		return fmt.Errorf("want a refusal by nplbridge-%s that says %q, got: %w", policy, reason, err)
	}
	return nil
}

// patch tries a merge patch on a Pod, or a part of it ("status"), and returns what the Pod would be.
func patch(t *testing.T, client kubernetes.Interface, pod *corev1.Pod, body string, part ...string) (*corev1.Pod, error) {
	t.Helper()
	return client.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(body),
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, part...)
}

// The control plane checks the types of all expressions; a misspelt field is a warning in the policy's status.
func TestPoliciesTypeCheck(t *testing.T) {
	policies := theLab.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies()
	for _, name := range []string{"nplbridge-agent", "nplbridge-writers", "nplbridge-lbsync", "nplbridge-services", "nplbridge-configmaps"} {
		var found *admissionv1.ValidatingAdmissionPolicy
		eventually(t, func() (err error) {
			if found, err = policies.Get(t.Context(), name, metav1.GetOptions{}); err == nil && found.Status.ObservedGeneration != found.Generation {
				err = fmt.Errorf("the types of %s are not checked yet", name)
			}
			return err
		})
		if found.Status.TypeChecking == nil {
			t.Errorf("%s: no result of the type check", name)
			continue
		}
		for _, w := range found.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("%s, %s: %s", name, w.FieldRef, w.Warning)
		}
	}
}

func TestAgentMayPublishAndNothingElse(t *testing.T) {
	const ns = "agent-policy"
	namespace(t, ns, nil)
	on := func(node string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.NodeName = node
			p.Finalizers = []string{"example.org/keep"}
		}
	}
	own, other := create(t, echoPod(ns, "own", on("node-1"))), create(t, echoPod(ns, "other", on("node-2")))
	waiting := create(t, echoPod(ns, "waiting", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.org/wait"}} }))
	on1 := agentPod(t, "node-1")
	agent, noNode := as(t, agentAccount, &on1), as(t, agentAccount, nil)

	t.Run("its own annotation", func(t *testing.T) {
		for _, body := range []string{
			publish,
			fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{"nodeportlocal.antrea.io":%q}}}`, own.UID, mapping),
			`{"metadata":{"annotations":{"nodeportlocal.antrea.io":null}}}`,
		} {
			if _, err := patch(t, agent, own, body, "status"); err != nil {
				t.Errorf("%s: %v", body, err)
			}
		}
	})

	mayWritePods(t, agentAccount)
	for _, test := range []struct {
		name   string
		client kubernetes.Interface
		pod    *corev1.Pod
		body   string
		reason string
		parts  []string // "" is the Pod itself
	}{
		{"a Pod of another Node", agent, other, publish, "npl-agent of Node node-1 may change only Pods of that Node, this one is of Node node-2", []string{"", "status"}},
		{"a Pod of no Node", agent, waiting, publish, "this one is of Node (none)", []string{"", "status"}},
		{"a token without a Node", noNode, own, publish, "the token of npl-agent names no Node", []string{"", "status"}},
		{"a token without a Node, nothing changed", noNode, own, `{}`, "the token of npl-agent names no Node", []string{"status"}},
		{"another annotation", agent, own, `{"metadata":{"annotations":{"example.org/b":"1"}}}`, "no annotation but", []string{"", "status"}},
		{"another annotation changed", agent, own, `{"metadata":{"annotations":{"example.org/a":"2"}}}`, "no annotation but", []string{"", "status"}},
		{"another annotation removed", agent, own, `{"metadata":{"annotations":{"example.org/a":null}}}`, "no annotation but", []string{"", "status"}},
		{"another annotation along with its own", agent, own, `{"metadata":{"annotations":{"nodeportlocal.antrea.io":"[]","example.org/b":"1"}}}`, "no annotation but", []string{"", "status"}},
		{"a label", agent, own, `{"metadata":{"labels":{"b":"1"}}}`, "metadata.labels", []string{"", "status"}},
		{"a label changed", agent, own, `{"metadata":{"labels":{"app":"web"}}}`, "metadata.labels", []string{"", "status"}},
		{"all labels removed", agent, own, `{"metadata":{"labels":null}}`, "metadata.labels", []string{"", "status"}},
		{"a finalizer", agent, own, `{"metadata":{"finalizers":["example.org/keep","example.org/more"]}}`, "metadata.finalizers", []string{"", "status"}},
		{"all finalizers removed", agent, own, `{"metadata":{"finalizers":null}}`, "metadata.finalizers", []string{"", "status"}},
		{"owners", agent, own, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":"1"}]}}`, "metadata.ownerReferences", []string{""}},
		{"a condition", agent, own, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "status of a Pod", []string{"status"}},
		{"the phase", agent, own, `{"status":{"phase":"Failed"}}`, "status of a Pod", []string{"status"}},
		{"its address", agent, own, `{"status":{"podIP":"192.0.2.1","podIPs":[{"ip":"192.0.2.1"}]}}`, "status of a Pod", []string{"status"}},
		{"its deadline", agent, own, `{"spec":{"activeDeadlineSeconds":60}}`, "spec of a Pod", []string{""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, part := range test.parts {
				_, err := patch(t, test.client, test.pod, test.body, slices.DeleteFunc([]string{part}, func(s string) bool { return s == "" })...)
				if err := refusedBy(err, "agent", test.reason); err != nil {
					t.Errorf("pods %s: %v", part, err)
				}
			}
		})
	}

	// The API server itself drops these without a word.
	t.Run("owners through the status", func(t *testing.T) {
		got, err := patch(t, agent, own, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"c","uid":"1"}]}}`, "status")
		if err == nil && len(got.OwnerReferences) > 0 {
			t.Errorf("the Pod has the owners %v", got.OwnerReferences)
		}
	})
	t.Run("an ephemeral container", func(t *testing.T) {
		pod := own.DeepCopy()
		pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Image: "example.org/e"}}}
		_, err := agent.CoreV1().Pods(ns).UpdateEphemeralContainers(t.Context(), pod.Name, pod, metav1.UpdateOptions{})
		if err := refusedBy(err, "agent", "spec of a Pod"); err != nil {
			t.Error(err)
		}
	})
}

// Whoever may create or change Pods, cluster-admin included, cannot set the annotation.
func TestNobodyForgesTheAnnotation(t *testing.T) {
	const ns = "forged"
	namespace(t, ns, nil)
	const reason = "only system:serviceaccount:nplbridge-system:nplbridge-agent may set it. Leave it out of the manifest"
	forged := func(p *corev1.Pod) { p.Annotations["nodeportlocal.antrea.io"] = mapping }
	running := create(t, echoPod(ns, "running", func(p *corev1.Pod) { p.Spec.NodeName = "node-1" }))
	gated := create(t, echoPod(ns, "gated", func(p *corev1.Pod) {
		p.Spec.SchedulerName = "nobody"
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}}
	}))
	on1 := agentPod(t, "node-1")

	for name, client := range map[string]kubernetes.Interface{
		"cluster-admin": theLab.Client(),
		"the kubelet":   impersonating(t, "system:node:node-1", "system:nodes", "system:authenticated"),
		"a controller":  impersonating(t, "system:serviceaccount:kube-system:replicaset-controller", "system:masters"),
		"a namesake":    impersonating(t, "system:serviceaccount:"+ns+":nplbridge-agent", "system:masters"),
	} {
		t.Run(name, func(t *testing.T) {
			for _, value := range []string{mapping, ""} {
				_, err := patch(t, client, running, fmt.Sprintf(`{"metadata":{"annotations":{"nodeportlocal.antrea.io":%q}}}`, value), "status")
				if err := refusedBy(err, "writers", reason); err != nil {
					t.Errorf("%q: %v", value, err)
				}
			}
		})
	}

	admin := theLab.Client().CoreV1().Pods(ns)
	check := func(name string, do func() error) {
		t.Run(name, func(t *testing.T) {
			if err := refusedBy(do(), "writers", reason); err != nil {
				t.Error(err)
			}
		})
	}
	check("created with it", func() error {
		_, err := admin.Create(t.Context(), echoPod(ns, "new", forged), dryRun)
		return err
	})
	check("updated", func() error {
		_, err := patch(t, theLab.Client(), running, publish)
		return err
	})
	check("applied on the server", func() error {
		_, err := admin.Patch(t.Context(), "new", types.ApplyPatchType, fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"new","annotations":{"nodeportlocal.antrea.io":%q}},"spec":{"containers":[{"name":"e","image":"example.org/e"}]}}`, mapping),
			metav1.PatchOptions{FieldManager: "test", DryRun: []string{metav1.DryRunAll}})
		return err
	})
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: gated.Name, Annotations: map[string]string{"nodeportlocal.antrea.io": mapping}}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"}}
	check("bound to a Node with it", func() error { return admin.Bind(t.Context(), binding, metav1.CreateOptions{}) })
	check("bound to a Node with it, the old way", func() error {
		return theLab.Client().CoreV1().RESTClient().Post().Namespace(ns).Resource("bindings").Body(binding).Do(t.Context()).Error()
	})
	check("a static Pod's mirror", func() error {
		kubelet := impersonating(t, "system:node:node-1", "system:nodes", "system:authenticated")
		_, err := kubelet.CoreV1().Pods(ns).Create(t.Context(), mirror(t, ns, forged), dryRun)
		return err
	})
	t.Run("a static Pod's mirror without it", func(t *testing.T) {
		kubelet := impersonating(t, "system:node:node-1", "system:nodes", "system:authenticated")
		if _, err := kubelet.CoreV1().Pods(ns).Create(t.Context(), mirror(t, ns, func(*corev1.Pod) {}), dryRun); err != nil {
			t.Error(err)
		}
	})
	// This writes a part of the spec only; were metadata ever let through, the policy would see it.
	t.Run("through ephemeralcontainers", func(t *testing.T) {
		pod := running.DeepCopy()
		forged(pod)
		got, err := admin.UpdateEphemeralContainers(t.Context(), pod.Name, pod, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && got.Annotations["nodeportlocal.antrea.io"] != "" {
			t.Error("the Pod got the annotation")
		} else if err != nil && refusedBy(err, "writers", reason) != nil {
			t.Error(err)
		}
	})
	t.Run("the agent itself may", func(t *testing.T) {
		if _, err := patch(t, as(t, agentAccount, &on1), running, publish, "status"); err != nil {
			t.Error(err)
		}
	})
}

// mirror is what a kubelet creates for a Pod from a file on its Node.
func mirror(t *testing.T, namespace string, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	node, err := theLab.Client().CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	return echoPod(namespace, "static-node-1", func(p *corev1.Pod) {
		p.Spec.NodeName = "node-1"
		p.Annotations[corev1.MirrorPodAnnotationKey] = "hash"
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &yes}}
		p.Spec.AutomountServiceAccountToken = new(bool)
		change(p)
	})
}

func TestLBSyncMayWriteItsConditionAndNothingElse(t *testing.T) {
	const ns = "lbsync-policy"
	namespace(t, ns, nil)
	pod := create(t, echoPod(ns, "web", func(p *corev1.Pod) { p.Finalizers = []string{"example.org/keep"} }))
	lbsync := as(t, lbsyncAccount, nil)
	if _, err := patch(t, lbsync, pod, `{}`); !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		t.Errorf("its rights let it write Pods beside their status: %v", err)
	}
	if _, err := patch(t, lbsync, pod, `{}`, "status"); err != nil {
		t.Errorf("its own right: %v", err)
	}
	mayWritePods(t, lbsyncAccount)
	strategic := func(body string, part ...string) error {
		_, err := lbsync.CoreV1().Pods(ns).Patch(t.Context(), pod.Name, types.StrategicMergePatchType, []byte(body),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, part...)
		return err
	}
	for _, status := range []string{"True", "False"} {
		if err := strategic(`{"status":{"conditions":[{"type":"nplbridge.io/in-pool","status":"`+status+`","reason":"Confirmed"}]}}`, "status"); err != nil {
			t.Errorf("its own condition: %v", err)
		}
	}
	for name, test := range map[string]struct{ body, reason, part string }{
		"another condition":            {`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"me"}]}}`, "no condition of a Pod but nplbridge.io/in-pool", "status"},
		"another condition beside its": {`{"status":{"conditions":[{"type":"nplbridge.io/in-pool","status":"True"},{"type":"example.org/a","status":"True"}]}}`, "no condition", "status"},
		"a condition removed":          {`{"status":{"conditions":[{"type":"Ready","$patch":"delete"}]}}`, "no condition", "status"},
		"the phase":                    {`{"status":{"phase":"Succeeded"}}`, "status.phase", "status"},
		"its address":                  {`{"status":{"podIP":"192.0.2.1","podIPs":[{"ip":"192.0.2.1"},{"$patch":"replace"}]}}`, "status.podIP", "status"},
		"the message":                  {`{"status":{"message":"m"}}`, "status.message", "status"},
		"an annotation":                {`{"metadata":{"annotations":{"example.org/a":"2"}}}`, "metadata.annotations", "status"},
		"a label":                      {`{"metadata":{"labels":{"app":"x"}}}`, "metadata.labels", ""},
		"finalizers":                   {`{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.org/keep"]}}`, "metadata.finalizers", "status"},
		"the image":                    {`{"spec":{"containers":[{"name":"echo","image":"example.org/other"}]}}`, "spec of a Pod", ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := strategic(test.body, slices.DeleteFunc([]string{test.part}, func(s string) bool { return s == "" })...)
			if err := refusedBy(err, "lbsync", test.reason); err != nil {
				t.Error(err)
			}
		})
	}
}

// The policy of lbsync names every field of a Pod's status but the conditions, since CEL cannot leave one out. A field that a
// new Kubernetes version adds must be added there.
func TestLBSyncPolicyKnowsTheWholeStatus(t *testing.T) {
	policy := only(t, render(t), func(p *admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == "nplbridge-lbsync" })
	named := []string{"conditions"}
	for _, v := range policy.Spec.Validations {
		if m := regexp.MustCompile(`^variables\.status\.\?(\w+) == variables\.oldStatus\.\?(\w+)$`).FindStringSubmatch(v.Expression); m != nil && m[1] == m[2] {
			named = append(named, m[1])
		}
	}
	var fields []string
	for f := range reflect.TypeFor[corev1.PodStatus]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, name)
	}
	if diff := cmp.Diff(fields, named, cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Errorf("-PodStatus +policy:\n%s", diff)
	}
}
