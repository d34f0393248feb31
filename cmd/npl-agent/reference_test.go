package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nplbridge/nplbridge/agent"
	"github.com/nplbridge/nplbridge/cmd/internal/drift"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
)

func TestChecksDocs(t *testing.T) {
	var b strings.Builder
	b.WriteString("| Check | Looks at |\n|---|---|\n")
	for _, c := range agent.NodeChecks() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", c.Name, c.Looks)
	}
	drift.Compare(t, "../../docs/reference/checks.md", "checks", b.String())
}

// The page of the commands is their help, less the flags of the settings, which have a page of their own.
func TestCommandDocs(t *testing.T) {
	isSetting := map[string]bool{settings.ConfigFlag: true}
	for _, s := range table().Settings {
		isSetting[s.Flag()] = true
	}
	var b strings.Builder
	for _, c := range root().Commands() {
		fmt.Fprintf(&b, "## npl-agent %s\n\n%s.\n\n", c.Name(), c.Short)
		if c.Long != "" {
			fmt.Fprintf(&b, "%s\n\n", c.Long)
		}
		fmt.Fprintf(&b, "```console\n%s\n```\n\n", examples(c))
		takesSettings := false
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if isSetting[f.Name] {
				takesSettings = true
				return
			}
			name := "`--" + f.Name + "`"
			if f.Shorthand != "" {
				name = "`-" + f.Shorthand + "`, " + name
			}
			fmt.Fprintf(&b, "- %s: %s\n", name, f.Usage)
		})
		if takesSettings {
			b.WriteString("- every [setting](settings.md) as a flag, and `--config` for a file of them\n")
		}
		b.WriteString("\n")
	}
	drift.Compare(t, "../../docs/reference/npl-agent.md", "commands", b.String())
}

// examples returns a command's examples as they are typed.
func examples(c *cobra.Command) string {
	var lines []string
	for line := range strings.Lines(c.Example) {
		lines = append(lines, "$ "+strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
