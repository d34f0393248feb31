package cases

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var listName = regexp.MustCompile(`^[A-Z]+$`)

// Test names a test by its package's directory below the module, and its name as `go test` prints it, up to and including the
// element that carries a number.
type Test struct{ Package, Name string }

func (t Test) String() string { return t.Package + " " + t.Name }

// element is the part of the name that carries the number.
func (t Test) element() string { return t.Name[strings.LastIndexByte(t.Name, '/')+1:] }

func compareTests(a, b Test) int {
	return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Name, b.Name))
}

// names reads the cases that names of tests carry.
type names struct {
	carried, anywhere *regexp.Regexp
	known             map[Case]bool
}

func newNames(lists []List) names {
	n := names{known: map[Case]bool{}}
	var prefixes []string
	for _, l := range lists {
		prefixes = append(prefixes, l.Name)
	}
	for _, c := range all(lists) {
		n.known[c] = true
	}
	of := "(" + strings.Join(prefixes, "|") + `)(\d+)`
	n.carried = regexp.MustCompile(`(?i)^` + of + `(?:\D|$)`)
	n.anywhere = regexp.MustCompile(`(?i)` + of)
	return n
}

// find returns the case that a test's name carries, and the name up to the element that does. ok is false for a test without a number;
// an error says what is wrong with the number.
func (n names) find(name string) (c Case, upTo string, ok bool, err error) {
	elements := strings.Split(name, "/")
	for i, e := range elements {
		if i == 0 {
			e = strings.TrimPrefix(e, "Test")
		}
		m := n.carried.FindStringSubmatch(e)
		if m == nil {
			continue
		}
		if ok || len(n.anywhere.FindAllString(e, -1)) > 1 {
			return c, upTo, true, fmt.Errorf("%s carries more than one number", name)
		}
		number, _ := strconv.Atoi(m[2]) // digits; of too many the case is unknown
		c, upTo, ok = Case{strings.ToUpper(m[1]), number}, strings.Join(elements[:i+1], "/"), true
		if !n.known[c] || !strings.EqualFold(m[1]+m[2], c.String()) {
			err = fmt.Errorf("%s carries %s%s, which is in no list", name, m[1], m[2])
		}
	}
	return c, upTo, ok, err
}

// index is the tests of each case.
type index map[Case][]Test

func (x index) add(c Case, t Test) {
	if !slices.Contains(x[c], t) {
		x[c] = append(x[c], t)
		slices.SortFunc(x[c], compareTests)
	}
}

// shared returns a line for every case with more than one test.
func (x index) shared(cases []Case) (problems []string) {
	for _, c := range cases {
		if tests := x[c]; len(tests) > 1 {
			problems = append(problems, fmt.Sprintf("%s has %d tests, it is to have one: %s", c, len(tests), join(tests)))
		}
	}
	return problems
}

func join(tests []Test) string {
	var texts []string
	for _, t := range tests {
		texts = append(texts, t.String())
	}
	return strings.Join(texts, ", ")
}
