package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/nplbridge/nplbridge/agent/npl"
)

var testRange = PortRange{61000, 62000}

// openForwarding is open with forwardAccept; it returns what was logged from level warn on.
func openForwarding(t testing.TB, node *namespace, accept bool) (*plane, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.WarnLevel)
	n, err := in(node, func() (*NFT, error) {
		return Open(Config{ClusterUID: "test", NodePorts: testRange, ForwardAccept: accept, Log: zap.New(core)})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return &plane{n, node, t}, logs
}

// tools runs the same arguments with iptables and ip6tables of one kind.
func tools(ns *namespace, kind, arguments string) (out string) {
	ns.t.Helper()
	for _, tool := range []string{"iptables-", "ip6tables-"} {
		out += ns.run(tool + kind + " -w " + arguments)
	}
	return out
}

const ourRule = `-A FORWARD -m conntrack --ctstate DNAT --ctorigdstport 61000:62000 -m comment --comment "nplbridge/v1 cluster=test" -j ACCEPT`

// passes asks a Pod over both families and transports.
func (n *network) passes() error {
	for _, f := range bothFamilies {
		for _, p := range transports {
			if got, err := request(n.client, p, netip.AddrPortFrom(nodeAddr[f], nodePort(0))); err != nil || got.server != "pod-0" {
				return fmt.Errorf("%s %s: %v: %w", p, f, got, err)
			}
		}
	}
	return nil
}

func TestNPL63ForwardPolicyDrop(t *testing.T) {
	n := newNetwork(t, routed)
	serve(t, n.pods[0], podPort)
	tools(n.node, "nft", "-P FORWARD DROP")
	foreign := func() {
		tools(n.node, "nft", "-N KUBE-FORWARD")
		tools(n.node, "nft", "-I FORWARD 1 -m comment --comment kube -j KUBE-FORWARD")
		tools(n.node, "nft", "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP")
		tools(n.node, "nft", "-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT")
	}
	foreign()
	before := tools(n.node, "nft", "-S")

	// Without the setting nothing is changed, and the command is reported that opens the chain by hand.
	off, logs := openForwarding(t, n.node, false)
	off.apply(Change{Set: allMappings()})
	off.repair(allMappings())
	off.repair(allMappings())
	if got := tools(n.node, "nft", "-S"); got != before {
		t.Fatalf("the tables of iptables were changed without forwardAccept:\n%s\nbefore:\n%s", got, before)
	}
	if connects(n.client, clientAddr[npl.IPv4], netip.AddrPortFrom(nodeAddr[npl.IPv4], nodePort(0))) {
		t.Fatal("packets pass, so FORWARD does not drop and nothing is tested")
	}
	command := map[string]string{}
	for _, e := range logs.FilterMessageSnippet("may be dropped").All() {
		command[e.ContextMap()["family"].(string)] = e.ContextMap()["command"].(string)
	}
	if want := `iptables-nft -A FORWARD -m conntrack --ctstate DNAT --ctorigdstport 61000:62000 -m comment --comment "node ports" -j ACCEPT`; len(command) != 2 ||
		command["IPv4"] != want || logs.FilterMessageSnippet("may be dropped").Len() != 2 {
		t.Errorf("commands: %q, want one for each family, like %s", command, want)
	}

	// With it, connections pass in both directions.
	d, logs := openForwarding(t, n.node, true)
	if got := d.repair(allMappings()); got != 0 {
		t.Errorf("opening the chain counts as %d repairs", got)
	}
	if err := n.passes(); err != nil {
		t.Error(err)
	}
	if logs.Len() != 0 {
		t.Errorf("warnings about a chain that is open: %v", logs.All())
	}

	// The tools of iptables read the rule, and go on working.
	opened := tools(n.node, "nft", "-S")
	if want := strings.ReplaceAll(before, "-A FORWARD -m comment --comment kube -j KUBE-FORWARD\n",
		"-A FORWARD -m comment --comment kube -j KUBE-FORWARD\n"+ourRule+"\n"); opened != want {
		t.Errorf("iptables-nft -S:\n%s\nwant:\n%s", opened, want)
	}
	check := func() {
		t.Helper()
		for _, tool := range []string{"iptables", "ip6tables"} {
			out, err := in(n.node, shell(tool+"-nft -w -C "+strings.TrimPrefix(ourRule, "-A ")+" && "+tool+"-nft-save -t filter && nft list chain "+
				map[string]string{"iptables": "ip", "ip6tables": "ip6"}[tool]+" filter FORWARD"))
			if err != nil || strings.Count(string(out), ourRule) != 1 {
				t.Errorf("%s-nft does not read the chain: %v\n%s", tool, err, out)
			}
		}
	}
	check()
	tools(n.node, "nft", "-A FORWARD -p tcp --dport 9 -j DROP")
	tools(n.node, "nft", "-D FORWARD -p tcp --dport 9 -j DROP")
	check()
	for _, tool := range []string{"iptables", "ip6tables"} { // what was saved can be restored
		if out, err := in(n.node, shell(tool+"-nft-save | "+tool+"-nft-restore")); err != nil {
			t.Errorf("%s-nft-restore: %v: %s", tool, err, out)
		}
	}
	check()

	// A second run, and a second agent, add nothing.
	generation := d.generation()
	d.repair(allMappings())
	again, _ := openForwarding(t, n.node, true)
	again.apply(Change{Set: allMappings()})
	again.repair(allMappings())
	if got := again.generation(); got != generation {
		t.Errorf("%d more transactions", got-generation)
	}
	if err := again.n.Close(); err != nil {
		t.Fatal(err)
	}

	// Whoever flushes the chain, edits the rule, or drops everything ahead of it, is noticed at once.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var fired <-chan struct{}
	n.node.do(func() { fired = d.n.Watch(ctx) })
	for _, damage := range []string{
		"-F FORWARD", "-D FORWARD -m conntrack --ctstate DNAT --ctorigdstport 61000:62000 -m comment --comment 'nplbridge/v1 cluster=test' -j ACCEPT",
		"-I FORWARD 1 -j DROP", "-I FORWARD 1 -j REJECT", "-A FORWARD -m conntrack --ctstate DNAT -m comment --comment 'nplbridge/v0 cluster=test' -j ACCEPT",
	} {
		for _, tool := range []string{"iptables", "ip6tables"} {
			if out, err := in(n.node, shell(tool+"-nft -w "+damage)); err != nil {
				t.Fatal(err, string(out))
			}
		}
		select {
		case <-fired:
		case <-time.After(patience):
			t.Fatalf("not told about: %s", damage)
		}
		if got := d.repair(allMappings()); got == 0 {
			t.Errorf("after %s: nothing repaired", damage)
		}
		if err := n.passes(); err != nil {
			t.Errorf("after %s: %v\n%s", damage, err, tools(n.node, "nft", "-S"))
		}
		if got := d.repair(allMappings()); got != 0 {
			t.Errorf("after %s: the second repair found %d things more", damage, got)
		}
		check()
		for _, tool := range []string{"iptables", "ip6tables"} { // as it was, but for the rule that stays
			_, _ = in(n.node, shell(tool+"-nft -D FORWARD -j DROP; "+tool+"-nft -D FORWARD -j REJECT"))
		}
		d.repair(allMappings())
		for len(fired) > 0 {
			<-fired
		}
	}

	// With the setting off again the rule goes; so it does at a cleanup.
	off.repair(allMappings())
	if got := tools(n.node, "nft", "-S"); strings.Contains(got, TableName) {
		t.Errorf("forwardAccept is off, and left:\n%s", got)
	}
	d.repair(allMappings())
	check()
	if _, err := in(n.node, func() (any, error) { return nil, d.n.Cleanup() }); err != nil {
		t.Fatal(err)
	}
	if got := tools(n.node, "nft", "-S"); strings.Contains(got, TableName) || !strings.Contains(got, "-P FORWARD DROP") || !strings.Contains(got, "KUBE-FORWARD") {
		t.Errorf("cleanup left:\n%s", got)
	}
}

// shell returns a function that runs a line of sh.
func shell(line string) func() ([]byte, error) { return commandOutput("sh", "-c", line) }

// Only what drops is opened, and nothing is made: neither tables nor chains.
func TestForwardAcceptMakesNothing(t *testing.T) {
	for name, c := range map[string]struct{ script, after string }{
		"no iptables":           {"true", ""},
		"policy accept":         {"iptables-nft -P FORWARD ACCEPT; iptables-nft -A FORWARD -p tcp --dport 9 -j DROP", "-A FORWARD -p tcp -m tcp --dport 9 -j DROP\n"},
		"everything is dropped": {"iptables-nft -A FORWARD -p tcp --dport 9 -j DROP; iptables-nft -A FORWARD -m comment --comment no -j REJECT", "-A FORWARD -p tcp -m tcp --dport 9 -j DROP\n" + ourRule + "\n-A FORWARD -m comment --comment no -j REJECT --reject-with icmp-port-unreachable\n"},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode(t)
			if out, err := in(node, shell(c.script)); err != nil {
				t.Fatal(err, string(out))
			}
			d, _ := openForwarding(t, node, true)
			d.repair(allMappings())
			if c.after == "" {
				if got := node.ruleset(); strings.Contains(got, xtChain) {
					t.Errorf("a chain was made:\n%s", got)
				}
				return
			}
			if got := node.run("iptables-nft -S FORWARD"); got != "-P FORWARD ACCEPT\n"+c.after {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.after)
			}
		})
	}
}

