package runtime

import (
	"strings"
	"testing"
)

// Answers of several versions, shortened. Every version lists its commands like this; experimental ones only in experimental mode.
const (
	help26 = "[6]: The following commands are valid at this level:\n" +
		"  add server <bk>/<srv>                   : create a new server\n" +
		"  del server <bk>/<srv>                   : remove a dynamically added server\n" +
		"  set server <bk>/<srv> [opts]            : change a server's state, weight, address or ssl\n" +
		"  help [<command>]                        : list matching or all commands\n" +
		"  prompt                                  : toggle interactive mode with prompt\n" +
		"  quit                                    : disconnect\n"
	help30 = help26 + "  wait {-h|<delay_ms>} cond [args...]     : wait the specified delay or condition (-h to see list)\n"
	help34 = help30 +
		"  add backend <bk> from <defaults>        : add a new backend\n" +
		"  del backend <bk>                        : delete a backend\n" +
		"  publish backend <bk>                    : mark backend as ready for traffic\n" +
		"  unpublish backend <bk>                  : remove backend for traffic processing\n"
	noKeywords = "[3]: Require 'backend/server'."
	keywords32 = "List of keywords supported for dynamic server:\nbackup\ncookie\nid\ninit-state\nweight\nagent-check\ncheck\ninter\n"
)

func TestFeaturesOf(t *testing.T) {
	for name, c := range map[string]struct {
		version        Version
		help, keywords string
		want           Features
	}{
		"2.6":                    {Version{2, 6}, help26, noKeywords, Features{}},
		"3.0":                    {Version{3, 0}, help30, noKeywords, Features{WaitRemovable: true}},
		"3.1":                    {Version{3, 1}, help30, noKeywords, Features{WaitRemovable: true, InitState: true}},
		"3.2":                    {Version{3, 2}, help30, keywords32, Features{WaitRemovable: true, InitState: true}},
		"3.4":                    {Version{3, 4}, help34, keywords32, Features{true, true, true}},
		"3.4 without a keyword":  {Version{3, 4}, help34, strings.Replace(keywords32, "init-state\n", "", 1), Features{true, false, true}},
		"3.4 without publishing": {Version{3, 4}, strings.Replace(help34, "  publish", "  print", 1), keywords32, Features{true, true, false}},
		"a word in a text":       {Version{2, 6}, help26 + "you may wait for it\n", noKeywords, Features{}},
		"nothing":                {Version{2, 6}, "", "", Features{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := FeaturesOf(c.version, c.help, c.keywords); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestSessionAsksForFeatures(t *testing.T) {
	f := newFake(t, func(_ int, line string) (string, bool) {
		return map[string]string{"help": help34, "add server help": keywords32}[line], true
	})
	if got, err := f.dial(t).Features(t.Context()); err != nil || got != (Features{true, true, true}) {
		t.Errorf("%+v, %v", got, err)
	}
}
