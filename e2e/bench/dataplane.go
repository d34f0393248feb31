package bench

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/nplbridge/nplbridge/e2e/bench/gobench"
)

// dataplanePackage writes to the kernel. It is internal to the agent, so its own benchmarks are run.
const dataplanePackage = "github.com/nplbridge/nplbridge/agent/internal/dataplane"

// kernelFigures are the figures that somebody has set or measured, by benchmark. All of ours are the time of a whole transaction;
// on a busy machine that is mostly waiting, so the processor time of the thread stands beside it.
var kernelFigures = map[string]struct{ expected, antrea string }{
	"OneMapping/alone/add-tcp":                         {"p99 < 300 us", "11,000 us"},
	"OneMapping/alone/delete-tcp":                      {"p99 < 300 us", "32,000 us"},
	"OneMapping/beside-15000-foreign-rules/add-tcp":    {"p99 < 300 us", "38,000 us"},
	"OneMapping/beside-15000-foreign-rules/delete-tcp": {"p99 < 300 us", "78,000 us"},
	"ColdStart1000":                                    {"< 20,000 us", "53,000 us"},
}

func dataplane(ctx context.Context, r *runner) ([]Figure, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "OneMapping|ColdStart1000|ConntrackWalk", dataplanePackage)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	var figures []Figure
	for _, b := range gobench.Parse(string(out)) {
		known := kernelFigures[b.Name]
		figures = append(figures, Figure{
			What:     "kernel: " + b.Name,
			Measured: fmt.Sprintf("p50 %.0f us, p99 %.0f us; processor time %.0f us, %.0f us", b.Values["p50-us"], b.Values["p99-us"], b.Values["p50-cpu-us"], b.Values["p99-cpu-us"]),
			Expected: known.expected,
			Antrea:   known.antrea,
		})
	}
	return figures, nil
}
