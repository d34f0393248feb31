package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nplbridge/nplbridge/agent"
	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/statusview"
)

func statusCommand() *cobra.Command {
	table := table()
	command := &cobra.Command{
		Use:   "status",
		Short: "Show which Pod has which node port, what is refused and why, and what is wrong with the Node",
		Long: `Reads the status of the npl-agent that runs on this Node or in this container from its unix socket. Nothing is asked of
Kubernetes. The tables are for people; json and yaml are the whole document, whose form is stable.

With --port it answers who is behind a node port: NODE-ADDRESS:PORT/PROTOCOL, at an address that the agent publishes. It
exits 1 if nobody is.`,
		Example: `  npl-agent status
  npl-agent status --port 192.0.2.11:61000/tcp
  npl-agent status --port '[2001:db8::11]:61000/udp' -o yaml
  npl-agent status -o json | jq '.refusals'
  kubectl -n nplbridge-system exec daemonset/nplbridge-agent -- /npl-agent status`,
		Args: cobra.NoArgs,
	}
	output := program.OutputFlag(command, statusview.Formats...)
	var port nodePort
	command.Flags().Var(&port, "port", "show only who is behind this node port, for example 192.0.2.11:61000/tcp")
	command.RunE = func(c *cobra.Command, _ []string) error {
		raw, err := program.ReadStatus(c, table)
		if err != nil {
			return err
		}
		if !port.at.IsValid() && *output != statusview.Formats[0] {
			return statusview.Write(c.OutOrStdout(), *output, raw)
		}
		var document agent.StatusDocument
		if err := json.Unmarshal(raw, &document); err != nil {
			return fmt.Errorf("the running npl-agent serves another status document than this one reads: %w; use the same version", err)
		}
		if port.at.IsValid() {
			return printBehind(c.OutOrStdout(), *output, document, port)
		}
		return printView(c.OutOrStdout(), *output, overview(document))
	}
	table.AddFlags(command.Flags())
	return command
}

// nodePort is a node port as a load balancer's member has it. It is the value of a flag.
type nodePort struct {
	at       netip.AddrPort
	protocol string
}

func (n *nodePort) String() string {
	if !n.at.IsValid() {
		return ""
	}
	return n.at.String() + "/" + n.protocol
}

// Type is what --help calls the value.
func (*nodePort) Type() string { return "address:port/protocol" }

// Set reads "192.0.2.11:61000/tcp"; without a protocol it is TCP.
func (n *nodePort) Set(s string) error {
	address, protocol, found := strings.Cut(s, "/")
	at, err := netip.ParseAddrPort(address)
	if !found {
		protocol = string(npl.TCP)
	}
	protocol = strings.ToLower(protocol)
	known := []npl.Protocol{npl.TCP, npl.UDP, npl.SCTP}
	if err != nil || at.Port() == 0 || !slices.Contains(known, npl.Protocol(protocol)) {
		return errors.New("write NODE-ADDRESS:PORT/PROTOCOL with the protocol tcp, udp or sctp, for example 192.0.2.11:61000/tcp or [2001:db8::11]:61000/udp")
	}
	n.at, n.protocol = netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), protocol
	return nil
}

// printBehind prints who is behind a node port, and is an error that says why if nobody is.
func printBehind(w io.Writer, format string, d agent.StatusDocument, n nodePort) error {
	found := d.Lookup(n.at, n.protocol)
	if len(found) == 0 {
		return nobody(d, n)
	}
	if format != statusview.Formats[0] {
		return printView(w, format, found)
	}
	d.Mappings = found
	return printView(w, format, struct {
		Mappings []mappingRow `json:"mappings"`
	}{overview(d).Mappings})
}

// nobody says why no Pod is behind a node port.
func nobody(d agent.StatusDocument, n nodePort) error {
	why := fmt.Sprintf("Node %s gave it to nobody", d.Node)
	served := false
	for _, a := range d.Addresses {
		served = served || a == n.at.Addr()
	}
	for _, c := range d.Cooling {
		if c.NodePort == n.at.Port() && strings.EqualFold(string(c.Protocol), n.protocol) && (string(c.Family) == "IPv6") == n.at.Addr().Is6() {
			why = fmt.Sprintf("it cools down until %s", c.Until.Format(time.RFC3339))
			if len(c.WaitingFor) > 0 {
				why += " and waits for " + strings.Join(c.WaitingFor, ", ")
			}
		}
	}
	switch {
	case d.Error != "" && len(d.Mappings) == 0:
		why = d.Error
	case !served:
		why = fmt.Sprintf("Node %s publishes %v", d.Node, d.Addresses)
	case n.at.Port() < d.PortRange.First || n.at.Port() > d.PortRange.Last:
		why = fmt.Sprintf("it is outside portRange %d-%d, and no Pod's host port", d.PortRange.First, d.PortRange.Last)
	}
	return errors.New("no Pod is behind " + n.String() + ": " + why)
}

// The rows of the tables: what people look for first, in this order. UIDs are in the document only.
type (
	view struct {
		Node      string       `json:"node"`
		LastPass  string       `json:"lastPass"`
		Error     string       `json:"error,omitempty"`
		Addresses []netip.Addr `json:"addresses"`
		PortRange string       `json:"portRange"`
		Mappings  []mappingRow `json:"mappings"`
		Cooling   []coolingRow `json:"cooling"`
		Refusals  any          `json:"refusals"`
		Findings  []findingRow `json:"findings"`
	}
	mappingRow struct {
		Pod      string   `json:"pod"`
		Port     uint16   `json:"port"`
		Protocol string   `json:"protocol"`
		Family   string   `json:"family"`
		NodePort uint16   `json:"nodePort"`
		State    string   `json:"state"`
		InKernel bool     `json:"inKernel"`
		Services []string `json:"services"`
	}
	coolingRow struct {
		NodePort   uint16   `json:"nodePort"`
		Protocol   string   `json:"protocol"`
		Family     string   `json:"family"`
		Until      string   `json:"until"`
		WaitingFor []string `json:"waitingFor"`
	}
	findingRow struct {
		Check    string `json:"check"`
		Severity string `json:"severity"`
		Found    string `json:"found"`
	}
)

func overview(d agent.StatusDocument) view {
	v := view{
		Node: d.Node, LastPass: "none yet", Error: d.Error, Addresses: d.Addresses, PortRange: fmt.Sprintf("%d-%d", d.PortRange.First, d.PortRange.Last),
		Mappings: []mappingRow{}, Cooling: []coolingRow{}, Refusals: d.Refusals, Findings: []findingRow{},
	}
	if !d.At.IsZero() {
		v.LastPass = d.At.Format(time.RFC3339)
	}
	for _, m := range d.Mappings {
		v.Mappings = append(v.Mappings, mappingRow{m.Pod, m.Target.Port(), string(m.Protocol), string(m.Family), m.NodePort, m.State, m.Programmed, m.Services})
	}
	for _, c := range d.Cooling {
		v.Cooling = append(v.Cooling, coolingRow{c.NodePort, string(c.Protocol), string(c.Family), c.Until.Format(time.RFC3339), c.WaitingFor})
	}
	for _, f := range d.Findings {
		if f.Severity != agent.SeverityOK {
			v.Findings = append(v.Findings, findingRow{string(f.Check), string(f.Severity), f.Found})
		}
	}
	return v
}

func printView(w io.Writer, format string, v any) error {
	document, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return statusview.Write(w, format, document)
}
