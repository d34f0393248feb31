package paths

import (
	"math"

	"golang.org/x/perf/benchmath"
)

// confidence is that of all intervals.
const confidence = 0.95

// Interval is a median with its confidence interval of 95 percent.
type Interval struct{ Center, Lo, Hi float64 }

// interval assumes nothing about how the values are distributed, as benchstat does. Fewer than six values give an unbounded one.
func interval(values []float64) Interval {
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), confidence)
	return Interval{s.Center, s.Lo, s.Hi}
}

// ratios divides round by round, so that what slowed the machine for a moment slowed both.
func ratios(values, base []float64) []float64 {
	out := make([]float64, min(len(values), len(base)))
	for i := range out {
		out[i] = values[i] / base[i]
	}
	return out
}

// spread is the coefficient of variation of the shares of n Pods, of which those that got nothing are not in the map.
func spread(byPod map[string]int, n int) float64 {
	sum := 0.0
	for _, c := range byPod {
		sum += float64(c)
	}
	mean := sum / float64(n)
	if mean == 0 {
		return 0
	}
	squares := mean * mean * float64(n-len(byPod))
	for _, c := range byPod {
		squares += (float64(c) - mean) * (float64(c) - mean)
	}
	return math.Sqrt(squares/float64(n)) / mean
}
