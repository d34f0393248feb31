package dataplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// The chain that iptables-nft keeps, and that we may add rules to but never make.
const (
	xtTable = "filter"
	xtChain = "FORWARD"
)

// A rule for iptables-nft's chain must be built as that tool builds it, of xtables matches: it refuses to work on a table
// in which it finds expressions it would not have used itself. So "ct status dnat" of nftables will not do.

// xtOpening is "-m conntrack --ctstate DNAT --ctorigdstport r -m comment --comment c -j ACCEPT".
func xtOpening(r PortRange, comment string) []expression {
	return []expression{
		xtMatch("conntrack", 3, xtConntrack(r)), xtMatch("comment", 0, append([]byte(comment), make([]byte, xtCommentSize-len(comment))...)),
		{name: "counter", ignore: []uint16{unix.NFTA_COUNTER_BYTES, unix.NFTA_COUNTER_PACKETS}},
		accept(),
	}
}

func xtMatch(name string, revision uint32, info []byte) expression {
	return expression{name: "match", fields: []field{
		{unix.NFTA_MATCH_NAME, name}, {unix.NFTA_MATCH_REV, revision}, {unix.NFTA_MATCH_INFO, info},
	}}
}

// Of linux/netfilter/xt_conntrack.h (struct xt_conntrack_mtinfo3, padded to 8 bytes) and xt_comment.h.
const (
	xtConntrackSize                    = 168
	xtOrigDstLow, xtOrigDstHigh        = 140, 156
	xtMatchFlags, xtInvertFlags        = 146, 148
	xtStateMask                        = 150
	xtByState, xtByOrigDst             = 1 << 0, 1 << 9
	xtStateDNAT                 uint16 = 1 << 7
	xtCommentSize                      = 256
)

// xtConntrack matches both directions of connections whose destination was translated and was one of these ports before.
func xtConntrack(r PortRange) []byte {
	b := make([]byte, xtConntrackSize)
	for offset, value := range map[int]uint16{
		xtOrigDstLow: r.First, xtOrigDstHigh: r.Last, xtMatchFlags: xtByState | xtByOrigDst, xtStateMask: xtStateDNAT,
	} {
		binary.NativeEndian.PutUint16(b[offset:], value)
	}
	return b
}

// xtCovers reports whether the match lets all connections to node ports r through, whoever wrote it.
func xtCovers(info []byte, r PortRange) bool {
	if len(info) < xtConntrackSize-4 { // without the padding
		return false
	}
	at := func(offset int) uint16 { return binary.NativeEndian.Uint16(info[offset:]) }
	byPort := at(xtMatchFlags)&xtByOrigDst != 0
	return at(xtMatchFlags)&^xtByOrigDst == xtByState && at(xtInvertFlags) == 0 && at(xtStateMask)&xtStateDNAT != 0 &&
		(!byPort || at(xtOrigDstLow) <= r.First && r.Last <= at(xtOrigDstHigh))
}

// forwardChain is a base chain of nf_tables through which forwarded packets go.
type forwardChain struct {
	family nftables.TableFamily
	table  string
	name   string
	drops  bool // by policy
	rules  []kernelRule
}

// xt reports whether it is the chain of iptables-nft.
func (c forwardChain) xt() bool {
	return c.family != nftables.TableFamilyINet && c.table == xtTable && c.name == xtChain
}

// end is the index of the first rule that lets nothing pass; len(rules) when there is none.
func (c forwardChain) end() int {
	if i := slices.IndexFunc(c.rules, kernelRule.dropsAll); i >= 0 {
		return i
	}
	return len(c.rules)
}

func (c forwardChain) blocks() bool { return c.drops || c.end() < len(c.rules) }

// dropsAll reports whether the rule drops or rejects whatever reaches it.
func (r kernelRule) dropsAll() bool {
	deciding := r.deciding()
	if len(deciding) != 1 {
		return false
	}
	e := deciding[0]
	switch e.name {
	case "reject":
		return true
	case "target":
		return e.text(unix.NFTA_TARGET_NAME) == "REJECT"
	}
	return drop().same(e)
}

// accepts reports whether the rule lets connections to the node ports r through.
func (r kernelRule) accepts(ports PortRange) bool {
	deciding := r.deciding()
	if r.comment == handComment {
		return true
	}
	if slices.EqualFunc(slices.Concat([]expression{ctStatus(reg1)}, anyBit(dstNAT, reg1), []expression{accept()}), deciding, expression.same) {
		return true // as firewalld has it
	}
	return len(deciding) == 2 && deciding[0].name == "match" && deciding[0].text(unix.NFTA_MATCH_NAME) == "conntrack" &&
		xtCovers(deciding[0].attribute(unix.NFTA_MATCH_INFO), ports) && accept().same(deciding[1])
}

