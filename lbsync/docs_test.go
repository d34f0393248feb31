package lbsync

import (
	"os"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/status"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/providers"
)

// What a user can meet on an object is in the reference.
func TestReferenceIsComplete(t *testing.T) {
	words := map[string][]string{
		"../docs/reference/conditions.md": {
			status.Accepted, status.Programmed, status.ReasonAccepted, status.ReasonInvalidAnnotation, status.ReasonUnsupportedProtocol,
			status.ReasonDisabled, status.ReasonManagedByOther, status.ReasonProgrammed, status.ReasonPending, status.ReasonNotAccepted, status.ReasonHeld,
		},
		"../docs/reference/service-annotations.md": {
			annotations.LoadBalancerIPs, annotations.Algorithm, annotations.AssignedIPs, annotations.ManagedBy, annotations.EnabledBy, annotations.Finalizer,
		},
	}
	conditions := words["../docs/reference/conditions.md"]
	for _, reason := range model.Reasons() {
		conditions = append(conditions, string(reason))
	}
	for _, reason := range vip.Reasons() {
		conditions = append(conditions, string(reason))
	}
	for _, kind := range []providers.Kind{providers.Unavailable, providers.Throttled, providers.Conflict, providers.Rejected, providers.Misconfigured} {
		conditions = append(conditions, "Provider"+string(kind))
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
