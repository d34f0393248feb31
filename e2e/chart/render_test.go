// Package chart holds the tests of charts/nplbridge installed in a lab: its rights and admission policies are tried on a real API server.
// What can be judged without one is in package manifests.
package chart

import (
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/nplbridge/nplbridge/e2e/chart/manifests"
)

// render returns the manifests as objects; a field that their types do not have is an error.
func render(t *testing.T, set ...string) []runtime.Object {
	t.Helper()
	chart, err := filepath.Abs("../../charts/nplbridge")
	if err != nil {
		t.Fatal(err)
	}
	out, err := theLab.Helm(t.Context(), manifests.Arguments(chart, set...)...)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifests.Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// only returns the one object of type T for which is holds.
func only[T runtime.Object](t *testing.T, objects []runtime.Object, is func(T) bool) T {
	t.Helper()
	var found []T
	for _, o := range objects {
		if typed, ok := o.(T); ok && is(typed) {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T, want 1", len(found), *new(T))
	}
	return found[0]
}

func agentOf(t *testing.T, set ...string) *appsv1.DaemonSet {
	t.Helper()
	return only(t, render(t, set...), func(d *appsv1.DaemonSet) bool { return d.Name == "nplbridge-agent" })
}

// settingsOf returns the settings file in a ConfigMap.
func settingsOf(t *testing.T, configMap string, set ...string) map[string]any {
	t.Helper()
	object := only(t, render(t, set...), func(c *corev1.ConfigMap) bool { return c.Name == configMap })
	out := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(object.Data["settings.yaml"]), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func rule(group, resources, verbs string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{group}, Resources: strings.Fields(resources), Verbs: strings.Fields(verbs), ResourceNames: names,
	}
}
