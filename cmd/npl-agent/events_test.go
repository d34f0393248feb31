package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/agent"
	"github.com/nplbridge/nplbridge/cmd/internal/drift"
)

func TestEventsDocs(t *testing.T) {
	var b strings.Builder
	b.WriteString("| Reason | On | Meaning | What to do |\n|---|---|---|---|\n")
	for _, r := range agent.EventReasons() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Reason, r.Object, r.Meaning, r.Remedy)
	}
	drift.Compare(t, "../../docs/reference/events.md", "reasons", b.String())
}
