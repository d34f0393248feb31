package annotations

import "strings"

// meant returns ", did you mean x?" for the candidate that is most like word, or nothing when none is.
func meant(word string, candidates []string) string {
	const long = 128 // nothing of ours is that long
	if len(word) > long {
		return ""
	}
	best, distance := "", max(len(tail(word))/3, 2)+1
	for _, c := range candidates {
		if d := edits(strings.ToLower(word), strings.ToLower(c)); d < distance {
			best, distance = c, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// tail is what follows the prefix of a key.
func tail(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// edits is the Levenshtein distance in bytes.
func edits(a, b string) int {
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
