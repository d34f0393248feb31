package dataplane

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// mapElements returns the elements of map ports as the nft tool lists them.
func mapElements(node *namespace, family string) []string {
	node.t.Helper()
	list := elements.FindStringSubmatch(node.run("nft list map " + family + " nplbridge ports"))
	if list == nil {
		return nil
	}
	out := strings.Split(list[1], ",")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	slices.Sort(out)
	return out
}

// The first change makes the table, with one rule for packets from outside and one for those of the Node itself. From then
// on a mapping is one element of one map, and a transaction of its own; the rules are never touched again.
func TestNPL43OneElementPerMapping(t *testing.T) {
	node := newNode(t)
	d := open(t, node, "")
	first := Key{npl.TCP, npl.IPv4, 61009}
	d.apply(Change{Set: map[Key]netip.AddrPort{first: netip.MustParseAddrPort("10.244.0.9:1")}})
	rules := func() (out []string) {
		for _, name := range []string{"prerouting", "output"} {
			chain := node.run("nft -a list chain ip nplbridge " + name)
			if strings.Count(chain, "dnat ip to") != 1 || strings.Count(chain, "# handle") != 2 || !strings.Contains(chain, "hook "+name) {
				t.Errorf("want one DNAT rule in a chain hooked to %s:\n%s", name, chain)
			}
			out = append(out, chain)
		}
		return out
	}
	before := rules()
	for _, p := range transports {
		k := Key{p, npl.IPv4, 61000}
		element := fmt.Sprintf("%s . 61000 : 10.244.0.10 . 8080", p)
		for _, step := range []struct {
			change Change
			want   []string
		}{
			{Change{Set: map[Key]netip.AddrPort{k: netip.MustParseAddrPort("10.244.0.10:8080")}}, []string{"tcp . 61009 : 10.244.0.9 . 1", element}},
			{Change{Delete: []Key{k}}, []string{"tcp . 61009 : 10.244.0.9 . 1"}},
		} {
			generation := d.generation()
			d.apply(step.change)
			if n := d.generation() - generation; n != 1 {
				t.Errorf("%s: %d transactions, want 1", p, n)
			}
			slices.Sort(step.want)
			if got := mapElements(node, "ip"); !slices.Equal(got, step.want) {
				t.Errorf("%s: elements %q, want %q", p, got, step.want)
			}
		}
	}
	if after := rules(); !slices.Equal(after, before) {
		t.Errorf("the rules changed:\n%s\nbefore:\n%s", after, before)
	}
}

// Many mappings are one transaction for each family, which leaves what is there alone: mappings, cooling ports, other
// tables. A cleanup removes our tables and nothing else.
func TestNPL44BulkChangeAndCleanup(t *testing.T) {
	n := newNetwork(t, routed)
	serve(t, n.pods[0], podPort)
	foreign := "table ip other {\n\tchain c {\n\t}\n}\n"
	n.node.nft(foreign)
	d := open(t, n.node, "")
	all := allMappings()
	d.apply(Change{Set: all, Cool: map[Key]time.Duration{sctp4: time.Hour}})
	c, err := dial(n.client, npl.TCP, netip.AddrPortFrom(nodeAddr[npl.IPv4], nodePort(0)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	generation := d.generation()
	maps.Copy(all, manyMappings(1000))
	d.apply(Change{Set: all})
	if got := d.generation() - generation; got != 2 {
		t.Errorf("%d transactions, want one for each family", got)
	}
	if s := d.load(); !maps.Equal(s.Mappings, all) || len(s.Cooling) != 1 {
		t.Errorf("got %d mappings and %d cooling ports, want %d and 1", len(s.Mappings), len(s.Cooling), len(all))
	}
	if _, err := ask(c); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
	if _, err := in(n.node, func() (any, error) { return nil, d.n.Cleanup() }); err != nil {
		t.Fatal(err)
	}
	if got := n.node.ruleset(); got != foreign {
		t.Errorf("left:\n%s", got)
	}
}

// Whatever somebody does to the tables, packets pass again as soon as the kernel has told of it; and, without being told,
// after the next comparison.
func TestNPL53FlushedTablesAreRepaired(t *testing.T) {
	n := newNetwork(t, routed)
	serve(t, n.pods[0], podPort)
	d := open(t, n.node, MasqueradeAuto)
	d.apply(Change{Set: allMappings()})
	damages := []string{
		"flush ruleset", "delete table ip nplbridge\ndelete table ip6 nplbridge", "flush chain ip nplbridge prerouting\nflush chain ip6 nplbridge prerouting",
		"flush map ip nplbridge ports\nflush map ip6 nplbridge ports", "flush set ip nplbridge self\nflush set ip6 nplbridge self",
		"insert rule ip nplbridge prerouting accept\ninsert rule ip6 nplbridge prerouting accept",
		"delete element ip nplbridge ports { tcp . 61000 }\nadd element ip nplbridge ports { tcp . 61000 : 10.244.0.77 . 8080 }\n" +
			"delete element ip6 nplbridge ports { tcp . 61000, udp . 61000 }",
	}
	broken := func(damage string) {
		t.Helper()
		n.node.nft(damage)
		if err := n.passes(); err == nil {
			t.Fatalf("packets still pass, so nothing is tested: %s", damage)
		}
	}
	for _, damage := range damages { // the comparison of every repairInterval
		broken(damage)
		d.repair(allMappings())
		if err := n.passes(); err != nil {
			t.Errorf("after %q and a comparison: %v", damage, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var fired <-chan struct{}
	n.node.do(func() { fired = d.n.Watch(ctx) })
	done := make(chan struct{})
	go func() { // as the agent does, with nothing but the kernel's word to wake it
		defer close(done)
		for range fired {
			if _, err := in(n.node, func() (int, error) { return d.n.Repair(allMappings()) }); err != nil {
				t.Error(err)
			}
		}
	}()
	for _, damage := range damages {
		n.node.nft(damage)
		eventually(t, "packets pass after "+damage, n.passes)
	}
	cancel()
	<-done
}
