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