// What the kernel holds is, byte for byte, what the tool would have written.
func TestOpeningIsEncodedAsTheToolDoes(t *testing.T) {
	node := newNode(t)
	tools(node, "nft", "-P FORWARD DROP")
	for _, tool := range []string{"iptables", "ip6tables"} {
		if out, err := in(node, shell(tool+"-nft "+ourRule)); err != nil {
			t.Fatal(err, string(out))
		}
	}
	d, _ := openForwarding(t, node, true)
	before := d.generation()
	for range 2 {
		d.repair(nil)
	}
	if got := d.generation() - before; got != 2 { // one table for each family
		t.Errorf("%d transactions, so the rule was not taken for ours", got)
	}
	d.apply(Change{})
	if got := node.run("iptables-nft -S FORWARD"); got != "-P FORWARD DROP\n"+ourRule+"\n" {
		t.Error(got)
	}
	for _, f := range []*family{ipv4, ipv6} {
		tools := mustRules(t, node, d, f)
		node.run(f.xtTool() + "-nft -F FORWARD")
		d.repair(nil)
		ours := mustRules(t, node, d, f)
		if len(tools) != 1 || len(ours) != 1 || !slices.EqualFunc(tools[0].exprs, ours[0].exprs, func(a, b kernelExpression) bool {
			return a.name == b.name && string(a.data) == string(b.data)
		}) {
			t.Errorf("%s: the tool wrote %v, we %v", f.ip, tools, ours)
		}
	}
}

