package nearest

import (
	"strings"
	"testing"
)

func TestTo(t *testing.T) {
	tooLong := strings.Repeat("avi", 50)
	candidates := []string{tooLong, "portRange", "resync", "listen", "avi", "nplbridge.io/algorithm", "nplbridge.io/weight"}
	for word, want := range map[string]string{
		"portrange":               "portRange",
		"prtRanges":               "portRange",
		"portRangeXYZ":            "portRange", // three of twelve
		"portsInAll":              "",          // more than a third
		"resnyc":                  "resync",
		"ava":                     "avi",
		"xyz":                     "", // all of it
		"x":                       "",
		"xi":                      "", // likewise
		"":                        "",
		"nplbridge.io/algorithms": "nplbridge.io/algorithm",
		"nplbridge.io/wait":       "",
		"nplbridge.io/wieght":     "nplbridge.io/weight",
		"nplbridge.io/":           "",
		"größe":                   "",
		tooLong:                   "",
	} {
		if got := To(word, candidates); got != want {
			t.Errorf("To(%q) = %q, want %q", word, got, want)
		}
	}
	if got := To("ab", []string{"ax", "ay"}); got != "ax" {
		t.Errorf("of two that are as near To gives %q, want the first", got)
	}
}
