// Package script makes, reads and shrinks the scripts of chaos runs. It is pure: a seed decides everything.
package script

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// Step is one action with the seed of its own choices.
type Step struct {
	Action string
	Seed   uint32
}

// Format writes steps as Parse reads them: "scale:17,agent-kill:3".
func Format(steps []Step) string {
	var out []string
	for _, s := range steps {
		out = append(out, fmt.Sprintf("%s:%d", s.Action, s.Seed))
	}
	return strings.Join(out, ",")
}

// Parse reads what Format writes. known are the actions there are; a step without a seed has the seed 0.
func Parse(text string, known []string) ([]Step, error) {
	var steps []Step
	for word := range strings.SplitSeq(text, ",") {
		name, number, has := strings.Cut(strings.TrimSpace(word), ":")
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("action %q: use %s", name, strings.Join(known, ", "))
		}
		step := Step{Action: name}
		if has {
			seed, err := strconv.ParseUint(number, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("action %s: the seed %q is not a number from 0 to %d", name, number, uint32(1<<32-1))
			}
			step.Seed = uint32(seed)
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// Source draws steps. They come in rounds: each round has every action once, in another order.
type Source struct {
	random  *rand.Rand
	actions []string
	round   []string
}

// NewSource returns the source of a seed.
func NewSource(seed uint64, actions []string) *Source {
	return &Source{random: rand.New(rand.NewPCG(seed, 0)), actions: slices.Sorted(slices.Values(actions))}
}

// Next draws a step.
func (s *Source) Next() Step {
	if len(s.round) == 0 {
		s.round = slices.Clone(s.actions)
		s.random.Shuffle(len(s.round), func(i, j int) { s.round[i], s.round[j] = s.round[j], s.round[i] })
	}
	step := Step{Action: s.round[0], Seed: s.random.Uint32() % 1000}
	s.round = s.round[1:]
	return step
}

// Random is the source of an action's own choices.
func (s Step) Random() *rand.Rand { return rand.New(rand.NewPCG(uint64(s.Seed), 1)) }

// Shrink looks for a shorter script that still fails, by delta debugging: it leaves out parts, halves first, as long as what is left
// fails. fails is called at most so many times. The last step, after which the failure was seen, is tried alone first.
func Shrink(steps []Step, times int, fails func([]Step) bool) []Step {
	try := func(candidate []Step) bool {
		if times <= 0 || len(candidate) == 0 || len(candidate) >= len(steps) {
			return false
		}
		times--
		return fails(candidate)
	}
	if len(steps) > 1 && try(steps[len(steps)-1:]) {
		return steps[len(steps)-1:]
	}
	for parts := 2; len(steps) > 1 && times > 0; {
		size := (len(steps) + parts - 1) / parts
		smaller := false
		for from := 0; from < len(steps); from += size {
			rest := slices.Concat(steps[:from], steps[min(from+size, len(steps)):])
			if try(rest) {
				steps, smaller = rest, true
				break
			}
		}
		switch {
		case smaller:
			parts = max(2, parts-1)
		case size == 1:
			return steps
		default:
			parts = min(len(steps), 2*parts)
		}
	}
	return steps
}
