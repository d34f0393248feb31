package nearest

import (
	"strings"
	"testing"
)

func TestTo(t *testing.T) {
	candidates := []string{"portRange", "resync", "listen"}
	for word, want := range map[string]string{
		"portrange": "portRange", "resnyc": "resync", "xyz": "", "": "", strings.Repeat("portRange", 20): "",
	} {
		if got := To(word, candidates); got != want {
			t.Errorf("To(%q) = %q, want %q", word, got, want)
		}
	}
}
