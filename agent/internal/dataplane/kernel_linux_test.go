package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

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

// stable is the ruleset without what the clock changes and without the order in which things were made.

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

// The first write meets a table that is not as it was when it was read.

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
		"another program": {"table ip nplbridge { comment \"nplbridge.example cluster=test\"\n }", "nplbridge.example"},
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

func TestForeignChainAheadIsReportedOnce(t *testing.T) {
	node := newNode(t)
	core, logs := observer.New(zap.WarnLevel)
	n, err := in(node, func() (*NFT, error) { return Open(Config{ClusterUID: "test", Log: zap.New(core)}) })
	if err != nil {
		t.Fatal(err)
	}
	d := &plane{n, node, t}
	defer n.Close()
	node.nft(`table inet ahead { chain early { type nat hook prerouting priority -120; }
		}
		table ip after { chain late { type nat hook prerouting priority -100; }
		chain filter { type filter hook prerouting priority -300; }
		}`)
	for range 2 {
		d.repair(allMappings())
	}
	if got := logs.All(); len(got) != 1 || got[0].ContextMap()["chain"] != "early" || got[0].ContextMap()["table"] != "ahead" {
		t.Errorf("got %+v, want one warning about chain early of table ahead", got)
	}
}

// A socket that could not be opened again after an error, for want of file descriptors say, is opened at the next call.
func TestLostSocketIsReplaced(t *testing.T) {
	node := newNode(t)
	d := open(t, node, "")
	d.apply(Change{Set: allMappings()})
	broken := d.n.kernel.hangUp
	broken()
	if got := d.repair(allMappings()); got != 0 {
		t.Errorf("repaired %d", got)
	}
	broken()
	d.load()
	broken()
	d.apply(Change{Set: map[Key]netip.AddrPort{udp6: netip.MustParseAddrPort("[fd00::7]:7")}})
	broken()
	if _, err := in(node, func() (any, error) { return nil, d.n.Cleanup() }); err != nil {
		t.Error(err)
	}
}
