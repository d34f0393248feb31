// Package release holds the tests of what a release is: images, the chart's archive, the install in one file, and values that were
// imported. They need no lab.
package release

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/e2e/chart/manifests"
)

// What the tests share: the repository, helm, and the images that the same program made as in a release.
var (
	root, helm string
	output     string // of the images
	printed    string // by the program that made them
)

const version = "v9.8.7"

// platforms are those of a release.
var platforms = []string{"linux/amd64", "linux/arm64"}

func TestMain(m *testing.M) {
	if os.Getenv(containerVariable) != "" {
		becomeContainer()
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "nplbridge-release-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // containers have other users
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	output = filepath.Join(dir, "images")
	if root, err = manifests.Root(ctx); err == nil {
		helm, err = manifests.Tool(ctx, root, "helm", "helm")
	}
	if err == nil {
		printed, err = makeImages(ctx, output)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// makeImages runs what `make images` runs.
func makeImages(ctx context.Context, output string, flags ...string) (string, error) {
	args := append([]string{"-C", filepath.Join(root, ".ci/tools/images"), "run", ".", "-root", root, "-output", output, "-version", version}, flags...)
	return command(exec.CommandContext(ctx, "go", args...))
}

// command runs a program and returns what it printed, or an error with all of it.
func command(c *exec.Cmd) (string, error) {
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s%s", strings.Join(c.Args, " "), err, &out, &errs)
	}
	return out.String(), nil
}

// program is the path of a program as it is in the image for this machine.
func program(name string) string {
	return filepath.Join(output, "context", "linux", runtime.GOARCH, name)
}
