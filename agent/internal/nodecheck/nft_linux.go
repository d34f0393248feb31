package nodecheck

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
)

const (
	// ownPriority is that of the agent's DNAT chains.
	ownPriority = -110
	// trackPriority is where connection tracking begins: NF_IP_PRI_CONNTRACK of linux/netfilter_ipv4.h.
	trackPriority = -200
	// trialTable never exists: what is done to it is never committed.
	trialTable = "nplbridge-check"
)

// feature is one thing that the agent's tables consist of.
type feature struct {
	name string
	add  func(*nftables.Table)
}

// features asks the kernel for all that the agent's tables consist of: for everything at once, since each request costs some milliseconds,
// and one by one only to find out what is missing.
func (c collector) features(conn *nftables.Conn) error {
	all := []feature{
		{"tables", func(*nftables.Table) {}},
		{"NAT chains", func(t *nftables.Table) { trialChain(conn, t) }},
		{"maps", func(t *nftables.Table) {
			_ = conn.AddSet(&nftables.Set{
				Table: t, Name: "ports", IsMap: true, Concatenation: true,
				KeyType:  nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService),
				DataType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService),
			}, nil)
		}},
		{"sets with timeouts", func(t *nftables.Table) {
			_ = conn.AddSet(&nftables.Set{Table: t, Name: "cooling", HasTimeout: true, KeyType: nftables.TypeInetService}, nil)
		}},
		{"conntrack in rules", func(t *nftables.Table) {
			conn.AddRule(&nftables.Rule{Table: t, Chain: trialChain(conn, t), Exprs: []expr.Any{&expr.Ct{Key: expr.CtKeySTATUS, Register: 1}}})
		}},
		{"DNAT in rules", func(t *nftables.Table) {
			conn.AddRule(&nftables.Rule{Table: t, Chain: trialChain(conn, t), Exprs: []expr.Any{
				&expr.Immediate{Register: 1, Data: []byte{192, 0, 2, 1}}, &expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1},
			}})
		}},
		{"masquerade in rules", func(t *nftables.Table) {
			conn.AddRule(&nftables.Rule{Table: t, Exprs: []expr.Any{&expr.Masq{}}, Chain: conn.AddChain(&nftables.Chain{
				Table: t, Name: "postrouting", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
			})})
		}},
	}
	if err := try(conn, all...); err == nil {
		return nil
	}
	for _, f := range all {
		if err := try(conn, f); err != nil {
			c.facts.Missing = append(c.facts.Missing, fmt.Sprintf("%s: %v", f.name, err))
		}
	}
	return nil
}

// try returns why the kernel refuses features. The request ends with a message that must fail (a table that does not exist is deleted), so
// the kernel judges every message and then takes all of them back.
func try(conn *nftables.Conn, features ...feature) error {
	t := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: trialTable})
	for _, f := range features {
		f.add(t)
	}
	conn.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: trialTable + "-none"})
	switch refused := leaves(conn.Flush()); {
	case len(refused) == 0:
		return errors.New("the kernel committed a transaction that deletes a table which does not exist")
	case len(refused) == 1 && errors.Is(refused[0], unix.ENOENT):
		return nil
	default:
		return refused[0]
	}
}

func trialChain(conn *nftables.Conn, t *nftables.Table) *nftables.Chain {
	return conn.AddChain(&nftables.Chain{
		Table: t, Name: "prerouting", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest,
	})
}

// leaves takes joined and wrapped errors apart.
func leaves(err error) []error {
	switch e := err.(type) { //nolint:errorlint // taking errors apart is what it is for
	case nil:
		return nil
	case interface{ Unwrap() []error }:
		var out []error
		for _, inner := range e.Unwrap() {
			out = append(out, leaves(inner)...)
		}
		return out
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return leaves(inner)
		}
	}
	return []error{err}
}

var familyNames = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet",
}

// barriers finds the chains that drop forwarded packets.
func (c collector) barriers() error {
	found, err := dataplane.Barriers(dataplane.PortRange(c.facts.Settings.PortRange))
	for _, b := range found {
		c.facts.ForwardChains = append(c.facts.ForwardChains, ForwardChain(b))
	}
	return err
}

