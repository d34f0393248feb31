package lbsync

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/gate"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/status"
)

// What a user can meet on an object is in the reference.
func TestReferenceIsComplete(t *testing.T) {
	words := map[string][]string{
		"../docs/reference/conditions.md": slices.Concat(
			[]string{status.Accepted, status.Programmed, annotations.Gate}, status.ConditionReasons(), status.EventReasons(), gate.Reasons()),
		"../docs/reference/service-annotations.md": {
			annotations.LoadBalancerIPs, annotations.Algorithm, annotations.AssignedIPs, annotations.AttachedTo, annotations.ManagedBy, annotations.EnabledBy, annotations.Finalizer,
		},
	}
	conditions := words["../docs/reference/conditions.md"]
	for _, reason := range model.Reasons() {
		conditions = append(conditions, string(reason))
	}
	words["../docs/reference/conditions.md"] = conditions
	for file, wanted := range words {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range wanted {
			if !strings.Contains(string(text), "`"+word) {
				t.Errorf("%s does not mention %s", file, word)
			}
		}
	}
}
