// Package settingstest holds a program's settings against what is written about them elsewhere: the reference and the chart.
package settingstest

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/nplbridge/nplbridge/cmd/internal/drift"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
)

// Reference compares the table with its part of the Markdown file.
func Reference(t *testing.T, file string, table settings.Table) {
	t.Helper()
	var want strings.Builder
	if err := table.Reference(&want); err != nil {
		t.Fatal(err)
	}
	drift.Compare(t, file, table.Program, want.String())
}

// Chart compares the table with the chart: <section>.config in values.yaml has every setting but those in own, which the
// chart sets itself or leaves to the program, with the program's default; values.schema.json knows the same keys.
// different lists settings whose default in the chart is deliberately another.
func Chart(t *testing.T, dir, section string, table settings.Table, own, different []string) {
	t.Helper()
	values := leaves("", dig(t, load(t, dir+"/values.yaml"), section, "config"), "")
	whole := load(t, dir+"/values.schema.json")
	sections := resolve(dig(t, whole, "properties", section, "properties", "config", "properties"), dig(t, whole, "definitions"))
	schema := leaves("", sections, "properties")
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

// resolve puts the definitions of a schema where properties refer to them.
func resolve(properties, definitions map[string]any) map[string]any {
	out := maps.Clone(properties)
	for key, value := range out {
		property, _ := value.(map[string]any)
		reference, _ := property["$ref"].(string)
		if name, is := strings.CutPrefix(reference, "#/definitions/"); is {
			out[key] = definitions[name]
		}
	}
	return out
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
			maps.Copy(out, leaves(prefix+key+".", section, through))
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
