package chart

import (
	"context"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nplbridge/nplbridge/e2e/view"
)

const (
	systemNamespace = "nplbridge-system"
	agentAccount    = "nplbridge-agent"
	lbsyncAccount   = "nplbridge-lbsync"

	// userAgent tells these tests' requests from those of the programs whose accounts they borrow.
	userAgent = "chart-test"
)

// agentPod returns the Pod of the chart's DaemonSet on a Node.
func agentPod(t *testing.T, node string) corev1.Pod {
	t.Helper()
	list, err := theLab.Client().CoreV1().Pods(systemNamespace).List(t.Context(), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=agent", FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("the agent's Pod on %s: %d Pods, %v", node, len(list.Items), err)
	}
	return list.Items[0]
}

// as returns a client with a token of a ServiceAccount of the chart: bound to a Pod, as the kubelet requests it, or to nothing.
func as(t *testing.T, account string, bound *corev1.Pod) kubernetes.Interface {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	if bound != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: bound.Name, UID: bound.UID}
	}
	answer, err := theLab.Client().CoreV1().ServiceAccounts(systemNamespace).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("token of %s: %v", account, err)
	}
	config := rest.AnonymousClientConfig(theLab.RESTConfig())
	config.BearerToken, config.UserAgent = answer.Status.Token, userAgent
	return clientOf(t, config)
}

// impersonating returns a client that acts as another user.
func impersonating(t *testing.T, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	config := theLab.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	config.UserAgent = userAgent
	return clientOf(t, config)
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// mayWritePods gives an account of the chart every right on Pods for the time of a test, so that what is refused is refused
// by a policy.
func mayWritePods(t *testing.T, account string) {
	t.Helper()
	grant(t, systemNamespace, account, rule("", "pods pods/status pods/ephemeralcontainers", "*"))
	borrowed := as(t, account, nil)
	eventually(t, func() error {
		_, err := borrowed.CoreV1().Pods("default").Create(t.Context(), echoPod("default", "rights", nil), dryRun)
		return err
	})
}

// grant gives an account a right in the whole cluster for the time of a test.
func grant(t *testing.T, namespace, account string, right rbacv1.PolicyRule) {
	t.Helper()
	rbac := theLab.Client().RbacV1()
	meta := metav1.ObjectMeta{Name: "chart-test-" + namespace + "-" + account}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{right}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
	}
	if _, err := rbac.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = rbac.ClusterRoleBindings().Delete(ctx, meta.Name, metav1.DeleteOptions{})
		_ = rbac.ClusterRoles().Delete(ctx, meta.Name, metav1.DeleteOptions{})
	})
	if _, err := rbac.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// dryRun goes through everything that a real request does, and stores nothing.
var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	if err := view.Poll(t.Context(), check); err != nil {
		t.Fatal(err)
	}
}

// namespace makes one that goes away with the test.
func namespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	namespaces := theLab.Client().CoreV1().Namespaces()
	if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespaces.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
	eventually(t, func() error { // its ServiceAccount comes a moment later, and Pods need it
		_, err := theLab.Client().CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
}

// echoPod is a Pod with a label, an annotation, a finalizer and an owner to tamper with.
func echoPod(namespace, name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}, Annotations: map[string]string{"example.org/a": "1"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "echo", Image: "ghcr.io/nplbridge/echo:lab", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

// create stores a Pod and waits until it runs, unless it is to be on no Node.
func create(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	pods := theLab.Client().CoreV1().Pods(pod.Namespace)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, now := context.WithoutCancel(t.Context()), int64(0)
		_, _ = theLab.Kubectl(ctx, "-n", pod.Namespace, "patch", "pod", pod.Name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	})
	var found *corev1.Pod
	eventually(t, func() (err error) {
		found, err = pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err == nil && len(pod.Spec.SchedulingGates) == 0 && found.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("the Pod %s is %s", pod.Name, found.Status.Phase)
		}
		return err
	})
	return found
}
