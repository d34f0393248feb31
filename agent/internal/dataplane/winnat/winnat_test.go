package winnat

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/npl"
)

func tcp(port uint16) dataplane.Key {
	return dataplane.Key{Protocol: npl.TCP, Family: npl.IPv4, NodePort: port}
}

func udp(port uint16) dataplane.Key {
	return dataplane.Key{Protocol: npl.UDP, Family: npl.IPv4, NodePort: port}
}

func to(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

type targets = map[dataplane.Key]netip.AddrPort

// node is a Windows Node: its NAT, its disk and its clock outlive the agent's process.
type node struct {
	t    *testing.T
	host *netNAT
	dir  string
	now  time.Time
	nat  *NAT
	logs *observer.ObservedLogs
}

func newNode(t *testing.T) *node {
	w := &node{t: t, host: newNetNAT(t), dir: filepath.Join(t.TempDir(), "made", "when written"), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.restart()
	return w
}

func (w *node) restart() {
	w.t.Helper()
	core, logs := observer.New(zap.WarnLevel)
	nat, err := Open(w.config("uid-1", zap.New(core)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.nat, w.logs = nat, logs
}

func (w *node) config(cluster string, log *zap.Logger) Config {
	return Config{ClusterUID: cluster, Dir: w.dir, Runner: w.host, Now: func() time.Time { return w.now }, Log: log, Probe: func(k dataplane.Key) error {
		if w.host.listens[k] {
			return dataplane.ErrPortBusy
		}
		return nil
	}}
}

func (w *node) load() dataplane.Snapshot {
	w.t.Helper()
	s, err := w.nat.Load()
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *node) apply(c dataplane.Change) {
	w.t.Helper()
	if err := w.nat.Apply(c); err != nil {
		w.t.Fatal(err)
	}
}

func (w *node) want(want targets) {
	w.t.Helper()
	if got := w.host.ours(); !maps.Equal(got, want) {
		w.t.Fatalf("the host has %v of ours, want %v", got, want)
	}
}

func TestAdoptsInsteadOfWiping(t *testing.T) {
	for quirk := range 3 {
		w := newNode(t)
		w.host.quirk = quirk
		w.host.put(row{nat: "pods", protocol: "TCP", external: "0.0.0.0", port: 40009, target: "10.244.1.9", targetPort: 9})
		if s := w.load(); len(s.Mappings) > 0 || !s.Fresh {
			t.Fatalf("a new Node: %+v", s)
		}
		want := targets{tcp(40000): to("10.244.1.2:80"), udp(40000): to("10.244.1.3:53")}
		before := w.host.starts
		w.apply(dataplane.Change{Set: want})
		if starts := w.host.starts - before; starts != 1 {
			t.Errorf("two mappings took %d starts of PowerShell", starts)
		}
		w.want(want)

		w.restart()
		writes := w.host.writes
		s := w.load()
		if !maps.Equal(s.Mappings, want) || s.Fresh || len(s.Cooling) > 0 {
			t.Fatalf("after a restart: %+v", s)
		}
		if n, err := w.nat.Repair(want); n != 0 || err != nil || w.host.writes != writes {
			t.Fatalf("I4: %d repaired, %d cmdlets, %v", n, w.host.writes-writes, err)
		}
		if len(w.host.foreign()) != 1 {
			t.Fatal("somebody else's mapping is gone")
		}
	}
}

func TestReplacesAndRemoves(t *testing.T) {
	w := newNode(t)
	w.apply(dataplane.Change{Set: targets{tcp(40000): to("10.244.1.2:80"), tcp(40001): to("10.244.1.2:81")}})
	w.apply(dataplane.Change{
		Set: targets{tcp(40000): to("10.244.1.3:80")}, Delete: []dataplane.Key{tcp(40001), tcp(40000), tcp(40002)},
		Cool: map[dataplane.Key]time.Duration{tcp(40001): time.Minute},
	})
	w.want(targets{tcp(40000): to("10.244.1.3:80")})
	if s, _, err := w.nat.file.read(); err != nil || !maps.Equal(s.ours, map[mapping]bool{{tcp(40000), to("10.244.1.3:80")}: true}) {
		t.Fatalf("what is done with is still listed as ours: %v, %v", s.ours, err)
	}
	w.now = w.now.Add(20 * time.Second)
	w.restart() // and a reboot is the same: file and NAT stay
	if s := w.load(); !maps.Equal(s.Cooling, map[dataplane.Key]time.Duration{tcp(40001): 40 * time.Second}) {
		t.Fatalf("cooling %v", s.Cooling)
	}
	w.apply(dataplane.Change{Set: targets{tcp(40001): to("10.244.1.2:81")}})
	if s := w.load(); len(s.Cooling) > 0 {
		t.Fatalf("a port in use cools: %v", s.Cooling)
	}
	w.host.take(tcp(40001))
	if s := w.load(); len(s.Cooling) > 0 {
		t.Fatalf("a port that was given again cools: %v", s.Cooling)
	}
}

// A port that somebody else has mapped is neither taken nor given; the rest of the change is made all the same.
func TestSomebodyElsesMapping(t *testing.T) {
	w := newNode(t)
	w.host.nats["theirs"] = "172.16.0.0/24"
	w.host.put(row{nat: "theirs", protocol: "TCP", external: "192.0.2.7", port: 40000, target: "172.16.0.2", targetPort: 80})
	before := w.host.foreign()
	if err := w.nat.Reserve(tcp(40000)); !errors.Is(err, dataplane.ErrPortBusy) {
		t.Errorf("reserve: %v", err)
	}
	err := w.nat.Apply(dataplane.Change{Set: targets{tcp(40000): to("10.244.1.2:80"), tcp(40001): to("10.244.1.2:81")}})
	if !errors.Is(err, dataplane.ErrPortBusy) || !strings.Contains(err.Error(), "192.0.2.7:40000 to 172.16.0.2:80") || strings.Contains(err.Error(), "40001") {
		t.Errorf("apply: %v", err)
	}
	w.want(targets{tcp(40001): to("10.244.1.2:81")})
	w.apply(dataplane.Change{Delete: []dataplane.Key{tcp(40000)}})
	if err := w.nat.Cleanup(); err != nil {
		t.Fatal(err)
	}
	w.want(targets{})
	if after := w.host.foreign(); len(after) != 1 || after[0] != before[0] {
		t.Fatalf("theirs was %v, is %v", before, after)
	}
	if _, err := os.Stat(filepath.Join(w.dir, stateFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is left behind: %v", err)
	}
}

// A mapping of one of the Node's addresses is not ours, even where it leads to the same.
func TestMappingOfOneAddress(t *testing.T) {
	w := newNode(t)
	want := targets{tcp(40000): to("10.244.1.2:80")}
	w.apply(dataplane.Change{Set: want})
	w.host.take(tcp(40000))
	w.host.put(row{nat: "pods", protocol: "TCP", external: "192.0.2.7", port: 40000, target: "10.244.1.2", targetPort: 80})
	if s := w.load(); len(s.Mappings) > 0 {
		t.Errorf("taken for ours: %v", s.Mappings)
	}
	if _, err := w.nat.Repair(want); !errors.Is(err, dataplane.ErrPortBusy) {
		t.Errorf("repair: %v", err)
	}
	if err := w.nat.Cleanup(); err != nil || len(w.host.foreign()) != 1 {
		t.Errorf("cleanup: %v, %v is left", err, w.host.foreign())
	}
}

// With the file lost, what is wanted becomes ours again and what is not wanted stays: nothing proves that it was ours.
func TestFileLost(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"removed":   os.Remove,
		"truncated": func(path string) error { return os.WriteFile(path, []byte(`{"version":1,"clu`), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newNode(t)
			kept, left := targets{tcp(40000): to("10.244.1.2:80")}, targets{tcp(40001): to("10.244.1.2:81")}
			w.apply(dataplane.Change{Set: kept})
			w.apply(dataplane.Change{Set: left})
			if err := spoil(filepath.Join(w.dir, stateFile)); err != nil {
				t.Fatal(err)
			}
			w.restart()
			if s := w.load(); !s.Fresh || len(s.Mappings) > 0 {
				t.Fatalf("%+v", s)
			}
			if w.logs.FilterMessageSnippet("stay as somebody else's").Len() != 1 {
				t.Errorf("nobody was told: %v", w.logs.All())
			}
			writes := w.host.writes
			w.apply(dataplane.Change{Set: kept})
			if w.host.writes != writes {
				t.Error("a mapping that was there already was written")
			}
			if err := w.nat.Cleanup(); err != nil {
				t.Fatal(err)
			}
			w.want(left)
		})
	}
}

func TestRepair(t *testing.T) {
	w := newNode(t)
	want := targets{tcp(40000): to("10.244.1.2:80"), tcp(40001): to("10.244.1.3:80")}
	w.apply(dataplane.Change{Set: want, Cool: map[dataplane.Key]time.Duration{tcp(40005): time.Minute}})
	repair := func(expect int) {
		t.Helper()
		if n, err := w.nat.Repair(want); n != expect || err != nil {
			t.Fatalf("repaired %d, %v; want %d", n, err, expect)
		}
		w.want(want)
	}
	w.host.take(tcp(40000))
	repair(1)
	w.host.mappings = map[uint32]row{}
	repair(2)
	if err := os.Remove(filepath.Join(w.dir, stateFile)); err != nil {
		t.Fatal(err)
	}
	repair(1)
	w.restart()
	if s := w.load(); s.Cooling[tcp(40005)] != time.Minute {
		t.Errorf("the file was not restored: %v", s.Cooling)
	}
	delete(want, tcp(40001))
	repair(1)
	repair(0)
}

func TestNATs(t *testing.T) {
	w := newNode(t)
	w.host.nats = map[string]string{"wide": "10.0.0.0/8", "narrow": "10.244.1.0/24", "it's; Remove-NetNat #": "10.244.1.2/32", "v6": "fd00::/64", "none": ""}
	w.apply(dataplane.Change{Set: targets{tcp(40000): to("10.244.1.2:80")}})
	if got := w.host.mappings[0].nat; got != "narrow" {
		t.Errorf("mapped by NAT %q", got)
	}
	err := w.nat.Apply(dataplane.Change{Set: targets{tcp(40001): to("192.168.0.1:80")}})
	if err == nil || !strings.Contains(err.Error(), "Pod address 192.168.0.1 is behind no NAT") || !strings.Contains(err.Error(), "New-NetNat") {
		t.Errorf("no NAT: %v", err)
	}
	w.host.nats = nil
	if _, err := w.nat.Load(); !errors.Is(err, dataplane.ErrUnsupported) || !strings.Contains(err.Error(), "New-NetNat") {
		t.Errorf("no NAT at all: %v", err)
	}
}

// A process that starts to listen between Reserve and Apply makes WinNAT refuse the mapping.
func TestPortTakenByAProcess(t *testing.T) {
	w := newNode(t)
	if err := w.nat.Reserve(tcp(40000)); err != nil {
		t.Fatal(err)
	}
	w.host.listens[tcp(40000)] = true
	if err := w.nat.Reserve(tcp(40000)); !errors.Is(err, dataplane.ErrPortBusy) {
		t.Errorf("reserve: %v", err)
	}
	err := w.nat.Apply(dataplane.Change{Set: targets{tcp(40000): to("10.244.1.2:80")}})
	if !errors.Is(err, dataplane.ErrPortBusy) || !strings.Contains(err.Error(), "node port 40000/tcp IPv4: adding a static mapping to 10.244.1.2:80") {
		t.Errorf("apply: %v", err)
	}
	delete(w.host.listens, tcp(40000))
	w.apply(dataplane.Change{Set: targets{tcp(40000): to("10.244.1.2:80")}})
	w.host.listens[tcp(40000)] = true // WinNAT itself, as far as a bind can tell
	if err := w.nat.Reserve(tcp(40000)); err != nil {
		t.Errorf("reserving our own port: %v", err)
	}
}

func TestRefusesBeforeAnythingIsDone(t *testing.T) {
	w := newNode(t)
	for want, c := range map[string]dataplane.Change{
		"tcp and udp only": {Set: targets{{Protocol: npl.SCTP, Family: npl.IPv4, NodePort: 1}: to("10.244.1.2:80")}},
		"IPv4 only":        {Delete: []dataplane.Key{{Protocol: npl.TCP, Family: npl.IPv6, NodePort: 1}}},
		"1 to 65535":       {Delete: []dataplane.Key{tcp(0)}},
		"not loopback":     {Set: targets{tcp(1): to("127.0.0.1:80")}},
		"unicast IPv4":     {Set: targets{tcp(1): to("[fd00::1]:80")}},
		"at least 1ms":     {Cool: map[dataplane.Key]time.Duration{tcp(1): 0}},
		"port from 1":      {Set: targets{tcp(1): {}}},
	} {
		if err := w.nat.Apply(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := w.nat.Reserve(dataplane.Key{Protocol: npl.SCTP, Family: npl.IPv4, NodePort: 1}); !errors.Is(err, dataplane.ErrUnsupported) {
		t.Errorf("reserving SCTP: %v", err)
	}
	if w.host.starts != 0 {
		t.Errorf("PowerShell was started %d times", w.host.starts)
	}
	if f := w.nat.Families(); len(f) != 1 || f[0] != npl.IPv4 {
		t.Errorf("families %v", f)
	}
}

func TestAnotherClustersFile(t *testing.T) {
	w := newNode(t)
	w.apply(dataplane.Change{Set: targets{tcp(40000): to("10.244.1.2:80")}})
	if _, err := Open(w.config("uid-2", nil)); !errors.Is(err, dataplane.ErrForeignTable) || !strings.Contains(err.Error(), "uid-1") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, stateFile), []byte(`{"version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(w.config("uid-1", nil)); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("got %v", err)
	}
}

// What is not on disk is not done.
func TestDiskFull(t *testing.T) {
	w := newNode(t)
	w.apply(dataplane.Change{Set: targets{tcp(40000): to("10.244.1.2:80")}})
	w.nat.file.path = filepath.Join(w.dir, stateFile, "no directory")
	writes := w.host.writes
	for _, c := range []dataplane.Change{
		{Set: targets{tcp(40001): to("10.244.1.2:81")}},
		{Delete: []dataplane.Key{tcp(40000)}, Cool: map[dataplane.Key]time.Duration{tcp(40000): time.Minute}},
	} {
		if err := w.nat.Apply(c); err == nil {
			t.Error("no error")
		}
	}
	if w.host.writes != writes {
		t.Error("the host was changed all the same")
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	w := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	fired := w.nat.Watch(ctx)
	select {
	case <-fired:
		t.Error("fired, or ended early")
	default:
	}
	cancel()
	for range fired { // until it is closed
		t.Error("fired")
	}
}
