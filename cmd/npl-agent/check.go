package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/agent"
	"github.com/nplbridge/nplbridge/cmd/internal/kube"
	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/cmd/internal/statusview"
)

// permissions is what the chart's ClusterRole and, for the watermarks, its Role grant.
func permissions(cfg agent.Config) []kube.Permission {
	all := []kube.Permission{
		{Resource: "pods", Verbs: []string{"list", "watch"}},
		{Resource: "services", Verbs: []string{"list", "watch"}},
		{Resource: "nodes", Verbs: []string{"get", "list", "watch"}},
		{Resource: "pods", Subresource: "status", Verbs: []string{"patch"}},
		{Resource: "namespaces", Verbs: []string{"get"}, Name: metav1.NamespaceSystem},
		{Group: "events.k8s.io", Resource: "events", Verbs: []string{"create", "patch"}},
	}
	if cfg.PortReuse == agent.ReuseConfirmed {
		all = append(all, kube.Permission{Resource: "configmaps", Verbs: []string{"list", "watch"}, Namespace: cfg.WatermarkNamespace})
	}
	return all
}

// checkLimit bounds all that check asks of the API server; it must always come to an end.
const checkLimit = time.Minute

// checkDocument is what check prints with -o json and -o yaml.
type checkDocument struct {
	Node     string          `json:"node"`
	Findings []agent.Finding `json:"findings"`
}

func checkCommand() *cobra.Command {
	table := table()
	command := &cobra.Command{
		Use:   "check",
		Short: "Test the API server, the rights and this Node, and say how to mend what is wrong",
		Long: `Tests the settings, the API server, the rights, and the Node it runs on: kernel, forwarding, firewall, bridges, routes,
ports, and what else translates addresses here. Each finding is ok, unknown (it could not be checked), a warning (some
traffic is or may be lost) or an error (node ports do not work), with what it means and what to do.

Nothing is changed, and a running npl-agent is not disturbed. Run it as root on the Node, or in the agent's container. Exits
0 if there is no error, 1 if there is one, 2 if a setting cannot be used.`,
		Example: `  npl-agent check --config /etc/nplbridge/settings.yaml
  npl-agent check --node-name worker-1 --kubeconfig /etc/kubernetes/admin.conf --port-range 50000-51000
  npl-agent check -o json | jq '.findings[] | select(.severity != "ok")'
  kubectl -n nplbridge-system exec daemonset/nplbridge-agent -- /npl-agent check`,
		Args: cobra.NoArgs,
	}
	output := program.OutputFlag(command, statusview.Formats...)
	command.RunE = func(c *cobra.Command, _ []string) error {
		values, err := table.Load(c.Flags())
		if err != nil {
			return err
		}
		cfg, err := config(values)
		if err != nil {
			return err
		}
		client, host, err := program.Client(values)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), checkLimit)
		defer cancel()
		findings := append(checkAPI(ctx, cfg, values, &client, host), agent.CheckNode(ctx, cfg, client)...)
		if err := printFindings(c.OutOrStdout(), *output, checkDocument{cfg.NodeName, findings}); err != nil {
			return err
		}
		if agent.Failed(findings) {
			return program.ErrReported
		}
		return nil
	}
	table.AddFlags(command.Flags())
	return command
}

// checkAPI tests what needs the API server. If that does not answer, client becomes nil.
func checkAPI(ctx context.Context, cfg agent.Config, values *settings.Values, client *kubernetes.Interface, host string) []agent.Finding {
	tested := func(fine string, err error, bad agent.Finding) agent.Finding {
		if err == nil {
			return agent.Finding{Check: bad.Check, Severity: agent.SeverityOK, Found: fine}
		}
		bad.Severity, bad.Found = agent.SeverityError, err.Error()
		return bad
	}
	err := kube.Reach(ctx, *client)
	if err != nil {
		err = program.Unreachable(values, host, err)
	}
	out := []agent.Finding{tested(host+" answers", err, agent.Finding{
		Check: "APIServer", Meaning: "npl-agent cannot start; one that runs goes on with what it knows.", Fix: "Correct the address, or mend the way to it.",
	})}
	if err != nil {
		*client = nil
		return out
	}
	_, err = (*client).CoreV1().Nodes().Get(ctx, cfg.NodeName, metav1.GetOptions{})
	return append(out,
		tested("all that npl-agent needs is allowed", program.RightsStep(permissions(cfg)).Run(ctx, *client), agent.Finding{
			Check: "Rights", Meaning: "npl-agent cannot read or write what it has to.", Fix: "Install the chart: its ClusterRole and Role grant exactly this.",
		}),
		tested(fmt.Sprintf("Node %s is in the API", cfg.NodeName), err, agent.Finding{
			Check: "Node", Meaning: "npl-agent finds no Pods, and no address to publish.",
			Fix: "Correct " + values.Describe("nodeName") + "; the names of the Nodes are listed by:\nkubectl get nodes",
		}),
		tested("the tables in the kernel are this cluster's, or not there yet", agent.Probe(ctx, cfg, *client, zap.NewNop()), agent.Finding{
			Check: "Tables", Meaning: "npl-agent does not start.", Fix: "What was found says what is missing, or whose tables they are.",
		}))
}

// Widths of the table of findings, in columns.
const (
	severityWidth = 9
	checkWidth    = 17
	textWidth     = 90
)

func printFindings(w io.Writer, format string, d checkDocument) error {
	if format != statusview.Formats[0] {
		document, err := json.Marshal(d)
		if err != nil {
			return err
		}
		return statusview.Write(w, format, document)
	}
	var out strings.Builder
	for _, f := range d.Findings {
		fmt.Fprintf(&out, "%-*s%-*s%s\n", severityWidth, f.Severity, checkWidth, f.Check, indented(statusview.Wrap(f.Found, textWidth)))
		if f.Meaning != "" {
			fmt.Fprintf(&out, "%*s%s\n", severityWidth+checkWidth, "", indented(statusview.Wrap(f.Meaning, textWidth)))
		}
		bullet := "-> "
		for line := range strings.Lines(f.Fix) {
			// Sentences are wrapped; a command stands on its own line, to be copied.
			if line = strings.TrimSpace(line); strings.HasSuffix(line, ".") || strings.HasSuffix(line, ":") {
				line = strings.ReplaceAll(indented(statusview.Wrap(line, textWidth-len(bullet))), "\n", "\n   ")
			} else {
				line = "# " + line
			}
			fmt.Fprintf(&out, "%*s%s%s\n", severityWidth+checkWidth, "", bullet, line)
			bullet = "   "
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// indented puts the lines after the first under it.
func indented(s string) string {
	return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", severityWidth+checkWidth))
}
