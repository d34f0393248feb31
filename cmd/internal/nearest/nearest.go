// Package nearest finds what somebody may have meant.
package nearest

import "strings"

// long is more bytes than any word of ours has.
const long = 128

// To returns the candidate with the smallest edit distance to word, or "" when none is similar. Upper and lower case are the same.
func To(word string, candidates []string) string {
	if len(word) > long {
		return ""
	}
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