func mustRules(t *testing.T, node *namespace, d *plane, f *family) []kernelRule {
	t.Helper()
	rules, err := in(node, func() (map[string][]kernelRule, error) { return d.n.kernel.rules(f.nf, xtTable, xtChain) })
	if err != nil {
		t.Fatal(err)
	}
	return rules[xtChain]
}

// iptables-legacy is read, never written; each command that is reported works and is recognised afterwards.
func TestBarriers(t *testing.T) {
	find := func(t *testing.T, node *namespace) []Barrier {
		t.Helper()
		got, err := in(node, func() ([]Barrier, error) { return Barriers(testRange) })
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, c := range []struct{ name, script, chain, why string }{
		{"legacy policy", "iptables-legacy -P FORWARD DROP; ip6tables-legacy -P FORWARD DROP", "tables-legacy", "policy drop"},
		{"legacy rule", "for t in iptables ip6tables; do $t-legacy -A FORWARD -p tcp --dport 9 -j DROP; $t-legacy -A FORWARD -m comment --comment x -j REJECT; $t-legacy -A FORWARD -j LOG; done", "tables-legacy", "rule 2 drops all that comes so far"},
		{"nft policy", "iptables-nft -P FORWARD DROP; ip6tables-nft -P FORWARD DROP", "tables-nft", "policy drop"},
		{"nft rule", "for t in iptables ip6tables; do $t-nft -A FORWARD -p tcp --dport 9 -j DROP; $t-nft -A FORWARD -j LOG; $t-nft -A FORWARD -j DROP; done", "tables-nft", "rule 3 drops all that comes so far"},
		{"native", "nft 'table inet fw { chain onward { type filter hook forward priority 5; counter reject with icmpx admin-prohibited; }; }'", "inet fw onward", "rule 1 drops all that comes so far"},
		{"native policy", "nft 'table ip fw { chain onward { type filter hook forward priority 5; policy drop; }; }; table ip6 fw { chain onward { type filter hook forward priority 5; policy drop; }; }'", " fw onward", "policy drop"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetwork(t, routed)
			serve(t, n.pods[0], podPort)
			d := open(t, n.node, "")
			d.apply(Change{Set: allMappings()})
			if got := find(t, n.node); len(got) != 0 {
				t.Fatalf("before: %+v", got)
			}
			if out, err := in(n.node, shell(c.script)); err != nil {
				t.Fatal(err, string(out))
			}
			got := find(t, n.node)
			if len(got) != 2 {
				t.Fatalf("got %+v, want one for each family", got)
			}
			if connects(n.client, clientAddr[npl.IPv4], netip.AddrPortFrom(nodeAddr[npl.IPv4], nodePort(0))) {
				t.Error("nothing is dropped, so nothing is tested")
			}
			done := map[string]bool{}
			for i, b := range got {
				if b.Open || b.Family != bothFamilies[i] || !strings.Contains(b.Chain, c.chain) || b.Why != c.why {
					t.Errorf("got %+v", b)
				}
				if !done[b.Command] { // inet serves both families
					if out, err := in(n.node, shell(b.Command)); err != nil {
						t.Fatalf("%s: %v: %s", b.Command, err, out)
					}
				}
				done[b.Command] = true
			}
			for _, b := range find(t, n.node) {
				if !b.Open {
					t.Errorf("after its command: %+v", b)
				}
			}
			if err := n.passes(); err != nil {
				t.Errorf("after the commands: %v", err)
			}
		})
	}
	t.Run("reading makes no table", func(t *testing.T) {
		node := newNode(t)
		find(t, node)
		if got, err := in(node, commandOutput("cat", "/proc/thread-self/net/ip_tables_names")); err != nil || len(got) != 0 {
			t.Errorf("tables of iptables-legacy: %q %v", got, err)
		}
	})
	t.Run("firewalld accepts DNAT", func(t *testing.T) {
		node := newNode(t)
		node.nft("table inet firewalld { chain filter_FORWARD { type filter hook forward priority 10; policy drop; ct state { established, related } accept; ct status dnat accept; reject; }; }")
		for _, b := range find(t, node) {
			if !b.Open {
				t.Errorf("got %+v", b)
			}
		}
	})
}

