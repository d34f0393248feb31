package manifests

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// names returns "Kind name" of each object, sorted.
func names(t *testing.T, objects []runtime.Object) []string {
	t.Helper()
	var out []string
	for _, o := range objects {
		m, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, o.GetObjectKind().GroupVersionKind().Kind+" "+m.GetName())
	}
	slices.Sort(out)
	return out
}

var (
	agentObjects = []string{
		"ClusterRole nplbridge-agent", "ClusterRoleBinding nplbridge-agent", "ConfigMap nplbridge-agent",
		"DaemonSet nplbridge-agent", "ServiceAccount nplbridge-agent",
	}
	agentWaits   = []string{"Role nplbridge-agent", "RoleBinding nplbridge-agent"} // for watermarks
	agentPolicy  = policy("agent")
	writerPolicy = policy("writers")
	lbsyncRights = []string{
		"ClusterRole nplbridge-lbsync", "ClusterRoleBinding nplbridge-lbsync", "Role nplbridge-lbsync",
		"RoleBinding nplbridge-lbsync", "ServiceAccount nplbridge-lbsync",
	}
	lbsyncPolicy  = slices.Concat(policy("lbsync"), policy("services"), policy("configmaps"))
	besideObjects = []string{"ConfigMap nplbridge-haproxy", "ConfigMap nplbridge-lbsync", "DaemonSet nplbridge-haproxy"}
	aloneObjects  = []string{"ConfigMap nplbridge-lbsync", "Deployment nplbridge-lbsync", "PodDisruptionBudget nplbridge-lbsync"}
)

// What is needed for a load balancer that lbsync writes from afar.
var (
	aviValues = []string{
		"lbsync.config.provider=avi", "lbsync.config.avi.url=https://avi", "lbsync.config.avi.username=u", "lbsync.existingSecret=account",
	}
	bigipValues = []string{
		"lbsync.config.provider=bigip", "lbsync.config.bigip.urls={https://a,https://b}", "lbsync.config.bigip.username=u", "lbsync.existingSecret=account",
	}
)

const antrea = "system:serviceaccount:kube-system:antrea-agent"

func policy(name string) []string {
	return []string{"ValidatingAdmissionPolicy nplbridge-" + name, "ValidatingAdmissionPolicyBinding nplbridge-" + name}
}

// hookObjects are what `helm uninstall` makes for a while.
var hookObjects = []string{
	"ClusterRole nplbridge-uninstall", "ClusterRoleBinding nplbridge-uninstall", "Job nplbridge-uninstall", "Role nplbridge-uninstall",
	"RoleBinding nplbridge-uninstall", "ServiceAccount nplbridge-uninstall",
}

