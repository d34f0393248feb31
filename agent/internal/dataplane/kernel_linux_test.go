package dataplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// newNode is a Node with an address, without Pods.
func newNode(t testing.TB) *namespace {
	t.Helper()
	node, far := newNamespace(t, "node"), newNamespace(t, "far")
	plug(node, "eth0", far, "eth0")
	node.run("ip addr add 192.0.2.1/24 dev eth0\nip addr add 2001:db8::1/64 dev eth0 nodad")
	return node
}

var (
	tcp4  = Key{npl.TCP, npl.IPv4, 61000}
	udp6  = Key{npl.UDP, npl.IPv6, 61000}
	sctp4 = Key{npl.SCTP, npl.IPv4, 61007}
)

var (
	expiry   = regexp.MustCompile(` expires \w+| timeout \w+`)
	elements = regexp.MustCompile(`(?s)elements = \{(.*?)\}`)
)

// stable is the ruleset without what the clock changes and without the order in which things were made.
func stable(ns *namespace) string {
	sorted := elements.ReplaceAllStringFunc(expiry.ReplaceAllString(ns.ruleset(), ""), func(list string) string {
		words := strings.Split(strings.NewReplacer("elements = {", "", "}", "", "\n", "", "\t", "").Replace(list), ",")
		for i := range words {
			words[i] = strings.TrimSpace(words[i])
		}
		slices.Sort(words)
		return "elements = { " + strings.Join(words, ", ") + " }"
	})
	tables := strings.SplitAfter(sorted, "\n}\n")
	slices.Sort(tables)
	for i, table := range tables {
		blocks := strings.Split(strings.TrimSuffix(table, "}\n"), "\n\n")
		if len(blocks) > 1 {
			head, first, _ := strings.Cut(blocks[0], "\n\t")
			comment, first, _ := strings.Cut(first, "\n")
			blocks[0] = first
			for j := range blocks {
				blocks[j] = strings.TrimSpace(blocks[j])
			}
			slices.Sort(blocks)
			tables[i] = head + " " + comment + "\n" + strings.Join(blocks, "\n")
		}
	}
	return strings.Join(tables, "\n")
}

func TestLoadReturnsWhatWasApplied(t *testing.T) {
	node := newNode(t)
	d := open(t, node, "")
	if s := d.load(); !s.Fresh || len(s.Mappings)+len(s.Cooling) != 0 {
		t.Errorf("before anything was written: %+v", s)
	}
	if got := node.ruleset(); got != "" {
		t.Errorf("opening and loading wrote something:\n%s", got)
	}
	set := allMappings()
	set[sctp4] = netip.MustParseAddrPort("10.244.0.10:5000")
	cool := Key{npl.UDP, npl.IPv6, 61900}
	d.apply(Change{Set: set, Cool: map[Key]time.Duration{cool: time.Hour, tcp4: time.Hour}})

	again := open(t, node, "")
	s := again.load()
	if !maps.Equal(s.Mappings, set) || s.Fresh {
		t.Errorf("got %+v, want %v", s, set)
	}
	if left := s.Cooling[cool]; len(s.Cooling) != 1 || left <= 0 || left > time.Hour {
		t.Errorf("cooling: got %v, want %s with at most an hour, and not %s, which is in use", s.Cooling, cool, tcp4)
	}
	replaced := netip.MustParseAddrPort("10.244.0.77:1")
	again.apply(Change{
		Set: map[Key]netip.AddrPort{tcp4: replaced, cool: netip.MustParseAddrPort("[fd00:244::77]:1")}, Delete: []Key{sctp4, tcp4, {npl.TCP, npl.IPv4, 1}},
	})
	delete(set, sctp4)
	set[tcp4], set[cool] = replaced, netip.MustParseAddrPort("[fd00:244::77]:1")
	for _, who := range []*plane{again, d} {
		if s := who.load(); !maps.Equal(s.Mappings, set) || len(s.Cooling) != 0 {
			t.Errorf("got %+v, want %v and nothing cooling", s, set)
		}
	}
}

