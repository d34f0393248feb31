package settings

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

var recordTable = Table{
	Program:   "demo",
	EnvPrefix: "DEMO",
	Settings: []Setting{
		{Key: "selector", Kind: Labels, Doc: "labels", Example: "[{key: a, value: b}]"},
		{Key: "pools", Kind: Records, Short: "ranges", Doc: "pools", Example: "[192.0.2.0/24]", Fields: []Setting{
			{Key: "name", Doc: "name"},
			{Key: "ranges", Kind: List, Doc: "ranges"},
			{Key: "selector", Kind: Labels, Doc: "labels"},
			{Key: "onRequest", Kind: Bool, Doc: "request"},
		}},
		{Key: "providers", Kind: Records, Doc: "providers", Fields: []Setting{
			{Key: "name", Doc: "name", Example: "edge"},
			{Key: "token", Doc: "token", Secret: true},
			{Key: "proxy.dir", Default: "/d", Doc: "dir", Example: "/d", Want: func(value any) string {
				if !filepath.IsAbs(value.(string)) {
					return "want an absolute path"
				}
				return ""
			}},
			{Key: "proxy.delay", Kind: Duration, Doc: "delay"},
		}},
		{Key: "proxy.dir", Default: "/d", Doc: "dir"},
		{Key: "proxy.delay", Kind: Duration, Doc: "delay"},
	},
}

func loadRecords(t *testing.T, content string, args ...string) (*Values, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	recordTable.AddFlags(flags)
	if err := flags.Parse(append([]string{"--config=" + file}, args...)); err != nil {
		t.Fatal(err)
	}
	return recordTable.Load(flags)
}

