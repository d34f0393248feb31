package main

import (
	"strings"
	"testing"
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
			if got := read(strings.NewReader(test.events), test.ci); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}
