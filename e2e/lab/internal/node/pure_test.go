package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/container"
)

func TestRepository(t *testing.T) {
	for image, want := range map[string]string{
		"echo":                            "echo",
		"echo:1.0":                        "echo",
		"ghcr.io/nplbridge/echo":          "ghcr.io/nplbridge/echo",
		"ghcr.io/nplbridge/echo:dev":      "ghcr.io/nplbridge/echo",
		"localhost:5000/echo":             "localhost:5000/echo",
		"localhost:5000/echo:1@sha256:ab": "localhost:5000/echo",
		"echo@sha256:ab":                  "echo",
	} {
		if got := repository(image); got != want {
			t.Errorf("%s: got %s, want %s", image, got, want)
		}
	}
}

func TestHostPath(t *testing.T) {
	for path, want := range map[string]struct {
		real     string
		readOnly bool
	}{
		"/run/x":         {"/state/host/run/x", false},
		"/var/lib/../x":  {"/state/host/var/x", false},
		"/../etc":        {"/state/host/etc", false},
		"/":              {"/state/host", false},
		"/usrx":          {"/state/host/usrx", false},
		"/lib/modules":   {"/lib/modules", true},
		"/usr":           {"/usr", true},
		"/proc/sys/net":  {"/proc/sys/net", false},
		"/sys/fs/bpf":    {"/sys/fs/bpf", false},
		"/usr/../run/ab": {"/state/host/run/ab", false},
	} {
		if real, readOnly := hostPath("/state", path); real != want.real || readOnly != want.readOnly {
			t.Errorf("%s: got %s, %v; want %s, %v", path, real, readOnly, want.real, want.readOnly)
		}
	}
}

func TestMakeHostPath(t *testing.T) {
	dir := t.TempDir()
	file, missing := filepath.Join(dir, "file"), filepath.Join(dir, "a", "b")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	try := func(real string, kind corev1.HostPathType) error {
		return makeHostPath(real, &corev1.HostPathVolumeSource{Path: "/x", Type: &kind})
	}
	for _, tc := range []struct {
		real string
		kind corev1.HostPathType
		want string
	}{
		{dir, corev1.HostPathDirectory, ""},
		{file, corev1.HostPathUnset, ""},
		{file, corev1.HostPathDirectory, "not a Directory"},
		{dir, corev1.HostPathFile, "not a File"},
		{dir, corev1.HostPathSocket, "not a Socket"},
		{"/dev/null", corev1.HostPathCharDev, ""},
		{missing, corev1.HostPathDirectory, "does not exist, and type Directory does not create it"},
		{missing, corev1.HostPathFileOrCreate, ""},
		{missing, corev1.HostPathFile, ""},
		{missing + "c", corev1.HostPathDirectoryOrCreate, ""},
		{missing + "c", corev1.HostPathDirectory, ""},
	} {
		err := try(tc.real, tc.kind)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s as %q: got %v, want %q", tc.real, tc.kind, err, tc.want)
		}
	}
}

func TestSubPathStaysInside(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"../x", "out/passwd", "out/new/dir"} {
		if got, err := below(dir, path, true); err == nil {
			t.Errorf("%s: got %s, want an error", path, got)
		}
	}
	if got, err := below(dir, "a/b", true); err != nil || got != filepath.Join(dir, "a/b") {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := below(dir, "none", false); err == nil {
		t.Error("made what a volume of files does not have")
	}
}

func TestRightsOf(t *testing.T) {
	for name, tc := range map[string]struct {
		outer *corev1.PodSecurityContext
		inner *corev1.SecurityContext
		want  container.User
		err   string
	}{
		"nothing": {nil, nil, container.User{}, ""},
		"non-root without a user is the usual one": {&corev1.PodSecurityContext{RunAsNonRoot: new(true)}, nil, container.User{UID: nonRootUser, GID: nonRootUser}, ""},
		"the container's word counts": {
			&corev1.PodSecurityContext{RunAsUser: new(int64(1)), RunAsGroup: new(int64(2)), SupplementalGroups: []int64{3}, FSGroup: new(int64(4))},
			&corev1.SecurityContext{RunAsUser: new(int64(5)), AllowPrivilegeEscalation: new(false)},
			container.User{UID: 5, GID: 2, Groups: []int{3, 4}, NoNewPrivs: true}, "",
		},
		"contradiction":      {&corev1.PodSecurityContext{RunAsUser: new(int64(0))}, &corev1.SecurityContext{RunAsNonRoot: new(true)}, container.User{}, "runAsNonRoot and runAsUser 0"},
		"no such capability": {nil, &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"X"}}}, container.User{}, `"X": no such capability`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := rightsOf(&corev1.Pod{Spec: corev1.PodSpec{SecurityContext: tc.outer}}, &corev1.Container{SecurityContext: tc.inner})
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %q", err, tc.err)
				}
				return
			}
			got.user.Capabilities = nil
			if diff := cmp.Diff(tc.want, got.user); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func TestUnsupported(t *testing.T) {
	for want, spec := range map[string]corev1.PodSpec{
		"":                      {Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}},
		"hostPID":               {HostPID: true},
		`volume "v": this kind`: {Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}}}},
		"readinessProbe: grpc":  {Containers: []corev1.Container{{ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{}}}}}},
	} {
		err := unsupported(&corev1.Pod{Spec: spec})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestStatusPatchLeavesForeignThings(t *testing.T) {
	known := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: "foreign", Status: corev1.ConditionFalse}, {Type: corev1.PodReady, Status: corev1.ConditionFalse},
	}}}
	status := *known.Status.DeepCopy()
	status.Conditions[1].Status = corev1.ConditionTrue
	got, err := statusPatch(known, status)
	want := `{"metadata":{"uid":"u1"},"status":{"$setElementOrder/conditions":[{"type":"foreign"},{"type":"Ready"}],"conditions":[{"status":"True","type":"Ready"}]}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}

func TestNewer(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{{"10", "9", true}, {"9", "10", false}, {"9", "9", true}, {"x", "9", true}} {
		if got := newer(tc.a, tc.b); got != tc.want {
			t.Errorf("%s after %s: got %v", tc.a, tc.b, got)
		}
	}
}

func TestConfigNamesWhatIsMissing(t *testing.T) {
	_, err := New(Config{Name: "n", StateDir: "relative", Programs: map[string]string{"x": "x"}})
	for _, want := range []string{"Addresses is empty", "RESTConfig is nil", "Network is nil", "NetNSPath is empty", `StateDir "relative" must be an absolute path`, `Programs["x"] = "x"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}
