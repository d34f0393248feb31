// Package gobench reads what `go test -bench` prints.
package gobench

import (
	"regexp"
	"strconv"
	"strings"
)

// Result is what one line says.
type Result struct {
	Name   string             // without "Benchmark" and the number of processors
	Values map[string]float64 // by unit, such as "ns/op" and "allocs/op"
}

// named is "BenchmarkName-8", where 8 is the number of processors and may be missing.
var named = regexp.MustCompile(`^Benchmark(.+?)(-\d+)?$`)

// Parse reads lines such as "BenchmarkName-8  100  12.3 ns/op  4.5 p99-us" and passes over others.
func Parse(out string) (all []Result) {
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		name := named.FindStringSubmatch(fields[0])
		if name == nil {
			continue
		}
		r := Result{Name: name[1], Values: map[string]float64{}}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				r.Values[fields[i+1]] = v
			}
		}
		all = append(all, r)
	}
	return all
}
