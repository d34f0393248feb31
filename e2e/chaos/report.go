package chaos

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nplbridge/nplbridge/e2e/chaos/script"
)

// Print writes a report for people.
func (r *Report) Print(out io.Writer) {
	type sum struct {
		times, requests, failed int
		took, window            time.Duration
	}
	sums := map[string]*sum{}
	for _, l := range r.Lines {
		s := sums[l.action]
		if s == nil {
			s = &sum{}
			sums[l.action] = s
		}
		s.times++
		s.requests += l.requests
		s.failed += l.failed
		s.took += l.took
		s.window = max(s.window, l.window)
	}
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.AppendHeader(table.Row{"action", "class", "times", "seconds", "requests", "failed", "longest window"})
	for _, a := range actions() {
		if s := sums[a.name]; s != nil {
			t.AppendRow(table.Row{a.name, a.class, s.times, fmt.Sprintf("%.1f", s.took.Seconds()), s.requests, s.failed, s.window.Round(time.Millisecond)})
		}
	}
	t.Render()
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(r.Answered)) {
		total += r.Answered[kind]
		fmt.Fprintf(out, "%8d answers  %s\n", r.Answered[kind], kind)
	}
	fmt.Fprintf(out, "%8d answers in all, each checked for the Pod that gave it\n", total)
	for _, what := range slices.Sorted(maps.Keys(r.Checked)) {
		fmt.Fprintf(out, "%8d times     %s\n", r.Checked[what], what)
	}
	fmt.Fprintf(out, "node ports that went to another Pod: %d, after %v at least (cool-down %v)\n", r.Reused, r.Gap.Round(time.Millisecond), coolDown)
	fmt.Fprintf(out, "answers of Pods that an edit had taken out: %d; the last connection was opened to one %v after the edit (bound %v)\n", r.Late, r.Behind.Round(time.Millisecond), lateBound)
	fmt.Fprintf(out, "seed %d, %d actions, %.0f s\n", r.Seed, len(r.Steps), r.Took.Seconds())
	if len(r.Failures) == 0 {
		fmt.Fprintln(out, "chaos: all held")
		return
	}
	fmt.Fprintf(out, "\nchaos: FAILED with seed %d in the step %s\n", r.Seed, script.Format(r.Steps[len(r.Steps)-1:]))
	for _, f := range r.Failures {
		fmt.Fprintf(out, "  - %s\n", f)
	}
	fmt.Fprintf(out, "again: go run ./e2e/cmd/chaos %s--script %s\n", r.Flags, script.Format(r.Steps))
}