func TestObjects(t *testing.T) {
	for name, test := range map[string]struct {
		set  []string
		want [][]string
	}{
		"default": {nil, [][]string{agentObjects, agentWaits, agentPolicy, writerPolicy, lbsyncRights, lbsyncPolicy, besideObjects}},
		"external": {
			[]string{"lbsync.placement=external"},
			[][]string{agentObjects, agentWaits, agentPolicy, writerPolicy, lbsyncRights, lbsyncPolicy},
		},
		"external with a token": {
			[]string{"lbsync.placement=external", "lbsync.tokenSecret=true"},
			[][]string{agentObjects, agentWaits, agentPolicy, writerPolicy, lbsyncRights, lbsyncPolicy, {"Secret nplbridge-lbsync-token"}},
		},
		"Avi":           {aviValues, [][]string{agentObjects, agentWaits, agentPolicy, writerPolicy, lbsyncRights, lbsyncPolicy, aloneObjects}},
		"BIG-IP":        {bigipValues, [][]string{agentObjects, agentWaits, agentPolicy, writerPolicy, lbsyncRights, lbsyncPolicy, aloneObjects}},
		"another agent": {[]string{"agent.enabled=false"}, [][]string{lbsyncRights, lbsyncPolicy, besideObjects}},
		"Antrea's agent": {
			[]string{"agent.enabled=false", "admissionPolicies.annotationWriters={" + antrea + "}"},
			[][]string{writerPolicy, lbsyncRights, lbsyncPolicy, besideObjects},
		},
		"agent alone": {[]string{"lbsync.enabled=false"}, [][]string{agentObjects, agentPolicy, writerPolicy}},
		"agent that must not wait": {
			[]string{"agent.config.portReuse=coolDown"},
			[][]string{agentObjects, agentPolicy, writerPolicy, lbsyncRights, lbsyncPolicy, besideObjects},
		},
		"agent that must wait": {
			[]string{"lbsync.enabled=false", "agent.config.portReuse=confirmed"},
			[][]string{agentObjects, agentWaits, agentPolicy, writerPolicy},
		},
		"without policies": {[]string{"admissionPolicies.enabled=false"}, [][]string{agentObjects, agentWaits, lbsyncRights, besideObjects}},
	} {
		t.Run(name, func(t *testing.T) {
			want := slices.Sorted(slices.Values(slices.Concat(test.want...)))
			got := slices.DeleteFunc(names(t, render(t, test.set...)), func(o string) bool { return slices.Contains(hookObjects, o) })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func rule(group, resources, verbs string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{group}, Resources: strings.Fields(resources), Verbs: strings.Fields(verbs), ResourceNames: names,
	}
}

// Rights are spelt out here so that nobody widens them by the way.
func TestRights(t *testing.T) {
	objects := render(t)
	for name, want := range map[string][]rbacv1.PolicyRule{
		"nplbridge-agent": {
			rule("", "pods services nodes", "list watch"),
			rule("", "nodes", "get"),
			rule("", "pods/status", "patch"),
			rule("", "namespaces", "get", "kube-system"),
			rule("events.k8s.io", "events", "create patch"),
			rule("crd.antrea.io", "antreaagentinfos", "get"),
		},
		"nplbridge-lbsync": {
			rule("", "services", "list watch patch"),
			rule("", "services/status", "patch"),
			rule("", "pods nodes", "list watch"),
			rule("", "pods/status", "patch"),
			rule("", "namespaces", "get", "kube-system"),
			rule("events.k8s.io", "events", "create patch"),
		},
	} {
		role := named[*rbacv1.ClusterRole](t, objects, name)
		if diff := cmp.Diff(want, role.Rules); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		binding := named[*rbacv1.ClusterRoleBinding](t, objects, name)
		subject := []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: "nplbridge-system"}}
		if binding.RoleRef.Name != name || !cmp.Equal(binding.Subjects, subject) {
			t.Errorf("%s is bound as %v to %v", name, binding.RoleRef, binding.Subjects)
		}
	}
	lease := named[*rbacv1.Role](t, objects, "nplbridge-lbsync")
	want := []rbacv1.PolicyRule{
		rule("coordination.k8s.io", "leases", "create"),
		rule("coordination.k8s.io", "leases", "get update delete", "nplbridge-lbsync"),
		rule("", "configmaps", "get list watch create update delete"),
	}
	if diff := cmp.Diff(want, lease.Rules); diff != "" {
		t.Errorf("lease: -want +got:\n%s", diff)
	}
	watermarks := named[*rbacv1.Role](t, render(t, "agent.config.portReuse=confirmed"), "nplbridge-agent")
	if diff := cmp.Diff([]rbacv1.PolicyRule{rule("", "configmaps", "list watch")}, watermarks.Rules); diff != "" {
		t.Errorf("watermarks: -want +got:\n%s", diff)
	}
}

// hardened checks what holds for every container, and that it adds only these capabilities.
func hardened(t *testing.T, pod corev1.PodSpec, name string, add ...corev1.Capability) {
	t.Helper()
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no container %s", name)
	}
	c := pod.Containers[i].SecurityContext
	if c == nil || c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || c.Privileged != nil ||
		c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem {
		t.Errorf("%s: security context %+v", name, c)
	}
	want := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: add}
	if diff := cmp.Diff(want, c.Capabilities); diff != "" {
		t.Errorf("%s: capabilities -want +got:\n%s", name, diff)
	}
	if p := pod.SecurityContext.SeccompProfile; p == nil || p.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("seccomp profile %v", p)
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			t.Errorf("volume %s opens the host's %s", v.Name, v.HostPath.Path)
		}
	}
}

func TestAgentPod(t *testing.T) {
	agent := agentOf(t)
	pod := agent.Spec.Template.Spec
	hardened(t, pod, "npl-agent", "NET_ADMIN")
	if !pod.HostNetwork || *pod.SecurityContext.RunAsUser != 0 || pod.PriorityClassName != "system-node-critical" {
		t.Errorf("hostNetwork %v, user %v, priority %s", pod.HostNetwork, *pod.SecurityContext.RunAsUser, pod.PriorityClassName)
	}
	if want := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}; !cmp.Equal(pod.Tolerations, want) {
		t.Errorf("tolerations %v", pod.Tolerations)
	}
	c := pod.Containers[0]
	if c.LivenessProbe.HTTPGet.Path != "/livez" || c.ReadinessProbe.HTTPGet.Path != "/readyz" ||
		c.Ports[0].ContainerPort != 10361 {
		t.Errorf("probes %v %v on %v", c.LivenessProbe, c.ReadinessProbe, c.Ports)
	}
	if c.Image != "ghcr.io/nplbridge/npl-agent:0.1.0" {
		t.Errorf("image %s", c.Image)
	}
	if got := agent.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String(); got != "10%" {
		t.Errorf("maxUnavailable %s", got)
	}
	selects(t, agent.Spec.Selector.MatchLabels, agent.Spec.Template.Labels)
}

