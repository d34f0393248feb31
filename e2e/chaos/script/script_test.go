package script

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var actions = []string{"a", "b", "c", "d"}

func TestSourceIsOfItsSeedAndComplete(t *testing.T) {
	draw := func(seed uint64) (steps []Step) {
		source := NewSource(seed, actions)
		for range 3 * len(actions) {
			steps = append(steps, source.Next())
		}
		return steps
	}
	first := draw(7)
	if again := draw(7); !slices.Equal(first, again) {
		t.Errorf("one seed, two scripts: %v %v", first, again)
	}
	if other := draw(8); slices.Equal(first, other) {
		t.Errorf("two seeds, one script: %v", first)
	}
	shuffled := false
	for round := range slices.Chunk(first, len(actions)) {
		var names []string
		for _, s := range round {
			names = append(names, s.Action)
		}
		shuffled = shuffled || !slices.IsSorted(names)
		if slices.Sort(names); !slices.Equal(names, actions) {
			t.Errorf("a round has %v, want each of %v once", names, actions)
		}
	}
	if !shuffled {
		t.Errorf("every round has the same order: %v", first)
	}
}

func TestParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Step {
			return Step{rapid.SampledFrom(actions).Draw(t, "action"), rapid.Uint32().Draw(t, "seed")}
		}), 1, 9).Draw(t, "steps")
		if got, err := Parse(Format(steps), actions); err != nil || !slices.Equal(got, steps) {
			t.Errorf("%v (%v), want %v", got, err, steps)
		}
	})
	for text, want := range map[string]string{"": `action ""`, "a:1,z:2": `action "z"`, "a:-1": `seed "-1"`, "a:4294967296": "seed"} {
		if _, err := Parse(text, actions); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A failure that needs certain steps is shrunk to them, in their order, whatever is around.
func TestShrinkFindsWhatIsNeeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "steps")
		var steps []Step
		for i := range n {
			steps = append(steps, Step{fmt.Sprint(i), 0})
		}
		needed := rapid.SliceOfNDistinct(rapid.SampledFrom(steps), 1, min(3, n), func(s Step) string { return s.Action }).Draw(t, "needed")
		fails := func(candidate []Step) bool {
			return !slices.ContainsFunc(needed, func(s Step) bool { return !slices.Contains(candidate, s) })
		}
		got := Shrink(steps, 1000, fails)
		if len(got) != len(needed) || !fails(got) || !slices.IsSortedFunc(got, func(x, y Step) int { return slices.Index(steps, x) - slices.Index(steps, y) }) {
			t.Errorf("shrunk to %v, want %v", got, needed)
		}
	})
}

func TestShrinkIsBounded(t *testing.T) {
	var steps []Step
	for i := range 50 {
		steps = append(steps, Step{fmt.Sprint(i), 0})
	}
	for _, times := range []int{0, 1, 5} {
		calls := 0
		got := Shrink(steps, times, func(candidate []Step) bool { calls++; return len(candidate) > 40 })
		if calls > times || len(got) == 0 {
			t.Errorf("%d calls of %d, left %d steps", calls, times, len(got))
		}
	}
}
