package chart

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/e2e/chart/manifests"
)

// The API server puts the readiness gate into Pods of namespaces with the label, once, beside others, and only where a Pod can be a member.
func TestReadinessGateIsPutIntoPods(t *testing.T) {
	chart, err := filepath.Abs("../../charts/nplbridge")
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := theLab.Helm(t.Context(), append(manifests.Arguments(chart, "readinessGate.inject=true", "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"),
		"--show-only", "templates/admission/readinessgate.yaml")...)
	if err != nil {
		t.Fatal(err)
	}
	if err := theLab.Apply(t.Context(), rendered); err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, kind := range []string{"mutatingadmissionpolicybinding", "mutatingadmissionpolicy"} {
			if _, err := theLab.Kubectl(t.Context(), "delete", kind, "nplbridge-gate"); err != nil {
				t.Error(err)
			}
		}
	}()
	namespace(t, "gated", map[string]string{"nplbridge.io/readiness-gate": "enabled"})
	namespace(t, "ungated", nil)
	gates := func(ns string, change func(*corev1.Pod)) (string, error) {
		made, err := theLab.Client().CoreV1().Pods(ns).Create(t.Context(), echoPod(ns, "web", change), dryRun)
		if err != nil {
			return "", err
		}
		var out []string
		for _, g := range made.Spec.ReadinessGates {
			out = append(out, string(g.ConditionType))
		}
		return strings.Join(out, " "), nil
	}
	with := func(types ...corev1.PodConditionType) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for _, c := range types {
				p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: c})
			}
		}
	}
	const ours = "nplbridge.io/in-pool"
	for name, test := range map[string]struct {
		namespace string
		change    func(*corev1.Pod)
		want      string
	}{
		"a Pod":             {"gated", func(*corev1.Pod) {}, ours},
		"with another gate": {"gated", with("example.org/other"), "example.org/other " + ours},
		"with the gate":     {"gated", with(ours), ours},
		"of a Job":          {"gated", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }, ""},
		"on the Node":       {"gated", func(p *corev1.Pod) { p.Spec.HostNetwork = true }, ""},
		"elsewhere":         {"ungated", func(*corev1.Pod) {}, ""},
	} {
		eventually(t, func() error { // the policy takes effect a moment after it is made
			got, err := gates(test.namespace, test.change)
			if err == nil && got != test.want {
				err = fmt.Errorf("%s: gates %q, want %q", name, got, test.want)
			}
			return err
		})
	}
	policy, err := theLab.Client().AdmissionregistrationV1().MutatingAdmissionPolicies().Get(t.Context(), "nplbridge-gate", metav1.GetOptions{})
	if err != nil || len(policy.Spec.Mutations) != 1 {
		t.Errorf("%v, %+v", err, policy)
	}
}
