package bench

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/nplbridge/nplbridge/e2e/bench/gobench"
)

// lbsyncPackage has benchmarks of the way from an event's bytes to a load balancer in memory.
const lbsyncPackage = "github.com/nplbridge/nplbridge/lbsync"

// lbsyncChanges measures what one change costs, how long bursts take, and how the model of a large cluster is made, without a control plane.
func lbsyncChanges(ctx context.Context, r *runner) ([]Figure, error) {
	var all []gobench.Result
	for _, part := range []struct{ name, rounds string }{{"PodChange", "1000x"}, {"Burst", "4x"}, {"Start", "1x"}} {
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^Benchmark"+part.name+"$", "-benchtime", part.rounds, lbsyncPackage)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
		}
		r.say("%s measured", part.name)
		all = append(all, gobench.Parse(string(out))...)
	}
	return changeFigures(all), nil
}

func changeFigures(all []gobench.Result) (figures []Figure) {
	smallest := 0.0
	for _, b := range all {
		v := b.Values
		kind, which, _ := strings.Cut(b.Name, "/")
		switch kind {
		case "PodChange":
			if smallest == 0 {
				smallest = v["cpu-us"]
			}
			figures = append(figures, Figure{
				What: "one Pod of " + which + " changes: processor time; calls, pools, members written, readings",
				Measured: fmt.Sprintf("%.2f ms, %.2f of that with the fewest Pods; %.4g, %.4g, %.4g, %.4g", v["cpu-us"]/1000, v["cpu-us"]/smallest,
					v["calls"], v["objects"], v["steps"], v["readings"]),
				Expected: "< 1 ms, at most 1.2; 1, 1, 1, 0",
			})
		case "Burst":
			figures = append(figures, Figure{
				What: "3,000 Pods change at once, 5 ms a write: " + strings.ReplaceAll(strings.ReplaceAll(which, "/", ", "), "-", " "),
				Measured: fmt.Sprintf("%.2f s, at worst %.2f s; %.5g writes; a program that only waits %.2f s, arithmetic %.2f s", v["s-mean"], v["s-worst"],
					v["objects"], v["s-only"], v["s-least"]),
				Expected: "< 3 s",
			})
		case "Start":
			const pods = "100,000 Pods in 10,000 Services, an API server that costs nothing: "
			figures = append(figures,
				Figure{What: pods + "first request to caches full", Measured: fmt.Sprintf("%.2f s", v["s-caches"])},
				Figure{
					What: "… caches full to everything applied, no delay", Measured: fmt.Sprintf("%.2f s (%.2f of it)", v["s-applied"], v["s-applied"]/10),
					Expected: "< 10 s",
				},
				Figure{
					What:     "… started anew, nothing changed: until every Service was looked at; calls that write, readings",
					Measured: fmt.Sprintf("%.2f s; %.4g, %.4g", v["s-restart"], v["calls-restart"], v["readings-restart"]), Expected: "writes: 0",
				})
		}
	}
	return figures
}