func TestOpenings(t *testing.T) {
	var keys []Key
	for _, p := range []uint16{60998, 60999, 61000, 61500, 62000, 62001, 62003, 40000, 62001} {
		keys = append(keys, Key{npl.TCP, npl.IPv4, p})
	}
	keys = append(keys, Key{npl.TCP, npl.IPv6, 5})
	want := []PortRange{{61000, 62000}, {40000, 40000}, {60998, 60999}, {62001, 62001}, {62003, 62003}}
	if got := openings(testRange, keys, npl.IPv4); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, r := range []PortRange{{}, {0, 5}, {6, 5}} {
		if _, err := Open(Config{ClusterUID: "a", ForwardAccept: true, NodePorts: r}); err == nil || !strings.Contains(err.Error(), "node port range") {
			t.Errorf("%v: got %v", r, err)
		}
	}
}

// A port outside the range, left from before the range was changed, goes on passing until it is gone.
func TestForwardAcceptFollowsStrayPorts(t *testing.T) {
	n := newNetwork(t, routed)
	serve(t, n.pods[0], podPort)
	tools(n.node, "nft", "-P FORWARD DROP")
	d, _ := openForwarding(t, n.node, true)
	stray := map[Key]netip.AddrPort{{npl.TCP, npl.IPv4, 40000}: netip.AddrPortFrom(podAddr[0][npl.IPv4], podPort)}
	d.repair(stray)
	if _, err := request(n.client, npl.TCP, netip.AddrPortFrom(nodeAddr[npl.IPv4], 40000)); err != nil {
		t.Error(err)
	}
	d.repair(nil)
	if got := n.node.run("iptables-nft -S FORWARD"); strings.Contains(got, "40000") {
		t.Error(got)
	}
}

func FuzzLegacyTable(f *testing.F) {
	f.Add(make([]byte, 300), 0, 112)
	f.Fuzz(func(t *testing.T, blob []byte, first, policy int) {
		for _, x := range []xtables{xtables4, xtables6} {
			rules, err := x.decode(blob, first, policy)
			if err != nil && !errors.Is(err, errShortTable) {
				t.Error(err)
			}
			legacyVerdict(rules, ipv4, testRange)
		}
	})
}
