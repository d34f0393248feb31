// Package cases holds the lists of what must be true of nplbridge, one sentence per case, and finds the one test that each case has.
// A test says by its name which case it shows: TestNPL07LabelStopsMatching, a subtest "NPL07 label stops matching", or a story
// npl07_label.txtar. What is below a numbered test belongs to it.
package cases

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"
)

//go:embed *.yaml
var files embed.FS

// List is a numbered list of cases.
type List struct {
	Name     string `json:"name"` // what test names carry: "NPL"
	Title    string `json:"title"`
	About    string `json:"about"`
	Sections []Section
}

// Section is a part of a list, in the order of the file.
type Section struct {
	Title string         `json:"title"`
	Cases map[int]string `json:"cases"` // number to sentence
}

// Case names one case of a list.
type Case struct {
	List   string
	Number int
}

// String is how test names carry the case, "NPL07".
func (c Case) String() string { return fmt.Sprintf("%s%02d", c.List, c.Number) }

func compare(a, b Case) int {
	return cmp.Or(cmp.Compare(a.List, b.List), cmp.Compare(a.Number, b.Number))
}

// Lists returns every list, in the order of their names. It is an error if a number stands twice, or is missing after the first.
func Lists() ([]List, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var lists []List
	for _, entry := range entries {
		content, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, err
		}
		list, err := parse(content)
		if err != nil {
			return nil, fmt.Errorf("the list of cases %s: %w", entry.Name(), err)
		}
		lists = append(lists, list)
	}
	slices.SortFunc(lists, func(a, b List) int { return cmp.Compare(a.Name, b.Name) })
	return lists, nil
}

func parse(content []byte) (List, error) {
	var l List
	if err := yaml.UnmarshalStrict(content, &l); err != nil {
		return List{}, err
	}
	if !listName.MatchString(l.Name) {
		return List{}, fmt.Errorf("name %q: use capital letters, as NPL", l.Name)
	}
	numbers := map[int]bool{}
	for _, section := range l.Sections {
		for number, sentence := range section.Cases {
			if numbers[number] || sentence == "" {
				return List{}, fmt.Errorf("case %d stands twice or has no sentence", number)
			}
			numbers[number] = true
		}
	}
	first := 1
	if len(numbers) > 0 {
		first = slices.Min(slices.Collect(maps.Keys(numbers)))
	}
	for number := first; number < first+len(numbers); number++ {
		if !numbers[number] {
			return List{}, fmt.Errorf("case %d is missing after %d", number, first)
		}
	}
	return l, nil
}

// all returns the cases of the lists, in order.
func all(lists []List) []Case {
	var out []Case
	for _, l := range lists {
		for _, s := range l.Sections {
			for number := range s.Cases {
				out = append(out, Case{l.Name, number})
			}
		}
	}
	slices.SortFunc(out, compare)
	return out
}
