package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseBenchmarks(t *testing.T) {
	const out = `goos: linux
BenchmarkOneMapping/alone/add-tcp-2         	     100	     12345 ns/op	        60.5 p50-us	       130 p99-us
BenchmarkColdStart1000 	      50	  9000000 ns/op
BenchmarkBroken
--- BENCH: BenchmarkOneMapping
PASS
`
	want := []benchmark{
		{"OneMapping/alone/add-tcp", map[string]float64{"ns/op": 12345, "p50-us": 60.5, "p99-us": 130}},
		{"ColdStart1000", map[string]float64{"ns/op": 9000000}},
	}
	if diff := cmp.Diff(want, parseBenchmarks(out), cmp.AllowUnexported(benchmark{})); diff != "" {
		t.Error(diff)
	}
}

func TestQuantile(t *testing.T) {
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(100-i))
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 51, 0.99: 100, 1: 100} {
		if got := quantile(all, q); got != want {
			t.Errorf("quantile %v of 1 to 100 is %d, want %d", q, got, want)
		}
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("a quantile of nothing")
	}
}

func TestKilobytes(t *testing.T) {
	const status = "Name:\tnpl-agent\nVmHWM:\t   80000 kB\nVmRSS:\t   51200 kB\n"
	if got, err := kilobytes([]byte(status), "VmRSS"); err != nil || got != 50<<20 {
		t.Errorf("VmRSS %v, %v", got, err)
	}
	if _, err := kilobytes([]byte(status), "RssAnon"); err == nil || !strings.Contains(err.Error(), "RssAnon") {
		t.Errorf("a field that is missing: %v", err)
	}
}

func TestSelect(t *testing.T) {
	if got, err := Select([]string{"memory", "cold"}); err != nil || len(got) != 2 || got[0].Name != "cold" {
		t.Errorf("%v, %v", got, err)
	}
	if all, err := Select(nil); err != nil || len(all) != len(Parts()) {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := Select([]string{"nope"}); err == nil || !strings.Contains(err.Error(), `"nope"`) || !strings.Contains(err.Error(), "burst") {
		t.Errorf("an unknown part: %v", err)
	}
}