// Invariant I4: a restart is nothing. The kernel's generation counts every transaction of anybody in the namespace.
func TestReopeningWritesNothing(t *testing.T) {
	node := newNode(t)
	first := open(t, node, "")
	first.apply(Change{Set: allMappings(), Cool: map[Key]time.Duration{sctp4: time.Hour}})
	before := first.generation()
	if err := first.n.Close(); err != nil {
		t.Fatal(err)
	}
	d := open(t, node, "")
	if s := d.load(); s.Fresh {
		t.Error("a table that exists is not fresh")
	}
	if got := d.repair(allMappings()); got != 0 {
		t.Errorf("repaired %d things of an intact table", got)
	}
	d.apply(Change{Set: allMappings()})
	d.apply(Change{Delete: []Key{{npl.TCP, npl.IPv4, 1}}})
	if after := d.generation(); after != before {
		t.Errorf("reopening made %d transactions", after-before)
	}
	if s := d.load(); len(s.Cooling) != 1 {
		t.Errorf("cooling: %v", s.Cooling)
	}
}

func TestOneChangeIsOneTransaction(t *testing.T) {
	d := open(t, newNode(t), "")
	d.apply(Change{Set: allMappings()})
	for i, c := range []Change{
		{Set: map[Key]netip.AddrPort{tcp4: netip.MustParseAddrPort("10.244.0.99:1")}},
		{Delete: []Key{tcp4}, Cool: map[Key]time.Duration{tcp4: time.Minute}},
		{Cool: map[Key]time.Duration{tcp4: time.Hour}},
	} {
		before := d.generation()
		d.apply(c)
		if n := d.generation() - before; n != 1 {
			t.Errorf("change %d: %d transactions, want 1", i, n)
		}
	}
}

func TestRepair(t *testing.T) {
	for _, c := range []struct {
		name   string
		script string
		count  int // 0: any number
	}{
		{"ruleset flushed", "flush ruleset", 0},
		{"table deleted", "delete table ip nplbridge", 0},
		{"rules flushed", "flush table ip6 nplbridge", 4},
		{"chain flushed", "flush chain ip nplbridge output", 1},
		{"rule inserted", "insert rule ip nplbridge prerouting accept", 1},
		{"rule of an unusual kind appended", "add rule ip nplbridge prerouting socket transparent 1 accept", 1},
		{"rule edited", "flush chain ip nplbridge prerouting\nadd rule ip nplbridge prerouting dnat ip to meta l4proto . th dport map @ports comment \"node port to Pod\"", 1},
		{"chain deleted", "flush chain ip nplbridge output\ndelete chain ip nplbridge output", 1},
		{"chain hooked elsewhere", "flush chain ip nplbridge output\ndelete chain ip nplbridge output\n" +
			"add chain ip nplbridge output { type nat hook output priority 10; }", 1},
		{"chain with a policy", "add chain ip nplbridge output { policy drop; }", 1},
		{"chain added", "add chain ip nplbridge other\nadd rule ip nplbridge other accept\nadd rule ip nplbridge output jump other", 2},
		{"set added", "add set ip nplbridge other { type ipv4_addr; }", 1},
		{"set of another type", "flush table ip nplbridge\ndelete map ip nplbridge ports\nadd map ip nplbridge ports { type inet_service : ipv4_addr; }", 0},
		{"set deleted", "flush table ip6 nplbridge\ndelete set ip6 nplbridge self", 0},
		{"dormant", "add table ip nplbridge { flags dormant; }", 1},
		{"mapping deleted", "delete element ip nplbridge ports { tcp . 61000 }", 1},
		{"mapping changed", "delete element ip nplbridge ports { tcp . 61000 }\nadd element ip nplbridge ports { tcp . 61000 : 10.1.1.1 . 9 }", 1},
		{"mapping added", "add element ip6 nplbridge ports { udp . 62000 : fd00::1 . 9 }", 1},
		{"mapping of another protocol added", "add element ip nplbridge ports { 33 . 62000 : 10.1.1.1 . 9 }", 1},
		{"map flushed", "flush map ip nplbridge ports", 5},
		{"own address deleted", "flush set ip nplbridge self", 1},
		{"foreign address added", "add element ip nplbridge self { 198.51.100.7 }", 1},
		{"masquerade set changed", "flush set ip nplbridge hairpin\nadd element ip nplbridge tcp-ports { 22 }", 3},
		{"cooling flushed", "flush set ip nplbridge cooling", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := newNode(t)
			d := open(t, node, "")
			want := allMappings()
			want[sctp4] = netip.MustParseAddrPort("10.244.0.10:5000")
			cooling := Key{npl.TCP, npl.IPv4, 61900}
			d.apply(Change{Set: want, Cool: map[Key]time.Duration{cooling: time.Hour}})
			intact := stable(node)
			node.nft(c.script)
			if stable(node) == intact {
				t.Fatal("the script damages nothing")
			}
			before := d.generation()
			if got := d.repair(want); got == 0 || c.count != 0 && got != c.count {
				t.Errorf("repaired %d things, want %d", got, c.count)
			}
			families := 1
			if c.script == "flush ruleset" {
				families = 2
			}
			if n := int(d.generation() - before); n != families {
				t.Errorf("%d transactions, want %d", n, families)
			}
			if got := stable(node); got != intact {
				t.Errorf("after the repair:\n%s\nwant:\n%s", got, intact)
			}
			if got := d.repair(want); got != 0 {
				t.Errorf("the second repair found %d things more", got)
			}
			if s := d.load(); !maps.Equal(s.Mappings, want) || len(s.Cooling) != 1 {
				t.Errorf("got %+v", s)
			}
		})
	}
}

