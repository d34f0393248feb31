package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/environ"
)

func inputs() Inputs {
	return Inputs{
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"a": "b"}}},
		Objects: environ.Objects{
			ConfigMaps: map[string]*corev1.ConfigMap{"cm": {Data: map[string]string{"k": "v", "l": "w"}, BinaryData: map[string][]byte{"bin": {0}}}},
			Secrets:    map[string]*corev1.Secret{"s": {Data: map[string][]byte{"k": []byte("secret")}}},
		},
		Token: func(p *corev1.ServiceAccountTokenProjection) (string, error) {
			if p.Audience == "bad" {
				return "", errors.New("no token")
			}
			return "token for " + p.Audience, nil
		},
	}
}

func named(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

func TestOf(t *testing.T) {
	configMap := func(s corev1.ConfigMapVolumeSource) corev1.VolumeSource { return corev1.VolumeSource{ConfigMap: &s} }
	projected := func(sources ...corev1.VolumeProjection) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: new(int32(0o600))}}
	}
	for name, tc := range map[string]struct {
		source corev1.VolumeSource
		want   Payload
		none   bool
		err    string
	}{
		"configMap": {source: configMap(corev1.ConfigMapVolumeSource{LocalObjectReference: named("cm")}), want: Payload{"k": {"v", 0o644}, "l": {"w", 0o644}, "bin": {"\x00", 0o644}}},
		"items":     {source: configMap(corev1.ConfigMapVolumeSource{LocalObjectReference: named("cm"), Items: []corev1.KeyToPath{{Key: "k", Path: "dir/x", Mode: new(int32(0o400))}}}), want: Payload{"dir/x": {"v", 0o400}}},
		"no key":    {source: configMap(corev1.ConfigMapVolumeSource{LocalObjectReference: named("cm"), Items: []corev1.KeyToPath{{Key: "none", Path: "x"}}}), err: `references non-existent key "none" of configmap cm`},
		"optional":  {source: configMap(corev1.ConfigMapVolumeSource{LocalObjectReference: named("none"), Optional: new(true)}), want: Payload{}},
		"missing":   {source: configMap(corev1.ConfigMapVolumeSource{LocalObjectReference: named("none")}), err: `volume "v": configmap "none" not found`},
		"escape":    {source: configMap(corev1.ConfigMapVolumeSource{LocalObjectReference: named("cm"), Items: []corev1.KeyToPath{{Key: "k", Path: "a/../../x"}}}), err: "must stay inside the volume"},
		"reserved":  {source: configMap(corev1.ConfigMapVolumeSource{LocalObjectReference: named("cm"), Items: []corev1.KeyToPath{{Key: "k", Path: "..data"}}}), err: "must stay inside the volume"},
		"secret":    {source: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", DefaultMode: new(int32(0o400))}}, want: Payload{"k": {"secret", 0o400}}},
		"downward":  {source: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}, want: Payload{"labels": {`a="b"`, 0o644}}},
		"projected": {source: projected(
			corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "x"}},
			corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("cm"), Items: []corev1.KeyToPath{{Key: "k", Path: "ca"}}}},
		), want: Payload{"token": {"token for x", 0o600}, "ca": {"v", 0o600}}},
		"no token":     {source: projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "bad"}}), err: "no token"},
		"other source": {source: projected(corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}), err: "not supported"},
		"emptyDir":     {source: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok, err := Of(&corev1.Volume{Name: "v", VolumeSource: tc.source}, inputs())
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %q", err, tc.err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" || ok == tc.none {
				t.Errorf("%v, %v\n%s", ok, err, diff)
			}
		})
	}
}

// read returns what a reader of the volume sees.
func read(t rapid.TB, dir string) Payload {
	t.Helper()
	p := Payload{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		real, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatalf("dangling %s: %v", e.Name(), err)
		}
		err = filepath.Walk(real, func(path string, info os.FileInfo, err error) error {
			if err != nil || info.IsDir() {
				return err
			}
			inside, _ := filepath.Rel(filepath.Dir(real), path)
			data, err := os.ReadFile(path)
			p[inside] = File{string(data), info.Mode().Perm()}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// Whatever was there before, after a write a reader sees exactly the payload, and nothing of the old is left behind.
func TestWriteAnySequence(t *testing.T) {
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		dir := filepath.Join(base, fmt.Sprint(n))
		names := rapid.SampledFrom([]string{"a", "b", "dir/x", "dir/y", "e/f/g"})
		file := rapid.Custom(func(t *rapid.T) File {
			return File{rapid.StringN(0, 3, 8).Draw(t, "data"), rapid.SampledFrom([]os.FileMode{0o644, 0o400, 0o600}).Draw(t, "mode")}
		})
		for _, p := range rapid.SliceOfN(rapid.MapOf(names, file), 1, 4).Draw(t, "payloads") {
			if err := Write(dir, p, -1); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Payload(p), read(t, dir)); diff != "" {
				t.Fatal(diff)
			}
			hidden, _ := filepath.Glob(filepath.Join(dir, "..*"))
			if len(hidden) != 2 {
				t.Fatalf("left behind: %q", hidden)
			}
		}
	})
}

func TestWriteOfTheSameChangesNothing(t *testing.T) {
	dir := t.TempDir()
	p := Payload{"a": {"1", 0o644}}
	link := func() string {
		if err := Write(dir, p, -1); err != nil {
			t.Fatal(err)
		}
		to, err := os.Readlink(filepath.Join(dir, dataLink))
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	first := link()
	if second := link(); second != first {
		t.Error("written again though it is the same: watchers would reload for nothing")
	}
	p["a"] = File{"2", 0o644}
	if second := link(); second == first {
		t.Error("not written though it differs")
	}
}

func TestReferences(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("b")}}},
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}},
			{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("a")}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: named("p")}},
			}}}},
		},
		InitContainers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("e")}}, {ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("b")}}}}},
		Containers: []corev1.Container{{Env: []corev1.EnvVar{
			{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named("k")}}},
			{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("s")}}},
		}}},
	}}
	want := []Reference{{false, "a"}, {false, "b"}, {false, "k"}, {true, "e"}, {true, "p"}, {true, "s"}}
	if diff := cmp.Diff(want, References(pod)); diff != "" {
		t.Error(diff)
	}
}
