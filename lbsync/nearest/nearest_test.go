package nearest

import (
	"strings"
	"testing"
)

func TestTo(t *testing.T) {
	candidates := []string{"portRange", "resync", "listen", "avi", "nplbridge.io/algorithm", "nplbridge.io/weight"}
	for word, want := range map[string]string{
		"portrange":               "portRange",
		"prtRanges":               "portRange",
		"portsInAll":              "", // more than a third
		"resnyc":                  "resync",
		"ava":                     "avi",
		"xyz":                     "", // all of it
		"x":                       "",
		"":                        "",
		"nplbridge.io/algorithms": "nplbridge.io/algorithm",
		"nplbridge.io/wait":       "",
		"nplbridge.io/wieght":     "nplbridge.io/weight",
		"nplbridge.io/":           "",
		"größe":                   "",
		strings.Repeat("avi", 50): "",
	} {
		if got := To(word, candidates); got != want {
			t.Errorf("To(%q) = %q, want %q", word, got, want)
		}
	}
	if got := To("ab", []string{"ax", "ay"}); got != "ax" {
		t.Errorf("of two that are as near To gives %q, want the first", got)
	}
}
