package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// What `lbsync import` makes of AKO's configuration is taken by the chart and its schema, and the settings that the chart makes of
// it by lbsync.
func TestImportedValues(t *testing.T) {
	inputs, err := filepath.Glob(filepath.Join(root, "cmd/internal/akoimport/testdata/*.yaml"))
	if err != nil || len(inputs) < 4 {
		t.Fatalf("%q, %v: the inputs are missing", inputs, err)
	}
	for _, input := range inputs {
		t.Run(filepath.Base(input), func(t *testing.T) {
			values := filepath.Join(t.TempDir(), "values.yaml")
			text, err := exec.CommandContext(t.Context(), program("lbsync"), "import", input).Output() // the report goes elsewhere
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(values, text, 0o600); err != nil {
				t.Fatal(err)
			}
			objects := render(t, "--values="+values)
			settings := filepath.Join(t.TempDir(), "settings.yaml")
			for _, o := range objects {
				if m, ok := o.(*corev1.ConfigMap); ok && strings.HasSuffix(m.Name, "-lbsync") && m.Data["settings.yaml"] != "" {
					if err := os.WriteFile(settings, []byte(m.Data["settings.yaml"]), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			out, err := command(exec.CommandContext(t.Context(), program("lbsync"), "config", "validate", "--config", settings))
			if err != nil || out != "the settings are good\n" {
				t.Errorf("%v\n%s", err, out)
			}
			if strings.Contains(string(text), "hunter2") {
				t.Error("a secret is in the values")
			}
		})
	}
}