// The first write meets a table that is not as it was when it was read.
func TestApplyOverATableChangedByHand(t *testing.T) {
	for name, script := range map[string]string{
		"mapping deleted": "delete element ip nplbridge ports { tcp . 61000 }",
		"mapping added":   "add element ip nplbridge ports { tcp . 61002 : 10.9.9.9 . 9 }",
		"table deleted":   "delete table ip nplbridge",
		"ruleset flushed": "flush ruleset",
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode(t)
			d := open(t, node, "")
			d.apply(Change{Set: allMappings()})
			node.nft(script)
			want := allMappings()
			want[tcp4] = netip.MustParseAddrPort("10.244.0.55:5")
			want[Key{npl.TCP, npl.IPv4, 61002}] = netip.MustParseAddrPort("10.244.0.56:5")
			want[udp6] = netip.MustParseAddrPort("[fd00:244::55]:5") // a family in which nothing changes is not written
			d.apply(Change{Set: want})
			if got := d.load().Mappings; !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestCoolingEndsByItselfAndOutlivesTheProcess(t *testing.T) {
	node := newNode(t)
	d := open(t, node, "")
	short, long := Key{npl.TCP, npl.IPv4, 61001}, Key{npl.TCP, npl.IPv4, 61002}
	d.apply(Change{Cool: map[Key]time.Duration{short: time.Hour, long: time.Hour}})
	d.apply(Change{Cool: map[Key]time.Duration{short: 50 * time.Millisecond}})
	if err := d.n.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, node, "")
	eventually(t, "the kernel drops the element", func() error {
		if s := again.load(); len(s.Cooling) != 1 || s.Cooling[long] == 0 {
			return fmt.Errorf("cooling: %v", s.Cooling)
		}
		return nil
	})
	// An element that the kernel has dropped meanwhile can still be renewed and removed.
	again.apply(Change{Cool: map[Key]time.Duration{short: time.Hour}})
	again.apply(Change{Set: map[Key]netip.AddrPort{short: netip.MustParseAddrPort("10.244.0.10:80")}})
	if s := again.load(); len(s.Cooling) != 1 || s.Cooling[long] == 0 {
		t.Errorf("cooling: %v", s.Cooling)
	}
}

func TestForeignTablesAreNeverTouched(t *testing.T) {
	for name, c := range map[string]struct{ script, has string }{
		"no mark":         {"table ip nplbridge { chain c { accept\n }\n }", "no comment"},
		"another cluster": {"table ip6 nplbridge { comment \"nplbridge/v1 cluster=other\"\n }", "cluster=other"},
		"another layout":  {"table ip nplbridge { comment \"nplbridge/v9 cluster=test\"\n }", "nplbridge/v9"},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNode(t)
			early := open(t, node, "") // opened before the table appeared
			node.nft(c.script)
			before, generation := node.ruleset(), early.generation()
			_, err := in(node, func() (*NFT, error) { return Open(Config{ClusterUID: "test"}) })
			if !errors.Is(err, ErrForeignTable) || !strings.Contains(err.Error(), c.has) || !strings.Contains(err.Error(), "nft delete table") {
				t.Errorf("Open: got %v, want ErrForeignTable naming %q", err, c.has)
			}
			family := npl.IPv4
			if strings.Contains(c.script, "ip6") {
				family = npl.IPv6
			}
			change := Change{Set: map[Key]netip.AddrPort{{npl.TCP, family, 61000}: netip.AddrPortFrom(podAddr[0][family], 80)}}
			for what, call := range map[string]func() (any, error){
				"Load":    func() (any, error) { return early.n.Load() },
				"Apply":   func() (any, error) { return nil, early.n.applyFamily(familyOf(family), change) },
				"Cleanup": func() (any, error) { return nil, early.n.Cleanup() },
			} {
				if _, err := in(node, call); !errors.Is(err, ErrForeignTable) {
					t.Errorf("%s: got %v, want ErrForeignTable", what, err)
				}
			}
			if after := node.ruleset(); after != before || early.generation() != generation {
				t.Errorf("touched:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

func familyOf(ip npl.Family) *family {
	if ip == npl.IPv4 {
		return ipv4
	}
	return ipv6
}

func TestCleanupLeavesNothing(t *testing.T) {
	node := newNode(t)
	d := open(t, node, "")
	foreign := "table ip other {\n\tchain c {\n\t}\n}\n"
	node.nft(foreign)
	d.apply(Change{Set: allMappings()})
	for range 2 { // the second finds nothing to do
		if _, err := in(node, func() (any, error) { return nil, d.n.Cleanup() }); err != nil {
			t.Fatal(err)
		}
		if got := node.ruleset(); got != foreign {
			t.Errorf("left:\n%s", got)
		}
	}
	if s := d.load(); !s.Fresh {
		t.Error("not fresh after a cleanup")
	}
}

func TestWatchTellsOthersChangesFromOurs(t *testing.T) {
	node := newNode(t)
	d := open(t, node, "")
	conn, err := in(node, func() (*netlink.Conn, error) {
		return subscribe(unix.NETLINK_NETFILTER, []uint32{unix.NFNLGRP_NFTABLES})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d.apply(Change{Set: allMappings(), Cool: map[Key]time.Duration{sctp4: time.Hour}})
	d.apply(Change{Set: map[Key]netip.AddrPort{tcp4: netip.MustParseAddrPort("10.244.0.99:1")}, Delete: []Key{udp6}})
	node.nft("table ip other { set s { type ipv4_addr; elements = { 192.0.2.9 }\n }\n }")
	node.nft("table ip marker { }")
	ours := 0
	for seen := false; !seen; {
		msgs, err := conn.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if d.n.byOthers(msgs) {
			t.Errorf("taken for a change of ours by others: %+v", msgs)
		}
		for _, m := range msgs {
			seen = seen || strings.Contains(string(m.Data), "marker\x00")
			if strings.Contains(string(m.Data), TableName+"\x00") {
				ours++
			}
		}
	}
	if ours == 0 {
		t.Error("the kernel sent no notification about our own transactions, so nothing was tested")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var fired <-chan struct{}
	node.do(func() { fired = d.n.Watch(ctx) })
	await := func(what string) {
		t.Helper()
		select {
		case <-fired:
		case <-time.After(patience):
			t.Fatalf("not told about: %s", what)
		}
	}
	for _, script := range []string{
		"delete element ip nplbridge ports { tcp . 61000 }", "add rule ip6 nplbridge output accept", "flush chain ip nplbridge output",
		"add set ip nplbridge other { type ipv4_addr; }", "flush ruleset",
	} {
		node.nft(script)
		await(script)
		d.repair(allMappings())
		for len(fired) > 0 { // further notifications of the same script
			<-fired
		}
	}
	node.run("ip addr add 192.0.2.77/24 dev eth0")
	await("a new address")
	if got := d.repair(allMappings()); got != 0 {
		t.Errorf("following an address counts as %d repairs", got)
	}
	if self := d.n.Self(); !slices.Contains(self, netip.MustParseAddr("192.0.2.77")) {
		t.Errorf("not served: %v", self)
	}
	node.run("ip addr del 192.0.2.77/24 dev eth0")
	await("an address less")
	cancel()
	for range fired { // ends when the channel is closed
	}
}

func TestReserve(t *testing.T) {
	node := newNode(t)
	d, other := open(t, node, ""), open(t, node, "")
	for _, f := range bothFamilies {
		for _, p := range transports {
			k := Key{p, f, 61000}
			for range 2 { // holding it twice is holding it
				if err := d.reserve(k); err != nil {
					t.Fatal(err)
				}
			}
			if err := other.reserve(k); !errors.Is(err, ErrPortBusy) || !strings.Contains(err.Error(), k.String()) {
				t.Errorf("%s: got %v, want ErrPortBusy", k, err)
			}
		}
	}
	for _, f := range bothFamilies {
		for _, p := range transports {
			k := Key{p, f, 61000}
			d.n.Release(k)
			d.n.Release(k)
			if err := other.reserve(k); err != nil {
				t.Errorf("%s, released: %v", k, err)
			}
		}
	}
	if err := d.reserve(sctp4); err != nil {
		t.Errorf("SCTP needs no socket: %v", err)
	}
	if err := other.n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.reserve(Key{npl.TCP, npl.IPv4, 61000}); err != nil {
		t.Errorf("after the other closed: %v", err)
	}
}

func TestWithoutNetAdmin(t *testing.T) {
	node := newNode(t)
	_, err := in(node, func() (*NFT, error) {
		// This thread ends with the function.
		var none [2]unix.CapUserData
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			t.Errorf("drop capabilities: %v", err)
		}
		return Open(Config{ClusterUID: "test"})
	})
	if !errors.Is(err, ErrPermission) || strings.Count(err.Error(), "CAP_NET_ADMIN is missing") != 1 {
		t.Errorf("got %v, want one line about CAP_NET_ADMIN", err)
	}
}

func TestIPv6Disabled(t *testing.T) {
	node := newNode(t)
	node.sysctl("net/ipv6/conf/all/disable_ipv6", "1")
	d := open(t, node, "")
	if got := d.n.Families(); !slices.Equal(got, []npl.Family{npl.IPv4}) {
		t.Errorf("families: %v", got)
	}
	d.apply(Change{Set: map[Key]netip.AddrPort{tcp4: netip.MustParseAddrPort("10.244.0.10:80")}})
	_, err := in(node, func() (any, error) {
		return nil, d.n.Apply(Change{Set: map[Key]netip.AddrPort{udp6: netip.MustParseAddrPort("[fd00::1]:80")}})
	})
	if err == nil || !strings.Contains(err.Error(), "IPv6 is disabled on this Node") {
		t.Errorf("got %v", err)
	}
	if got := node.ruleset(); strings.Contains(got, "ip6") {
		t.Errorf("an IPv6 table was made:\n%s", got)
	}
}

// Somebody else writes to the ruleset all the time: reads that were torn apart start again.
func TestWhileOthersWrite(t *testing.T) {
	node := newNode(t)
	d := open(t, node, "")
	d.apply(Change{Set: allMappings()})
	stop := make(chan struct{})
	var busy sync.WaitGroup
	defer busy.Wait()
	defer close(stop)
	busy.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				if _, err := node.try("nft add table ip other\nnft delete table ip other"); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	want := map[Key]netip.AddrPort{}
	for i := range 100 {
		k := Key{npl.TCP, npl.IPv4, uint16(62000 + i)}
		want[k] = netip.AddrPortFrom(podAddr[0][npl.IPv4], uint16(1+i))
		d.apply(Change{Set: map[Key]netip.AddrPort{k: want[k]}, Delete: slices.Collect(maps.Keys(allMappings()))})
		if i%50 == 0 {
			if got := d.load().Mappings; !maps.Equal(got, want) {
				t.Fatalf("after %d: got %d mappings, want %d", i, len(got), len(want))
			}
			if got := d.repair(want); got != 0 {
				t.Errorf("repaired %d things", got)
			}
		}
	}
}

func TestManyMappings(t *testing.T) {
	node := newNode(t)
	d := open(t, node, "")
	want := manyMappings(5000)
	cool := map[Key]time.Duration{}
	for i := range 6000 {
		cool[Key{npl.UDP, npl.IPv4, uint16(10000 + i)}] = time.Hour
	}
	d.apply(Change{Set: want, Cool: cool})
	s := d.load()
	if !maps.Equal(s.Mappings, want) || len(s.Cooling) != len(cool) {
		t.Errorf("got %d mappings and %d cooling, want %d and %d", len(s.Mappings), len(s.Cooling), len(want), len(cool))
	}
	node.nft("flush ruleset")
	d.repair(want)
	if s := d.load(); !maps.Equal(s.Mappings, want) || len(s.Cooling) != len(cool) {
		t.Errorf("repaired to %d mappings and %d cooling, want %d and %d", len(s.Mappings), len(s.Cooling), len(want), len(cool))
	}
}

func manyMappings(n int) map[Key]netip.AddrPort {
	out := make(map[Key]netip.AddrPort, n)
	for i := range n {
		f := bothFamilies[i%2]
		out[Key{npl.TCP, f, uint16(20000 + i/2)}] = netip.AddrPortFrom(podAddr[i%2][f], uint16(1+i))
	}
	return out
}

// Whatever is applied, damaged by hand, repaired and reopened: the kernel ends up with what is wanted.
func TestKernelEqualsModel(t *testing.T) {
	node := newNode(t)
	rapid.Check(t, func(r *rapid.T) {
		d := open(t, node, "")
		defer func() {
			if _, err := in(node, func() (any, error) { return nil, errors.Join(d.n.Cleanup(), d.n.Close()) }); err != nil {
				r.Fatal(err)
			}
		}()
		want, cooling := map[Key]netip.AddrPort{}, map[Key]bool{}
		key := rapid.Custom(func(r *rapid.T) Key {
			return Key{rapid.SampledFrom(protocols).Draw(r, "protocol"), rapid.SampledFrom(bothFamilies).Draw(r, "family"),
				rapid.Uint16Range(61000, 61004).Draw(r, "port")}
		})
		keys := rapid.SliceOfN(key, 0, 4)
		actions := map[string]func(){
			"apply": func() {
				c := Change{Set: map[Key]netip.AddrPort{}, Cool: map[Key]time.Duration{}}
				c.Delete = keys.Draw(r, "delete")
				for _, k := range keys.Draw(r, "cool") {
					c.Cool[k] = time.Hour
				}
				for _, k := range keys.Draw(r, "set") {
					c.Set[k] = netip.AddrPortFrom(podAddr[rapid.IntRange(0, 1).Draw(r, "pod")][k.Family], rapid.Uint16Range(1, 9).Draw(r, "to"))
				}
				d.apply(c)
				for _, k := range c.Delete {
					delete(want, k)
				}
				maps.Copy(want, c.Set)
				for k := range c.Cool {
					cooling[k] = true
				}
				maps.DeleteFunc(cooling, func(k Key, _ bool) bool { return want[k].IsValid() }) // a mapped port does not cool
			},
			"damage": func() {
				name := rapid.SampledFrom([]string{"ip", "ip6"}).Draw(r, "table")
				script := rapid.SampledFrom([]string{
					"add table %[1]s nplbridge\ndelete table %[1]s nplbridge", "flush ruleset",
					"add rule %[1]s nplbridge output accept", "flush map %[1]s nplbridge ports", "flush set %[1]s nplbridge cooling",
					"add element %[1]s nplbridge udp-ports { 7 }",
				}).Draw(r, "script")
				_ = node.tryNFT(fmt.Sprintf(script, name)) // some need a table that exists
				d.repair(want)
			},
			"reopen": func() {
				if err := d.n.Close(); err != nil {
					r.Fatal(err)
				}
				d = open(t, node, "")
			},
		}
		names := slices.Sorted(maps.Keys(actions))
		for range rapid.IntRange(1, 6).Draw(r, "steps") {
			actions[rapid.SampledFrom(names).Draw(r, "action")]()
			s := d.load()
			if !maps.Equal(s.Mappings, want) {
				r.Fatalf("got %v, want %v", s.Mappings, want)
			}
			if got := slices.Collect(maps.Keys(s.Cooling)); len(got) != len(cooling) || slices.ContainsFunc(got, func(k Key) bool { return !cooling[k] }) {
				r.Fatalf("cooling: got %v, want %v", got, cooling)
			}
		}
	})
}

func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("set-and-delete-%d", n), func(b *testing.B) {
			d := open(b, newNode(b), "")
			d.apply(Change{Set: manyMappings(1000)})
			set := map[Key]netip.AddrPort{}
			for i := range n {
				set[Key{npl.TCP, npl.IPv4, uint16(40000 + i)}] = netip.AddrPortFrom(podAddr[0][npl.IPv4], 80)
			}
			gone := slices.Collect(maps.Keys(set))
			d.node.do(func() {
				for b.Loop() {
					if err := errors.Join(d.n.Apply(Change{Set: set}), d.n.Apply(Change{Delete: gone})); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*2*n), "us/mapping")
		})
	}
}

func BenchmarkRepairIntact(b *testing.B) {
	d := open(b, newNode(b), "")
	want := manyMappings(1000)
	d.apply(Change{Set: want})
	d.node.do(func() {
		for b.Loop() {
			if got, err := d.n.Repair(want); err != nil || got != 0 {
				b.Error(got, err)
			}
		}
	})
}
