package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/cmd/internal/drift"
	"github.com/nplbridge/nplbridge/lbsync"
	"github.com/nplbridge/nplbridge/providers"
)

const annotationsPage = "../../docs/reference/service-annotations.md"

func TestAnnotationsDocs(t *testing.T) {
	var b strings.Builder
	for _, object := range []string{"Service", "Pod", "Node"} {
		fmt.Fprintf(&b, "### On a %s\n\n| Annotation | Value | Meaning | Example |\n|---|---|---|---|\n", object)
		for _, w := range lbsync.Vocabulary() {
			if w.On == object {
				fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` |\n", w.Name, w.Values, w.Doc, w.Example)
			}
		}
		b.WriteString("\n")
	}
	drift.Compare(t, annotationsPage, "annotations", strings.TrimSuffix(b.String(), "\n"))

	b.Reset()
	b.WriteString("| Annotation | Of | Read as | What differs |\n|---|---|---|---|\n")
	for _, a := range lbsync.Aliases() {
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", a.Name, a.Of, a.Word, a.Doc)
	}
	drift.Compare(t, annotationsPage, "aliases", b.String())
}

// What a load balancer can do of all that is as its provider says, without a connection.
func TestCapabilitiesDocs(t *testing.T) {
	args := map[string][]string{
		"avi":       {"--avi-url=https://avi.example.com", "--avi-username=u", "--avi-token-file=/t"},
		"bigip":     {"--bigip-urls=https://bigip.example.com", "--bigip-username=u", "--bigip-password-file=/p"},
		kindHAProxy: {},
	}
	var all []providers.Capabilities
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		flags := pflag.NewFlagSet("lbsync", pflag.ContinueOnError)
		table().AddFlags(flags)
		if err := flags.Parse(append([]string{"--provider=" + kind}, args[kind]...)); err != nil {
			t.Fatal(err)
		}
		values, err := table().Load(flags)
		if err != nil {
			t.Fatal(err)
		}
		b, err := balancers(values)
		if err != nil {
			t.Fatal(err)
		}
		p, err := b[0].build(providers.Owner{ClusterUID: "u", Instance: "n/i"}, zap.NewNop(), nil)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		all = append(all, p.Capabilities())
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, c := range all {
		names = append(names, c.Name)
	}
	if got := lbsync.Kinds(); !slices.Equal(got, names) {
		t.Errorf("annotations know the kinds %v, there are %v", got, names)
	}
	drift.Compare(t, annotationsPage, "capabilities", capabilities(all))

	var b strings.Builder
	b.WriteString("| Annotation | Meaning | Example |\n|---|---|---|\n")
	for _, c := range all {
		for _, o := range c.Options {
			if why := o.Check(o.Example); why != "" {
				t.Errorf("the example of %s option %s: %s", c.Name, o.Name, why)
			}
			fmt.Fprintf(&b, "| `%s.nplbridge.io/%s` | %s | `%s` |\n", c.Name, o.Name, strings.ReplaceAll(o.Doc, "|", `\|`), o.Example)
		}
	}
	drift.Compare(t, annotationsPage, "options", b.String())
}

// capabilities is a table with a column for each kind of load balancer.
func capabilities(all []providers.Capabilities) string {
	var b strings.Builder
	row := func(what string, cell func(providers.Capabilities) string) {
		b.WriteString("| " + what)
		for _, c := range all {
			b.WriteString(" | " + cell(c))
		}
		b.WriteString(" |\n")
	}
	row("", func(c providers.Capabilities) string { return "`" + c.Name + "`" })
	b.WriteString("|---" + strings.Repeat("|---", len(all)) + "|\n")
	row("protocols", func(c providers.Capabilities) string { return words(c.Protocols) })
	row("members in a pool", func(c providers.Capabilities) string {
		if c.MaxMembers == 0 {
			return "any number"
		}
		return fmt.Sprint(c.MaxMembers)
	})
	row("`algorithm`", func(c providers.Capabilities) string {
		return words(append([]providers.Algorithm{providers.RoundRobin}, c.Algorithms...))
	})
	row("`persistence`", func(c providers.Capabilities) string { return words(c.Persistence) })
	row("`monitor`", func(c providers.Capabilities) string { return words(c.Monitors) })
	row("`proxy-protocol`", func(c providers.Capabilities) string { return words(c.ProxyProtocols) })
	for _, f := range []struct {
		what    string
		feature providers.Feature
	}{
		{"`weight`", providers.Weights},
		{"`slow-start`", providers.SlowStart},
		{"`member-connections`", providers.MemberConnections},
		{"`source-ranges`", providers.SourceRanges},
		{"`idle-timeout`", providers.IdleTimeout},
		{"`accept-proxy-protocol`", providers.AcceptProxyProtocol},
		{"`shared-vip`", providers.SharedVIPs},
		{"`pool`", providers.AttachedPools},
	} {
		row(f.what, func(c providers.Capabilities) string {
			if c.Has(f.feature) {
				return "yes"
			}
			return ""
		})
	}
	return b.String()
}

func words[T ~string](list []T) string {
	var out []string
	for _, w := range list {
		out = append(out, string(w))
	}
	return strings.Join(out, ", ")
}
