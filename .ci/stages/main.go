// Command stages runs the stages of `make test` and `make lint` one after the other, says what each took and what failed,
// and ends with "N passed, N failed". A stage that fails does not stop the others, unless they need what it makes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/nplbridge/nplbridge/e2e/cases"
)

// tally counts tests, or a stage that is one test by itself.
type tally struct{ passed, failed, skipped int }

func (t *tally) add(o tally) {
	t.passed += o.passed
	t.failed += o.failed
	t.skipped += o.skipped
}

// stage is one line of the report. It prints what a person needs to see; its error is the headline.
type stage struct {
	name string
	run  func(context.Context) (tally, error)
}

func main() {
	fast := flag.Bool("fast", false, "only what needs no lab")
	lint := flag.Bool("lint", false, "the linters instead of the tests")
	only := flag.String("run", "", "only stages whose name matches this regular expression")
	flag.Parse()
	selected, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintf(os.Stderr, "stages: -run %q: %v\n", *only, err)
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	scratch, err := os.MkdirTemp("", "nplbridge-stages-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "stages:", err)
		os.Exit(1)
	}
	// Another user must be able to enter it: the rootless story runs from there.
	err = os.Chmod(scratch, 0o755)
	lists, listsErr := cases.Lists()
	err = errors.Join(err, listsErr)
	seen := cases.NewRun(lists)
	var stages []stage
	switch {
	case *lint:
		stages = lintStages()
	case *fast:
		stages = fastStages(seen)
	default:
		stages = allStages(scratch, seen)
	}
	stages = slices.DeleteFunc(stages, func(s stage) bool { return !selected.MatchString(s.name) })
	if complete := !*fast && *only == ""; !*lint {
		stages = append(stages, stage{"each case has its test", func(context.Context) (tally, error) { return numbered(lists, seen, complete) }})
	}
	code := 1
	if err == nil {
		code = runAll(ctx, stages)
	}
	if err := errors.Join(err, os.RemoveAll(scratch)); err != nil {
		fmt.Fprintln(os.Stderr, "stages:", err)
		code = 1
	}
	stop()
	os.Exit(code)
}

func runAll(ctx context.Context, stages []stage) int {
	type line struct {
		name, verdict string
		took          time.Duration
	}
	var report []line
	var total tally
	for _, s := range stages {
		if ctx.Err() != nil {
			report = append(report, line{s.name, "interrupted", 0})
			total.failed++
			continue
		}
		fmt.Printf("=== %s\n", s.name)
		began := time.Now()
		count, err := s.run(ctx)
		if err != nil {
			fmt.Printf("%s: %v\n", s.name, err)
			count.failed = max(count.failed, 1)
		} else if count == (tally{}) {
			count.passed = 1
		}
		verdict := fmt.Sprintf("%d passed, %d failed", count.passed, count.failed)
		if count.skipped > 0 {
			verdict += fmt.Sprintf(", %d skipped", count.skipped)
		}
		total.add(count)
		report = append(report, line{s.name, verdict, time.Since(began)})
	}
	fmt.Println()
	for _, l := range report {
		fmt.Printf("%-36s %7.1f s   %s\n", l.name, l.took.Seconds(), l.verdict)
	}
	fmt.Printf("%d passed, %d failed\n", total.passed, total.failed)
	if total.failed > 0 {
		return 1
	}
	return 0
}
