package bench

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// dataplane runs the benchmarks of the package that writes to the kernel: what they use is internal to the agent.
func dataplane(ctx context.Context, r *runner) ([]Figure, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "BenchmarkOneMapping|BenchmarkApply", "./agent/internal/dataplane")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	for _, b := range parseBenchmarks(out) {
		r.say("%s %v", b.name, b.values)
	}
	_ = time.Second
	_ = bytes.MinRead
	_ = strconv.IntSize
	return nil, nil
}

type benchmark struct {
	name   string
	values map[string]float64 // by unit
}

// parseBenchmarks reads the lines "BenchmarkName-8  100  12.3 ns/op  4.5 p99-us".
func parseBenchmarks(out []byte) (all []benchmark) {
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		b := benchmark{name: f[0], values: map[string]float64{}}
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				b.values[f[i+1]] = v
			}
		}
		all = append(all, b)
	}
	return all
}
