package manifests

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// What the tests render with, and what.
var helm, root, chart string

func TestMain(m *testing.M) {
	ctx := context.Background()
	var err error
	if root, err = Root(ctx); err == nil {
		chart = filepath.Join(root, "charts/nplbridge")
		helm, err = Tool(ctx, root, "helm", "helm")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// template returns what helm renders, or its complaint.
func template(t *testing.T, set ...string) (string, error) {
	t.Helper()
	out, err := run(exec.CommandContext(t.Context(), helm, Arguments(chart, set...)...))
	if err != nil {
		return err.Error(), err
	}
	return out, nil
}

// render returns the manifests as objects; a field that their types do not have is an error.
func render(t *testing.T, set ...string) []runtime.Object {
	t.Helper()
	out, err := template(t, set...)
	if err != nil {
		t.Fatalf("helm template %q: %v", set, err)
	}
	objects, err := Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// object is what all objects of a type have.
type object interface {
	runtime.Object
	metav1.Object
}

// find returns the object of type T with this name, or nothing.
func find[T object](objects []runtime.Object, name string) (found T, has bool) {
	for _, o := range objects {
		if typed, ok := o.(T); ok && typed.GetName() == name {
			return typed, true
		}
	}
	return found, false
}

// named returns the object of type T with this name.
func named[T object](t *testing.T, objects []runtime.Object, name string) T {
	t.Helper()
	found, has := find[T](objects, name)
	if !has {
		t.Fatalf("no %T %s", found, name)
	}
	return found
}

func agentOf(t *testing.T, set ...string) *appsv1.DaemonSet {
	t.Helper()
	return named[*appsv1.DaemonSet](t, render(t, set...), "nplbridge-agent")
}

// embeddedOf returns HAProxy's DaemonSet.
func embeddedOf(t *testing.T, set ...string) *appsv1.DaemonSet {
	t.Helper()
	return named[*appsv1.DaemonSet](t, render(t, set...), "nplbridge-haproxy")
}

// aloneOf returns the Deployment of lbsync.
func aloneOf(t *testing.T, set ...string) *appsv1.Deployment {
	t.Helper()
	return named[*appsv1.Deployment](t, render(t, set...), "nplbridge-lbsync")
}

func settingsOf(t *testing.T, configMap string, set ...string) map[string]any {
	t.Helper()
	object := named[*corev1.ConfigMap](t, render(t, set...), configMap)
	out := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(object.Data["settings.yaml"]), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
