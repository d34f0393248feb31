package manifests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
)

var keepalivedValues = []string{
	"lbsync.haproxy.announce=keepalived", "addressPools={192.0.2.10,192.0.2.11/32,2001:db8::10}", "lbsync.keepalived.interface=eth0",
	"lbsync.keepalived.image.repository=registry.example/keepalived",
}

// record sets the fields of one record of lbsync.config.providers.
func record(i int, fields ...string) []string {
	var out []string
	for _, f := range fields {
		out = append(out, fmt.Sprintf("lbsync.config.providers[%d].%s", i, f))
	}
	return out
}

var (
	aviRecord   = []string{"name=core", "kind=avi", "existingSecret=core-account", "avi.url=https://avi:8443", "avi.username=u", "avi.tenant=shop"}
	bigipRecord = []string{"name=edge", "kind=bigip", "existingSecret=edge-account", "bigip.urls={https://a,https://b}", "bigip.username=u"}
)

// remoteRecords are two load balancers elsewhere.
func remoteRecords() []string {
	return slices.Concat(record(0, aviRecord...), record(1, bigipRecord...))
}

// mixedRecords are HAProxy on the Nodes and one elsewhere.
func mixedRecords() []string {
	return slices.Concat(record(0, "name=nodes", "kind=haproxy", "haproxy.checkInterval=2s"), record(1, aviRecord...))
}

const mutating = "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

// combinations are the sets of values that matter, by name.
var combinations = map[string][]string{
	"default":           nil,
	"routed pools":      {"lbsync.haproxy.announce=routed", "addressPools={192.0.2.0/28,2001:db8::1-2001:db8::9}"},
	"pools with rules":  {"lbsync.haproxy.announce=routed", "addressPools[0].name=public", "addressPools[0].ranges={192.0.2.0/28}", "addressPools[0].namespaces={shop}"},
	"keepalived":        keepalivedValues,
	"keepalived alone":  append(slices.Clone(keepalivedValues), "lbsync.keepalived.nonlocalBind=false"),
	"Avi":               aviValues,
	"Avi with a token":  append(slices.Clone(aviValues), "lbsync.config.avi.passwordFile=", "lbsync.config.avi.tokenFile=/etc/nplbridge/avi/token"),
	"BIG-IP":            bigipValues,
	"several remote":    remoteRecords(),
	"HAProxy and Avi":   mixedRecords(),
	"pools of one":      append(mixedRecords(), "addressPools[0].name=p", "addressPools[0].ranges={192.0.2.0/28}", "addressPools[0].providers={core}"),
	"external":          {"lbsync.placement=external", "lbsync.tokenSecret=true"},
	"NodePort":          {"serviceType=NodePort", "agent.enabled=false", "lbsync.config.nodePortSelector[0].key=ingress", "lbsync.config.nodePortSelector[0].value=yes"},
	"agent alone":       {"lbsync.enabled=false"},
	"Antrea's agent":    {"agent.enabled=false", "admissionPolicies.annotationWriters={" + antrea + "}"},
	"nothing":           {"agent.enabled=false", "lbsync.enabled=false"},
	"Windows":           {"agent.windows.enabled=true", "agent.windows.image.repository=registry.example/npl-agent-windows"},
	"no policies":       {"admissionPolicies.enabled=false"},
	"one replica":       append(slices.Clone(aviValues), "lbsync.replicas=1"),
	"network policy":    append(remoteRecords(), "lbsync.networkPolicy.enabled=true", "lbsync.networkPolicy.apiServerCIDRs={192.0.2.1/32}", "lbsync.networkPolicy.loadBalancerCIDRs={192.0.2.2/32,2001:db8::2/128}"),
	"namespaces":        {"lbsync.config.namespaceSelector[0].key=tier", "lbsync.config.namespaceSelector[0].value=web", "lbsync.config.blockedNamespaces={kube-system}"},
	"readiness gate":    {mutating, "readinessGate.inject=true", "readinessGate.podLabels.app=web"},
	"OpenShift":         {"openshift.securityContextConstraints=true"},
	"OpenShift, remote": append(slices.Clone(aviValues), "openshift.securityContextConstraints=true"),
	"everything": append(mixedRecords(), mutating, "readinessGate.inject=true", "openshift.securityContextConstraints=true", "monitoring.podMonitor.enabled=true",
		"monitoring.prometheusRule.enabled=true", "monitoring.dashboard.enabled=true", "agent.windows.enabled=true", "agent.windows.image.repository=w",
		"imagePullSecrets[0].name=registry", "agent.updateStrategy.type=OnDelete", "lbsync.updateStrategy.type=OnDelete", "agent.podLabels.a=b", "lbsync.podLabels.a=b",
		"agent.podAnnotations.a=b", "lbsync.podAnnotations.a=b", "agent.serviceAccount.annotations.a=b", "lbsync.serviceAccount.annotations.a=b",
		"lbsync.tolerations[0].operator=Exists", "lbsync.extraEnv[0].name=HTTPS_PROXY", "lbsync.extraEnv[0].value=http://p", "lbsync.extraVolumes[0].name=v",
		"lbsync.extraVolumes[0].emptyDir=null", "lbsync.extraVolumeMounts[0].name=v", "lbsync.extraVolumeMounts[0].mountPath=/v",
		"monitoring.podMonitor.labels.a=b", "monitoring.dashboard.annotations.a=b"),
}

