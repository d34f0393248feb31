// Package demo tells on the terminal what nplbridge does, in a lab, and checks every claim that it makes.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// Story is the demo: it writes headings, tables and progress to Out and remembers which checks held.
type Story struct {
	Out io.Writer
	Lab *lab.Lab

	started time.Time
	chapter int
	checks  []check
}

type check struct {
	claim, measured string
	held            bool
}

// ErrCheckFailed is returned by Tell when the story ran to its end but a check in it did not hold.
var ErrCheckFailed = errors.New("not every check of the demo held")

// Tell runs all chapters in order. It stops at the first error; checks that do not hold are collected and make it
// return ErrCheckFailed at the end.
func (s *Story) Tell(ctx context.Context) error {
	s.started = time.Now()
	a := &app{View: view.View{Lab: s.Lab, Namespace: namespace}}
	for _, c := range []struct {
		heading string
		tell    func(context.Context, *app) error
	}{
		{"An app with 4 Pods and a Service of type LoadBalancer", s.deploy},
		{"npl-agent gave each Pod port a port of its own Node", s.annotations},
		{"lbsync made them the members of a pool of " + s.kind().a, s.pool},
		{"Clients ask the VIP: each Pod gets the same share", s.shares},
		{"Pods placed unevenly still get equal shares", s.uneven},
		{"Scaling and a rolling restart under requests", s.churn},
		{"The same Pods through NodePort and kube-proxy", s.nodePort},
	} {
		s.heading(c.heading)
		if err := c.tell(ctx, a); err != nil {
			return fmt.Errorf("demo chapter %d (%s): %w", s.chapter, c.heading, err)
		}
	}
	return s.verdict()
}

func (s *Story) heading(text string) {
	s.chapter++
	fmt.Fprintf(s.Out, "\n%d. %s\n\n", s.chapter, text)
}

// say writes one line of the story.
func (s *Story) say(format string, args ...any) { fmt.Fprintf(s.Out, "   "+format+"\n", args...) }

// check records a claim and prints whether it held.
func (s *Story) check(held bool, claim, measured string) {
	s.checks = append(s.checks, check{claim, measured, held})
	s.say("%s  %s: %s", mark(held), claim, measured)
}

func (s *Story) table(header table.Row, rows ...table.Row) {
	t := newTable(header)
	t.AppendRows(rows)
	s.show(t)
	fmt.Fprintln(s.Out)
}

// show prints a table, indented as everything that is said.
func (s *Story) show(t table.Writer) {
	for line := range strings.Lines(t.Render()) {
		fmt.Fprint(s.Out, "  ", line)
	}
	fmt.Fprintln(s.Out)
}

func (s *Story) verdict() error {
	s.heading(fmt.Sprintf("What held, after %.0f s", time.Since(s.started).Seconds()))
	t := newTable(table.Row{"", "claim", "measured"})
	var failed bool
	for _, c := range s.checks {
		t.AppendRow(table.Row{mark(c.held), c.claim, c.measured})
		failed = failed || !c.held
	}
	s.show(t)
	if failed {
		return ErrCheckFailed
	}
	return nil
}

func newTable(header table.Row) table.Writer {
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatDefault
	t := table.NewWriter()
	t.SetStyle(style)
	t.AppendHeader(header)
	return t
}

func mark(held bool) string {
	if held {
		return "ok    "
	}
	return "FAILED"
}
