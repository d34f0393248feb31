package bench

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
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
	for _, b := range parseBenchmarks(string(out)) {
		known := kernelFigures[b.name]
		figures = append(figures, Figure{
			What:     "kernel: " + b.name,
			Measured: fmt.Sprintf("p50 %.0f us, p99 %.0f us; processor time %.0f us, %.0f us", b.values["p50-us"], b.values["p99-us"], b.values["p50-cpu-us"], b.values["p99-cpu-us"]),
			Expected: known.expected,
			Antrea:   known.antrea,
		})
	}
	return figures, nil
}

// benchmark is what one line of `go test -bench` says.
type benchmark struct {
	name   string
	values map[string]float64 // by unit
}

// benchmarkName is "BenchmarkName-8", where 8 is the number of processors and may be missing.
var benchmarkName = regexp.MustCompile(`^Benchmark(.+?)(-\d+)?$`)

// parseBenchmarks reads lines such as "BenchmarkName-8  100  12.3 ns/op  4.5 p99-us" and passes over others.
func parseBenchmarks(out string) (all []benchmark) {
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		name := benchmarkName.FindStringSubmatch(fields[0])
		if name == nil {
			continue
		}
		b := benchmark{name: name[1], values: map[string]float64{}}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				b.values[fields[i+1]] = v
			}
		}
		all = append(all, b)
	}
	return all
}
