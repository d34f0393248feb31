package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/statusview"
	"github.com/nplbridge/nplbridge/lbsync"
)

const (
	formatTable = "table"
	formatWide  = "wide"
)

func statusCommand(by caller) *cobra.Command {
	command := &cobra.Command{
		Use:   "status",
		Short: "Show which Service has which address and how many members, what is refused and why",
		Long: `Shows what the running lbsync knows and does. The tables are for people, wide has every member; json and yaml are the whole
document, whose form is stable.
` + askHelp,
		Example: by.lines(`  lbsync status
  lbsync status -n shop -o wide
  lbsync status -o json | jq '.services[] | select(.problems)'
  lbsync status --remote --kubeconfig ~/.kube/config
  kubectl -n nplbridge-system exec deployment/nplbridge-lbsync -c lbsync -- /lbsync status`),
		Args: cobra.NoArgs,
	}
	output := program.OutputFlag(command, formatTable, formatWide, "json", "yaml")
	namespace := namespaceFlags(command)
	ask := askFlags(command, by)
	command.RunE = func(c *cobra.Command, _ []string) error {
		d, raw, err := ask.ask(c)
		if err != nil {
			return err
		}
		if *namespace != "" {
			d = d.In(*namespace)
		}
		switch {
		case *output == formatTable || *output == formatWide:
			return printView(c.OutOrStdout(), formatTable, overview(d, *output == formatWide))
		case *namespace != "":
			return printView(c.OutOrStdout(), *output, d)
		default:
			return statusview.Write(c.OutOrStdout(), *output, raw)
		}
	}
	return command
}

func printView(w io.Writer, format string, v any) error {
	document, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return statusview.Write(w, format, document)
}

