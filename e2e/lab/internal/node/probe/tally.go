// Package probe asks containers how they are, as a kubelet does.
package probe

// Tally turns single answers into a verdict that changes only after as many equal answers in a row as the thresholds say.
type Tally struct {
	// Success and Failure are the thresholds; 1 or more.
	Success, Failure int

	last  bool
	inRow int
}

// Add counts an answer. decided says that a threshold has been reached, and the verdict is the answer itself.
func (t *Tally) Add(ok bool) (decided bool) {
	if ok != t.last || t.inRow == 0 {
		t.last, t.inRow = ok, 0
	}
	t.inRow++
	if ok {
		return t.inRow >= t.Success
	}
	return t.inRow >= t.Failure
}
