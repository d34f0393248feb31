package build

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// repository makes a checkout with a nested module "tool" whose program prints what was linked into it.
func repository(t *testing.T) builder {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "go.mod"), "module "+module+"\n")
	write(t, filepath.Join(root, "tool", "go.mod"), "module example.com/tool\n\ngo 1.26\n")
	write(t, filepath.Join(root, "tool", "go.sum"), "")
	write(t, filepath.Join(root, "tool", "main.go"), "package main\n\nvar text string\n\nfunc main() { println(text) }\n")
	return builder{root: root, cache: filepath.Join(t.TempDir(), "nplbridge"), goVersion: "go1", progress: io.Discard}
}

var testTool = tool{name: "tool", module: "tool", pkg: ".", what: "the tool", ldflags: "-X main.text=linked"}

func TestToolIsBuiltOnce(t *testing.T) {
	b := repository(t)
	var all sync.WaitGroup
	paths := make([]string, 4)
	for i := range paths {
		all.Go(func() {
			var err error
			if paths[i], err = b.tool(t.Context(), testTool); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for _, path := range paths {
		if path != paths[0] {
			t.Errorf("two builders found %s and %s", path, paths[0])
		}
	}
	out, err := exec.Command(paths[0]).CombinedOutput()
	if err != nil || string(out) != "linked\n" {
		t.Errorf("the program prints %q, %v, want what the linker flags set", out, err)
	}
	first := inode(t, paths[0])
	if again, err := b.tool(t.Context(), testTool); err != nil || inode(t, again) != first {
		t.Errorf("a later builder got %s, %v, which is another file", again, err)
	}
	if left, _ := filepath.Glob(filepath.Join(b.cache, "*", ".*")); len(left) > 0 {
		t.Errorf("temporary files are left: %v", left)
	}
}

func TestToolFollowsItsSource(t *testing.T) {
	b := repository(t)
	path := func() string {
		t.Helper()
		id, err := fingerprint(filepath.Join(b.root, "tool"), b.goVersion, testTool.ldflags)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := path()
	write(t, filepath.Join(b.root, "tool", "main_test.go"), "package main\n")
	if path() != first {
		t.Error("a test changes the fingerprint")
	}
	write(t, filepath.Join(b.root, "tool", "more.go"), "package main\n")
	second := path()
	if second == first {
		t.Error("a new file does not change the fingerprint")
	}
	b.goVersion = "go2"
	if path() == second {
		t.Error("another Go version does not change the fingerprint")
	}
}

func TestToolThatDoesNotCompile(t *testing.T) {
	b := repository(t)
	write(t, filepath.Join(b.root, "tool", "main.go"), "package main\n\nfunc main() { undefined() }\n")
	_, err := b.tool(t.Context(), testTool)
	if err == nil || !strings.Contains(err.Error(), "building the tool in") || !strings.Contains(err.Error(), "undefined: undefined") {
		t.Errorf("tool = %v, want the compiler's message", err)
	}
}

func TestInterruptedBuild(t *testing.T) {
	b := repository(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.tool(ctx, testTool); err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("tool = %v, want it to be interrupted", err)
	}
	if _, err := b.tool(t.Context(), testTool); err != nil {
		t.Errorf("after an interrupted build: %v", err)
	}
}

// A builder that waits for another says so.
func TestWaitingIsTold(t *testing.T) {
	b := repository(t)
	told := make(chan string, 10)
	b.progress = writerFunc(func(line []byte) { told <- string(line) })
	unlock, err := b.lock(t.Context(), "tool")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := b.tool(t.Context(), testTool)
		done <- err
	}()
	select {
	case line := <-told:
		if !strings.HasPrefix(line, "waiting for another build of tool ... ") {
			t.Errorf("progress is %q", line)
		}
	case err := <-done:
		t.Fatalf("the second builder did not wait: %v", err)
	}
	unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestPrebuilt(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(Environment, dir)
	write(t, filepath.Join(dir, "echo"), "not executable")
	_, err := All(t.Context(), io.Discard)
	want := Environment + `="` + dir + `" has no executable avisim, bigipsim, controlplane, echo, helm, lbsync, npl-agent: make them with`
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Fatalf("All = %v, want %q", err, want)
	}
	var from Programs
	for name, path := range from.names() {
		*path = filepath.Join(t.TempDir(), name)
		write(t, *path, "#!/bin/sh\n")
		if err := os.Chmod(*path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := from.Export(dir); err != nil {
		t.Fatal(err)
	}
	programs, err := All(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range programs.names() {
		info, err := os.Stat(*path)
		if err != nil || info.Mode().Perm() != 0o755 || *path != filepath.Join(dir, name) {
			t.Errorf("%s is %s, %v, %v, want mode 0755 in %s", name, *path, info.Mode(), err, dir)
		}
	}
}

func TestCacheDir(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	for _, test := range []struct{ ours, xdg, want string }{
		{"", "", "/home/u/.cache/nplbridge"},
		{"", "/xdg", "/xdg/nplbridge"},
		{"/ours", "/xdg", "/ours/nplbridge"},
	} {
		t.Setenv("NPLBRIDGE_CACHE", test.ours)
		t.Setenv("XDG_CACHE_HOME", test.xdg)
		if got, err := CacheDir(); err != nil || got != test.want {
			t.Errorf("CacheDir with %+v = %q, %v", test, got, err)
		}
	}
	t.Setenv("NPLBRIDGE_CACHE", "relative")
	if _, err := CacheDir(); err == nil || !strings.Contains(err.Error(), `NPLBRIDGE_CACHE="relative" is not an absolute path`) {
		t.Errorf("a relative NPLBRIDGE_CACHE: %v", err)
	}
}

// Building a tool removes versions of it that nobody has used for long, and nothing else.
func TestOldVersionsArePruned(t *testing.T) {
	b := repository(t)
	old := time.Now().Add(-unused - time.Hour)
	for _, dir := range []string{"tool-old", "tool-recent", "other-old"} {
		write(t, filepath.Join(b.cache, dir, "program"), "")
		if at := filepath.Join(b.cache, dir); dir != "tool-recent" {
			if err := os.Chtimes(at, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	program, err := b.tool(t.Context(), testTool)
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{"tool-old": false, "tool-recent": true, "other-old": true} {
		if _, err := os.Stat(filepath.Join(b.cache, dir)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", dir, err == nil, want)
		}
	}
	// One that is in use is not old, however long ago it was built.
	if err := os.Chtimes(filepath.Dir(program), old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := b.tool(t.Context(), testTool); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Dir(program)); err != nil || time.Since(info.ModTime()) > unused {
		t.Errorf("using the program leaves its directory old: %v", err)
	}
}

func TestUnwritableCache(t *testing.T) {
	b := repository(t)
	b.cache = "/proc/nplbridge" // where nobody can make a directory
	_, err := b.tool(t.Context(), testTool)
	if err == nil || !strings.Contains(err.Error(), "cannot keep built programs in /proc/nplbridge") || !strings.Contains(err.Error(), "set NPLBRIDGE_CACHE") {
		t.Errorf("tool = %v, want it to name the directory and NPLBRIDGE_CACHE", err)
	}
}

func TestRepositoryRoot(t *testing.T) {
	b := repository(t)
	t.Chdir(filepath.Join(b.root, "tool"))
	if got, err := RepositoryRoot(); err != nil || !same(got, b.root) {
		t.Errorf("RepositoryRoot in a nested module = %q, %v, want %q", got, err, b.root)
	}
	t.Chdir(t.TempDir())
	if _, err := RepositoryRoot(); err == nil || !strings.Contains(err.Error(), "is not inside the nplbridge repository") {
		t.Errorf("RepositoryRoot outside: %v", err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Ino
}

func same(a, b string) bool {
	left, err1 := filepath.EvalSymlinks(a)
	right, err2 := filepath.EvalSymlinks(b)
	return err1 == nil && err2 == nil && left == right
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(bytes.Clone(p))
	return len(p), nil
}
