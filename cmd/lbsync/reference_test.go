package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nplbridge/nplbridge/cmd/internal/drift"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
)

// The page of the commands is their help, less the flags of the settings, which have a page of their own.
func TestCommandDocs(t *testing.T) {
	isSetting := map[string]bool{settings.ConfigFlag: true}
	for _, s := range table().Settings {
		isSetting[s.Flag()] = true
	}
	var b strings.Builder
	for _, c := range commands(root(callerOf("lbsync")))[1:] {
		describe(&b, c, isSetting)
	}
	drift.Compare(t, "../../docs/reference/lbsync.md", "commands", b.String())
}

func describe(b *strings.Builder, c *cobra.Command, isSetting map[string]bool) {
	fmt.Fprintf(b, "## %s\n\n%s.\n\n", strings.TrimSuffix(c.UseLine(), " [flags]"), c.Short)
	if c.Long != "" {
		fmt.Fprintf(b, "%s\n\n", strings.TrimSpace(c.Long))
	}
	var lines []string
	for line := range strings.Lines(c.Example) {
		lines = append(lines, "$ "+strings.TrimSpace(line))
	}
	fmt.Fprintf(b, "```console\n%s\n```\n\n", strings.Join(lines, "\n"))
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
		fmt.Fprintf(b, "- %s: %s\n", name, f.Usage)
	})
	if takesSettings {
		b.WriteString("- every [setting](settings.md) as a flag, and `--config` for a file of them\n\n")
	}
}
