package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Figure is a line of the table.
type Figure struct {
	// Of is what the figure is of where the same is measured of several: a rate, a cluster. Empty is the only one.
	Of       string
	What     string
	Measured string
	Expected string // what nplbridge has set itself; empty where that is nothing
	Antrea   string // what Antrea 2.8's controller was measured at, on another machine with two cores; empty if it was not
}

// of says what figures are of.
func of(what string, figures []Figure) []Figure {
	for i := range figures {
		figures[i].Of = what
	}
	return figures
}

// printTable prints figures for a terminal.
func printTable(out io.Writer, figures []Figure) {
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"what", "measured", "expected", "Antrea"})
	last := ""
	for _, f := range figures {
		what := f.What
		switch f.Of {
		case "":
		case last:
			what = "… " + what
		default:
			what = f.Of + ": " + what
		}
		last = f.Of
		t.AppendRow(table.Row{what, f.Measured, f.Expected, f.Antrea})
	}
	t.Render()
}

// writePage writes the figures of one part as a table in Markdown. What was measured of several stands side by side, in a column for each.
func writePage(out io.Writer, figures []Figure) error {
	type line struct {
		Figure
		cells map[string]string // by Of
	}
	var lines []line
	var columns []string
	for _, f := range figures {
		column := cmp.Or(f.Of, "measured")
		if !slices.Contains(columns, column) {
			columns = append(columns, column)
		}
		n := slices.IndexFunc(lines, func(l line) bool { return l.What == f.What && l.cells[column] == "" })
		if n < 0 {
			n, lines = len(lines), append(lines, line{f, map[string]string{}})
		}
		lines[n].cells[column] = f.Measured
	}
	t := table.NewWriter()
	t.SuppressEmptyColumns()
	header := table.Row{"what"}
	for _, column := range columns {
		header = append(header, column)
	}
	t.AppendHeader(append(header, "expected", "Antrea"))
	for _, l := range lines {
		row := table.Row{l.What}
		for _, column := range columns {
			row = append(row, l.cells[column])
		}
		t.AppendRow(append(row, l.Expected, l.Antrea))
	}
	_, err := fmt.Fprintf(out, "%s\n\n", t.RenderMarkdown())
	return err
}

// quantile returns the value that the share q of all, 0 to 1, does not exceed.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*q))]
}

func ms(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
}

func mib(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/(1<<20)) }
