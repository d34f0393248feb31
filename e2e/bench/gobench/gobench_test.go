package gobench

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	const out = `goos: linux
BenchmarkOneMapping/alone/add-tcp-2         	     100	     12345 ns/op	        60.5 p50-us	       130 p99-us
BenchmarkColdStart1000 	      50	  9000000 ns/op
BenchmarkBroken
--- BENCH: BenchmarkOneMapping
PASS
`
	want := []Result{
		{"OneMapping/alone/add-tcp", map[string]float64{"ns/op": 12345, "p50-us": 60.5, "p99-us": 130}},
		{"ColdStart1000", map[string]float64{"ns/op": 9000000}},
	}
	if diff := cmp.Diff(want, Parse(out)); diff != "" {
		t.Error(diff)
	}
}
