package haproxy

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// nobody is a user that has rights to nothing here.
const nobody = 65534

// asNobody does something with the rights of that user to files and unix sockets. Where the tests do not run as root, files are made
// unusable for their owner instead.
func asNobody(do func()) {
	if os.Geteuid() != 0 {
		do()
		return
	}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	_ = unix.Setfsuid(nobody)
	defer func() { _ = unix.Setfsuid(0) }()
	do()
}

// forbid takes all rights from files and returns what gives them back.
func forbid(t *testing.T, paths ...string) (mend func()) {
	t.Helper()
	var back []func()
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil {
			mode := info.Mode().Perm()
			back = append(back, func() { _ = os.Chmod(path, mode) })
			err = os.Chmod(path, mode&0o555&^0o022)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, f := range back {
			f()
		}
	}
}

// oldVersion is a command line of an haproxy of another version, scripted.
func oldVersion(t *testing.T, version string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					answer := "\n"
					if lines.Text() == "show info" {
						answer = "Name: HAProxy\nVersion: " + version + "\nPid: 7\nStopping: 0\n\n"
					}
					if _, err := fmt.Fprint(c, answer+"> "); err != nil {
						return
					}
				}
			}()
		}
	}()
	return path
}

// TestBadInput: each has a message of its own that says what to do; meanwhile what is served stays served; and once it is mended all goes on.
func TestBadInput(t *testing.T) {
	t.Parallel()
	const late = 81
	for name, c := range map[string]struct {
		kind  providers.Kind
		words []string
		// spoil breaks something and returns what mends it. It may change the settings, which are put back.
		spoil  func(*testing.T, *balancer) (mend func())
		nobody bool // lbsync has another user's rights
		down   bool // nothing is served meanwhile
	}{
		"program missing": {
			kind: providers.Misconfigured, words: []string{`binary "haproxy-of-nobody"`, "install haproxy here", "not found"},
			spoil: func(_ *testing.T, b *balancer) func() { b.cfg.Binary = "haproxy-of-nobody"; return func() {} },
		},
		"not running": {
			kind: providers.Unavailable, words: []string{"admin.sock", "refused"}, down: true,
			spoil: func(_ *testing.T, b *balancer) func() { b.kill(); return b.start },
		},
		"socket missing": {
			kind: providers.Unavailable, words: []string{"elsewhere.sock", "no such file"},
			spoil: func(_ *testing.T, b *balancer) func() {
				b.cfg.AdminSocket = filepath.Join(filepath.Dir(b.cfg.AdminSocket), "elsewhere.sock")
				return func() {}
			},
		},
		"too old": {
			kind: providers.Misconfigured, words: []string{"older than 2.6", "it is 2.4"},
			spoil: func(t *testing.T, b *balancer) func() { b.cfg.AdminSocket = oldVersion(t, "2.4.22"); return func() {} },
		},
		"no master": {
			kind: providers.Misconfigured, words: []string{"master.sock", "start it with -W -S"},
			spoil: func(t *testing.T, b *balancer) func() {
				b.kill()
				_ = os.Remove(b.cfg.MasterSocket) // which a killed one leaves
				alone := exec.Command("haproxy", "-db", "-f", b.cfg.ConfigFiles[0], "-f", b.cfg.Dir)
				if err := alone.Start(); err != nil {
					t.Fatal(err)
				}
				end := func() { _ = alone.Process.Signal(syscall.SIGKILL); _ = alone.Wait() }
				t.Cleanup(end)
				b.eventually("it serves", func() error { _, err := call(netip.AddrPortFrom(b.vips[0], 80)); return err })
				return func() { end(); b.start() }
			},
		},
		"not for administrators": {
			kind: providers.Misconfigured, words: []string{"operator.sock", "level operator", "add `level admin`"},
			spoil: func(_ *testing.T, b *balancer) func() {
				b.cfg.AdminSocket = filepath.Join(filepath.Dir(b.cfg.AdminSocket), "operator.sock")
				return func() {}
			},
		},
		"socket forbidden": {
			kind: providers.Misconfigured, words: []string{"admin.sock", "permission denied", "the socket's group"}, nobody: true,
			spoil: func(t *testing.T, b *balancer) func() {
				for path, mode := range map[string]os.FileMode{filepath.Dir(b.cfg.Dir): 0o755, b.cfg.Dir: 0o777} {
					if err := os.Chmod(path, mode); err != nil {
						t.Fatal(err)
					}
				}
				return forbid(t, b.cfg.AdminSocket)
			},
		},
		"directory not writable": {
			kind: providers.Misconfigured, words: []string{"npl.d", "permission denied"}, nobody: true,
			spoil: func(t *testing.T, b *balancer) func() {
				for path, mode := range map[string]os.FileMode{filepath.Dir(b.cfg.Dir): 0o755, b.cfg.AdminSocket: 0o666, b.cfg.MasterSocket: 0o666} {
					if err := os.Chmod(path, mode); err != nil {
						t.Fatal(err)
					}
				}
				return forbid(t, b.cfg.Dir)
			},
		},
		"another lbsync's directory": {
			kind: providers.Misconfigured, words: []string{"50-npl.cfg", "it belongs to", "a directory of its own"},
			spoil: func(t *testing.T, b *balancer) func() {
				return b.rewrite(func(text string) string { return strings.Replace(text, testOwner.Instance, "theirs/lbsync", 1) })
			},
		},
		"a person's file": {
			kind: providers.Misconfigured, words: []string{"50-npl.cfg", "not a file of nplbridge", "move it away"},
			spoil: func(t *testing.T, b *balancer) func() {
				return b.rewrite(func(string) string { return "frontend mine\n    bind :80\n" })
			},
		},
		"directory not loaded": {
			kind: providers.Misconfigured, words: []string{"taken back", "start haproxy with -f"},
			spoil: func(_ *testing.T, b *balancer) func() { b.cfg.Dir += ".elsewhere"; return func() {} },
		},
		"address in use": {
			kind: providers.Rejected, words: []string{":81", "in use by another listener", "choose another"},
			spoil: func(t *testing.T, b *balancer) func() {
				l, err := net.Listen("tcp", netip.AddrPortFrom(b.vips[0], late).String())
				if err != nil {
					t.Fatal(err)
				}
				return func() { _ = l.Close() }
			},
		},
		"too few descriptors": {
			kind: providers.Misconfigured, words: []string{"not enough descriptors", "LimitNOFILE"},
			spoil: func(_ *testing.T, b *balancer) func() { return b.globals("    maxconn 600000000\n") },
		},
		"the administrator's file": {
			kind: providers.Misconfigured, words: []string{"haproxy refuses the configuration", "haproxy.cfg", "no-such-keyword"},
			spoil: func(_ *testing.T, b *balancer) func() { return b.globals("    no-such-keyword\n") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBalancer(t)
			b.globals("    stats socket " + filepath.Join(filepath.Dir(b.cfg.AdminSocket), "operator.sock") + " mode 666 level operator\n")
			p := b.open()
			b.start()
			one, key := newPod(t, "one"), testKey("late")
			address := b.serve(desk{t, p}, testKey("web"), 80, one)
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			good := b.cfg
			mend := c.spoil(t, b)
			bad := b.cfg

			var err error
			attempt := func() { err = b.attempt(bad, key, late, one) }
			if c.nobody {
				asNobody(attempt)
			} else {
				attempt()
			}
			if err == nil || providers.KindOf(err) != c.kind {
				t.Fatalf("%v; want %s", err, c.kind)
			}
			for _, word := range c.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
			t.Logf("%s: %v", c.kind, err)
			b.cfg = good
			if !c.down {
				if name, err := call(address); err != nil || name != one.name {
					t.Errorf("meanwhile %s is answered by %q, %v", address, name, err)
				}
			}
			mend()
			if err := b.attempt(good, key, late, one); err != nil {
				t.Errorf("when it is mended: %v", err)
			}
			b.reached(netip.AddrPortFrom(b.vips[0], late), one)
			b.reached(address, one)
		})
	}
}

// attempt starts an lbsync that observes and serves one more Service.
func (b *balancer) attempt(cfg Config, key providers.Key, port uint16, pods ...*pod) error {
	p, err := New(cfg, testOwner, b.log)
	if err != nil {
		return err
	}
	defer p.Close()
	p.tableSync = b.tableSync
	if _, err := p.Observe(b.t.Context(), providers.Scope{}); err != nil {
		return err
	}
	return p.Apply(b.t.Context(), providertest.Diff(providers.State{}, service(key, b.vips[0], port, pods...)))[key]
}

// rewrite changes our file behind lbsync's back and returns what puts it back.
func (b *balancer) rewrite(edit func(string) string) (back func()) {
	b.t.Helper()
	path := filepath.Join(b.cfg.Dir, "50-npl.cfg")
	text, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	b.write(path, edit(string(text)))
	return func() { b.write(path, string(text)) }
}
