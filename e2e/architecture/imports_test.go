// Package architecture holds the repository to its own rules: what imports what, what may stand where.
package architecture

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/nplbridge/nplbridge/"

// pkg is what `go list -json` says about a package.
type pkg struct {
	ImportPath string
	Dir        string
	Standard   bool
	Imports    []string // direct, without those of tests
	Deps       []string // all
	GoFiles    []string
}

// path returns the import path below the module, "agent/npl".
func (p pkg) path() string { return strings.TrimPrefix(p.ImportPath, module) }

func (p pkg) ours() bool { return strings.HasPrefix(p.ImportPath, module) }

// packages returns every package of the product and the lab, and all they depend on, by import path.
func packages(t *testing.T) map[string]pkg {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Dir,Standard,Imports,Deps,GoFiles", "./...")
	command.Dir = root
	var errs bytes.Buffer
	command.Stderr = &errs
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &errs)
	}
	all := map[string]pkg{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// in reports whether path is one of the trees or below one.
func in(path string, trees ...string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool { return path == tree || strings.HasPrefix(path, tree+"/") })
}

// mayImport returns the trees of ours that a package may import, apart from its own.
func mayImport(path string) []string {
	switch {
	case in(path, "agent/npl", "agent/watermark"), path == "providers":
		return nil // the contracts
	case in(path, "agent"):
		return []string{"agent"}
	case in(path, "lbsync"):
		return []string{"lbsync", "agent/npl", "agent/watermark", "providers"}
	case in(path, "providers/providertest"):
		return []string{"providers"}
	case in(path, "providers"):
		return []string{"providers"}
	case in(path, "cmd"):
		return []string{"cmd", "agent", "lbsync", "providers"}
	case in(path, "e2e/bench"): // it runs lbsync in front of a load balancer in memory
		return []string{"e2e", "agent/npl", "agent/watermark", "lbsync", "providers"}
	case in(path, "e2e"):
		return []string{"e2e", "agent/npl", "agent/watermark", "providers"}
	case in(path, ".ci"):
		return []string{"e2e/cases"}
	default:
		return nil
	}
}

func TestImportsRunOneWay(t *testing.T) {
	all := packages(t)
	for _, p := range all {
		if !p.ours() {
			continue
		}
		for _, imported := range p.Imports {
			to, known := all[imported]
			if !known || !to.ours() || in(to.path(), mayImport(p.path())...) {
				continue
			}
			t.Errorf("%s imports %s; it may import only %q of ours", p.path(), to.path(), mayImport(p.path()))
		}
	}
}

// lbsync knows providers by their contract alone, and no provider knows another.
func TestProvidersStayApart(t *testing.T) {
	for _, p := range packages(t) {
		if !p.ours() {
			continue
		}
		for _, imported := range p.Imports {
			to := strings.TrimPrefix(imported, module)
			from := provider(p.path())
			if other := provider(to); other != "" && other != from && !in(p.path(), "cmd", "e2e") {
				t.Errorf("%s imports %s, a provider", p.path(), to)
			}
		}
	}
}

// provider returns the provider that a package belongs to, or "".
func provider(path string) string {
	rest, ok := strings.CutPrefix(path, "providers/")
	name, _, _ := strings.Cut(rest, "/")
	if !ok || name == "internal" || name == "providertest" {
		return ""
	}
	return name
}

func TestContractsNeedTheStandardLibraryOnly(t *testing.T) {
	all := packages(t)
	for _, contract := range []string{"agent/npl", "agent/watermark", "providers"} {
		p, ok := all[module+contract]
		if !ok {
			t.Fatalf("no package %s", contract)
		}
		for _, dep := range p.Deps {
			if d := all[dep]; !d.Standard {
				t.Errorf("%s depends on %s", contract, dep)
			}
		}
	}
}

// pure are the packages that decide: same input, same output.
var pure = []string{
	"agent/npl", "agent/watermark", "agent/internal/model", "agent/internal/ports",
	"providers",
	"lbsync/internal/annotations", "lbsync/internal/model", "lbsync/internal/plan", "lbsync/internal/vip",
	"cmd/internal/akoimport",
}

func TestPurePackagesHaveNoWorld(t *testing.T) {
	all := packages(t)
	world := []string{"go.uber.org/zap", "k8s.io/klog", "k8s.io/client-go", "k8s.io/utils/clock", "net/http", "os/exec", "log", "log/slog", "math/rand", "math/rand/v2"}
	for _, path := range pure {
		p, ok := all[module+path]
		if !ok {
			t.Errorf("no package %s: correct the list here", path)
			continue
		}
		for _, imported := range p.Imports {
			if in(imported, world...) || imported == "os" {
				t.Errorf("%s is pure and imports %s", path, imported)
			}
		}
	}
}