// Every combination renders into objects of the API, each once, whose parts fit each other.
func TestCombinations(t *testing.T) {
	for name, set := range combinations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := render(t, set...)
			seen := map[string]bool{}
			for _, name := range names(t, objects) {
				if seen[name] {
					t.Errorf("%s is there twice", name)
				}
				seen[name] = true
			}
			for _, o := range objects {
				placed(t, o)
			}
			for _, template := range templates(objects) {
				fits(t, objects, template)
			}
		})
	}
}

// placed checks an object's place and name.
func placed(t *testing.T, o runtime.Object) {
	t.Helper()
	m := o.(metav1.Object)
	kind := o.GetObjectKind().GroupVersionKind().Kind
	cluster := strings.HasPrefix(kind, "Cluster") || strings.Contains(kind, "AdmissionPolicy")
	if cluster != (m.GetNamespace() == "") || !cluster && m.GetNamespace() != Namespace {
		t.Errorf("%s %s is in namespace %q", kind, m.GetName(), m.GetNamespace())
	}
	if problems := validation.IsDNS1123Subdomain(m.GetName()); problems != nil {
		t.Errorf("%s %s: %q", kind, m.GetName(), problems)
	}
	if _, custom := o.(*unstructured.Unstructured); !custom && m.GetLabels()["app.kubernetes.io/instance"] != Release {
		t.Errorf("%s %s has labels %v", kind, m.GetName(), m.GetLabels())
	}
}

// fits checks that what a Pod names is there.
func fits(t *testing.T, objects []runtime.Object, pod corev1.PodTemplateSpec) {
	t.Helper()
	if _, has := find[*corev1.ServiceAccount](objects, pod.Spec.ServiceAccountName); !has {
		t.Errorf("there is no ServiceAccount %s", pod.Spec.ServiceAccountName)
	}
	volumes := map[string]bool{}
	configMap := func(c *corev1.LocalObjectReference) {
		if _, has := find[*corev1.ConfigMap](objects, c.Name); !has {
			t.Errorf("there is no ConfigMap %s", c.Name)
		}
	}
	for _, v := range pod.Spec.Volumes {
		if volumes[v.Name] {
			t.Errorf("two volumes %s", v.Name)
		}
		volumes[v.Name] = false
		if v.ConfigMap != nil {
			configMap(&v.ConfigMap.LocalObjectReference)
		}
		if v.Projected == nil {
			continue
		}
		paths := map[string]bool{"settings.yaml": true}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				configMap(&s.ConfigMap.LocalObjectReference)
				continue
			}
			for _, item := range s.Secret.Items {
				if paths[item.Path] {
					t.Errorf("two files %s", item.Path)
				}
				paths[item.Path] = true
			}
		}
	}
	ports := map[int32]string{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			if _, has := volumes[m.Name]; !has {
				t.Errorf("%s mounts %s, which is no volume", c.Name, m.Name)
			}
			volumes[m.Name] = true
		}
		for _, p := range c.Ports {
			if other, taken := ports[p.ContainerPort]; taken {
				t.Errorf("%s and %s listen on %d", c.Name, other, p.ContainerPort)
			}
			ports[p.ContainerPort] = c.Name
		}
		if c.Image == "" || strings.HasPrefix(c.Image, ":") || strings.HasSuffix(c.Image, ":") {
			t.Errorf("%s has image %q", c.Name, c.Image)
		}
		if len(c.Resources.Requests) == 0 {
			t.Errorf("%s requests nothing", c.Name)
		}
	}
	for name, used := range volumes {
		if !used {
			t.Errorf("nobody mounts %s", name)
		}
	}
}

// What the chart writes into settings files the programs take.
func TestProgramsTakeTheSettings(t *testing.T) {
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/lbsync", "./cmd/npl-agent")
	build.Dir = root
	if _, err := run(build); err != nil {
		t.Fatal(err)
	}
	for name, set := range combinations {
		objects := render(t, set...)
		for program, args := range map[string][]string{"lbsync": {"config", "validate"}, "npl-agent": {"run", "--print-config"}} {
			config, has := find[*corev1.ConfigMap](objects, "nplbridge-"+strings.TrimPrefix(program, "npl-"))
			if !has {
				continue
			}
			file := filepath.Join(t.TempDir(), "settings.yaml")
			if err := os.WriteFile(file, []byte(config.Data["settings.yaml"]), 0o600); err != nil {
				t.Fatal(err)
			}
			validate := exec.CommandContext(t.Context(), filepath.Join(bin, program), append(args, "--config", file)...)
			validate.Env = []string{"LBSYNC_NODE_NAME=node-1", "LBSYNC_IDENTITY=pod-1", "NPL_AGENT_NODE_NAME=node-1"}
			if out, err := validate.CombinedOutput(); err != nil {
				t.Errorf("%s: %s says: %s", name, program, out)
			}
		}
	}
	// The test would notice a setting that there is not.
	file := filepath.Join(bin, "bad.yaml")
	err := os.WriteFile(file, []byte("noSuchSetting: 1\n"), 0o600)
	if err = errors.Join(err, exec.CommandContext(t.Context(), filepath.Join(bin, "lbsync"), "config", "validate", "--config", file).Run()); err == nil {
		t.Error("lbsync takes any setting")
	}
}
