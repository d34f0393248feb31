package bench

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Figure is a line of the table.
type Figure struct {
	What     string
	Measured string
	Expected string // what nplbridge has set itself; empty where that is nothing
	Antrea   string // what Antrea 2.8's controller was measured at, on another machine with two cores; empty if it was not
}

func printTable(out io.Writer, figures []Figure) {
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"what", "measured", "expected", "Antrea"})
	for _, f := range figures {
		t.AppendRow(table.Row{f.What, f.Measured, f.Expected, f.Antrea})
	}
	t.Render()
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
