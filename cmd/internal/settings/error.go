package settings

import (
	"fmt"
	"strings"
)

// Error is a setting that cannot be used: which one, the value, where the value came from, why, and what to do.
type Error struct {
	Key    string // the setting as in the file; empty when the file itself is the problem
	Value  string
	Source string // "--port-range", "NPL_AGENT_PORT_RANGE", a file's path, or "default"
	Reason string
	Fix    string
}

// Error returns one line: `portRange: "61000" (from --port-range): reason; fix`.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Key != "" {
		fmt.Fprintf(&b, "%s: %q (from %s): ", e.Key, e.Value, e.Source)
	} else {
		fmt.Fprintf(&b, "%s: ", e.Source)
	}
	b.WriteString(e.Reason)
	if e.Fix != "" {
		b.WriteString("; " + e.Fix)
	}
	return b.String()
}

// nearest returns the candidate with the smallest edit distance to word, or "" when none is similar.
func nearest(word string, candidates []string) string {
	best, bestDistance := "", len(word)/2+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
