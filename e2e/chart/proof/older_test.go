package proof

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nplbridge/nplbridge/e2e/chart/manifests"
)

// foreign are API groups that are not Kubernetes' own, and of which its fixtures know nothing.
var foreign = []string{"monitoring.coreos.com"}

// newer are the fields of objects that exist only where the API server has them.
var newer = []string{}

// Kubernetes' module k8s.io/api carries, for the versions before its own, an object of each kind with every field set. A kind or a field of
// the chart that such a version does not have is named.
func TestManifestsOnOlderVersions(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	versions, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "testdata", "v*"))
	if err != nil || len(versions) == 0 {
		t.Fatalf("%d versions, %v", len(versions), err)
	}
	root, err := manifests.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for name, set := range combinations {
		rendered, err := theLab.Helm(t.Context(), manifests.Arguments(root+"/charts/nplbridge", set...)...)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq("\n"+rendered, "\n---\n") {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(document), &object); err != nil || object == nil {
				continue
			}
			group, version, grouped := strings.Cut(fmt.Sprint(object["apiVersion"]), "/")
			if !grouped {
				group, version = "core", group
			}
			if slices.Contains(foreign, group) {
				continue
			}
			kind := fmt.Sprintf("%s.%s.%s", group, version, object["kind"])
			kinds[kind] = true
			for _, dir := range versions {
				for _, problem := range missing(t, filepath.Join(dir, kind+".json"), object) {
					if !slices.Contains(newer, kind+problem) {
						t.Errorf("%s: Kubernetes %s does not know %s%s", name, filepath.Base(dir), kind, problem)
					}
				}
			}
		}
	}
	for i := range versions {
		versions[i] = filepath.Base(versions[i])
	}
	t.Logf("%d kinds against %v", len(kinds), versions)
}

// missing lists the fields of an object that the fixture does not have; "" where there is no such kind.
func missing(t *testing.T, fixture string, object map[string]any) []string {
	t.Helper()
	content, err := os.ReadFile(fixture)
	if errors.Is(err, fs.ErrNotExist) {
		return []string{""}
	}
	var full map[string]any
	if err := errors.Join(err, json.Unmarshal(content, &full)); err != nil {
		t.Fatal(err)
	}
	return lacks(full, object, "")
}

// lacks compares field names; of a list the fixture has one element, of a map with free keys one key.
func lacks(full, object any, at string) (out []string) {
	switch object := object.(type) {
	case map[string]any:
		known, is := full.(map[string]any)
		if !is {
			return nil // free form
		}
		for key, value := range object {
			if inner, has := known[key]; has {
				out = append(out, lacks(inner, value, at+"."+key)...)
			} else if inner, free := known[lastWord(at)+"Key"]; free {
				out = append(out, lacks(inner, value, at)...)
			} else {
				out = append(out, at+"."+key)
			}
		}
	case []any:
		known, is := full.([]any)
		if !is || len(known) == 0 {
			return nil
		}
		for _, value := range object {
			out = append(out, lacks(known[0], value, at)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func lastWord(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }
