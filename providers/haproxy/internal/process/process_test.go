package process

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func files(t *testing.T) Files {
	t.Helper()
	dir := t.TempDir()
	return Files{Admin: []string{filepath.Join(dir, "haproxy.cfg")}, Dir: dir, State: filepath.Join(dir, "state")}
}

func TestArgumentsAreInHAProxysOrder(t *testing.T) {
	f := files(t)
	for _, name := range []string{"10-own.cfg", "90-own.cfg", configName, backupName, ".hidden.cfg", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(f.Dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := f.arguments("/candidate")
	want := []string{"-f", f.Admin[0], "-f", f.Dir + "/10-own.cfg", "-f", "/candidate", "-f", f.Dir + "/90-own.cfg"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestFilesAreWrittenAtomically(t *testing.T) {
	f := files(t)
	if text, err := f.Current(); text != nil || err != nil {
		t.Errorf("a missing file reads as %q, %v", text, err)
	}
	if err := f.WriteCurrent([]byte("one")); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(f.Path())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WriteCurrent([]byte("two")); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(f.Path())
	if err != nil || os.SameFile(before, after) || after.Mode().Perm() != 0o644 {
		t.Errorf("the file was written in place, or has mode %v: %v", after.Mode(), err)
	}
	entries, err := os.ReadDir(f.Dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	gone := Files{Dir: filepath.Join(f.Dir, "gone")}
	if err := gone.WriteCurrent(nil); err == nil {
		t.Error("writing into a missing directory succeeded")
	}
}

func TestCheck(t *testing.T) {
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Fatal("install haproxy: apt-get install haproxy")
	}
	f := files(t)
	if err := os.WriteFile(f.Admin[0], []byte("global\n    stats socket "+f.Dir+"/admin.sock level admin\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	judge := func(text string) error {
		candidate, err := f.WriteCandidate([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		defer f.RemoveCandidate()
		return f.Check(t.Context(), "haproxy", candidate)
	}
	if err := judge("defaults x\n    mode tcp\n"); err != nil {
		t.Errorf("a good file: %v", err)
	}
	err := judge("defaults x\n    mode tcp\n    nonsense here\n")
	check, ok := errors.AsType[*CheckError](err)
	if !ok || len(check.Alerts) == 0 || check.Alerts[0].Line != 3 || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("a bad file: %v", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Check(done, "haproxy", f.Path()); err == nil {
		t.Error("a check that was cancelled passed")
	}
	if err := f.Check(t.Context(), "", "/nowhere"); err != nil {
		t.Errorf("without a binary nothing is checked: %v", err)
	}
}

func TestParseAlerts(t *testing.T) {
	const output = "[NOTICE]   (1) : haproxy version is 2.6.12\n" +
		"[ALERT]    (1) : config : parsing [/d/c:12] : unknown keyword 'x' in 'backend' section\n" +
		"[ALERT]    (1) : config : parsing [/etc/haproxy.cfg:3] : bad\n" +
		"[WARNING]  (1) : config : log format ignored\n" +
		"[ALERT]    (1) : config : Error(s) found in configuration file : /d/c\n" +
		"[ALERT]    (1) : config : Fatal errors found in configuration.\n"
	got := parseAlerts(output, "/d/c")
	want := []Alert{{"parsing [/d/c:12] : unknown keyword 'x' in 'backend' section", 12}, {"parsing [/etc/haproxy.cfg:3] : bad", 0}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestTestBind(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	busy := netip.MustParseAddrPort(l.Addr().String())
	if err := TestBind(t.Context(), busy); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a busy address: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := TestBind(t.Context(), busy); err != nil {
		t.Errorf("a free address: %v", err)
	}
	if err := TestBind(t.Context(), netip.MustParseAddrPort("192.0.2.1:80")); err == nil || !strings.Contains(err.Error(), "not an address of this host") {
		t.Errorf("nobody's address: %v", err)
	}
}

func TestListens(t *testing.T) {
	for _, at := range []struct{ network, address string }{{"tcp", "127.0.0.1:0"}, {"tcp", "[::1]:0"}, {"tcp4", ":0"}, {"tcp", ":0"}} {
		l, err := net.Listen(at.network, at.address)
		if err != nil {
			t.Fatal(err)
		}
		local := netip.MustParseAddrPort(l.Addr().String())
		four, six := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")
		for address, want := range map[netip.AddrPort]bool{
			netip.AddrPortFrom(four, local.Port()):                             local.Addr() == four || local.Addr().IsUnspecified(),
			netip.AddrPortFrom(six, local.Port()):                              local.Addr() == six || local.Addr() == netip.IPv6Unspecified(),
			netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), local.Port()): local.Addr().IsUnspecified(),
		} {
			if got := listens(address); got != want {
				t.Errorf("a listener on %s: %s is taken: %v, want %v", local, address, got, want)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if listens(local) {
			t.Errorf("%s is closed and still taken", local)
		}
	}
}

func FuzzParseListener(f *testing.F) {
	f.Add("   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n")
	f.Add("   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 1\n")
	f.Fuzz(func(t *testing.T, line string) {
		if local, ok := parseListener(line); ok != local.Addr().IsValid() {
			t.Errorf("%q: %v, %v", line, local, ok)
		}
	})
}
