package haproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

var testOwner = providers.Owner{ClusterUID: "11111111-2222-3333-4444-555555555555", Instance: "nplbridge-system/nplbridge"}

// administrator is what a person would have in haproxy.cfg, with a backend of their own that looks like one of ours.
const administrator = `global
    stats socket %s mode 600 level admin
    stats timeout 10m
defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s
backend npl_b_shop_foreign_80
    server 127.0.0.9:9_foreign 127.0.0.9:9
`

// balancer is one real haproxy with files of its own.
type balancer struct {
	t    testing.TB
	cfg  Config
	vips []netip.Addr // of loopback, of this test alone
	log  *zap.Logger
	host *host // whose haproxy it is; nil: of the test itself

	tableSync time.Duration // of Providers; zero spares waiting where nobody looks at tables

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

// newBalancer prepares files and addresses. Nothing runs yet.
func newBalancer(t testing.TB) *balancer {
	t.Helper()
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Fatal("install haproxy: apt-get install haproxy")
	}
	dir, err := os.MkdirTemp("", "npl") // t.TempDir is too long for a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &balancer{t: t, log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))}
	b.cfg = DefaultConfig()
	b.cfg.ConfigFiles = []string{filepath.Join(dir, "haproxy.cfg")}
	b.cfg.Dir = filepath.Join(dir, "npl.d")
	b.cfg.MasterSocket, b.cfg.AdminSocket = filepath.Join(dir, "master.sock"), filepath.Join(dir, "admin.sock")
	b.cfg.MinReloadInterval, b.cfg.WriteDelay = 0, 0
	b.write(b.cfg.ConfigFiles[0], fmt.Sprintf(administrator, b.cfg.AdminSocket))
	own := [4]byte{127, byte(10 + rand.IntN(200)), byte(rand.IntN(250)), 1}
	for i := range 2 {
		own[3] = byte(1 + i)
		b.vips = append(b.vips, netip.AddrFrom4(own))
	}
	b.cfg.PeerAddress = netip.AddrPortFrom(b.vips[0], 10363)
	return b
}

func (b *balancer) write(path, text string) {
	b.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// open returns a new Provider on this haproxy, closed when the test ends.
func (b *balancer) open() *Provider {
	b.t.Helper()
	p, err := New(b.cfg, testOwner, b.log)
	if err != nil {
		b.t.Fatal(err)
	}
	p.tableSync = b.tableSync
	b.t.Cleanup(func() { _ = p.Close() })
	return p
}

// start runs haproxy as Debian's unit does and waits until it answers.
func (b *balancer) start() {
	b.t.Helper()
	args := []string{"haproxy", "-W", "-db", "-S", b.cfg.MasterSocket + ",mode,600", "-f", b.cfg.ConfigFiles[0], "-f", b.cfg.Dir}
	if b.host != nil {
		args = slices.Concat(b.host.enter(), args, []string{"-L", b.host.name})
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	b.mu.Lock()
	b.cmd, b.done = cmd, done
	b.mu.Unlock()
	b.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
		if b.t.Failed() {
			b.t.Logf("haproxy said:\n%s", output.String())
		}
	})
	b.eventually("haproxy answers", func() error {
		s, err := runtime.Dial(b.t.Context(), b.cfg.AdminSocket)
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = runtime.Master{Path: b.cfg.MasterSocket}.Processes(b.t.Context())
		return err
	})
}

// kill ends master and workers as a crash would.
func (b *balancer) kill() {
	_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
	<-b.done
}

// running returns a haproxy that runs, and a Provider on it.
func running(t testing.TB) (*balancer, *Provider) {
	t.Helper()
	b := newBalancer(t)
	p := b.open()
	b.start()
	return b, p
}

