package haproxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
)

// The pair of docs/how-to/haproxy-pair.md: two hosts with HAProxy, lbsync and keepalived, which move one address between them by VRRP. The
// hosts are network namespaces on a bridge; clients and Pods are on the bridge's own host.
const (
	bridgeAddress = "192.0.2.1"
	pairVIP       = "192.0.2.100"
)

// page is where the files of docs/how-to/haproxy-pair.md are.
const page = "../../docs/how-to/haproxy"

// published returns a file of the page with changes, each of which must be possible.
func published(t testing.TB, name string, changes ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(page, name))
	if err != nil {
		t.Fatal(err)
	}
	out := string(text)
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(out, changes[i]) {
			t.Fatalf("%s has no %q", name, changes[i])
		}
		out = strings.ReplaceAll(out, changes[i], changes[i+1])
	}
	return out
}

// published is the haproxy.cfg of the page, for a haproxy of the test: it changes neither user nor paths of the host.
func (b *balancer) published() string {
	return published(b.t, "haproxy.cfg", "    log /dev/log local0\n", "", "    user haproxy\n", "", "    group haproxy\n", "",
		"/run/haproxy/admin.sock mode 660 group haproxy", b.cfg.AdminSocket+" mode 600")
}

// keepalived asks HAProxy itself. In a user namespace it cannot: it has to drop its groups before it runs a script. There the test asks
// and writes a file that keepalived follows.
const (
	healthCheck = "/bin/bash -c '</dev/tcp/127.0.0.1/8405'"
	trackFile   = `vrrp_track_file haproxy {
    file %s
    weight 1
}`
	broken = "-254" // of a track file: the instance is in fault
)

// follow asks the host's HAProxy until the test ends, and returns the file with the answers.
func (h *host) follow(dir string) string {
	file := filepath.Join(dir, "health")
	h.lb.write(file, "0")
	args := append(h.enter(), "sh", "-c", "while :; do if "+healthCheck+"; then echo 0; else echo "+broken+"; fi >"+file+".new; mv "+file+".new "+file+"; sleep 0.2; done")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() })
	return file
}

// host is one of the pair.
type host struct {
	t       *testing.T
	name    string
	address netip.Addr
	lb      *balancer
	p       *Provider
}

func (h *host) namespace() string { return "/run/netns/" + h.name }

// enter is the command line that runs what follows on the host.
func (h *host) enter() []string { return []string{"nsenter", "--net=" + h.namespace()} }

// sh runs a line as a person would on the host.
func (h *host) sh(line string) string {
	h.t.Helper()
	args := append(h.enter(), "sh", "-ec", line)
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("%s: %s: %v\n%s", h.name, line, err, out)
	}
	return string(out)
}

// do runs a function on the host, as far as the network goes.
func (h *host) do(f func()) {
	h.t.Helper()
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		h.t.Fatal(err)
	}
	defer home.Close()
	there, err := os.Open(h.namespace())
	if err != nil {
		h.t.Fatal(err)
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		h.t.Fatal(err)
	}
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(err) // everything after this would be on another host
		}
	}()
	f()
}

func (h *host) hasVIP() bool { return strings.Contains(h.sh("ip -4 addr show dev eth0"), pairVIP+"/") }

// newHost makes the n-th host, with everything on it running.
func newHost(t *testing.T, n, priority int, peers map[string]netip.AddrPort) *host {
	t.Helper()
	h := &host{t: t, name: fmt.Sprintf("lb-%d", n), address: netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + n)})}
	sh(t, fmt.Sprintf(`ip netns add %[1]s
		ip link add %[1]s type veth peer name eth0 netns %[1]s
		ip link set %[1]s master br0 up
		ip -n %[1]s addr add %[2]s/24 dev eth0
		ip -n %[1]s link set lo up
		ip -n %[1]s link set eth0 up`, h.name, h.address))
	h.sh("echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind")
	h.lb = newBalancer(t)
	h.lb.host = h
	h.lb.vips = []netip.Addr{netip.MustParseAddr(pairVIP)}
	h.lb.cfg.PeerAddress = netip.AddrPortFrom(h.address, 10363)
	h.lb.cfg.Peers = peers
	h.lb.write(h.lb.cfg.ConfigFiles[0], h.lb.published())
	h.do(func() { h.p = h.lb.open() })
	h.lb.start()

	dir := filepath.Dir(h.lb.cfg.AdminSocket)
	file := filepath.Join(dir, "keepalived.conf")
	changes := []string{"router_id lb-1", "router_id " + h.name, "priority 200", fmt.Sprintf("priority %d", priority)}
	if rootless() {
		changes = append(changes, "track_script", "track_file", "vrrp_script haproxy {", fmt.Sprintf(trackFile, h.follow(dir)),
			"    script \""+healthCheck+"\"\n    interval 1\n    timeout 1\n    fall 2\n    rise 1\n}\n", "")
	}
	h.lb.write(file, published(t, "keepalived.conf", changes...))
	args := append(h.enter(), "keepalived", "--dont-fork", "--log-console", "--vrrp", "-f", file, "-p", filepath.Join(dir, "k.pid"), "-r", filepath.Join(dir, "v.pid"))
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("keepalived of %s said:\n%s", h.name, said.String())
		}
	})
	return h
}

