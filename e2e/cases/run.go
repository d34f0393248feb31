package cases

import (
	"fmt"
	"slices"
	"strings"
)

// Run collects what became of numbered tests, over any number of `go test` commands. A test that runs twice is the same test; it counts
// as failed or skipped if it ever was.
type Run struct {
	lists    []List
	names    names
	tests    index
	verdicts map[Test]string
	unusable []string // names with numbers that cannot be
}

// NewRun returns a run in which nothing has happened.
func NewRun(lists []List) *Run {
	return &Run{lists: lists, names: newNames(lists), tests: index{}, verdicts: map[Test]string{}}
}

// rank orders verdicts: the worst one stays.
var rank = []string{"run", "pass", "skip", "fail"}

// Add hears of one event of `go test -json`: the package's directory below the module, the test's name, the action. Events that
// are about no test, or no numbered one, are passed over.
func (r *Run) Add(pkg, name, action string) {
	if !slices.Contains(rank, action) {
		return
	}
	c, upTo, ok, err := r.names.find(name)
	if !ok {
		return
	}
	if err != nil {
		if problem := fmt.Sprintf("%s: %v", pkg, err); !slices.Contains(r.unusable, problem) {
			r.unusable = append(r.unusable, problem)
		}
		return
	}
	t := Test{pkg, upTo}
	r.tests.add(c, t)
	if action == "pass" && name != upTo {
		return // a part passed; the whole has a verdict of its own
	}
	if slices.Index(rank, action) > slices.Index(rank, r.verdicts[t]) {
		r.verdicts[t] = action
	}
}

// Problems returns a line for each thing that is wrong with the numbers: unknown, two on one test, one on two tests. With
// complete, also for each case of a list that no test has shown.
func (r *Run) Problems(complete bool) []string {
	cases := all(r.lists)
	problems := append(slices.Clone(r.unusable), r.tests.shared(cases)...)
	if !complete {
		return problems
	}
	var missing []string
	for _, c := range cases {
		if len(r.tests[c]) == 0 {
			missing = append(missing, c.String())
		}
	}
	if len(missing) > 0 {
		problems = append(problems, fmt.Sprintf("%d of %d cases have no test: %s", len(missing), len(cases), strings.Join(missing, " ")))
	}
	said := map[string]string{"run": "did not end", "skip": "was skipped", "fail": "failed"}
	for _, c := range cases {
		for _, t := range r.tests[c] {
			if bad := said[r.verdicts[t]]; bad != "" {
				problems = append(problems, fmt.Sprintf("%s %s: %s", c, bad, t))
			}
		}
	}
	return problems
}

// Differences returns a line for each case whose test is another one than the source says: a name that only exists at run time, which the
// documentation then does not know.
func (r *Run) Differences(source Source) []string {
	var out []string
	for _, c := range all(r.lists) {
		ran, written := r.tests[c], source.tests[c]
		same := slices.EqualFunc(ran, written, func(a, b Test) bool { return a.Package == b.Package && a.element() == b.element() })
		if !same && len(ran) > 0 {
			out = append(out, fmt.Sprintf("%s: %s ran, the source says %s", c, join(ran), join(written)))
		}
	}
	return out
}
