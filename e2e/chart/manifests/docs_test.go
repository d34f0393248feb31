package manifests

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// The chart's README lists every value with its meaning: helm-docs writes it from values.yaml. With UPDATE=1 this test does.
func TestREADME(t *testing.T) {
	docs, err := Tool(t.Context(), root, "helm-docs", "helm-docs")
	if err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	if err := os.CopyFS(into, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	write := exec.CommandContext(t.Context(), docs, "--sort-values-order=file", "--log-level=warning")
	write.Dir = into
	if _, err := run(write); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(into, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(filepath.Join(chart, "README.md"), page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(page), read(t, "charts/nplbridge/README.md")); diff != "" {
		t.Errorf("UPDATE=1 go test ./e2e/chart/manifests -run TestREADME writes it: -want +charts/nplbridge/README.md\n%s", diff)
	}
	rows := regexp.MustCompile(`(?m)^\| ([a-z][\w.]*) \| \w+ \| .* \| (.*) \|$`).FindAllStringSubmatch(string(page), -1)
	if len(rows) < 100 {
		t.Errorf("%d values", len(rows))
	}
	for _, row := range rows {
		if strings.TrimSpace(row[2]) == "" {
			t.Errorf("%s has no meaning: put a comment that begins with # -- above it", row[1])
		}
	}
}

// schema is what these tests read of a JSON schema.
type schema struct {
	Ref                  string `json:"$ref"`
	Properties           map[string]schema
	AdditionalProperties any
	Items                *schema
	Definitions          map[string]schema
}

// paths returns the values that a schema knows, "agent.config.portRange", without the insides of those that are free.
func (s schema) paths(root schema, at string) []string {
	if name, is := strings.CutPrefix(s.Ref, "#/definitions/"); is {
		return root.Definitions[name].paths(root, at)
	}
	if len(s.Properties) == 0 {
		return []string{at}
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(s.Properties)) {
		out = append(out, s.Properties[key].paths(root, strings.TrimPrefix(at+"."+key, "."))...)
	}
	return out
}

// open returns the objects below a schema that take any property.
func (s schema) open(at string) []string {
	var out []string
	if len(s.Properties) > 0 && s.AdditionalProperties != false {
		out = append(out, at)
	}
	for key, p := range s.Properties {
		out = append(out, p.open(at+"/"+key)...)
	}
	for key, d := range s.Definitions {
		out = append(out, d.open(at+"/"+key)...)
	}
	if s.Items != nil {
		out = append(out, s.Items.open(at+"[]")...)
	}
	return out
}

func has(values map[string]any, path string) bool {
	head, rest, nested := strings.Cut(path, ".")
	value, ok := values[head]
	if !nested || !ok {
		return ok
	}
	inner, isMap := value.(map[string]any)
	return isMap && has(inner, rest)
}

// Every value that the schema takes is in values.yaml, where people read about it, and none takes what it does not know.
func TestSchemaIsWhole(t *testing.T) {
	var s schema
	if err := json.Unmarshal([]byte(read(t, "charts/nplbridge/values.schema.json")), &s); err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(read(t, "charts/nplbridge/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	for _, path := range s.paths(s, "") {
		if path == "global" || strings.HasSuffix(path, ".claims") || strings.Contains(path, "ffinity.") || strings.HasSuffix(path, ".requests") || strings.HasSuffix(path, ".limits") {
			continue // Kubernetes' own
		}
		if !has(values, path) {
			t.Errorf("values.yaml has no %s", path)
		}
	}
	if lax := s.open(""); lax != nil {
		t.Errorf("any property is taken in %q", lax)
	}
}

// What the chart holds is what helm and Artifact Hub want of one.
func TestLint(t *testing.T) {
	for name, set := range combinations {
		args := []string{"lint", "--strict", chart, "--namespace", Namespace, "--kube-version", "v1.36.3"}
		for _, s := range set {
			if strings.HasPrefix(s, "--") { // lint asks no API server
				args = nil
				break
			}
			args = append(args, "--set", s)
		}
		if args == nil {
			continue
		}
		if out, err := run(exec.CommandContext(t.Context(), helm, args...)); err != nil || strings.Contains(out, "WARNING") || strings.Contains(out, "[INFO]") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	var meta struct {
		Version, AppVersion, Icon, KubeVersion string
		Sources, Keywords                      []string
		Annotations                            map[string]string
	}
	if err := yaml.Unmarshal([]byte(read(t, "charts/nplbridge/Chart.yaml")), &meta); err != nil {
		t.Fatal(err)
	}
	if meta.Icon == "" || meta.KubeVersion == "" || len(meta.Sources) == 0 || len(meta.Keywords) == 0 {
		t.Errorf("%+v", meta)
	}
	var images []struct {
		Name, Image string
		Platforms   []string
	}
	if err := yaml.UnmarshalStrict([]byte(meta.Annotations["artifacthub.io/images"]), &images); err != nil {
		t.Fatal(err)
	}
	rendered := map[string]bool{}
	for _, template := range templates(render(t)) {
		for _, c := range template.Spec.Containers {
			rendered[c.Image] = true
		}
	}
	for _, image := range images {
		if !rendered[image.Image] {
			t.Errorf("Artifact Hub is told of %s; the chart has %v", image.Image, slices.Sorted(maps.Keys(rendered)))
		}
		delete(rendered, image.Image)
	}
	if len(rendered) > 0 {
		t.Errorf("Artifact Hub is not told of %v", rendered)
	}
}
