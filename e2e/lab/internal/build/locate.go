package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/nplbridge/nplbridge"

// RepositoryRoot is the directory of nplbridge's go.mod, found upwards from the working directory.
func RepositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the nplbridge repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte("module "+module+"\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside the nplbridge repository: change to it first", start)
		}
	}
}

// CacheDir is where programs are kept: $NPLBRIDGE_CACHE/nplbridge, else nplbridge in the user's cache directory.
func CacheDir() (string, error) {
	base := os.Getenv("NPLBRIDGE_CACHE")
	if base == "" {
		var err error
		if base, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("no directory to keep built programs in: %w: set NPLBRIDGE_CACHE to one", err)
		}
	}
	if !filepath.IsAbs(base) {
		return "", fmt.Errorf("NPLBRIDGE_CACHE=%q is not an absolute path", base)
	}
	return filepath.Join(base, "nplbridge"), nil
}

func goVersion(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	cmd.Dir = dir
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("the go command is not in PATH: install Go 1.26, or set %s to prebuilt programs", Environment)
	}
	if err != nil {
		return "", fmt.Errorf("go env GOVERSION: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// fingerprint changes with everything a nested module's program is made from: its own files (tests excepted), the Go
// version and the linker flags.
func fingerprint(dir string, more ...string) (string, error) {
	sources, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	for _, file := range append([]string{filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum")}, sources...) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("fingerprint of %s: %w", dir, err)
		}
		fmt.Fprintf(hash, "%s %d\n", filepath.Base(file), len(content))
		hash.Write(content)
	}
	for _, text := range more {
		fmt.Fprintf(hash, "%q\n", text)
	}
	return hex.EncodeToString(hash.Sum(nil))[:12], nil
}
