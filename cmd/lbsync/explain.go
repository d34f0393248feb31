package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/cmd/internal/statusview"
	"github.com/nplbridge/nplbridge/lbsync"
)

func explainCommand(by caller) *cobra.Command {
	command := &cobra.Command{
		Use:   "explain service|pod|vip|member NAME",
		Short: "Say why traffic does or does not reach a Service or a Pod, and how to mend it",
		Long: `Follows the way of the traffic, from VIP to virtual server, pool, member, node port and Pod, and says at the first link that is
broken what is wrong and what to do. A Service or Pod is NAME with -n, or NAMESPACE/NAME; a VIP is an address, with a port or without; a
member is ADDRESS:PORT as the load balancer lists it. NetworkPolicies are read with the rights of the kubeconfig, where it has them.

Exits 0 if no link is broken, 1 if one is.
` + askHelp,
		Example: by.lines(`  lbsync explain service web -n shop
  lbsync explain pod shop/web-6f7d8-x2x9z
  lbsync explain vip 192.0.2.1:443
  lbsync explain member 192.0.2.11:61000
  lbsync explain service web -n shop -o json | jq '.chains[].steps[] | select(.level == "broken")'`),
		Args: cobra.MatchAll(cobra.ExactArgs(2), func(_ *cobra.Command, args []string) error {
			if !slices.Contains(lbsync.TargetKinds(), args[0]) {
				return fmt.Errorf("cannot explain %q; write one of %s", args[0], strings.Join(lbsync.TargetKinds(), ", "))
			}
			return checkName(args[0], args[1])
		}),
	}
	output := program.OutputFlag(command, "text", "json", "yaml")
	namespace := command.Flags().StringP("namespace", "n", "", "of the Service or Pod; without it and a slash, the only one of that name")
	ask := askFlags(command, by)
	command.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return lbsync.TargetKinds(), cobra.ShellCompDirectiveNoFileComp
		}
		d, _, err := ask.ask(c)
		if len(args) > 1 || err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(d, args[0], *namespace), cobra.ShellCompDirectiveNoFileComp
	}
	command.RunE = func(c *cobra.Command, args []string) error {
		d, _, err := ask.ask(c)
		if err != nil {
			return err
		}
		target, err := target(d, args[0], args[1], *namespace)
		if err != nil {
			return err
		}
		ask.addPolicies(c, &d, namespacesOf(d, target))
		answer, err := lbsync.Explain(d, target)
		if err != nil {
			return &settings.Error{Source: "NAME", Reason: err.Error()}
		}
		if *output != "text" {
			err = printView(c.OutOrStdout(), *output, answer)
		} else {
			err = printExplanation(c.OutOrStdout(), by, answer, d.Unread)
		}
		if err == nil && answer.Broken() {
			return program.ErrReported
		}
		return err
	}
	return command
}

// checkName refuses what can be the name of no Service or Pod; addresses are read where they are looked for.
func checkName(kind, name string) error {
	if kind != lbsync.TargetService && kind != lbsync.TargetPod {
		return nil
	}
	namespace, bare, ok := strings.Cut(name, "/")
	if !ok {
		namespace, bare = "default", name // any will do
	}
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(bare)) > 0 {
		return fmt.Errorf("%q is not the name of a %s; write NAME with -n, or NAMESPACE/NAME", name, kind)
	}
	return nil
}

// target completes the name of a Service or Pod with its namespace.
func target(d lbsync.Document, kind, name, namespace string) (lbsync.Target, error) {
	t := lbsync.Target{Kind: kind, Name: name}
	if kind != lbsync.TargetService && kind != lbsync.TargetPod {
		return t, nil
	}
	if in, _, ok := strings.Cut(name, "/"); ok {
		if namespace != "" && namespace != in {
			return t, &settings.Error{Source: "NAME", Reason: fmt.Sprintf("%q is not in namespace %s", name, namespace), Fix: "leave one of the two out"}
		}
		return t, nil
	}
	if namespace == "" {
		var found []string
		for _, full := range names(d, kind, "") {
			if strings.HasSuffix(full, "/"+name) {
				found = append(found, full)
			}
		}
		if len(found) != 1 {
			reason := fmt.Sprintf("lbsync knows no %s of the name %q", kind, name)
			if len(found) > 1 {
				reason = fmt.Sprintf("there are several of the name %q: %s", name, strings.Join(found, ", "))
			}
			return t, &settings.Error{Source: "NAME", Reason: reason, Fix: "say the namespace with -n"}
		}
		t.Name = found[0]
		return t, nil
	}
	t.Name = namespace + "/" + name
	return t, nil
}

