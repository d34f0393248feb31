package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/e2e/cases"
)

const module = "github.com/nplbridge/nplbridge/"

// needLab reports whether the tests of a package need the lab's programs: it starts labs, or is a part of them.
func needLab(pkg string) bool {
	path := strings.TrimPrefix(pkg, module)
	return slices.Contains([]string{"e2e/chart", "e2e/chart/proof", "e2e/cmd/lab", "e2e/lab", "e2e/remote", "e2e/stories"}, path) || strings.HasPrefix(path, "e2e/lab/")
}

// released is the package that builds images for every platform, which the inner loop has no time for.
const released = module + "e2e/release"

// fastStages leave the race detector out: it doubles the time to build and to run.
func fastStages(seen *cases.Run) []stage {
	return []stage{
		{"gofmt and vet", vet},
		{"unit tests", func(ctx context.Context) (tally, error) { return unit(ctx, seen) }},
	}
}

// allStages put what fails soonest first.
func allStages(scratch string, seen *cases.Run) []stage {
	programs := filepath.Join(scratch, "programs")
	env := []string{"NPLBRIDGE_PROGRAMS=" + programs}
	return []stage{
		{"gofmt and vet", vet},
		{"unit tests, race detector", func(ctx context.Context) (tally, error) { return unit(ctx, seen, "-race") }},
		{"what a release is", func(ctx context.Context) (tally, error) {
			return tests(command(ctx, ".", nil, "go", "test", "-json", "-count=1", "-timeout=15m", released), seen)
		}},
		{"the lab's programs", func(ctx context.Context) (tally, error) {
			return tally{}, stream(ctx, "go", "run", "./e2e/cmd/lab", "build", "--output", programs)
		}},
		{"the lab and its stories", func(ctx context.Context) (tally, error) {
			if _, err := os.Stat(programs); err != nil {
				return tally{}, errors.New("the lab's programs are missing, see above")
			}
			packages, err := output(ctx, ".", "go", "list", "./e2e/...")
			if err != nil {
				return tally{}, err
			}
			packages = slices.DeleteFunc(packages, func(p string) bool { return !needLab(p) })
			args := append([]string{"test", "-json", "-count=1", "-timeout=30m", "-p=1"}, packages...)
			return tests(command(ctx, ".", env, "go", args...), seen)
		}},
		{"stories over a bridged Pod network", func(ctx context.Context) (tally, error) {
			return overNetwork(ctx, env, "bridged", "quickstart|families|restart|npl48_from_the_node|reply_paths", seen)
		}},
		{"stories over an overlay", func(ctx context.Context) (tally, error) {
			return overNetwork(ctx, env, "overlay", "families|npl48_from_the_node|reply_paths", seen)
		}},
		{"the demo", func(ctx context.Context) (tally, error) {
			return tally{}, run(ctx, ".", append(env, "ONESHOT=1"), "go", "run", "./e2e/cmd/demo")
		}},
		{"chaos, each kind of action once", func(ctx context.Context) (tally, error) {
			return tally{}, run(ctx, ".", env, "go", "run", "./e2e/cmd/chaos", "--seed=1")
		}},
		{"chaos, broken builds are caught", func(ctx context.Context) (tally, error) {
			return tally{}, run(ctx, ".", env, "go", "run", "./e2e/cmd/chaos", "mutants")
		}},
		{"a story as an unprivileged user", func(ctx context.Context) (tally, error) { return rootless(ctx, scratch, programs, seen) }},
	}
}

// overNetwork runs again the stories in which the kind of Pod network matters.
func overNetwork(ctx context.Context, env []string, kind, stories string, seen *cases.Run) (tally, error) {
	env = append(slices.Clone(env), "STORIES_POD_NETWORK="+kind)
	return tests(command(ctx, ".", env, "go", "test", "-json", "-count=1", "-timeout=15m",
		"-run=^TestStories$/^("+stories+")$", "./e2e/stories"), seen)
}

// numbered holds the tests that ran to the lists of cases. Only after all stages every case must have been shown.
func numbered(lists []cases.List, seen *cases.Run, complete bool) (tally, error) {
	source, err := cases.Scan(lists, os.DirFS("."))
	if err != nil {
		return tally{}, err
	}
	problems := append(seen.Problems(complete), seen.Differences(source)...)
	for _, problem := range problems {
		fmt.Println(problem)
	}
	if len(problems) > 0 {
		return tally{failed: len(problems)}, errors.New("see above; the cases are in e2e/cases")
	}
	return tally{}, nil
}

func lintStages() []stage {
	return []stage{
		{"gofmt and vet", vet},
		{"golangci-lint", func(ctx context.Context) (tally, error) {
			return tally{}, stream(ctx, "go", "tool", "-modfile=.ci/tools/lint/go.mod", "golangci-lint", "run", "./...", "./.ci/stages")
		}},
		{"goreleaser check", func(ctx context.Context) (tally, error) {
			return tally{}, run(ctx, ".", []string{"CGO_ENABLED=0", "GOFLAGS=-trimpath"}, "go", "tool", "-modfile=.ci/tools/release/go.mod", "goreleaser", "check")
		}},
		{"go mod tidy", tidy},
		{"nested modules, vet", vetNested},
	}
}