func TestEmbeddedPod(t *testing.T) {
	daemonSet := embeddedOf(t)
	pod := daemonSet.Spec.Template.Spec
	hardened(t, pod, "lbsync")
	hardened(t, pod, "haproxy", "NET_BIND_SERVICE")
	if !pod.HostNetwork {
		t.Error("HAProxy is not on the Node's network")
	}
	if r := daemonSet.Spec.UpdateStrategy.RollingUpdate; r.MaxSurge.IntValue() != 0 || r.MaxUnavailable.IntValue() != 1 {
		t.Errorf("a new Pod finds its ports taken: %+v", r)
	}
	selects(t, daemonSet.Spec.Selector.MatchLabels, daemonSet.Spec.Template.Labels)

	// Both sides must mean the same directories.
	mounts := map[string]map[string]string{}
	for _, c := range pod.Containers {
		mounts[c.Name] = map[string]string{}
		for _, m := range c.VolumeMounts {
			mounts[c.Name][m.MountPath] = m.Name
		}
	}
	for path, volume := range mounts["haproxy"] {
		if mounts["lbsync"][path] != volume {
			t.Errorf("haproxy has %s at %s, lbsync %q", volume, path, mounts["lbsync"][path])
		}
	}
	haproxy := settingsOf(t, "nplbridge-lbsync")["haproxy"].(map[string]any)
	args := strings.Join(pod.Containers[0].Args, " ")
	for _, path := range []string{haproxy["dir"].(string), haproxy["masterSocket"].(string)} {
		if !strings.Contains(args, path) {
			t.Errorf("lbsync expects %s, haproxy is started with %s", path, args)
		}
	}
	config := named[*corev1.ConfigMap](t, render(t), "nplbridge-haproxy")
	if socket := haproxy["adminSocket"].(string); !strings.Contains(config.Data["haproxy.cfg"], "stats socket "+socket+" ") {
		t.Errorf("haproxy.cfg has no stats socket %s", socket)
	}
}

func selects(t *testing.T, selector, podLabels map[string]string) {
	t.Helper()
	if !labels.SelectorFromSet(selector).Matches(labels.Set(podLabels)) {
		t.Errorf("selector %v does not match %v", selector, podLabels)
	}
}

func TestSettingsOfLBSync(t *testing.T) {
	got := settingsOf(t, "nplbridge-lbsync", "lbsync.haproxy.announce=routed", "addressPools={192.0.2.0/24,2001:db8::/64}", "lbsync.config.drainLimit=1m")
	for key, want := range map[string]any{
		"instance":       "nplbridge-system/nplbridge",
		"leaseNamespace": "nplbridge-system",
		"leaseName":      "nplbridge-lbsync",
		"serviceType":    "NodePortLocal",
		"addressPools":   []any{"192.0.2.0/24", "2001:db8::/64"},
		"drainLimit":     "1m",
	} {
		if diff := cmp.Diff(want, got[key]); diff != "" {
			t.Errorf("%s: -want +got:\n%s", key, diff)
		}
	}
}

// The programs follow logLevel by themselves; every other setting of theirs needs new Pods. Beside HAProxy lbsync takes over all,
// so that HAProxy goes on.
func TestOnlyTheLogLevelRestartsNothing(t *testing.T) {
	checksum := func(set ...string) string { return agentOf(t, set...).Spec.Template.Annotations["checksum/settings"] }
	before := checksum()
	if after := checksum("agent.config.logLevel=debug"); after != before {
		t.Error("a new log level restarts the agents")
	}
	if after := checksum("agent.config.coolDown=7m"); after == before {
		t.Error("a new coolDown does not reach the agents")
	}
	if after := checksum("lbsync.enabled=false"); after == before {
		t.Error("that no lbsync confirms node ports any more does not reach the agents")
	}
	checksum = func(set ...string) string {
		return aloneOf(t, append(set, aviValues...)...).Spec.Template.Annotations["checksum/settings"]
	}
	before = checksum()
	if after := checksum("lbsync.config.logLevel=debug"); after != before {
		t.Error("a new log level restarts lbsync")
	}
	if after := checksum("lbsync.config.drainLimit=1m", "agent.config.portRange=50000-51000"); after != before {
		t.Error("settings that lbsync follows while it runs restart it")
	}
	if after := checksum("addressPools={192.0.2.0/24}"); after == before {
		t.Error("new address pools do not reach lbsync")
	}
	embedded := embeddedOf(t).Spec.Template
	for _, set := range []string{"serviceType=NodePort", "lbsync.config.resync=1m", "lbsync.config.handleUnclassed=true"} {
		if diff := cmp.Diff(embedded, embeddedOf(t, set).Spec.Template); diff != "" {
			t.Errorf("%s restarts HAProxy:\n%s", set, diff)
		}
	}
}

func TestLongNames(t *testing.T) {
	for _, o := range render(t, "fullnameOverride="+strings.Repeat("n", 80)) {
		m, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		values := append(slices.Collect(maps.Values(m.GetLabels())), m.GetName())
		for _, v := range values {
			if len(v) > 63 {
				t.Errorf("%q has %d characters", v, len(v))
			}
		}
	}
}
