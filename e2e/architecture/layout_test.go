package architecture

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// topLevel is fixed: a stranger finds everything from these names.
var topLevel = []string{
	"cmd", "agent", "lbsync", "providers", "charts", "docs", "e2e", "go.mod", "Makefile", "README.md",
	// what tools and hosts expect
	"go.sum", ".ci", ".github", ".golangci.yaml", ".goreleaser.yaml", ".gitignore",
	"LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
}

// tracked returns the files that are in git or would be.
func tracked(t *testing.T) []string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	command.Dir = root
	out, err := command.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestTopLevel(t *testing.T) {
	for _, file := range tracked(t) {
		if first, _, _ := strings.Cut(file, "/"); !slices.Contains(topLevel, first) {
			t.Errorf("%s: the top level is fixed, %s has no place in it", file, first)
		}
	}
}

func TestNoUtils(t *testing.T) {
	vague := regexp.MustCompile(`(^|/)(utils?|helpers?|common|misc)(/|$)`)
	for _, file := range tracked(t) {
		if dir := filepath.Dir(file); strings.HasSuffix(file, ".go") && vague.MatchString(dir) {
			t.Errorf("%s: the package's name does not say what it is for", file)
		}
	}
}

// link is a Markdown link to somewhere in this repository.
var link = regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)\s]*)?\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	seen := 0
	for _, file := range tracked(t) {
		if !strings.HasSuffix(file, ".md") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) {
			continue // deleted, not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range link.FindAllStringSubmatch(string(content), -1) {
			seen++
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(file), match[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", file, match[1])
			}
		}
	}
	if seen == 0 {
		t.Error("no link found: the pattern is wrong")
	}
}