// stream runs a program whose output is for people.
func stream(ctx context.Context, name string, args ...string) error {
	c := command(ctx, ".", nil, name, args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

func vet(ctx context.Context) (tally, error) {
	files, err := output(ctx, ".", "git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go")
	if err != nil {
		return tally{}, err
	}
	files = slices.DeleteFunc(files, func(f string) bool { _, err := os.Stat(f); return err != nil }) // deleted, not yet committed
	unformatted, err := output(ctx, ".", "gofmt", append([]string{"-l"}, files...)...)
	if err != nil {
		return tally{}, err
	}
	if len(unformatted) > 0 {
		err = fmt.Errorf("not formatted, run gofmt -w: %s", strings.Join(unformatted, " "))
	}
	return tally{}, errors.Join(err, run(ctx, ".", nil, "go", "vet", "./...", "./.ci/stages"),
		run(ctx, ".", []string{"GOOS=windows", "GOARCH=amd64"}, "go", "vet", "./agent/...", "./cmd/npl-agent"))
}

func unit(ctx context.Context, seen *cases.Run, flags ...string) (tally, error) {
	packages, err := output(ctx, ".", "go", "list", "./...")
	if err != nil {
		return tally{}, err
	}
	packages = slices.DeleteFunc(packages, func(p string) bool { return needLab(p) || p == released })
	args := slices.Concat([]string{"test", "-json", "-timeout=10m"}, flags, []string{"./.ci/stages"}, packages)
	return tests(command(ctx, ".", nil, "go", args...), seen)
}

// nested returns the directories of the modules below the root's.
func nested(ctx context.Context) ([]string, error) {
	files, err := output(ctx, ".", "git", "ls-files", "--cached", "--others", "--exclude-standard", "*/go.mod")
	var dirs []string
	for _, f := range files {
		dirs = append(dirs, filepath.Dir(f))
	}
	return dirs, err
}

// vetNested vets with the flags that the programs are built with, so that the compiled packages are the same ones. It takes
// minutes all the same: vet reads all of Kubernetes.
func vetNested(ctx context.Context) (tally, error) {
	dirs, err := nested(ctx)
	for _, dir := range dirs {
		packages, listErr := output(ctx, dir, "go", "list", "-e", "./...")
		if listErr == nil && len(packages) > 0 { // a module of tools has none
			listErr = run(ctx, dir, []string{"CGO_ENABLED=0", "GOFLAGS=-trimpath"}, "go", "vet", "./...")
		}
		err = errors.Join(err, listErr)
	}
	return tally{}, err
}

func tidy(ctx context.Context) (tally, error) {
	dirs, err := nested(ctx)
	for _, dir := range append([]string{"."}, dirs...) {
		if e := run(ctx, dir, nil, "go", "mod", "tidy", "-diff"); e != nil {
			err = errors.Join(err, fmt.Errorf("in %s: %w", dir, e))
		}
	}
	return tally{}, err
}

// unprivileged is the user and group that own nothing, "nobody" on every Linux.
const unprivileged = "65534"

// rootless runs one story as nobody. That user can neither build nor read a clone in root's home, so it gets the test's
// program and a copy of the files that it reads. Where stages itself is not root, every story ran like this already.
func rootless(ctx context.Context, scratch, programs string, seen *cases.Run) (tally, error) {
	if os.Geteuid() != 0 {
		fmt.Println("not root: the stories above ran as an unprivileged user")
		return tally{}, nil
	}
	if _, err := os.Stat(programs); err != nil {
		return tally{}, errors.New("the lab's programs are missing, see above")
	}
	clone, home := filepath.Join(scratch, "clone"), filepath.Join(scratch, "home")
	stories := filepath.Join(clone, "e2e/stories")
	program := filepath.Join(scratch, "stories.test")
	err := errors.Join(
		os.MkdirAll(home, 0o777), os.Chmod(home, 0o777),
		run(ctx, ".", nil, "go", "test", "-c", "-o", program, "./e2e/stories"),
	)
	for _, path := range []string{"go.mod", "charts", "e2e/stories/testdata"} {
		if from, e := os.Stat(path); e != nil {
			err = errors.Join(err, e)
		} else if to := filepath.Join(clone, path); from.IsDir() {
			err = errors.Join(err, os.CopyFS(to, os.DirFS(path)))
		} else {
			err = errors.Join(err, os.MkdirAll(clone, 0o755), run(ctx, ".", nil, "cp", path, to))
		}
	}
	if err = errors.Join(err, run(ctx, ".", nil, "chmod", "-R", "a+rX", scratch)); err != nil {
		return tally{}, err
	}
	path := os.Getenv("PATH") + ":/usr/sbin:/sbin"
	return tests(command(ctx, ".", nil,
		"go", "tool", "test2json", "-p", module+"e2e/stories",
		"setpriv", "--reuid", unprivileged, "--regid", unprivileged, "--clear-groups",
		"env", "-C", stories, "-u", "XDG_RUNTIME_DIR", "-u", "XDG_CACHE_HOME", "-u", "NPLBRIDGE_CACHE",
		"HOME="+home, "TMPDIR="+home, "PATH="+path, "NPLBRIDGE_PROGRAMS="+programs,
		program, "-test.v=test2json", "-test.timeout=15m", "-test.run=^TestStories$/^quickstart$"), seen)
}
