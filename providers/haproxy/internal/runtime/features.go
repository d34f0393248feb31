package runtime

import (
	"context"
	"slices"
	"strings"
)

// Features is what an HAProxy can do beyond the floor, 2.6.
type Features struct {
	WaitRemovable bool // `wait <time> srv-removable <backend>/<server>`; since 3.0
	InitState     bool // `init-state` among the keywords of `add server`; since 3.1
	AddBackend    bool // `add backend`, `publish backend`, `unpublish backend`, `del backend` outside experimental mode; since 3.4
}

// featureProbe is what a worker is asked for its Features. None of it changes anything, and every version answers something.
var featureProbe = []Command{Ask("help"), Ask("add server help")}

// FeaturesOf works out what an HAProxy can do from its version and from what it answered to `help` and to `add server help`. The answers say more than
// the version, as builds differ and experimental commands are not listed; before 3.2 there is no list of keywords, and the version decides.
func FeaturesOf(version Version, help, keywords string) Features {
	commands := map[string]bool{}
	for line := range strings.Lines(help) {
		name, isCommand := strings.CutPrefix(line, "  ")
		if words := strings.Fields(name); isCommand && len(words) > 1 {
			commands[words[0]] = true
			commands[words[0]+" "+words[1]] = true
		}
	}
	all := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return !commands[name] })
	}
	f := Features{
		WaitRemovable: all("wait"),
		InitState:     version.AtLeast(3, 1),
		AddBackend:    all("add backend", "publish backend", "unpublish backend", "del backend"),
	}
	if list := strings.Fields(keywords); slices.Contains(list, "check") {
		f.InitState = slices.Contains(list, "init-state")
	}
	return f
}

// Features asks the worker what it can do, in one round trip.
func (s *Session) Features(ctx context.Context) (Features, error) {
	answers, err := s.Run(ctx, featureProbe)
	if err != nil {
		return Features{}, err
	}
	return FeaturesOf(s.info.Version, answers[0].Text, answers[1].Text), nil
}
