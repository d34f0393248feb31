package chart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// agentSays runs npl-agent on node-1 in the chart's Pod, with an account and a command line of its own, and returns its output
// as soon as that matches.
func agentSays(t *testing.T, want, namespace, account string, args ...string) string {
	t.Helper()
	spec := agentOf(t).Spec.Template.Spec
	spec.ServiceAccountName, spec.NodeName, spec.RestartPolicy = account, "node-1", corev1.RestartPolicyNever
	c := &spec.Containers[0]
	c.Args, c.LivenessProbe, c.ReadinessProbe, c.Ports = args, nil, nil, nil
	pods := theLab.Client().CoreV1().Pods(namespace)
	pod, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "agent-says-"}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = pods.Delete(context.WithoutCancel(t.Context()), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	})
	var out string
	eventually(t, func() error {
		if out, err = theLab.Kubectl(t.Context(), "-n", namespace, "logs", pod.Name); err != nil {
			return err
		}
		if !regexp.MustCompile(want).MatchString(out) {
			return fmt.Errorf("npl-agent %s: no match for %s in\n%s", strings.Join(args, " "), want, out)
		}
		return nil
	})
	return out
}

// settingsIn stores the agent's rendered settings in a namespace, where its Pod finds them.
func settingsIn(t *testing.T, namespace string, set ...string) {
	t.Helper()
	settings := only(t, render(t, set...), func(c *corev1.ConfigMap) bool { return c.Name == "nplbridge-agent" })
	settings.Namespace = namespace
	if _, err := theLab.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(), settings, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Every value of agent.config reaches the program, in a form that it accepts.
func TestAgentAcceptsTheChartsSettings(t *testing.T) {
	const ns = "settings"
	namespace(t, ns, map[string]string{"pod-security.kubernetes.io/enforce": "privileged"})
	want := map[string]string{ // none is the default
		"portRange": "50000-51000", "clusterNodePortRange": "20000-21000", "ipFamilies": "IPv6", "sameNodePortPerProtocol": "true",
		"nodeAddressTypes": "ExternalIP", "nodeAddressCIDRs": "2001:db8::/32", "coolDown": "7m", "portReuse": "confirmed",
		"repairInterval": "11s", "withdrawGrace": "12s", "masquerade": "all", "forwardAccept": "true", "startTimeout": "13s",
		"listen": ":10999", "logLevel": "debug", "logFormat": "console",
	}
	known := settingsOf(t, "nplbridge-agent")
	var set []string
	for key := range known {
		switch {
		case key == "watermarkNamespace": // the chart's own
		case want[key] == "":
			t.Errorf("give %s another value here", key)
		case slices.Contains([]string{"ipFamilies", "nodeAddressTypes", "nodeAddressCIDRs"}, key):
			set = append(set, "agent.config."+key+"={"+want[key]+"}")
		default:
			set = append(set, "agent.config."+key+"="+want[key])
		}
	}
	settingsIn(t, ns, set...)
	want["watermarkNamespace"] = systemNamespace
	out := agentSays(t, `logFormat: `, ns, "default", "run", "--config=/etc/nplbridge/settings.yaml", "--print-config")
	for key, value := range want {
		line := regexp.MustCompile(`(?m)^` + key + `: (.*) # /etc/nplbridge/settings.yaml.*$`).FindStringSubmatch(out)
		if line == nil || strings.Trim(line[1], `"[]`) != value {
			t.Errorf("%s: want %s from the file, got %q in\n%s", key, value, line, out)
		}
	}
}

// granted lists what the chart's rules for the agent grant, as check writes it.
func granted(t *testing.T, set ...string) []string {
	t.Helper()
	var out []string
	add := func(rules []rbacv1.PolicyRule, where string) {
		for _, r := range rules {
			if r.APIGroups[0] == "crd.antrea.io" { // for Nodes with Antrea's agent, of which there are none here
				continue
			}
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					what, part, isPart := strings.Cut(resource, "/")
					if r.APIGroups[0] != "" {
						what += "." + r.APIGroups[0]
					}
					if isPart {
						what += "/" + part
					}
					out = append(out, strings.Join(slices.Concat([]string{verb, what}, r.ResourceNames), " ")+where)
				}
			}
		}
	}
	for _, o := range render(t, append(set, "lbsync.enabled=false", "uninstall.cleanup=false")...) {
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			add(o.Rules, "")
		case *rbacv1.Role:
			add(o.Rules, " in "+o.Namespace)
		}
	}
	slices.Sort(out)
	return out
}

// finding is one of `npl-agent check -o json`.
type finding struct{ Check, Severity, Found string }

// checked returns what `npl-agent check` finds about the rights of an account.
func checked(t *testing.T, namespace, account string, flags ...string) finding {
	t.Helper()
	out := agentSays(t, `(?s)"findings":.*}\s*$`, namespace, account, append([]string{"check", "-o=json"}, flags...)...)
	var report struct{ Findings []finding }
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &report); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	i := slices.IndexFunc(report.Findings, func(f finding) bool { return f.Check == "Rights" })
	if i < 0 {
		t.Fatalf("no finding about rights in\n%s", out)
	}
	return report.Findings[i]
}

