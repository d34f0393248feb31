package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/e2e/bench/gobench"
)

func worse(before, after string) string {
	var out []string
	for _, r := range judge(gobench.Parse(before), gobench.Parse(after)) {
		if r.worse {
			out = append(out, fmt.Sprintf("%s %s %.4g %.4g", r.what, r.unit, r.before, r.after))
		}
	}
	return strings.Join(out, "; ")
}

func TestJudge(t *testing.T) {
	const line = "Benchmark%s-2 100 5 ns/op %d B/op %d allocs/op\n"
	family := func(each func(n int) int) (out string) {
		for _, n := range []int{10, 100, 1000} {
			out += fmt.Sprintf(line, fmt.Sprintf("Build/%d", n), 10, each(n))
		}
		return out
	}
	flat := func(int) int { return 20 }
	linear := func(n int) int { return 3 * n }
	for name, tt := range map[string]struct{ before, after, want string }{
		"nothing changed":       {family(linear), family(linear), ""},
		"time does not count":   {"BenchmarkA-2 1 5 ns/op 0 B/op 0 allocs/op\n", "BenchmarkA-8 1 5000 ns/op 0 B/op 0 allocs/op\n", ""},
		"a little more":         {fmt.Sprintf(line, "A", 1000, 100), fmt.Sprintf(line, "A", 1200, 110), ""},
		"more allocations":      {fmt.Sprintf(line, "A", 1000, 100), fmt.Sprintf(line, "A", 1000, 113), "A allocs/op 100 113"},
		"more bytes":            {fmt.Sprintf(line, "A", 1000, 100), fmt.Sprintf(line, "A", 1300, 100), "A B/op 1000 1300"},
		"fewer":                 {fmt.Sprintf(line, "A", 1000, 100), fmt.Sprintf(line, "A", 1, 1), ""},
		"a new one":             {"", fmt.Sprintf(line, "A", 1000, 100), ""},
		"flat becomes linear":   {family(flat), family(func(n int) int { return 2 * n }), "Build/100 allocs/op 20 200; Build/1000 allocs/op 20 2000; Build/10, 10 to 100 allocs/op 1 9.571; Build/100, 100 to 1000 allocs/op 1 9.955"},
		"linear becomes square": {family(linear), family(func(n int) int { return n * n / 400 }), "Build/10, 10 to 100 allocs/op 9.71 26; Build/100, 100 to 1000 allocs/op 9.97 96.19"},
		"steps other than ten":  {fmt.Sprintf(line, "A/n=2", 0, 20) + fmt.Sprintf(line, "A/n=200", 0, 2000), fmt.Sprintf(line, "A/n=2", 0, 20) + fmt.Sprintf(line, "A/n=200", 0, 2000), ""},
	} {
		if got := worse(tt.before, tt.after); got != tt.want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, tt.want)
		}
	}
}
