package cases

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var update = flag.Bool("update", false, "write docs/reference/cases.md")

const (
	root = "../.."
	page = "docs/reference/cases.md"
)

// two is a list of two cases.
func two(t *testing.T) []List {
	t.Helper()
	l, err := parse([]byte("name: ABC\nsections:\n- cases: {1: one, 2: two}"))
	if err != nil {
		t.Fatal(err)
	}
	return []List{l}
}

func TestParseRefuses(t *testing.T) {
	for name, content := range map[string]string{
		"a gap":        "name: ABC\nsections: [{cases: {1: one, 3: three}}]",
		"twice":        "name: ABC\nsections: [{cases: {1: one}}, {cases: {1: one}}]",
		"no sentence":  `{name: ABC, sections: [{cases: {1: ""}}]}`,
		"lower case":   "name: abc\nsections: [{cases: {1: one}}]",
		"unknown key":  "name: ABC\nchapters: []",
		"twice in one": "name: ABC\nsections:\n- cases:\n    1: one\n    1: again",
	} {
		if _, err := parse([]byte(content)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRun(t *testing.T) {
	const good = "p TestABC01One pass\np TestX/abc02_two pass\n"
	for name, test := range map[string]struct {
		events   string // package, name, action
		complete bool
		want     []string
	}{
		"all pass":                  {good, true, nil},
		"without a number":          {good + "p TestX pass\np TestABC fail\np TestXABC01 fail\np TestX/has_ABC01 fail\np  fail", true, nil},
		"the same test twice":       {good + good, true, nil},
		"nothing ran":               {"", true, []string{"2 of 2 cases have no test: ABC01 ABC02"}},
		"nothing ran, fast":         {"", false, nil},
		"failed, then passed":       {"p TestABC01One fail\n" + good, true, []string{"ABC01 failed: p TestABC01One"}},
		"failed, fast":              {"p TestABC01One fail\n", false, nil}, // told already
		"skipped":                   {good + "p TestABC01One skip", true, []string{"ABC01 was skipped: p TestABC01One"}},
		"a part skipped":            {good + "p TestABC01One/x skip", true, []string{"ABC01 was skipped: p TestABC01One"}},
		"crashed":                   {"p TestABC01One run\np TestABC01One/x pass\np TestX/abc02_two pass", true, []string{"ABC01 did not end: p TestABC01One"}},
		"two tests":                 {good + "q TestABC01One pass", false, []string{"ABC01 has 2 tests, it is to have one: p TestABC01One, q TestABC01One"}},
		"two numbers":               {good + "p TestABC01One/ABC02 pass", false, []string{"p: TestABC01One/ABC02 carries more than one number"}},
		"two numbers in an element": {good + "p TestX/ABC01_and_ABC02 pass", false, []string{"p: TestX/ABC01_and_ABC02 carries more than one number"}},
		"unknown":                   {good + "p TestABC03 run\np TestABC03 pass", false, []string{"p: TestABC03 carries ABC03, which is in no list"}},
		"one digit":                 {good + "p TestX/ABC1 pass", false, []string{"p: TestX/ABC1 carries ABC1, which is in no list"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRun(two(t))
			for line := range strings.Lines(test.events) {
				f := strings.Split(strings.TrimSuffix(line, "\n"), " ")
				r.Add(f[0], f[1], f[2])
			}
			if got := r.Problems(test.complete); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestScan(t *testing.T) {
	tree := fstest.MapFS{
		"a/a_test.go":              {Data: []byte("package a\nfunc TestABC01One(t T) {}\nfunc (x) TestABC02(t T) {}\nconst c = \"see ABC02\"")},
		"b/testdata/abc02_x.txtar": {},
		"b/abc01.txtar":            {},
		"b/b.go":                   {Data: []byte(`package b; const c = "ABC01 no test"`)},
		".c/c_test.go":             {Data: []byte(`package c; const c = "ABC01 left out"`)},
	}
	s, err := Scan(two(t), tree)
	if err != nil || len(s.Problems) > 0 {
		t.Fatalf("%v, %q", err, s.Problems)
	}
	if got, want := s.Page(), "| ABC01 | one | a | `TestABC01One` |\n| ABC02 | two | b | `abc02_x` |\n"; !strings.HasSuffix(got, want) {
		t.Errorf("the page ends with\n%s\nwant\n%s", got, want)
	}
	r := NewRun(two(t))
	r.Add("a", "TestABC01One", "pass")
	r.Add("b", "TestStories/abc02_x", "pass")
	if got := r.Differences(s); len(got) > 0 {
		t.Errorf("differences where there are none: %q", got)
	}
	r.Add("b", "TestStories/abc02_y", "pass")
	if got := r.Differences(s); len(got) != 1 || !strings.HasPrefix(got[0], "ABC02: b TestStories/abc02_x, b TestStories/abc02_y ran") {
		t.Errorf("differences: %q", got)
	}

	tree["d/d_test.go"] = &fstest.MapFile{Data: []byte("package d\nvar tests = map[string]int{\"ABC02 in a table\": 1, `ABC07 unknown`: 2}")}
	s, err = Scan(two(t), tree)
	want := []string{
		"d/d_test.go: /ABC07_unknown carries ABC07, which is in no list",
		"ABC02 has 2 tests, it is to have one: b /abc02_x, d /ABC02_in_a_table",
	}
	if err != nil || !slices.Equal(s.Problems, want) {
		t.Errorf("%v, problems %q, want %q", err, s.Problems, want)
	}
}

// The committed page is what the lists and the tests' names make of it.
func TestPage(t *testing.T) {
	lists, err := Lists()
	if err != nil {
		t.Fatal(err)
	}
	source, err := Scan(lists, os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range source.Problems {
		t.Error(problem)
	}
	file := filepath.Join(root, page)
	if *update {
		if err := os.WriteFile(file, []byte(source.Page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != source.Page() {
		t.Errorf("%s is not what the tests say: run make generate", page)
	}
}
