package main

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"

	"github.com/nplbridge/nplbridge/e2e/bench/gobench"
)

// units are what is compared: they hardly depend on the machine or on what else it does.
var units = []string{"allocs/op", "B/op"}

// Tolerances. Maps grow by chance, and a benchmark that runs a hundred times has what it makes once in its mean.
const (
	moreShare  = 0.10 // of what there was
	moreAllocs = 2
	moreBytes  = 128
	moreGrowth = 0.10 // of how it grew before
	leastGrown = 0.25 // and at least so much, in times as much per ten times as large
)

// row is one comparison.
type row struct {
	what, unit    string
	before, after float64
	growth        bool // from n to 10 n, instead of the value at n
	worse         bool
}

// judge compares the benchmarks that both have, and how their values grow with their size; a benchmark's size is the number that ends its name.
func judge(before, after []gobench.Result) (rows []row) {
	was, is := index(before), index(after)
	for _, r := range after {
		for _, unit := range units {
			old, known := was[r.Name][unit]
			if !known {
				continue
			}
			slack := map[string]float64{"allocs/op": moreAllocs, "B/op": moreBytes}[unit]
			rows = append(rows, row{what: r.Name, unit: unit, before: old, after: r.Values[unit], worse: r.Values[unit] > old*(1+moreShare)+slack})
		}
	}
	for _, f := range families(after) {
		for i := 1; i < len(f.sizes); i++ {
			small, large := f.sizes[i-1], f.sizes[i]
			for _, unit := range units {
				old, known := growth(was, f.name(small), f.name(large), small, large, unit)
				now, both := growth(is, f.name(small), f.name(large), small, large, unit)
				if known && both {
					rows = append(rows, row{
						what: fmt.Sprintf("%s, %d to %d", f.name(small), small, large), unit: unit, before: old, after: now, growth: true,
						worse: now > old*(1+moreGrowth)+leastGrown,
					})
				}
			}
		}
	}
	return rows
}

func index(all []gobench.Result) map[string]map[string]float64 {
	out := map[string]map[string]float64{}
	for _, r := range all {
		out[r.Name] = r.Values
	}
	return out
}

// family is a benchmark at several sizes.
type family struct {
	stem  string
	sizes []int // growing
}

func (f family) name(size int) string { return f.stem + strconv.Itoa(size) }

var sized = regexp.MustCompile(`^(.*[/=])(\d+)$`)

func families(all []gobench.Result) (out []family) {
	at := map[string]int{}
	for _, r := range all {
		parts := sized.FindStringSubmatch(r.Name)
		if parts == nil {
			continue
		}
		size, err := strconv.Atoi(parts[2])
		if err != nil || size == 0 || strconv.Itoa(size) != parts[2] {
			continue
		}
		i, known := at[parts[1]]
		if !known {
			i = len(out)
			at[parts[1]] = i
			out = append(out, family{stem: parts[1]})
		}
		out[i].sizes = append(out[i].sizes, size)
	}
	for _, f := range out {
		slices.SortFunc(f.sizes, cmp.Compare)
	}
	return out
}

// growth is how many times as much something takes that is ten times as large. One allocation is added to both, so that none at all grows to
// one by a factor, too.
func growth(of map[string]map[string]float64, small, large string, n, m int, unit string) (float64, bool) {
	least, ok1 := of[small][unit]
	most, ok2 := of[large][unit]
	if !ok1 || !ok2 || n == m {
		return 0, false
	}
	return math.Pow((most+1)/(least+1), 1/math.Log10(float64(m)/float64(n))), true
}
