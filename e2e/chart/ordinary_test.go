package chart

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/lab"
)

// deployment is one of the echo server.
func deployment(namespace, name string, replicas int32, annotations map[string]string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	pod := echoPod(namespace, name, func(p *corev1.Pod) { p.Annotations = annotations })
	pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}, Spec: pod.Spec},
		},
	}
}

// enabled is a Service that asks for node ports.
func enabled(namespace, name string, targetPort intstr.IntOrString) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{npl.EnabledAnnotation: "true"}},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: targetPort}}},
	}
}

// published returns so many running Pods of the Deployment, each with its annotation.
func published(t *testing.T, namespace, name string, want int) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	eventually(t, func() error {
		list, err := theLab.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		pods = nil
		for _, p := range list.Items {
			if ms, err := npl.Decode(p.Annotations[npl.Annotation]); p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning && err == nil && len(ms) > 0 {
				pods = append(pods, p)
			}
		}
		if len(pods) != want {
			return fmt.Errorf("%d of %d Pods of %s/%s have node ports", len(pods), want, namespace, name)
		}
		return nil
	})
	return pods
}

// Everything that users and Kubernetes do to Pods with node ports goes on as without the policies.
func TestOrdinaryLifeGoesOn(t *testing.T) {
	const ns = "ordinary"
	namespace(t, ns, nil)
	client := theLab.Client()
	if _, err := client.CoreV1().Services(ns).Create(t.Context(), enabled(ns, "web", intstr.FromString("http")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments(ns).Create(t.Context(), deployment(ns, "web", 2, nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubectl := func(t *testing.T, args ...string) {
		t.Helper()
		if _, err := theLab.Kubectl(t.Context(), append([]string{"-n", ns}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	pod := published(t, ns, "web", 2)[0]
	get := func() (*corev1.Pod, error) {
		return client.CoreV1().Pods(ns).Get(t.Context(), pod.Name, metav1.GetOptions{})
	}

	t.Run("other annotations and labels", func(t *testing.T) {
		kubectl(t, "annotate", "pod", pod.Name, "example.org/a=1")
		kubectl(t, "annotate", "pod", pod.Name, "example.org/a-")
		kubectl(t, "label", "pod", pod.Name, "tier=front")
		kubectl(t, "label", "pod", pod.Name, "tier-")
	})
	t.Run("the annotation removed comes back", func(t *testing.T) {
		kubectl(t, "annotate", "pod", pod.Name, npl.Annotation+"-")
		eventually(t, func() error {
			now, err := get()
			if err == nil && now.Annotations[npl.Annotation] != pod.Annotations[npl.Annotation] {
				err = fmt.Errorf("the annotation is %q", now.Annotations[npl.Annotation])
			}
			return err
		})
	})
	t.Run("a copy of the manifest, but for the annotation", func(t *testing.T) {
		now, err := get()
		if err != nil {
			t.Fatal(err)
		}
		exported := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "copy", Annotations: now.Annotations}, Spec: *now.Spec.DeepCopy()}
		_, err = client.CoreV1().Pods(ns).Create(t.Context(), exported, dryRun)
		if err := refusedBy(err, "writers", "a manifest taken from a running Pod has it"); err != nil {
			t.Error(err)
		}
		delete(exported.Annotations, npl.Annotation)
		if _, err := client.CoreV1().Pods(ns).Create(t.Context(), exported, dryRun); err != nil {
			t.Error(err)
		}
	})
	t.Run("the manifest of the running Pod applied again", func(t *testing.T) {
		exported, err := theLab.Kubectl(t.Context(), "-n", ns, "get", "pod", pod.Name, "-o", "yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := theLab.Apply(t.Context(), exported); err != nil {
			t.Error(err)
		}
	})
	t.Run("kubectl debug", func(t *testing.T) {
		kubectl(t, "debug", pod.Name, "--image=ghcr.io/nplbridge/echo:lab", "--container=debugger", "--attach=false", "--profile=general")
		kubectl(t, "debug", pod.Name, "--image=ghcr.io/nplbridge/echo:lab", "--copy-to=debugged", "--container=debugger", "--attach=false", "--profile=general")
		kubectl(t, "delete", "pod", "debugged", "--now")
	})
	t.Run("rollout", func(t *testing.T) {
		kubectl(t, "rollout", "restart", "deployment/web")
		kubectl(t, "rollout", "status", "deployment/web", "--timeout=2m")
		published(t, ns, "web", 2)
	})
	t.Run("eviction", func(t *testing.T) {
		evicted := published(t, ns, "web", 2)[0].Name
		if err := client.CoreV1().Pods(ns).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: evicted}}); err != nil {
			t.Fatal(err)
		}
		kubectl(t, "wait", "--for=delete", "pod/"+evicted, "--timeout=2m")
		published(t, ns, "web", 2)
	})
	t.Run("finalizers", func(t *testing.T) {
		held := published(t, ns, "web", 2)[0].Name
		kubectl(t, "patch", "pod", held, "--type=merge", "-p", `{"metadata":{"finalizers":["example.org/keep"]}}`)
		kubectl(t, "delete", "pod", held, "--wait=false")
		kubectl(t, "patch", "pod", held, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		kubectl(t, "wait", "--for=delete", "pod/"+held, "--timeout=2m")
	})
	t.Run("deletion by force", func(t *testing.T) {
		kubectl(t, "delete", "pod", published(t, ns, "web", 2)[0].Name, "--force", "--grace-period=0")
		published(t, ns, "web", 2)
	})
	kubectl(t, "delete", "deployment", "web", "--cascade=foreground", "--timeout=2m")
	for _, r := range refusals(t, ns) {
		if r.User != "nplbridge-lab-admin" { // who tried the copy
			t.Errorf("refused: %+v", r)
		}
	}
}

// A template with the annotation gives no Pods, and the Deployment says why.
func TestADeploymentWithTheAnnotationSaysWhatIsWrong(t *testing.T) {
	const ns = "forged-template"
	namespace(t, ns, nil)
	forged := deployment(ns, "web", 1, map[string]string{npl.Annotation: mapping})
	if _, err := theLab.Client().AppsV1().Deployments(ns).Create(t.Context(), forged, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		found, err := theLab.Client().AppsV1().Deployments(ns).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range found.Status.Conditions {
			if c.Type == appsv1.DeploymentReplicaFailure && strings.Contains(c.Message, "Leave it out of the manifest") {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", found.Status.Conditions)
	})
	// What TestOrdinaryLifeGoesOn looks for, it would find.
	eventually(t, func() error {
		if len(refusals(t, ns)) == 0 {
			return errors.New("no refusal in the audit log")
		}
		return nil
	})
}

// refusal is a request that an admission policy refused.
type refusal struct{ User, Verb, Resource, Message string }

// refusals reads the API server's audit log for a namespace.
func refusals(t *testing.T, namespace string) []refusal {
	t.Helper()
	var out []refusal
	for _, e := range audited(t) {
		if e.ObjectRef.Namespace == namespace && e.RefusedByPolicy() {
			out = append(out, refusal{e.User.Username, e.Verb, e.Resource(), e.ResponseStatus.Message})
		}
	}
	return out
}

func audited(t *testing.T) []lab.AuditEvent {
	t.Helper()
	events, err := theLab.Audit()
	if err != nil {
		t.Fatal(err)
	}
	return events
}
