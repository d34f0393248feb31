package environ

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestExpand(t *testing.T) {
	lookup := func(name string) (string, bool) {
		values := map[string]string{"A": "1", "B": "$(A)", "EMPTY": ""}
		v, ok := values[name]
		return v, ok
	}
	for in, want := range map[string]string{
		"":             "",
		"plain":        "plain",
		"$(A)":         "1",
		"x$(A)y$(A)z":  "x1y1z",
		"$(B)":         "$(A)", // values are not expanded again
		"$(EMPTY)":     "",
		"$(UNKNOWN)":   "$(UNKNOWN)",
		"$$(A)":        "$(A)",
		"$$$(A)":       "$1",
		"$$$$(A)":      "$$(A)",
		"$":            "$",
		"$$":           "$",
		"$(A":          "$(A",
		"$A ${A} $ (A": "$A ${A} $ (A",
		"$()":          "$()",
	} {
		if got := Expand(in, lookup); got != want {
			t.Errorf("Expand(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("a$(b)$$(c)$")
	f.Fuzz(func(t *testing.T, s string) {
		none := Expand(s, func(string) (string, bool) { return "", false })
		if !strings.Contains(s, "$$") && none != s {
			t.Errorf("%q became %q though no name is known", s, none)
		}
		if doubled := strings.ReplaceAll(s, "$", "$$"); Expand(doubled, func(string) (string, bool) { return "x", true }) != s {
			t.Errorf("%q: escaping every dollar sign does not give the text back", s)
		}
	})
}

func testPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-1", Namespace: "shop", UID: "u1",
			Labels: map[string]string{"app": "web", "a": `q"uote`}, Annotations: map[string]string{"note": "two\nlines"},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", ServiceAccountName: "robot"},
	}
}

var testFacts = Facts{
	PodIPs:      []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
	HostIPs:     []netip.Addr{netip.MustParseAddr("172.30.0.11"), netip.MustParseAddr("fd00:30::11")},
	ServiceHost: "10.96.0.1", ServicePort: 443,
	Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")},
}

func TestField(t *testing.T) {
	for path, want := range map[string]string{
		"metadata.name":                "web-1",
		"metadata.namespace":           "shop",
		"metadata.uid":                 "u1",
		"metadata.labels['app']":       "web",
		"metadata.labels['none']":      "",
		"metadata.annotations['note']": "two\nlines",
		"metadata.labels":              "a=\"q\\\"uote\"\napp=\"web\"",
		"metadata.annotations":         `note="two\nlines"`,
		"spec.nodeName":                "node-1",
		"spec.serviceAccountName":      "robot",
		"status.podIP":                 "10.0.0.1",
		"status.podIPs":                "10.0.0.1,fd00::1",
		"status.hostIP":                "172.30.0.11",
		"status.hostIPs":               "172.30.0.11,fd00:30::11",
	} {
		if got, err := Field(testPod(), testFacts, path); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"", "metadata.nosuch", "metadata.labels['x'", "spec['x']", "status.phase"} {
		if got, err := Field(testPod(), testFacts, path); err == nil {
			t.Errorf("%s: got %q, want an error", path, got)
		}
	}
}

func TestResource(t *testing.T) {
	c := &corev1.Container{Resources: corev1.ResourceRequirements{
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100Mi")},
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")},
	}}
	for _, tc := range []struct{ resource, divisor, want string }{
		{"limits.memory", "", "104857600"},
		{"limits.memory", "1Mi", "100"},
		{"limits.cpu", "", "2"}, // what the Node has
		{"requests.cpu", "", "2"},
		{"requests.cpu", "1m", "1500"},
		{"requests.memory", "1Mi", "0"},
	} {
		ref := &corev1.ResourceFieldSelector{Resource: tc.resource}
		if tc.divisor != "" {
			ref.Divisor = resource.MustParse(tc.divisor)
		}
		if got, err := Resource(c, testFacts, ref); err != nil || got != tc.want {
			t.Errorf("%s in %s: got %s, %v; want %s", tc.resource, tc.divisor, got, err, tc.want)
		}
	}
	if _, err := Resource(c, testFacts, &corev1.ResourceFieldSelector{Resource: "cpu"}); err == nil {
		t.Error("cpu: want an error")
	}
}

func TestVariables(t *testing.T) {
	objects := Objects{
		ConfigMaps: map[string]*corev1.ConfigMap{"cm": {Data: map[string]string{"K": "from-cm", "L": "other"}}},
		Secrets:    map[string]*corev1.Secret{"s": {Data: map[string][]byte{"K": []byte("from-secret")}}},
	}
	cmRef := func(name, key string, optional *bool) corev1.EnvVar {
		return corev1.EnvVar{Name: "X", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}}
	}
	base := []string{"HOME=/root", "HOSTNAME=web-1", "KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443", "KUBERNETES_SERVICE_PORT_HTTPS=443"}
	for name, tc := range map[string]struct {
		from []corev1.EnvFromSource
		env  []corev1.EnvVar
		want []string // beside base and PATH
		err  string
	}{
		"nothing": {},
		"later wins, earlier can be referred to": {
			from: []corev1.EnvFromSource{
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}},
				{Prefix: "P_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}},
			},
			env:  []corev1.EnvVar{{Name: "A", Value: "<$(L) $(LATER)>"}, {Name: "K", Value: "own"}, {Name: "LATER", Value: "x"}},
			want: []string{"A=<other $(LATER)>", "K=own", "L=other", "LATER=x", "P_K=from-secret"},
		},
		"key":                {env: []corev1.EnvVar{cmRef("cm", "K", nil)}, want: []string{"X=from-cm"}},
		"no object":          {env: []corev1.EnvVar{cmRef("none", "K", nil)}, err: `environment variable X: configmap "none" not found`},
		"no key":             {env: []corev1.EnvVar{cmRef("cm", "none", nil)}, err: "couldn't find key none in ConfigMap cm"},
		"optional object":    {env: []corev1.EnvVar{cmRef("none", "K", new(true))}},
		"optional key":       {env: []corev1.EnvVar{cmRef("cm", "none", new(true))}},
		"no source":          {from: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}}}, err: `secret "none" not found`},
		"optional source":    {from: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Optional: new(true)}}}},
		"unknown kind":       {env: []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{}}}, err: "not supported"},
		"a field":            {env: []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}, want: []string{"X=10.0.0.1"}},
		"a field that isn't": {env: []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "x"}}}}, err: `fieldRef "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Variables(testPod(), &corev1.Container{EnvFrom: tc.from, Env: tc.env}, testFacts, objects)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %q", err, tc.err)
				}
				return
			}
			want := map[string]bool{"PATH=" + path: true}
			for _, v := range append(base, tc.want...) {
				want[v] = true
			}
			have := map[string]bool{}
			for _, v := range got {
				have[v] = true
			}
			if diff := cmp.Diff(want, have); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	lookup := Lookup([]string{"PORT=80=x"})
	for _, tc := range []struct {
		command, args []string
		want          string
	}{
		{nil, nil, "/echo"},
		{nil, []string{"--port", "$(PORT)"}, "/echo --port 80=x"},
		{[]string{"sh"}, []string{"-c", "$$(PORT)"}, "sh -c $(PORT)"},
	} {
		if got := strings.Join(CommandLine(&corev1.Container{Command: tc.command, Args: tc.args}, "/echo", lookup), " "); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}
