// Package claims holds the documentation to its word: a claim about speed or safety stands beside the command that shows it, a command is for
// something that exists, and a link leads where it says.
package claims

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nplbridge/nplbridge/e2e/cases"
)

const root = "../.."

// tree is what the documentation may name.
type tree struct {
	pages   map[string]string   // Markdown files
	tests   map[string][]string // by package directory, names of tests and benchmarks
	files   map[string]bool     // Go files and their directories
	stories []string
	targets []string // of make
	actions string   // the source of chaos, which has its actions by name
	parts   string   // the source of bench, likewise
	cases   []cases.List
}

var (
	function = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	target   = regexp.MustCompile(`(?m)^([a-z-]+):`)
)

// once reads the tree for all tests of the package, which takes most of their time.
var once = sync.OnceValues(read)

func look(t *testing.T) *tree {
	t.Helper()
	out, err := once()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func read() (*tree, error) {
	f := os.DirFS(root)
	out := &tree{pages: map[string]string{}, tests: map[string][]string{}, files: map[string]bool{}}
	var err error
	if out.cases, err = cases.Lists(); err != nil {
		return nil, err
	}
	err = fs.WalkDir(f, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if file != "." && (strings.HasPrefix(entry.Name(), ".") || file == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		return out.add(f, file)
	})
	if err == nil && (len(out.pages) == 0 || len(out.tests) == 0 || len(out.stories) == 0 || len(out.targets) == 0 || out.actions == "" || out.parts == "") {
		err = fmt.Errorf("%d pages, %d packages with tests, %d stories, %d targets of make: not all of the tree was read", len(out.pages), len(out.tests), len(out.stories), len(out.targets))
	}
	return out, err
}

func (tr *tree) add(f fs.FS, file string) error {
	dir, name := path.Dir(file), path.Base(file)
	story, isStory := strings.CutSuffix(name, ".txtar")
	switch {
	case isStory && dir == "e2e/stories/testdata":
		tr.stories = append(tr.stories, story)
		return nil
	case name != "Makefile" && !strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, ".md"):
		return nil
	}
	content, err := fs.ReadFile(f, file)
	if err != nil {
		return err
	}
	text := string(content)
	switch {
	case file == "Makefile":
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			tr.targets = append(tr.targets, m[1])
		}
	case strings.HasSuffix(name, ".md"):
		tr.pages[file] = text
	case strings.HasSuffix(name, "_test.go"):
		for _, m := range function.FindAllStringSubmatch(text, -1) {
			tr.tests[dir] = append(tr.tests[dir], m[1])
		}
	default:
		tr.files[file] = true
		for d := dir; d != "."; d = path.Dir(d) {
			tr.files[d] = true
		}
		switch dir {
		case "e2e/chaos":
			tr.actions += text
		case "e2e/bench":
			tr.parts += text
		}
	}
	return nil
}

// hasCase reports whether there is a case of this name, NPL07.
func (tr *tree) hasCase(name string) bool {
	for _, l := range tr.cases {
		for _, s := range l.Sections {
			for number := range s.Cases {
				if (cases.Case{List: l.Name, Number: number}).String() == name {
					return true
				}
			}
		}
	}
	return false
}

// problem says what is wrong with a command of the documentation, up to its first pipe, or nothing: also of one that is no business of this package.
func (tr *tree) problem(command string) error {
	words := split(command)
	if pipe := slices.Index(words, "|"); pipe >= 0 {
		words = words[:pipe]
	}
	if len(words) < 2 {
		return nil
	}
	switch {
	case words[0] == "make":
		return tr.makes(words[1:])
	case words[0] == "go" && words[1] == "test":
		return tr.goTest(words[2:])
	case words[0] == "go" && words[1] == "run" && len(words) > 2:
		return tr.goRun(words[2:])
	}
	return nil
}

func (tr *tree) makes(words []string) error {
	for _, word := range words {
		key, value, variable := strings.Cut(word, "=")
		switch {
		case !variable && !slices.Contains(tr.targets, word):
			return fmt.Errorf("make has no target %q", word)
		case variable && key == "ARGS":
			if script, ok := strings.CutPrefix(value, "--script="); ok && script != "..." {
				return tr.script(script)
			}
		}
	}
	return nil
}

// script holds the steps of a chaos script, rollout:1,agent-kill:2, to the actions that there are.
func (tr *tree) script(steps string) error {
	for step := range strings.SplitSeq(steps, ",") {
		action, _, _ := strings.Cut(step, ":")
		if !strings.Contains(tr.actions, fmt.Sprintf("{%q, ", action)) {
			return fmt.Errorf("chaos has no action %q", action)
		}
	}
	return nil
}

func (tr *tree) goRun(words []string) error {
	dir, local := strings.CutPrefix(words[0], "./")
	if local && !tr.files[dir] {
		return fmt.Errorf("there is no program %s", words[0])
	}
	if i := slices.Index(words, "--only"); dir == "e2e/cmd/bench" && i > 0 && i+1 < len(words) {
		for part := range strings.SplitSeq(words[i+1], ",") {
			if !strings.Contains(tr.parts, fmt.Sprintf("{%q, ", part)) {
				return fmt.Errorf("bench has no part %q", part)
			}
		}
	}
	return nil
}

func (tr *tree) goTest(words []string) error {
	options := map[string]string{}
	var dirs []string
	for i := 0; i < len(words); i++ {
		dir, local := strings.CutPrefix(words[i], "./")
		switch {
		case local:
			dirs = append(dirs, dir)
		case (words[i] == "-run" || words[i] == "-bench") && i+1 < len(words):
			options[words[i]] = words[i+1]
			i++
		}
	}
	if len(dirs) == 0 {
		return nil // a way of speaking: `go test -bench` of that package
	}
	for _, dir := range dirs {
		if below, all := strings.CutSuffix(dir, "/..."); all {
			if !tr.files[below] {
				return fmt.Errorf("there is nothing in ./%s", dir)
			}
			continue
		}
		if len(tr.tests[dir]) == 0 {
			return fmt.Errorf("there are no tests in ./%s", dir)
		}
		if err := tr.selects(dir, "Test", options["-run"]); err != nil {
			return err
		}
		if err := tr.selects(dir, "Benchmark", options["-bench"]); err != nil {
			return err
		}
	}
	return nil
}

// selects holds a -run or -bench to the functions of a package: each alternative must find one. Of what is below them only stories are known.
func (tr *tree) selects(dir, kind, pattern string) error {
	if pattern == "" || pattern == "^$" {
		return nil
	}
	top, below, _ := strings.Cut(pattern, "/")
	var names []string
	for _, name := range tr.tests[dir] {
		if strings.HasPrefix(name, kind) {
			names = append(names, name)
		}
	}
	if err := each(top, names); err != nil {
		return fmt.Errorf("./%s: %w", dir, err)
	}
	if dir == "e2e/stories" {
		return each(below, tr.stories)
	}
	return nil
}

// each fails unless every alternative of a pattern, a|b or ^(a|b)$, matches one of the names.
func each(pattern string, names []string) error {
	open, closed := "", ""
	if inner, ok := strings.CutPrefix(pattern, "^("); ok {
		pattern, open, closed = strings.TrimSuffix(inner, ")$"), "^(", ")$"
	}
	for alternative := range strings.SplitSeq(pattern, "|") {
		expression, err := regexp.Compile(open + alternative + closed)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(names, expression.MatchString) {
			return fmt.Errorf("nothing is called %q", alternative)
		}
	}
	return nil
}