// names returns what the document has of a kind, sorted; Services and Pods of a namespace without it.
func names(d lbsync.Document, kind, namespace string) []string {
	var out []string
	add := func(name string) {
		if namespace != "" && (kind == lbsync.TargetService || kind == lbsync.TargetPod) {
			var in string
			if in, name, _ = strings.Cut(name, "/"); in != namespace {
				return
			}
		}
		out = append(out, name)
	}
	for _, s := range d.Services {
		if kind == lbsync.TargetService {
			add(s.Service)
		}
		for _, p := range s.Pods {
			if kind == lbsync.TargetPod {
				add(p.Pod)
			}
		}
		for _, p := range s.Ports {
			for _, vip := range p.VIPs {
				if kind == lbsync.TargetVIP {
					add(vip)
				}
			}
			for _, m := range p.Members {
				switch {
				case kind == lbsync.TargetPod && m.Pod != "" && s.Source != "NodePort":
					add(m.Pod)
				case kind == lbsync.TargetMember:
					add(m.Address)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Widths of the answer, in columns.
const (
	levelWidth = 9
	linkWidth  = 17
	textWidth  = 92
)

func printExplanation(w io.Writer, by caller, e lbsync.Explanation, unread string) error {
	var out strings.Builder
	for i, c := range e.Chains {
		if len(c.Steps) == 0 {
			continue
		}
		if i > 0 && out.Len() > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintln(&out, c.Title)
		for _, s := range c.Steps {
			level := string(s.Level)
			if s.Level == lbsync.LinkBroken {
				level = strings.ToUpper(level)
			}
			fmt.Fprintf(&out, "  %-*s%-*s%s\n", levelWidth, level, linkWidth, s.Link, indented(statusview.Wrap(s.Found, textWidth), ""))
			writeFix(&out, by.lines(s.Fix))
		}
	}
	if unread != "" {
		fmt.Fprintf(&out, "\nNetworkPolicies were not looked at: %s\n", unread)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// writeFix writes a sentence, and below it the commands, each on a line of its own to be copied.
func writeFix(out *strings.Builder, fix string) {
	if fix == "" {
		return
	}
	sentence, commands, _ := strings.Cut(fix, "\n")
	fmt.Fprintf(out, "  %*s-> %s\n", levelWidth+linkWidth, "", indented(statusview.Wrap(sentence, textWidth-3), "   "))
	for command := range strings.Lines(commands) {
		fmt.Fprintf(out, "  %*s   $ %s\n", levelWidth+linkWidth, "", strings.TrimSpace(command))
	}
}

// indented puts the lines after the first under it.
func indented(s, more string) string {
	return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", 2+levelWidth+linkWidth)+more)
}

// policyLimit bounds what is asked beside the document.
const policyLimit = 10 * time.Second

// addPolicies adds the NetworkPolicies of the namespaces to the document, or why they cannot be read.
func (a *asker) addPolicies(c *cobra.Command, d *lbsync.Document, namespaces []string) {
	client, err := a.client(c)
	if err == nil {
		ctx, cancel := context.WithTimeout(c.Context(), policyLimit)
		defer cancel()
		for _, namespace := range namespaces {
			if d.NetworkPolicies, err = appendPolicies(ctx, client, d.NetworkPolicies, namespace); err != nil {
				break
			}
		}
	}
	if err != nil {
		d.Unread = err.Error()
	}
}
