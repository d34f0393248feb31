package manifests

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// notes returns what `helm install` prints behind NOTES.
func notes(t *testing.T, set ...string) string {
	t.Helper()
	args := append(Arguments(chart, set...), "--dry-run=client")
	args[0] = "install"
	args = slices.DeleteFunc(args, func(a string) bool {
		return strings.HasPrefix(a, "--api-versions") || a == "--kube-version" || a == "v1.36.3"
	})
	out, err := run(exec.CommandContext(t.Context(), helm, args...))
	if err != nil {
		t.Fatalf("helm install %q: %v", set, err)
	}
	_, notes, found := strings.Cut(out, "\nNOTES:\n")
	if !found {
		t.Fatalf("no notes in\n%s", out)
	}
	return notes
}

// The notes of every mode name what is there, and what to look at.
func TestNotes(t *testing.T) {
	for name, want := range map[string][]string{
		"default":          {"violates PodSecurity", "daemonset/nplbridge-haproxy", "the older keeps it", "-l kubernetes.io/os=linux", "nplbridge.io/haproxy\n"},
		"routed pools":     {"which you route or announce"},
		"keepalived":       {"-c keepalived"},
		"Avi":              {"deployment/nplbridge-lbsync", "one writes and 1 waits", "nplbridge.io/avi\n"},
		"BIG-IP":           {"nplbridge.io/bigip, and spec.loadBalancerIP, since addressPools is empty"},
		"several remote":   {"nplbridge.io/core\n", "nplbridge.io/edge, and"},
		"HAProxy and Avi":  {"daemonset/nplbridge-haproxy", "nplbridge.io/nodes\n", "nplbridge.io/core\n"},
		"external":         {"get secret nplbridge-lbsync-token", "instance: nplbridge-system/nplbridge"},
		"agent alone":      {"AKO or F5 CIS"},
		"Antrea's agent":   {"daemonset/nplbridge-haproxy"},
		"NodePort":         {"WARNING: nobody is named"},
		"no policies":      {"WARNING: admissionPolicies.enabled is false"},
		"Windows":          {"daemonset/nplbridge-agent-windows", "npl-agent.exe cleanup"},
		"nothing":          {"lbsync is not installed"},
		"pools with rules": {"which you route or announce"},
	} {
		set := combinations[name]
		text := notes(t, set...)
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: no %q in\n%s", name, w, text)
			}
		}
		objects := render(t, set...)
		for _, m := range regexp.MustCompile(`(daemonset|deployment|secret)[/ ](nplbridge[a-z-]*)`).FindAllStringSubmatch(text, -1) {
			if !exists(objects, m[1], m[2]) {
				t.Errorf("%s: the notes name %s, which is not there", name, m[0])
			}
		}
		if strings.Contains(text, "\n\n\n") || strings.Contains(text, "<no value>") {
			t.Errorf("%s: untidy:\n%s", name, text)
		}
	}
	if text := notes(t, "lbsync.config.dryRun=true", "lbsync.config.handleUnclassed=true"); !strings.Contains(text, "only shows") || !strings.Contains(text, "or with none") {
		t.Error(text)
	}
}

func exists(objects []runtime.Object, kind, name string) bool {
	var has bool
	switch kind {
	case "daemonset":
		_, has = find[*appsv1.DaemonSet](objects, name)
	case "deployment":
		_, has = find[*appsv1.Deployment](objects, name)
	case "secret":
		_, has = find[*corev1.Secret](objects, name)
	}
	return has
}