// What check asks for is what the chart grants: whoever has nothing lacks exactly that, and the chart's own account nothing.
func TestCheckAsksForTheChartsRights(t *testing.T) {
	const ns, identity = "check", "get namespaces kube-system"
	namespace(t, ns, map[string]string{"pod-security.kubernetes.io/enforce": "privileged"})
	settingsIn(t, ns)
	// Without the cluster's identity the agent waits half a minute for it.
	grant(t, ns, "default", rule("", "namespaces", "get", metav1.NamespaceSystem))
	for name, test := range map[string]struct{ set, flags []string }{
		"coolDown":  {nil, []string{"--port-reuse=coolDown"}},
		"confirmed": {[]string{"agent.config.portReuse=confirmed"}, []string{"--port-reuse=confirmed", "--watermark-namespace=" + systemNamespace}},
	} {
		t.Run(name, func(t *testing.T) {
			found := checked(t, ns, "default", test.flags...)
			lacks := regexp.MustCompile(`^not allowed: (.*?);`).FindStringSubmatch(found.Found)
			if lacks == nil || found.Severity != "error" {
				t.Fatalf("no missing rights: %+v", found)
			}
			asked := append(strings.Split(lacks[1], ", "), identity)
			slices.Sort(asked)
			if diff := cmp.Diff(granted(t, test.set...), asked); diff != "" {
				t.Errorf("-chart +check:\n%s", diff)
			}
		})
	}
	if found := checked(t, systemNamespace, agentAccount); found.Severity != "ok" {
		t.Errorf("with the chart's account: %+v", found)
	}
}

// The agents get what they use and use what they get; the API server's audit log is the witness.
func TestAgentsUseTheirRights(t *testing.T) {
	const ns = "used"
	namespace(t, ns, nil)
	core := theLab.Client().CoreV1()
	if _, err := core.Services(ns).Create(t.Context(), enabled(ns, "web", intstr.FromInt32(8080)), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	refusing := enabled(ns, "web", intstr.FromString("no-such-port")) // an Event
	refusing.Name = "refusing"
	if _, err := core.Services(ns).Create(t.Context(), refusing, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, echoPod(ns, "web", nil))
	published(t, ns, "web", 1)
	checked(t, systemNamespace, agentAccount)
	eventually(t, func() error {
		used := map[string]bool{}
		for _, e := range audited(t) {
			if e.User.Username != "system:serviceaccount:"+systemNamespace+":"+agentAccount || e.UserAgent == userAgent {
				continue
			}
			if e.ResponseStatus.Code == 403 {
				t.Fatalf("refused: %+v", e)
			}
			used[e.Verb+" "+e.Resource()] = true
		}
		for _, right := range granted(t) {
			right = strings.TrimSuffix(right, " "+metav1.NamespaceSystem)
			verb, _, _ := strings.Cut(right, " ")
			// Informers list where the API server cannot stream; an Event is patched when it repeats within minutes.
			if verb != "list" && right != "patch events.events.k8s.io" && !used[right] {
				return fmt.Errorf("the agents have the right to %s and have not used it", right)
			}
		}
		return nil
	})
}

// The agent's Pod needs a namespace for privileged Pods; elsewhere the API server says what it objects to.
func TestPodSecurityAdmission(t *testing.T) {
	for level, objections := range map[string][]string{
		"privileged": nil,
		"baseline":   {`violates PodSecurity "baseline:latest"`, "hostNetwork=true", "NET_ADMIN"},
		"restricted": {`violates PodSecurity "restricted:latest"`, "hostNetwork=true", "NET_ADMIN", "runAsNonRoot"},
	} {
		t.Run(level, func(t *testing.T) {
			name := "level-" + level
			namespace(t, name, map[string]string{"pod-security.kubernetes.io/enforce": level})
			template := agentOf(t).Spec.Template
			template.Spec.ServiceAccountName = "default"
			_, err := theLab.Client().CoreV1().Pods(name).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Spec: template.Spec}, dryRun)
			if objections == nil && err != nil {
				t.Error(err)
			}
			for _, objection := range objections {
				if err == nil || !strings.Contains(err.Error(), objection) {
					t.Errorf("want %s, got: %v", objection, err)
				}
			}
		})
	}
}

// A running agent is root with one capability and nothing to write to. The lab gives containers the rights of their manifest;
// seccomp, which it does not, is asked for in the manifest.
func TestAgentsRunWithOneCapability(t *testing.T) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	agents := 0
	for _, file := range files {
		command, err := os.ReadFile(file)
		if err != nil || !strings.HasSuffix(string(command), "npl-agent\x00run\x00") {
			continue
		}
		agents++
		process := filepath.Dir(file)
		status, err := os.ReadFile(filepath.Join(process, "status"))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for line := range strings.Lines(string(status)) {
			key, value, _ := strings.Cut(line, ":")
			got[key] = strings.Join(strings.Fields(value), " ")
		}
		const netAdmin = "0000000000001000" // bit 12, capabilities(7)
		for key, want := range map[string]string{
			"Uid": "0 0 0 0", "Gid": "0 0 0 0", "NoNewPrivs": "1",
			"CapEff": netAdmin, "CapPrm": netAdmin, "CapBnd": netAdmin, "CapAmb": "0000000000000000",
		} {
			if got[key] != want {
				t.Errorf("%s: %s is %s, want %s", process, key, got[key], want)
			}
		}
		for _, dir := range []string{"/", "/etc", "/etc/nplbridge", "/usr", "/var/lib", "/tmp"} {
			if err := os.WriteFile(filepath.Join(process, "root", dir, "written"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
				t.Errorf("%s: writing into %s: %v, want %v", process, dir, err, syscall.EROFS)
			}
		}
		if err := os.WriteFile(filepath.Join(process, "root/run/nplbridge/written"), nil, 0o600); err != nil {
			t.Errorf("%s: its own directory: %v", process, err)
		}
	}
	if agents != len(theLab.Nodes()) {
		t.Errorf("%d agents found, want %d", agents, len(theLab.Nodes()))
	}
}