// deciding leaves out what only counts, logs or comments.
func (r kernelRule) deciding() []kernelExpression {
	return slices.DeleteFunc(slices.Clone(r.exprs), func(e kernelExpression) bool {
		return e.name == "counter" || e.name == "log" || e.name == "match" && e.text(unix.NFTA_MATCH_NAME) == "comment"
	})
}

// xtComment returns the comment of a rule of iptables-nft.
func (r kernelRule) xtComment() string {
	for _, e := range r.exprs {
		if e.name == "match" && e.text(unix.NFTA_MATCH_NAME) == "comment" {
			return e.text(unix.NFTA_MATCH_INFO)
		}
	}
	return ""
}

func (e kernelExpression) text(typ uint16) string {
	s, _, _ := bytes.Cut(e.attribute(typ), []byte{0})
	return string(s)
}

// forwardChains reads the base chains of others on the way of forwarded packets.
func (k *kernel) forwardChains(chains []*nftables.Chain, families []*family) ([]forwardChain, error) {
	var out []forwardChain
	for _, c := range chains {
		served := c.Table != nil && (c.Table.Family == nftables.TableFamilyINet ||
			slices.ContainsFunc(families, func(f *family) bool { return f.nf == c.Table.Family }))
		if !served || c.Type != nftables.ChainTypeFilter || c.Hooknum == nil || *c.Hooknum != *nftables.ChainHookForward {
			continue
		}
		rules, err := k.rules(c.Table.Family, c.Table.Name, c.Name)
		if err != nil {
			return nil, err
		}
		out = append(out, forwardChain{
			family: c.Table.Family, table: c.Table.Name, name: c.Name, rules: rules[c.Name],
			drops: c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop,
		})
	}
	return out, nil
}

// barrier describes the chain for people; false when it drops nothing by itself.
func (c forwardChain) barrier(f *family, ports PortRange) (Barrier, bool) {
	if !c.blocks() {
		return Barrier{}, false
	}
	b := Barrier{
		Family: f.ip, Chain: fmt.Sprintf("chain %s %s %s", familyName(c.family), c.table, c.name), Why: "policy drop",
		Open: slices.ContainsFunc(c.rules[:c.end()], func(r kernelRule) bool { return r.accepts(ports) }),
		// Not by port: nft 1.0.6 cannot list one rule for the original ports of several protocols so that it can be read again.
		Command: fmt.Sprintf("nft insert rule %s %s %s ct status dnat accept comment '%q'", familyName(c.family), c.table, c.name, handComment),
	}
	position := 0
	if end := c.end(); end < len(c.rules) {
		position = end + 1
		b.Why = fmt.Sprintf("rule %d drops all that comes so far", position)
	}
	if c.xt() {
		b.Chain = "chain " + xtChain + " of " + f.xtTool() + "-nft"
		b.Command = f.xtCommand("nft", position, ports)
	}
	return b, true
}

func familyName(f nftables.TableFamily) string {
	return map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet"}[f]
}

func (f *family) xtTool() string {
	if f == ipv6 {
		return "ip6tables"
	}
	return "iptables"
}

// xtCommand appends a rule, or inserts it at a position.
func (f *family) xtCommand(kind string, position int, ports PortRange) string {
	where := "-A " + xtChain
	if position > 0 {
		where = fmt.Sprintf("-I %s %d", xtChain, position)
	}
	return fmt.Sprintf("%s-%s %s -m conntrack --ctstate DNAT --ctorigdstport %s -m comment --comment %q -j ACCEPT",
		f.xtTool(), kind, where, ports.join(":"), handComment)
}

// Barriers finds the chains of this network namespace that drop forwarded packets to the node ports of a range: those of
// iptables-nft, of iptables-legacy and of nf_tables. It changes nothing.
func Barriers(ports PortRange) ([]Barrier, error) {
	if err := ports.validate(); err != nil {
		return nil, err
	}
	v6, err := ipv6Enabled()
	if err != nil {
		return nil, err
	}
	var k kernel
	if err := k.dial(); err != nil {
		return nil, err
	}
	defer k.hangUp()
	chains, err := k.ListChains()
	if err != nil {
		return nil, explain("list the chains of nf_tables", err)
	}
	forward, err := k.forwardChains(chains, families(v6))
	if err != nil {
		return nil, err
	}
	return barriers(forward, families(v6), ports)
}

func barriers(forward []forwardChain, families []*family, ports PortRange) ([]Barrier, error) {
	var out []Barrier
	var errs []error
	for _, f := range families {
		for _, c := range forward {
			if b, blocks := c.barrier(f, ports); blocks && (c.family == f.nf || c.family == nftables.TableFamilyINet) {
				out = append(out, b)
			}
		}
		b, blocks, err := legacyBarrier(f, ports)
		if blocks {
			out = append(out, b)
		}
		errs = append(errs, err)
	}
	slices.SortFunc(out, compareBarriers)
	return out, errors.Join(errs...)
}

