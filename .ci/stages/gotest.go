package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/nplbridge/nplbridge/e2e/cases"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
}

// tests runs a command that writes `go test -json`, and prints the output of what failed or was skipped. In CI a skipped
// test is a failure: it would look like one that passed. The numbered tests are told to seen.
func tests(command *exec.Cmd, seen *cases.Run) (tally, error) {
	var errs strings.Builder
	command.Stderr = &errs
	stdout, err := command.StdoutPipe()
	if err != nil {
		return tally{}, err
	}
	if err := command.Start(); err != nil {
		return tally{}, err
	}
	count := read(stdout, os.Getenv("CI") != "", seen)
	err = command.Wait()
	if err != nil {
		fmt.Print(errs.String())
	}
	if err != nil && count.failed > 0 {
		err = nil // told already, test by test
	}
	if err == nil && count.passed+count.failed == 0 {
		err = errors.New("no test ran")
	}
	return count, err
}

func read(events io.Reader, ci bool, seen *cases.Run) tally {
	var count tally
	output := map[string]*strings.Builder{}
	told := map[string]bool{} // packages of which a failed test was counted
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Println(lines.Text()) // not a test's: what the program around the tests printed
			continue
		}
		seen.Add(strings.TrimPrefix(e.Package, module), e.Test, e.Action)
		key := e.Package + e.ImportPath + " " + e.Test
		if output[key] == nil {
			output[key] = &strings.Builder{}
		}
		switch e.Action {
		case "output", "build-output":
			output[key].WriteString(e.Output)
			continue
		case "pass":
			if e.Test != "" {
				count.passed++
			}
		case "fail", "build-fail":
			// A package fails with its tests; alone it fails where it crashed or was not built, which "fail" tells as well.
			if e.Test != "" || e.Action == "fail" && !told[e.Package] {
				count.failed++
				told[e.Package] = true
			}
			fmt.Printf("--- failed: %s\n%s", strings.TrimSpace(key), output[key])
		case "skip":
			if e.Test == "" {
				break // a package without tests
			}
			count.skipped++
			fmt.Printf("--- skipped: %s\n%s", key, output[key])
			if ci {
				count.failed++
			}
		default:
			continue
		}
		delete(output, key)
	}
	if err := lines.Err(); err != nil {
		fmt.Printf("reading the tests' output: %v\n", err)
		count.failed++
	}
	return count
}

// command prepares a program that is asked to end by an interrupt, so that a lab can clean up, and has time for it.
func command(ctx context.Context, dir string, env []string, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), env...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGINT) }
	c.WaitDelay = 30 * time.Second
	return c
}

// run runs a program and prints what it wrote if it fails.
func run(ctx context.Context, dir string, env []string, name string, args ...string) error {
	out, err := command(ctx, dir, env, name, args...).CombinedOutput()
	if err != nil {
		fmt.Print(string(out))
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

// output runs a program and returns the lines it wrote.
func output(ctx context.Context, dir, name string, args ...string) ([]string, error) {
	out, err := command(ctx, dir, nil, name, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.Fields(string(out)), nil
}