func (c collector) chains(conn *nftables.Conn) error {
	chains, err := conn.ListChains()
	if err != nil {
		return fmt.Errorf("list the chains of nftables: %w", err)
	}
	early := map[nftables.Table]bool{} // tables with a chain ahead of connection tracking
	for _, ch := range chains {
		if familyNames[ch.Table.Family] != "" && seesPackets(ch) && *ch.Priority < trackPriority {
			early[*ch.Table] = true
		}
	}
	for _, ch := range chains {
		family := familyNames[ch.Table.Family]
		if family == "" || ch.Table.Name == dataplane.TableName {
			continue
		}
		if seesPackets(ch) && ch.Type == nftables.ChainTypeNAT && *ch.Priority < ownPriority {
			c.facts.NATChains = append(c.facts.NATChains, NATChain{family, ch.Table.Name, ch.Name, hookName(ch), int(*ch.Priority)})
		}
		var step func(*nftables.Chain, []*nftables.Rule)
		switch {
		case ch.Name == AntreaChainName && ch.Table.Name == "nat":
			step = c.antrea
		case early[*ch.Table] && (ch.Hooknum == nil || seesPackets(ch) && *ch.Priority < trackPriority):
			step = c.notrack
		default:
			continue
		}
		rules, err := conn.GetRules(ch.Table, ch)
		if err != nil {
			return fmt.Errorf("read the rules of chain %s %s %s: %w", family, ch.Table.Name, ch.Name, err)
		}
		step(ch, rules)
	}
	return nil
}

// seesPackets reports whether a base chain is at the hooks by which packets to node ports come.
func seesPackets(ch *nftables.Chain) bool {
	return ch.Hooknum != nil && ch.Priority != nil && (*ch.Hooknum == *nftables.ChainHookPrerouting || *ch.Hooknum == *nftables.ChainHookOutput)
}

func hookName(ch *nftables.Chain) string {
	if *ch.Hooknum == *nftables.ChainHookOutput {
		return "output"
	}
	return "prerouting"
}

// toolOf returns the command that made a table: iptables-nft writes into tables of its own names, in capital chains.
func toolOf(t *nftables.Table, chain string) Tool {
	if slices.Contains([]string{"filter", "nat", "raw", "mangle", "security"}, t.Name) && chain == strings.ToUpper(chain) {
		if t.Family == nftables.TableFamilyIPv4 {
			return IPTables
		}
		if t.Family == nftables.TableFamilyIPv6 {
			return IP6Tables
		}
	}
	return NFT
}

func (c collector) notrack(ch *nftables.Chain, rules []*nftables.Rule) {
	where := fmt.Sprintf("%s %s %s %s", NFT, familyNames[ch.Table.Family], ch.Table.Name, ch.Name)
	if tool := toolOf(ch.Table, ch.Name); tool != NFT {
		where = fmt.Sprintf("%s -t %s %s", tool, ch.Table.Name, ch.Name)
	}
	for _, r := range rules {
		if read := readRule(r); read.notrack {
			if ch.Hooknum == nil {
				read.match.Other = true // what leads there is a condition, too
			}
			c.facts.NoTrack = append(c.facts.NoTrack, NoTrackRule{where, read.match})
		}
	}
}

func (c collector) antrea(ch *nftables.Chain, rules []*nftables.Rule) {
	out := AntreaChain{Tool: toolOf(ch.Table, ch.Name)}
	for _, r := range rules {
		if read := readRule(r); read.protocol != "" && read.match.DestinationPort.First != 0 {
			out.Ports = append(out.Ports, AntreaPort{read.protocol, read.match.DestinationPort.First})
		}
	}
	c.facts.AntreaChains = append(c.facts.AntreaChains, out)
}

func (c collector) flowtables(conn *nftables.Conn) error {
	tables, err := conn.ListTables()
	if err != nil {
		return fmt.Errorf("list the tables of nftables: %w", err)
	}
	for _, t := range tables {
		family := familyNames[t.Family]
		if family == "" {
			continue
		}
		list, err := conn.ListFlowtables(t)
		if err != nil {
			return fmt.Errorf("list the flowtables of table %s %s: %w", family, t.Name, err)
		}
		for _, ft := range list {
			c.facts.Flowtables[fmt.Sprintf("%s %s %s", family, t.Name, ft.Name)] = slices.Sorted(slices.Values(ft.Devices))
		}
	}
	return nil
}
