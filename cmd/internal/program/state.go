package program

import "github.com/nplbridge/nplbridge/cmd/internal/settings"

// StateKey is the setting that says whether a program does its work or takes away what it has made.
const StateKey = "state"

// What it can be.
const (
	Running  = "running"
	Removing = "removing"
)

func wantState(value any) string {
	if state := value.(string); state != Running && state != Removing {
		return "want " + Running + " or " + Removing
	}
	return ""
}

// IsRemoving says whether the state is removing.
func IsRemoving(values *settings.Values) bool { return values.String(StateKey) == Removing }
