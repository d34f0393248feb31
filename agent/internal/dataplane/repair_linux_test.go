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

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/npl"
)

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

// A busy Node has many connections; a change of one UDP port must not read them all.

var (
	expiry   = regexp.MustCompile(` expires \w+| timeout \w+`)
	elements = regexp.MustCompile(`(?s)elements = \{(.*?)\}`)
)

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

// One transaction changes the map and the sets beside it; what is read in several dumps must be of one moment.
func TestReadsAreNotTorn(t *testing.T) {
	node := newNode(t)
	d, other := open(t, node, ""), open(t, node, "")
	d.apply(Change{Set: manyMappings(100)})
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	busy.Go(func() {
		k := Key{npl.TCP, npl.IPv4, 61000}
		node.do(func() {
			for ctx.Err() == nil {
				set := Change{Set: map[Key]netip.AddrPort{k: netip.AddrPortFrom(podAddr[0][npl.IPv4], podPort)}}
				if err := errors.Join(other.n.Apply(set), other.n.Apply(Change{Delete: []Key{k}})); err != nil {
					t.Error(err)
					return
				}
			}
		})
	})
	for good := 0; good < 50; {
		s, err := in(node, func() (*state, error) {
			d.n.mu.Lock()
			defer d.n.mu.Unlock()
			return d.n.read(ipv4)
		})
		if err != nil { // others were faster all the time: an error, but never a wrong answer
			continue
		}
		good++
		if want, got := d.n.want(ipv4, s.elements[setPorts], nil)[setOf(npl.TCP)], s.elements[setOf(npl.TCP)]; !maps.Equal(got, want) {
			t.Fatalf("read %d: %d ports in the map, %d in the set", good, len(want), len(got))
		}
	}
}
