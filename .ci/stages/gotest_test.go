package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/e2e/cases"
)

const events = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"hello\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p","Test":"TestC"}
{"Action":"fail","Package":"p"}
not json
{"Action":"skip","Package":"empty"}
`

func TestRead(t *testing.T) {
	for name, test := range map[string]struct {
		events string
		ci     bool
		want   tally
	}{
		"by hand":                {events, false, tally{passed: 1, failed: 1, skipped: 1}},
		"in CI":                  {events, true, tally{passed: 1, failed: 2, skipped: 1}},
		"a package that crashed": {`{"Action":"fail","Package":"p"}`, false, tally{failed: 1}},
		"does not build": {
			`{"Action":"build-fail","ImportPath":"p"}` + "\n" + `{"Action":"fail","Package":"p"}` + "\n" +
				`{"Action":"fail","Package":"needs p"}`, false, tally{failed: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := read(strings.NewReader(test.events), test.ci, noTests(t)); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

// Numbered tests are told to the lists of cases, with the package's directory.
func TestReadTellsNumbers(t *testing.T) {
	seen := noTests(t)
	read(strings.NewReader(`{"Action":"skip","Package":"`+module+`agent","Test":"TestNPL01One"}`), false, seen)
	if got := seen.Problems(true); !slices.Contains(got, "NPL01 was skipped: agent TestNPL01One") {
		t.Errorf("problems: %q", got)
	}
}

func noTests(t *testing.T) *cases.Run {
	t.Helper()
	lists, err := cases.Lists()
	if err != nil {
		t.Fatal(err)
	}
	return cases.NewRun(lists)
}
