package annotations

import "github.com/nplbridge/nplbridge/lbsync/nearest"

// meant returns ", did you mean x?" for the candidate that is most like word, or nothing when none is.
func meant(word string, candidates []string) string {
	near := nearest.To(word, candidates)
	if near == "" {
		return ""
	}
	return ", did you mean " + near + "?"
}
