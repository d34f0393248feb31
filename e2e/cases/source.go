package cases

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Source is the numbered tests that a source tree holds, found without running them: functions TestNPL07…, texts "NPL07 …" in test
// files, which name subtests, and stories npl07_….txtar.
type Source struct {
	lists []List
	tests index
	// Problems are numbers that cannot be, or that several tests carry.
	Problems []string
}

// Scan reads the test files of a source tree. Directories that go ignores, such as .ci, are left out.
func Scan(lists []List, tree fs.FS) (Source, error) {
	s := Source{lists: lists, tests: index{}}
	names := newNames(lists)
	err := fs.WalkDir(tree, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if file != "." && strings.HasPrefix(entry.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		found, dir, err := tests(tree, file)
		for _, name := range found {
			c, _, ok, problem := names.find(name)
			switch {
			case problem != nil:
				s.Problems = append(s.Problems, fmt.Sprintf("%s: %v", file, problem))
			case ok:
				s.tests.add(c, Test{dir, name})
			}
		}
		return err
	})
	s.Problems = append(s.Problems, s.tests.shared(all(lists))...)
	return s, err
}

// tests returns the elements of test names that a file may hold, and the package that has them.
func tests(tree fs.FS, file string) (names []string, pkg string, err error) {
	dir, base := path.Split(file)
	dir = strings.TrimSuffix(dir, "/")
	if story, ok := strings.CutSuffix(base, ".txtar"); ok && path.Base(dir) == "testdata" {
		return []string{"/" + story}, path.Dir(dir), nil
	}
	if !strings.HasSuffix(base, "_test.go") {
		return nil, "", nil
	}
	content, err := fs.ReadFile(tree, file)
	if err != nil {
		return nil, "", err
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, content, parser.SkipObjectResolution)
	if err != nil {
		return nil, "", err
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test") {
				names = append(names, n.Name.Name)
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && len(text) < 200 {
				names = append(names, "/"+printed(text))
			}
		}
		return true
	})
	return slices.Compact(names), dir, nil
}

// printed is how `go test` prints the name of a subtest.
func printed(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return '_'
		}
		return r
	}, name)
}