// rootless reports whether the test is in a user namespace without groups.
func rootless() bool {
	text, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && strings.TrimSpace(string(text)) == "deny"
}

func sh(t *testing.T, lines string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", lines).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", lines, err, out)
	}
}

// apart runs the test in namespaces of its own, so that nothing of it is left behind; it returns true inside.
func apart(t *testing.T) bool {
	t.Helper()
	if os.Getenv("NPL_TEST_APART") != "" {
		return true
	}
	args := []string{"--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"}
	if os.Geteuid() != 0 {
		args = append(args, "--user", "--map-root-user")
		if out, err := exec.Command("unshare", append(args, "true")...).CombinedOutput(); err != nil && os.Getenv("CI") != "true" {
			t.Skipf("no user namespaces here: %v: %s", err, out)
		}
	}
	cmd := exec.Command("unshare", append(args, os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")...)
	cmd.Env = append(os.Environ(), "NPL_TEST_APART=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// TestPair moves the address between the two in both ways that it is lost, and looks what clients notice.
func TestPair(t *testing.T) {
	if os.Getenv("NPL_TEST_APART") == "" {
		t.Parallel()
	}
	for _, program := range []string{"keepalived", "nsenter", "unshare", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: make deps installs it", err)
		}
	}
	if !apart(t) {
		return
	}
	sh(t, `mount -t tmpfs tmpfs /run
		ip link set lo up
		ip link add br0 type bridge
		ip addr add `+bridgeAddress+`/24 dev br0
		ip link set br0 up`)
	peer := func(n int) map[string]netip.AddrPort {
		return map[string]netip.AddrPort{fmt.Sprintf("lb-%d", n): netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + n)}), 10363)}
	}
	one, two := newHost(t, 1, 200, peer(2)), newHost(t, 2, 100, peer(1))
	vip := netip.MustParseAddrPort(pairVIP + ":80")

	// Each lbsync tells its own HAProxy the same, in whatever order it learnt of it.
	key := testKey("web")
	var all []providers.Member
	for i := range 5 {
		all = append(all, newPodAt(t, fmt.Sprint("p", i), bridgeAddress).Member)
	}
	for _, h := range []*host{one, two} {
		for i := range len(all) + 1 {
			vs := &providers.VirtualServer{Key: key, VIPs: h.lb.vips, Port: 80}
			if i > 0 {
				vs = nil
			}
			c := change(key, all[:max(i-1, 0)], all[:i], vs)
			c.Pools[0].New.Settings.Persistence = providers.Persistence{Kind: providers.SourceAddress}
			h.do(func() { desk{t, h.p}.must(c) })
		}
		slices.Reverse(all)
	}
	ids := func(h *host) (out []string) {
		for _, s := range h.lb.servers(key) {
			out = append(out, fmt.Sprint(s.Name, s.ID))
		}
		slices.Sort(out)
		return out
	}
	if a, b := ids(one), ids(two); !slices.Equal(a, b) || len(a) != len(all) {
		t.Errorf("the two number their servers differently:\n%v\n%v", a, b)
	}

	var first string
	answers := func(when string, by *host) {
		t.Helper()
		by.lb.eventually(when, func() error {
			if !by.hasVIP() {
				return errors.New(by.name + " does not have the address")
			}
			c, err := net.DialTimeout("tcp", vip.String(), time.Second)
			if err != nil {
				return err
			}
			defer c.Close()
			name, err := talk(c, true)
			if err == nil && first == "" {
				first = name
			}
			if err == nil && name != first {
				t.Errorf("%s: the client reaches %s, and had %s", when, name, first)
			}
			return err
		})
	}
	answers("at first", one)
	if two.hasVIP() {
		t.Error("both have the address")
	}
	knows := func(h *host) {
		t.Helper()
		h.lb.eventually(h.name+" knows the client", func() error {
			if table := h.lb.run("show table " + config.BackendName(key))[0]; !strings.Contains(table, "used:1") {
				return errors.New(table)
			}
			return nil
		})
	}
	knows(two)
	long := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", vip.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := talk(c, true); err != nil {
			t.Fatal(err)
		}
		return c
	}
	lives := func(when string, c net.Conn) {
		t.Helper()
		if _, err := talk(c, false); err != nil {
			t.Errorf("%s: the connection is lost: %v", when, err)
		}
	}

	// The halves of either host that carry nothing may die.
	through := long()
	if err := one.p.Close(); err != nil {
		t.Fatal(err)
	}
	two.lb.kill()
	lives("without lb-1's lbsync and lb-2's HAProxy", through)
	answers("without lb-1's lbsync and lb-2's HAProxy", one)
	two.lb.start()
	knows(two) // the table came from lb-1

	// The HAProxy that carries the address dies: keepalived notices, the other one takes over, and knows the client.
	one.lb.kill()
	answers("without lb-1's HAProxy", two)
	_ = through.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.Copy(io.Discard, through); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection through lb-1 does not end")
	}
	other := long()
	one.lb.start()
	knows(one)
	lives("lb-1 is back", other)
	answers("lb-1 is back and leaves the address where it is", two)

	// The whole host goes.
	sh(t, "ip link set lb-2 down")
	answers("lb-2 is cut off", one)
}
