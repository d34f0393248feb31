// Package nearest finds what somebody may have meant.
package nearest

import (
	"strings"

	"github.com/agnivade/levenshtein"
)

// long is more bytes than any word of ours has.
const long = 128

// To returns the candidate with the smallest edit distance to word, the first of several, or "" when none is similar: a third of the word may be
// wrong, and two letters of a short one, but not all. Upper and lower case are the same. The length of a key is that of what follows its prefix,
// as after "nplbridge.io/".
func To(word string, candidates []string) string {
	if len(word) > long {
		return ""
	}
	name := len(word[strings.LastIndexByte(word, '/')+1:])
	best, limit := "", max(name/3, min(name-1, 2))
	for _, c := range candidates {
		if d := levenshtein.ComputeDistance(strings.ToLower(word), strings.ToLower(c)); d <= limit {
			best, limit = c, d-1
		}
	}
	return best
}
