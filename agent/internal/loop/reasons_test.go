package loop

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every constant of type Reason is in the one list: the metric has a series for it and the reference a row.
func TestEveryReasonIsExplained(t *testing.T) {
	var declared []string
	for _, dir := range []string{".", "../model"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, source, 0)
			if err != nil {
				t.Fatal(err)
			}
			declared = append(declared, reasonsIn(parsed)...)
		}
	}
	var explained []string
	for _, e := range Explanations() {
		explained = append(explained, string(e.Reason))
		if e.Meaning == "" || e.Remedy == "" || e.Object != "Pod" && e.Object != "Service" {
			t.Errorf("%s is not explained: %+v", e.Reason, e)
		}
	}
	slices.Sort(declared)
	slices.Sort(explained)
	if !slices.Equal(declared, explained) || len(declared) < 10 {
		t.Errorf("declared  %v\nexplained %v", declared, explained)
	}
}

func reasonsIn(file *ast.File) (out []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		name := ""
		switch t := spec.Type.(type) {
		case *ast.Ident:
			name = t.Name
		case *ast.SelectorExpr:
			name = t.Sel.Name
		}
		if name != "Reason" {
			return true
		}
		for _, v := range spec.Values {
			if literal, ok := v.(*ast.BasicLit); ok {
				s, _ := strconv.Unquote(literal.Value)
				out = append(out, s)
			}
		}
		return true
	})
	return out
}
