// Command compare runs the benchmarks of the pure packages at a commit and as they are here, and fails when they allocate more, or when what
// they allocate grows faster with their size. It does not look at times.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nplbridge/nplbridge/e2e/bench/gobench"
)

// subject is what is run of a package.
type subject struct{ pkg, bench, skip string }

// subjects leave out what takes a large cluster to make, and what measures processes and bytes kept instead of work.
var subjects = []subject{
	{"agent/npl", ".", "4000"},
	{"agent/internal/model", ".", ""},
	{"agent/internal/ports", ".", ""},
	{"agent/internal/inventory", "^BenchmarkEvent$", ""},
	{"lbsync/internal/annotations", ".", ""},
	{"lbsync/internal/model", ".", ""},
	{"lbsync/internal/plan", ".", ""},
	{"lbsync/internal/vip", ".", ""},
	{"lbsync/internal/inventory", "^BenchmarkPodChange$", "100000"},
	{"lbsync/internal/loop", "^BenchmarkPodChange$", "100000"},
}

var errWorse = errors.New("more is allocated than before, see \"worse\" above; where that is meant, say why in the commit")

func main() {
	base := flag.String("base", "HEAD~1", "commit to compare with")
	rounds := flag.Int("rounds", 200, "how often each benchmark runs")
	all := flag.Bool("all", false, "print what did not change, too")
	only := flag.String("only", "", "compare only packages whose path holds this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := compare(ctx, *base, *only, *rounds, *all); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		stop()
		os.Exit(1) //nolint:gocritic // nothing else is deferred
	}
}

func compare(ctx context.Context, base, only string, rounds int, all bool) error {
	dir, err := os.MkdirTemp("", "compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := extract(ctx, base, dir); err != nil {
		return fmt.Errorf("getting commit %s: %w", base, err)
	}
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"package", "benchmark", "of", "at " + base, "now", ""})
	compared, grew := 0, 0
	for _, s := range subjects {
		if !strings.Contains(s.pkg, only) {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, s.pkg)); errors.Is(err, os.ErrNotExist) {
			continue // a new package
		}
		before, err := s.run(ctx, dir, rounds)
		if err != nil {
			return err
		}
		after, err := s.run(ctx, ".", rounds)
		if err != nil {
			return err
		}
		for _, r := range judge(before, after) {
			compared++
			verdict := ""
			if r.worse {
				grew++
				verdict = "worse"
			}
			unit := r.unit
			if r.growth {
				unit += ", times as much for 10 n"
			}
			if all || r.worse {
				t.AppendRow(table.Row{s.pkg, r.what, unit, fmt.Sprintf("%.4g", r.before), fmt.Sprintf("%.4g", r.after), verdict})
			}
		}
	}
	if t.Length() > 0 {
		t.Render()
	}
	fmt.Printf("%d figures compared with %s, %d worse\n", compared, base, grew)
	switch {
	case compared == 0:
		return fmt.Errorf("nothing to compare with %s", base)
	case grew > 0:
		return errWorse
	}
	return nil
}

// extract writes the files of a commit into dir.
func extract(ctx context.Context, commit, dir string) error {
	var files, complaints bytes.Buffer
	archive := exec.CommandContext(ctx, "git", "archive", "--format=tar", commit)
	archive.Stdout, archive.Stderr = &files, &complaints
	if err := archive.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(complaints.Bytes()))
	}
	tar := exec.CommandContext(ctx, "tar", "-x", "-C", dir)
	tar.Stdin = &files
	if out, err := tar.CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w: %s", err, out)
	}
	return nil
}

func (s subject) run(ctx context.Context, dir string, rounds int) ([]gobench.Result, error) {
	args := []string{"test", "-run=^$", "-bench=" + s.bench, "-benchmem", fmt.Sprintf("-benchtime=%dx", rounds), "-timeout=10m"}
	if s.skip != "" {
		args = append(args, "-skip="+s.skip)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+s.pkg)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("in %s: %s: %w\n%s", dir, strings.Join(cmd.Args, " "), err, out)
	}
	return gobench.Parse(string(out)), nil
}