func TestRecords(t *testing.T) {
	v, err := loadRecords(t, `
selector: [{key: example.com/Tier, value: Web}, plain=yes]
pools:
- {name: a, ranges: [192.0.2.0/24, "198.51.100.1"], onRequest: true, selector: [{key: X, value: ""}]}
- {name: b, ranges: 203.0.113.1}
providers:
- name: one
- {name: two, proxy: {dir: /two}}
proxy: {delay: 3s, dir: /outside}
`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := v.Labels("selector"), map[string]string{"example.com/Tier": "Web", "plain": "yes"}; !maps.Equal(got, want) {
		t.Errorf("labels = %v, want %v: the case of their keys counts", got, want)
	}
	pools := v.Records("pools")
	if len(pools) != 2 || !pools[0].Bool("onRequest") || pools[1].Bool("onRequest") || !slices.Equal(pools[0].List("ranges"), []string{"192.0.2.0/24", "198.51.100.1"}) ||
		!maps.Equal(pools[0].Labels("selector"), map[string]string{"X": ""}) || pools[1].At() != "pools[1]" {
		t.Errorf("pools: %v", v.text(recordTable.Settings[1]))
	}
	one, two := v.Records("providers")[0], v.Records("providers")[1]
	if one.String("proxy.dir") != "/outside" || two.String("proxy.dir") != "/two" || two.Duration("proxy.delay").String() != "3s" {
		t.Error("what a record leaves out is not as outside of the list")
	}
	if one.Defaulted("proxy.dir") || !one.Defaulted("token") {
		t.Error("the source of what a record leaves out")
	}
	if got, want := two.Invalid(errors.New("proxy dir: too long")).Error(), "settings, providers[1]: proxy dir: too long (from "+v.File()+")"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestShortRecords(t *testing.T) {
	for name, args := range map[string][]string{"file": nil, "flag": {"--pools=192.0.2.1,192.0.2.2", "--selector=a=b,c="}} {
		v, err := loadRecords(t, "pools: [192.0.2.1, 192.0.2.2]\nselector: [{key: a, value: b}, {key: c}]", args...)
		if err != nil {
			t.Fatal(err)
		}
		pools := v.Records("pools")
		if len(pools) != 1 || pools[0].At() != "" || !slices.Equal(pools[0].List("ranges"), []string{"192.0.2.1", "192.0.2.2"}) {
			t.Errorf("%s: %v", name, v.text(recordTable.Settings[1]))
		}
		if !maps.Equal(v.Labels("selector"), map[string]string{"a": "b", "c": ""}) {
			t.Errorf("%s: %v", name, v.Labels("selector"))
		}
		if _, err := loadRecords(t, "", "--pools="); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRecordErrors(t *testing.T) {
	for content, want := range map[string]string{
		"pools: b":                                    "", // one bare text
		"pools: {a: b}":                               `pools: "map[a:b]" (from @): want a list of records, each with name, ranges, selector, onRequest; for example [192.0.2.0/24]`,
		"pools: [{nam: a}]":                           `@: unknown setting "pools[0].nam"; did you mean name?`,
		"pools: [{name: a}, b]":                       `pools[1]: "b" (from @): want a record with name, ranges, selector, onRequest`,
		"pools: [{onRequest: 3}]":                     `pools[0].onRequest: "3" (from @): want true or false`,
		"pools: [{selector: {a: b}}]":                 `pools[0].selector: "map[a:b]" (from @): want labels: a list of {key, value} in the file, key=value,key=value elsewhere`,
		"selector: [{key: a, valeu: b}]":              `want labels: a list of {key, value}`,
		"selector: [{key: 'a b', value: b}]":          `"a b" is not the key of a label; for example [{key: a, value: b}]`,
		"selector: [{key: a, value: 'b c'}]":          `"b c" is not the value of a label`,
		"selector: [a=b, a=c]":                        "label a stands there twice",
		"providers: [{name: x, proxy: {dir: d}}]":     `providers[0].proxy.dir: "d" (from @): want an absolute path; for example /d`,
		"providers: [{name: x, proxy: {delay: 5}}]":   `providers[0].proxy.delay: "5" (from @): want a duration with a unit`,
		"providers: [{name: x, proxy: 3}]":            `providers[0].proxy: "3" (from @): is a section, not a setting; write its keys below it`,
		"providers: [{name: x, token: [hunter2]}]":    `providers[0].token: "(redacted)"`,
		"providers: [{name: x, proxy: {socket: /s}}]": `unknown setting "providers[0].proxy.socket"`,
	} {
		v, err := loadRecords(t, content)
		if want == "" {
			if err != nil || v.Records("pools")[0].List("ranges")[0] != "b" {
				t.Errorf("%s: %v", content, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: no error", content)
			continue
		}
		setting, ok := errors.AsType[*Error](err)
		if !ok || !strings.Contains(strings.ReplaceAll(err.Error(), setting.Source, "@"), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s:\ngot  %v\nwant %s", content, err, want)
		}
	}
}

// What is printed can be read again, and means the same.
func TestPrintRecords(t *testing.T) {
	v, err := loadRecords(t, "providers: [{name: x, token: hunter2, proxy: {dir: /x}}]\nselector: [{key: A, value: b}]\npools: [{name: p, ranges: [192.0.2.1]}]")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := v.Print(&out); err != nil {
		t.Fatal(err)
	}
	want := `selector: [{"key":"A","value":"b"}] # @
pools: [{"name":"p","ranges":["192.0.2.1"]}] # @
providers: [{"name":"x","proxy":{"dir":"/x"},"token":"(redacted)"}] # @
proxy:
  dir: "/d" # default
  delay: 0s # default
`
	if diff := cmp.Diff(want, strings.ReplaceAll(out.String(), v.File(), "@")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	again, err := loadRecords(t, out.String())
	if err != nil {
		t.Fatal(err)
	}
	if _, restart := v.Changed(again); !slices.Equal(restart, []string{"providers"}) { // its secret was not printed
		t.Errorf("after printing and reading, these differ: %v", restart)
	}
}

func TestReferenceOfRecords(t *testing.T) {
	var out strings.Builder
	if err := recordTable.Reference(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| `providers` |  |  |  | providers (list of records) |",
		"| `pools` | `--pools` | `DEMO_POOLS` |",
		"### Each record of `pools`\n",
		"| `selector` |  | labels (labels) |",
		"| `name` |  | name (text) | `edge` |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if strings.Count(out.String(), "`proxy.dir`") != 1 {
		t.Errorf("proxy.dir is not there exactly once:\n%s", &out)
	}
}
