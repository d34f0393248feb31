// Package chart holds the tests of charts/nplbridge: helm renders it, and the manifests are judged as what they are; installed
// in a lab, its rights and admission policies are tried on a real API server.
package chart

import (
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

func template(t *testing.T, set ...string) (string, error) {
	t.Helper()
	chart, err := filepath.Abs("../../charts/nplbridge")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"template", "nplbridge", chart, "--namespace", "nplbridge-system", "--kube-version", "v1.36.3"}
	for _, s := range set {
		args = append(args, "--set", s)
	}
	out, err := theLab.Helm(t.Context(), args...)
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
		t.Fatalf("helm template: %v\n%s", err, out)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for document := range strings.SplitSeq("\n"+out, "\n---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		objects = append(objects, object)
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

func every[T any](T) bool { return true }

func agentOf(t *testing.T, set ...string) *appsv1.DaemonSet {
	t.Helper()
	return only(t, render(t, set...), every[*appsv1.DaemonSet])
}

func lbsyncOf(t *testing.T, set ...string) *appsv1.Deployment {
	t.Helper()
	return only(t, render(t, set...), every[*appsv1.Deployment])
}
