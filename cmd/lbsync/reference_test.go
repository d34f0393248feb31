package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

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

// The example alerts are YAML, and every metric in them exists.
func TestAlerts(t *testing.T) {
	page, err := os.ReadFile("../../docs/how-to/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "<!-- begin alerts -->\n```yaml\n")
	rules, _, found := strings.Cut(rest, "```\n<!-- end alerts -->")
	var decoded struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For string
				Annotations      map[string]string
			}
		}
	}
	if err := yaml.UnmarshalStrict([]byte(rules), &decoded); err != nil || !found || len(decoded.Groups) != 1 {
		t.Fatalf("%v, %d groups", err, len(decoded.Groups))
	}
	for _, r := range decoded.Groups[0].Rules {
		if r.Alert == "" || r.For == "" || r.Annotations["summary"] == "" {
			t.Errorf("%+v is incomplete", r)
		}
		named := regexp.MustCompile(`(lbsync|npl_agent)_[a-z_]+`).FindAllString(r.Expr, -1)
		for _, name := range named {
			name = strings.TrimSuffix(name, "_count")
			if !strings.Contains(string(metrics), "`"+name+"`") && !strings.HasSuffix(name, "_config_last_reload_successful") {
				t.Errorf("%s: there is no metric %s", r.Alert, name)
			}
		}
		if len(named) == 0 {
			t.Errorf("%s names no metric", r.Alert)
		}
	}
}
