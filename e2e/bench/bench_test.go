package bench

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nplbridge/nplbridge/e2e/bench/gobench"
)

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

func TestPage(t *testing.T) {
	var page strings.Builder
	err := errors.Join(writePage(&page, slices.Concat(
		of("one", []Figure{{What: "time", Measured: "1 s", Expected: "< 2 s"}, {What: "bytes", Measured: "10"}}),
		of("two", []Figure{{What: "time", Measured: "2 s", Expected: "< 2 s"}, {What: "calls", Measured: "3"}}),
	)), writePage(&page, []Figure{{What: "a", Measured: "1"}, {What: "the same", Measured: "2"}, {What: "b", Measured: "3"}, {What: "the same", Measured: "4"}}))
	if err != nil {
		t.Fatal(err)
	}
	const want = `| what | one | two | expected |
| --- | --- | --- | --- |
| time | 1 s | 2 s | < 2 s |
| bytes | 10 |  |  |
| calls |  | 3 |  |

| what | measured |
| --- | --- |
| a | 1 |
| the same | 2 |
| b | 3 |
| the same | 4 |

`
	if diff := cmp.Diff(want, page.String()); diff != "" {
		t.Error(diff)
	}
}

func TestChangeFigures(t *testing.T) {
	const out = `BenchmarkPodChange/1000-2  1000  9598647 ns/op  1.000 calls  600 cpu-us  1.000 objects  0 readings  1.000 steps
BenchmarkPodChange/10000-2  1000  9598647 ns/op  1.000 calls  720 cpu-us  2.000 objects  0 readings  1.000 steps
BenchmarkBurst/3000-services/concurrency-8-2  4  2959373927 ns/op  3000 calls  3000 objects  2.000 s-least  3.000 s-mean  2.500 s-only  3.247 s-worst
BenchmarkStart-2  1  2959373927 ns/op  1 calls  0 calls-restart  1 readings-restart  5 s-applied  9 s-caches  0.5 s-restart
`
	want := []Figure{
		{What: "one Pod of 1000 changes: processor time; calls, pools, members written, readings",
			Measured: "0.60 ms, 1.00 of that with the fewest Pods; 1, 1, 1, 0", Expected: "< 1 ms, at most 1.2; 1, 1, 1, 0"},
		{What: "one Pod of 10000 changes: processor time; calls, pools, members written, readings",
			Measured: "0.72 ms, 1.20 of that with the fewest Pods; 1, 2, 1, 0", Expected: "< 1 ms, at most 1.2; 1, 1, 1, 0"},
		{What: "3,000 Pods change at once, 5 ms a write: 3000 services, concurrency 8",
			Measured: "3.00 s, at worst 3.25 s; 3000 writes; a program that only waits 2.50 s, arithmetic 2.00 s", Expected: "< 3 s"},
		{What: "100,000 Pods in 10,000 Services, an API server that costs nothing: first request to caches full", Measured: "9.00 s"},
		{What: "… caches full to everything applied, no delay", Measured: "5.00 s (0.50 of it)", Expected: "< 10 s"},
		{What: "… started anew, nothing changed: until every Service was looked at; calls that write, readings", Measured: "0.50 s; 0, 1", Expected: "writes: 0"},
	}
	if diff := cmp.Diff(want, changeFigures(gobench.Parse(out))); diff != "" {
		t.Error(diff)
	}
}
