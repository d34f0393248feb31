package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nplbridge/nplbridge/e2e/chart/manifests"
)

// render renders the chart, strictly.
func render(t *testing.T, set ...string) []runtime.Object {
	t.Helper()
	out, err := command(exec.CommandContext(t.Context(), helm, manifests.Arguments(filepath.Join(root, "charts/nplbridge"), set...)...))
	if err != nil {
		t.Fatal(err)
	}
	return objectsOf(t, out)
}

func objectsOf(t *testing.T, text string) []runtime.Object {
	t.Helper()
	objects, err := manifests.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) == 0 {
		t.Fatal("nothing was rendered")
	}
	return objects
}

// The install in one file is the chart's, behind the Namespace that it needs, and without hooks: kubectl would run them at once.
func TestManifests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nplbridge.yaml")
	if _, err := command(makefile(t, "manifests", "MANIFESTS="+file)); err != nil {
		t.Fatal(err)
	}
	objects := objectsOf(t, string(read(t, file)))
	namespace, ok := objects[0].(*corev1.Namespace)
	if !ok || namespace.Name != manifests.Namespace || namespace.Labels["pod-security.kubernetes.io/enforce"] != "privileged" {
		t.Fatalf("the first object is %+v, want the Namespace %s, privileged", objects[0], manifests.Namespace)
	}
	kinds := map[string]int{}
	for _, o := range objects {
		m, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		for key := range m.GetAnnotations() {
			if strings.HasPrefix(key, "helm.sh/hook") {
				t.Errorf("%s has %s", m.GetName(), key)
			}
		}
		if m.GetNamespace() != "" && m.GetNamespace() != manifests.Namespace {
			t.Errorf("%s is in namespace %s", m.GetName(), m.GetNamespace())
		}
		kinds[o.GetObjectKind().GroupVersionKind().Kind]++
	}
	for _, kind := range []string{"DaemonSet", "ClusterRole", "ServiceAccount", "ConfigMap", "ValidatingAdmissionPolicy"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s among %v", kind, kinds)
		}
	}
}

// The chart's archive has the version it was packed with, and installs the images of that version.
func TestChartArchive(t *testing.T) {
	dir := t.TempDir()
	if _, err := command(makefile(t, "chart", "DIST="+dir, "VERSION="+version)); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(dir, "nplbridge-9.8.7.tgz")
	out, err := command(exec.CommandContext(t.Context(), helm, manifests.Arguments(archive)...))
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{"ghcr.io/nplbridge/npl-agent:9.8.7", "ghcr.io/nplbridge/lbsync:9.8.7"} {
		if !strings.Contains(out, image) {
			t.Errorf("no image %s is rendered", image)
		}
	}
	objectsOf(t, out)
}

// makefile runs a target of the Makefile.
func makefile(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), "make", append([]string{"-s", "-C", root}, args...)...)
	c.Env = append(os.Environ(), "MAKEFLAGS=") // not those of a make around the tests
	return c
}
