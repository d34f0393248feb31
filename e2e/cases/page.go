package cases

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Page returns docs/reference/cases.md: every case, and the test that shows it.
func (s Source) Page() string {
	var b strings.Builder
	b.WriteString(`# Cases

What has to be true, one sentence per case, and the one test that shows it. ` + "`make generate`" + ` writes this page from
e2e/cases and the names of the tests; ` + "`make test`" + ` fails if a case has no test, more than one, or one that was skipped.

To run one: ` + "`go test ./agent/internal/loop -run '/NPL07'`" + ` for a subtest, ` + "`go test ./e2e/stories -run '/npl45'`" + ` for a story of the lab.
`)
	for _, l := range s.lists {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", l.Title, l.About)
		for _, section := range l.Sections {
			fmt.Fprintf(&b, "\n### %s\n\n| Case | What holds | Package | Test |\n|---|---|---|---|\n", section.Title)
			for _, number := range slices.Sorted(maps.Keys(section.Cases)) {
				c := Case{l.Name, number}
				var packages, tests []string
				for _, t := range s.tests[c] {
					packages, tests = append(packages, t.Package), append(tests, "`"+t.element()+"`")
				}
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c, section.Cases[number], strings.Join(packages, "<br>"), strings.Join(tests, "<br>"))
			}
		}
	}
	return b.String()
}
