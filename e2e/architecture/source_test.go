package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// each parses every non-test file of ours, in path order.
func each(t *testing.T, visit func(path string, files *token.FileSet, file *ast.File)) {
	t.Helper()
	all := packages(t)
	var paths []string
	for path, p := range all {
		if p.ours() {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		p := all[path]
		for _, name := range p.GoFiles {
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			visit(p.path(), files, file)
		}
	}
}

// Nothing registers itself: what a program does begins in its main.
func TestNoInit(t *testing.T) {
	each(t, func(_ string, files *token.FileSet, file *ast.File) {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: func init", files.Position(f.Pos()))
			}
		}
	})
}

func TestPurePackagesDoNotReadTheClock(t *testing.T) {
	forbidden := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
	each(t, func(path string, files *token.FileSet, file *ast.File) {
		if !slices.Contains(pure, path) {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := selector.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(forbidden, selector.Sel.Name) {
				t.Errorf("%s: time.%s in a pure package", files.Position(selector.Pos()), selector.Sel.Name)
			}
			return true
		})
	})
}