// The rows of the tables: what people look for first, in this order.
type (
	view struct {
		Instance string        `json:"instance"`
		Process  string        `json:"process"`
		Leader   string        `json:"leader"`
		DryRun   bool          `json:"dryRun,omitempty"`
		Problem  string        `json:"problem,omitempty"`
		Balancer []balancerRow `json:"loadBalancers"`
		Services []serviceRow  `json:"services"`
		Members  []memberRow   `json:"members,omitempty"`
		Refusals []refusalRow  `json:"refusals"`
		Ignored  []ignoredRow  `json:"ignored,omitempty"`
	}
	balancerRow struct {
		Name        string `json:"name"`
		Kind        string `json:"kind"`
		WrittenHere bool   `json:"writtenHere"`
		LastRead    string `json:"lastRead"`
		State       string `json:"state"`
	}
	serviceRow struct {
		Service string `json:"service"`
		Port    string `json:"port"`
		On      string `json:"on"`
		Address string `json:"address"`
		Members string `json:"members"`
		State   string `json:"state"`
	}
	memberRow struct {
		Service     string `json:"service"`
		Port        string `json:"port"`
		On          string `json:"on"`
		Pod         string `json:"pod"`
		Address     string `json:"address"`
		State       string `json:"state"`
		Health      string `json:"health"`
		Connections string `json:"connections"`
	}
	refusalRow struct {
		Service string `json:"service"`
		Pod     string `json:"pod"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	}
	ignoredRow struct {
		Service string `json:"service"`
		Why     string `json:"why"`
	}
)

func overview(d lbsync.Document, wide bool) view {
	v := view{
		Instance: d.Instance, Process: d.Identity, Leader: d.Leader, DryRun: d.DryRun, Problem: d.Problem,
		Balancer: []balancerRow{}, Services: []serviceRow{}, Refusals: []refusalRow{},
	}
	switch {
	case d.Leading:
		v.Leader = d.Identity + " (this process)"
	case d.Leader == "":
		v.Leader = "nobody"
	}
	for _, p := range d.Providers {
		row := balancerRow{Name: p.Name, Kind: p.Kind, WrittenHere: p.Writing, LastRead: "never", State: balancerState(p)}
		if p.LastObserve != nil {
			row.LastRead = p.LastObserve.UTC().Format(time.RFC3339)
		}
		v.Balancer = append(v.Balancer, row)
	}
	for _, s := range d.Services {
		if len(s.Ports) == 0 {
			v.Services = append(v.Services, serviceRow{Service: s.Service, On: strings.Join(s.On, ", "), Members: "0", State: serviceState(s)})
		}
		for _, p := range s.Ports {
			v.Services = append(v.Services, serviceRow{
				Service: s.Service, Port: portName(p), On: p.Provider, Address: addressOf(p), Members: membersOf(s, p), State: portState(s, p),
			})
			for _, r := range p.Refusals {
				row := refusalRow{s.Service, r.Pod, r.Reason, r.Message}
				if !slices.Contains(v.Refusals, row) { // of one Pod in several pools it is the same
					v.Refusals = append(v.Refusals, row)
				}
			}
			if wide {
				v.Members = append(v.Members, memberRows(s, p)...)
			}
		}
	}
	if wide {
		for _, i := range d.Ignored {
			v.Ignored = append(v.Ignored, ignoredRow{i.Service, i.Why})
		}
	}
	return v
}

func portName(p lbsync.PortStatus) string { return fmt.Sprintf("%d/%s", p.Port, p.Protocol) }

func addressOf(p lbsync.PortStatus) string {
	if p.Attached != "" {
		return "pool " + p.Attached
	}
	return strings.Join(p.VIPs, ", ")
}

func balancerState(p lbsync.Provider) string {
	var also string
	if n := len(p.Foreign); n > 0 {
		also = fmt.Sprintf("; %d objects of others are in the way: %s", n, strings.Join(p.Foreign[:min(n, 3)], ", "))
	}
	switch {
	case p.Problem != "":
		return p.ProblemKind + ": " + p.Problem
	case !p.Writing:
		return "not read here" + also
	case p.RemovalsHeld:
		return "removals are held" + also
	case !p.Ready:
		return "starting" + also
	default:
		return "in order" + also
	}
}

func serviceState(s lbsync.ServiceStatus) string {
	switch {
	case s.ManagedBy != "":
		return "managed by " + s.ManagedBy
	case s.Deleting:
		return "being deleted"
	}
	for _, c := range s.Conditions {
		if c.Status == "False" && c.Type == "nplbridge.io/Accepted" {
			return c.Reason + ": " + c.Message // also for what no annotation is to blame
		}
	}
	if len(s.Problems) > 0 {
		return s.Problems[0].Key + ": " + s.Problems[0].Message
	}
	return "pending"
}

// membersOf says how many take new connections, of how many Pods or, where Nodes are members, of how many there are.
func membersOf(s lbsync.ServiceStatus, p lbsync.PortStatus) string {
	enabled, draining := 0, 0
	for _, m := range p.Members {
		if m.State == "Enabled" {
			enabled++
		} else {
			draining++
		}
	}
	out := fmt.Sprintf("%d of %d", enabled, s.Selected)
	if s.Source == "NodePort" {
		out = fmt.Sprint(enabled)
	}
	if draining > 0 {
		out += fmt.Sprintf(", %d draining", draining)
	}
	return out
}

func portState(s lbsync.ServiceStatus, p lbsync.PortStatus) string {
	switch {
	case p.Unserved:
		return "not served: " + p.Cannot
	case p.Problem != "" && p.ProblemKind != "":
		return p.ProblemKind + ": " + p.Problem
	case p.Guarded > 0:
		return fmt.Sprintf("%d members held by the guard", p.Guarded)
	case p.Problem != "":
		return p.Problem
	case s.Deleting:
		return "being deleted"
	case !p.Programmed:
		return "pending"
	case p.Cannot != "":
		return "programmed, but " + p.Cannot
	default:
		return "programmed"
	}
}

func memberRows(s lbsync.ServiceStatus, p lbsync.PortStatus) (out []memberRow) {
	for _, m := range p.Members {
		row := memberRow{
			Service: s.Service, Port: portName(p), On: p.Provider, Pod: m.Pod, Address: m.Address, State: m.State, Health: m.Health, Connections: "?",
		}
		if m.Blocked {
			row.State += ", disabled by an operator"
		}
		if m.Health == "" {
			row.Health = "?"
		}
		if m.Connections != nil {
			row.Connections = fmt.Sprint(*m.Connections)
		}
		out = append(out, row)
	}
	return out
}
