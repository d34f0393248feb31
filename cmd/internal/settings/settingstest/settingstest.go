// Package settingstest holds a program's settings against what is written about them elsewhere: the reference and the chart.
package settingstest

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/nplbridge/nplbridge/cmd/internal/settings"
)

var update = flag.Bool("update", false, "write the generated part of the reference instead of comparing it")

// Reference compares the table with its part of the Markdown file, which stands between "<!-- begin <program> -->" and
// "<!-- end <program> -->". With -update it writes that part.
func Reference(t *testing.T, file string, table settings.Table) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	if err := table.Reference(&want); err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), fmt.Sprintf("<!-- begin %s -->\n", table.Program))
	got, after, ended := strings.Cut(rest, fmt.Sprintf("<!-- end %s -->\n", table.Program))
	if !found || !ended {
		t.Fatalf("%s has no part between <!-- begin %s --> and <!-- end %[2]s -->", file, table.Program)
	}
	if *update {
		part := fmt.Sprintf("<!-- begin %s -->\n%s<!-- end %[1]s -->\n", table.Program, want.String())
		if err := os.WriteFile(file, []byte(before+part+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want.String(), got); diff != "" {
		t.Errorf("%s differs from the code, run `make generate` (-code +file):\n%s", file, diff)
	}
}

// Chart compares the table with the chart: <section>.config in values.yaml has every setting but those in own, which the
// chart sets itself or leaves to the program, with the program's default; values.schema.json knows the same keys.
// different lists settings whose default in the chart is deliberately another.
func Chart(t *testing.T, dir, section string, table settings.Table, own, different []string) {
	t.Helper()
	values := leaves("", dig(t, load(t, dir+"/values.yaml"), section, "config"), "")
	schema := leaves("", dig(t, load(t, dir+"/values.schema.json"), "properties", section, "properties", "config", "properties"), "properties")
	var want []string
	for _, s := range table.Settings {
		if slices.Contains(own, s.Key) {
			continue
		}
		want = append(want, s.Key)
		if got := text(values[s.Key]); got != s.DefaultText() && !slices.Contains(different, s.Key) {
			t.Errorf("values.yaml has %s.config.%s: %s, the program's default is %s", section, s.Key, got, s.DefaultText())
		}
	}
	slices.Sort(want)
	for name, got := range map[string]map[string]any{"values.yaml": values, "values.schema.json": schema} {
		var keys []string
		for key := range got {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		if diff := cmp.Diff(want, keys); diff != "" {
			t.Errorf("%s, %s.config: -settings +chart:\n%s", name, section, diff)
		}
	}
}

func load(t *testing.T, file string) map[string]any {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := yaml.Unmarshal(content, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func dig(t *testing.T, m map[string]any, path ...string) map[string]any {
	t.Helper()
	for _, key := range path {
		next, ok := m[key].(map[string]any)
		if !ok {
			t.Fatalf("no %s in %s", key, strings.Join(path, "."))
		}
		m = next
	}
	return m
}

// leaves flattens values (through "") or a schema (through "properties") to dotted keys.
func leaves(prefix string, m map[string]any, through string) map[string]any {
	out := map[string]any{}
	for key, value := range m {
		section, isMap := value.(map[string]any)
		if isMap && through != "" {
			section, isMap = section[through].(map[string]any)
		}
		if isMap {
			for k, v := range leaves(prefix+key+".", section, through) {
				out[k] = v
			}
		} else {
			out[prefix+key] = value
		}
	}
	return out
}

// text is a value from YAML as Setting.DefaultText writes the same value.
func text(value any) string {
	list, ok := value.([]any)
	if !ok {
		return fmt.Sprint(value)
	}
	items := make([]string, 0, len(list))
	for _, item := range list {
		items = append(items, fmt.Sprint(item))
	}
	return strings.Join(items, ",")
}