func (b *balancer) eventually(what string, check func() error) {
	b.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: %v", what, err)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// run sends commands to the worker as a person would and returns the answers.
func (b *balancer) run(commands ...string) []string {
	b.t.Helper()
	s, err := runtime.Dial(context.Background(), b.cfg.AdminSocket)
	if err != nil {
		b.t.Fatal(err)
	}
	defer s.Close()
	var answers []string
	for _, c := range commands {
		results, err := s.Run(context.Background(), []runtime.Command{{Text: c}})
		if errors.Is(err, runtime.ErrStale) && len(results) == 1 {
			err = nil // so it is for a person, too
		}
		if err != nil {
			b.t.Fatalf("%s: %v", c, err)
		}
		answers = append(answers, results[0].Text)
	}
	return answers
}

// worker returns the process id of the worker.
func (b *balancer) worker() int {
	b.t.Helper()
	info, err := runtime.ParseInfo(b.run("show info")[0])
	if err != nil {
		b.t.Fatal(err)
	}
	return info.Worker.PID
}

// servers returns the worker's servers of a Key's backend.
func (b *balancer) servers(key providers.Key) []runtime.Server {
	b.t.Helper()
	servers, err := runtime.ParseServers(b.run("show servers state " + config.BackendName(key))[0])
	if err != nil {
		b.t.Fatal(err)
	}
	return servers
}

func testKey(service string) providers.Key {
	return providers.Key{Namespace: "shop", Service: service, Port: 80, Protocol: providers.TCP}
}

// desk is what the tests want, and the Provider they want it from.
type desk struct {
	t testing.TB
	p *Provider
}

// change turns a pool and its virtual server into another, with the steps in a plausible order.
func change(key providers.Key, old, now []providers.Member, vs *providers.VirtualServer) providers.Changes {
	var steps []providers.MemberChange
	for _, m := range now {
		i := slices.IndexFunc(old, func(o providers.Member) bool { return o.ID() == m.ID() })
		switch {
		case i < 0:
			steps = append(steps, providers.MemberChange{Op: providers.AddMember, Member: m})
		case old[i].State != m.State && m.State == providers.Enabled:
			steps = append(steps, providers.MemberChange{Op: providers.EnableMember, Member: m})
		case old[i].State != m.State:
			steps = append(steps, providers.MemberChange{Op: providers.DrainMember, Member: m})
		}
	}
	for _, o := range old {
		if !slices.ContainsFunc(now, func(m providers.Member) bool { return o.ID() == m.ID() }) {
			steps = append(steps, providers.MemberChange{Op: providers.RemoveMember, Member: o})
		}
	}
	now = slices.SortedFunc(slices.Values(now), providers.CompareMembers)
	c := providers.Changes{Pools: []providers.PoolChange{{
		Key: key, Old: &providers.Pool{Key: key, Members: old},
		New: &providers.Pool{Key: key, Settings: providers.PoolSettings{Algorithm: providers.RoundRobin}, Members: now}, Members: steps,
	}}}
	if vs != nil {
		c.VirtualServers = []providers.VirtualServerChange{{Key: key, New: vs}}
	}
	return c
}

// must applies and demands success.
func (d desk) must(c providers.Changes) {
	d.t.Helper()
	for key, err := range d.p.Apply(d.t.Context(), c) {
		if err != nil {
			d.t.Fatalf("%s: %v", key, err)
		}
	}
}

func (d desk) observe() providers.Observed {
	d.t.Helper()
	o, err := d.p.Observe(d.t.Context(), providers.Scope{})
	if err != nil {
		d.t.Fatal(err)
	}
	return o
}

// pool returns the observed members of a Key.
func (d desk) pool(key providers.Key) []providers.Member {
	d.t.Helper()
	for _, p := range d.observe().State.Pools {
		if p.Key == key {
			return p.Members
		}
	}
	d.t.Fatalf("no pool %s", key)
	return nil
}

// pod is a member that listens: it greets every connection with its name and echoes.
type pod struct {
	providers.Member
	name     string
	listener net.Listener
}

// newPod starts a member on a free port of loopback.
func newPod(t testing.TB, name string) *pod { return newPodAt(t, name, "127.0.0.1") }

// newPodAt starts a member on a free port of an address.
func newPodAt(t testing.TB, name, host string) *pod {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{name: name, listener: l, Member: providers.Member{
		UID: "uid-" + name, State: providers.Enabled, Address: netip.MustParseAddrPort(l.Addr().String()),
	}}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := io.WriteString(c, name+"\n"); err == nil {
					_, _ = io.Copy(c, c)
				}
			}()
		}
	}()
	return p
}

func (p *pod) draining() providers.Member {
	m := p.Member
	m.State = providers.Draining
	return m
}

func members(pods ...*pod) []providers.Member {
	var out []providers.Member
	for _, p := range pods {
		out = append(out, p.Member)
	}
	return out
}

// call connects, reads the name of the Pod that answers, and echoes a word.
func call(address netip.AddrPort) (name string, err error) {
	c, err := net.DialTimeout("tcp", address.String(), 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return talk(c, true)
}

// talk exchanges one word over c, after the greeting if the connection is new.
func talk(c net.Conn, fresh bool) (name string, err error) {
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	line := func() (string, error) {
		var text []byte
		one := make([]byte, 1)
		for {
			if _, err := io.ReadFull(c, one); err != nil {
				return "", err
			}
			if one[0] == '\n' {
				return string(text), nil
			}
			text = append(text, one[0])
		}
	}
	if fresh {
		if name, err = line(); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(c, "ping\n"); err != nil {
		return "", err
	}
	echo, err := line()
	if err == nil && echo != "ping" {
		err = fmt.Errorf("echo was %q", echo)
	}
	return name, err
}

// load calls address all the time until stop, which returns the number of calls and fails the test if one failed.
func load(t testing.TB, address netip.AddrPort) (stop func() int) {
	t.Helper()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	calls := 0
	var failures []error
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := call(address)
				mu.Lock()
				calls++
				if err != nil && len(failures) < 5 {
					failures = append(failures, err)
				}
				mu.Unlock()
			}
		})
	}
	var once sync.Once
	stop = func() int {
		once.Do(func() {
			cancel()
			wg.Wait()
			if err := errors.Join(failures...); err != nil {
				t.Errorf("of %d calls some failed: %v", calls, err)
			}
		})
		return calls
	}
	t.Cleanup(func() { stop() })
	return stop
}