// look examines what others have in nf_tables: it opens their FORWARD chain where that is asked for, closes it where it no
// longer is, and reports what it may not change. It returns how many rules of ours were not as they should be.
func (n *NFT) look(mappings map[Key]netip.AddrPort, open bool) (repaired int, err error) {
	var last error
	for range readAttempts {
		generation, err := n.kernel.generation()
		if err != nil {
			return 0, err
		}
		chains, err := n.kernel.ListChains()
		var forward []forwardChain
		if err == nil {
			forward, err = n.kernel.forwardChains(chains, n.families)
		}
		if err != nil { // the rest of a broken dump may be waiting in the socket
			last = err
			if err := n.kernel.dial(); err != nil {
				return 0, err
			}
			continue
		}
		repaired, opened, t := n.openForward(forward, mappings, open)
		t.generation = generation // what was decided holds for this ruleset only
		if len(t.parts) > 0 {
			if err := n.kernel.commit(t); err != nil {
				last = err
				if err := n.kernel.dial(); err != nil {
					return 0, err
				}
				if errors.Is(err, unix.ERESTART) || transient(last) {
					continue
				}
				return 0, last
			}
		}
		n.opened = opened
		n.report(chains, forward)
		return repaired, nil
	}
	return 0, fmt.Errorf("examine the chains of nf_tables: gave up after %d attempts: %w", readAttempts, last)
}

// openForward computes what makes the FORWARD chains of iptables-nft hold our rules where they are wanted, and none
// elsewhere. They stand at the end, or ahead of a rule that drops everything: whatever somebody decided about a packet
// before, a network policy say, stays decided. Rules count as repaired when the same ones were there at the last look.
func (n *NFT) openForward(forward []forwardChain, mappings map[Key]netip.AddrPort, open bool) (repaired int, opened map[*family][]PortRange, t *transaction) {
	t, opened = &transaction{table: xtTable}, map[*family][]PortRange{}
	keys := slices.Collect(maps.Keys(mappings))
	for _, f := range n.families {
		i := slices.IndexFunc(forward, func(c forwardChain) bool { return c.family == f.nf && c.xt() })
		if i < 0 {
			continue
		}
		c := forward[i]
		if open && c.blocks() {
			opened[f] = openings(n.cfg.NodePorts, keys, f.ip)
		}
		var want [][]expression
		for _, r := range opened[f] {
			want = append(want, xtOpening(r, n.cfg.mark()))
		}
		var have []kernelRule
		ahead := true
		for i, r := range c.rules {
			if n.cfg.marks(r.xtComment()) {
				have = append(have, r)
				ahead = ahead && i < c.end()
			}
		}
		if ahead && slices.EqualFunc(want, have, func(w []expression, h kernelRule) bool { return slices.EqualFunc(w, h.exprs, expression.same) }) {
			continue
		}
		t.f = f
		for _, r := range have {
			t.deleteRule(xtChain, r.handle)
		}
		for _, w := range want {
			t.insertRule(xtChain, w, c.handleAt(c.end()))
		}
		if slices.Equal(opened[f], n.opened[f]) {
			repaired += max(len(have), len(want))
		}
		n.cfg.Log.Info("changing the rules for node ports in chain FORWARD of iptables", zap.String("family", string(f.ip)),
			zap.Int("rules", len(want)), zap.Int("before", len(have)), zap.Stringers("ports", opened[f]))
	}
	return repaired, opened, t
}

// handleAt returns the handle of a rule; 0 for the end of the chain.
func (c forwardChain) handleAt(i int) uint64 {
	if i < len(c.rules) {
		return c.rules[i].handle
	}
	return 0
}

// marks reports whether a comment is ours, of this layout or another.
func (c Config) marks(comment string) bool {
	return strings.HasPrefix(comment, TableName+"/") && strings.HasSuffix(comment, " cluster="+c.ClusterUID)
}

// report warns once of each thing of others that keeps packets from us.
func (n *NFT) report(chains []*nftables.Chain, forward []forwardChain) {
	n.warnForeign(chains)
	if n.cfg.NodePorts == (PortRange{}) {
		return
	}
	found, err := barriers(forward, n.families, n.cfg.NodePorts)
	if err != nil {
		n.warnOnce("barriers", "cannot find out whether iptables-legacy drops forwarded packets", zap.Error(err))
	}
	for _, b := range found {
		ours := n.cfg.ForwardAccept && strings.HasSuffix(b.Chain, "-nft") // opened a moment ago
		if !b.Open && !ours {
			n.warnOnce("barrier "+string(b.Family)+b.Chain, "connections to node ports may be dropped while they are forwarded: "+
				"run the command, unless another rule of that chain accepts them", zap.String("family", string(b.Family)),
				zap.String("chain", b.Chain), zap.String("why", b.Why), zap.String("command", b.Command))
		}
	}
}
