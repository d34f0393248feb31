package haproxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// Traps of HAProxy, most of them of 2.6.12. Where it can be shown, a test first shows the trap, by commands of its own, and then that
// the provider does not step into it.

// callFrom is call from a certain address.
func callFrom(source string, address netip.AddrPort) (name string, err error) {
	d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(source), 0))}
	c, err := d.Dial("tcp", address.String())
	if err != nil {
		return "", err
	}
	defer c.Close()
	return talk(c, true)
}

// sources are addresses of clients.
func sources(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("127.%d.%d.7", 210+i%20, 1+i%200))
	}
	return out
}

// choices returns which Pod each source reaches.
func choices(t *testing.T, address netip.AddrPort) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, source := range sources(60) {
		name, err := callFrom(source, address)
		if err != nil {
			t.Fatal(err)
		}
		out[source] = name
	}
	return out
}

// hashed serves a Service by source hash, its members added at run time in this order.
func (b *balancer) hashed(d desk, key providers.Key, all ...providers.Member) netip.AddrPort {
	b.t.Helper()
	settings := providers.PoolSettings{Algorithm: providers.SourceHash, Monitor: providers.Monitor{Type: providers.MonitorNone}}
	c := change(key, nil, nil, &providers.VirtualServer{Key: key, VIPs: b.vips[:1], Port: 80})
	c.Pools[0].New.Settings = settings
	d.must(c)
	for i := range all {
		c := change(key, all[:i], all[:i+1], nil)
		c.Pools[0].New.Settings = settings
		d.must(c)
	}
	return netip.AddrPortFrom(b.vips[0], 80)
}

// TestTrapServersWithoutIDStarve: servers that are added without an id share points of the hash ring, and some get nothing.
func TestTrapServersWithoutIDStarve(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d := desk{t, p}
	b.backend("ring", "balance source\n    hash-type consistent\nfrontend ring_f\n    mode tcp\n    timeout client 10s\n    bind "+
		netip.AddrPortFrom(b.vips[0], 91).String()+"\n    default_backend ring")
	d.observe()
	var pods []*pod
	for i := range 5 {
		pods = append(pods, newPod(t, fmt.Sprint("p", i)))
	}
	for _, p := range pods {
		b.run(fmt.Sprintf("add server ring/%s %s", p.name, p.Address), "set server ring/"+p.name+" state ready")
	}
	reached := func(address netip.AddrPort) int {
		seen := map[string]bool{}
		for _, name := range choices(t, address) {
			seen[name] = true
		}
		return len(seen)
	}
	if n := reached(netip.AddrPortFrom(b.vips[0], 91)); n == len(pods) {
		t.Logf("this haproxy does not have the trap: all %d servers without an id are reached", n)
	}
	if n := reached(b.hashed(d, testKey("web"), members(pods...)...)); n != len(pods) {
		t.Errorf("%d of %d members are reached", n, len(pods))
	}
}

// TestTrapRingsOfTwoHAProxiesDiffer: two HAProxies that learnt of the members in different orders send a client to the same one.
func TestTrapRingsOfTwoHAProxiesDiffer(t *testing.T) {
	t.Parallel()
	var all []providers.Member
	for i := range 5 {
		all = append(all, newPod(t, fmt.Sprint("p", i)).Member)
	}
	var rings []map[string]string
	for range 2 {
		b, p := running(t)
		rings = append(rings, choices(t, b.hashed(desk{t, p}, testKey("web"), all...)))
		slices.Reverse(all)
	}
	for source, name := range rings[0] {
		if rings[1][source] != name {
			t.Fatalf("%s reaches %s by one HAProxy and %s by the other", source, name, rings[1][source])
		}
	}
}

// TestTrapConnectionsAreNotReused: without pool-max-conn 2.6 opens a connection for each request to a server that was added at run time;
// with it the connections that wait for reuse hold back the deletion, so they are purged.
func TestTrapConnectionsAreNotReused(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	front := netip.AddrPortFrom(b.vips[0], 90)
	b.backend("pages", "balance roundrobin\n    mode http\n    default-server check inter 100\nfrontend pages_f\n    mode http\n    timeout client 10s\n    bind "+
		front.String()+"\n    default_backend pages")
	var connections atomic.Int64
	server := &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }),
		ConnState: func(_ net.Conn, s http.ConnState) { connections.Add(map[http.ConnState]int64{http.StateActive: 1}[s]) },
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	m := providers.Member{UID: "uid", State: providers.Enabled, Address: netip.MustParseAddrPort(l.Addr().String())}
	d.observe()
	d.must(attach(key, "pages", nil, []providers.Member{m}))

	opened := func() int {
		b.t.Helper()
		// connect, of the backend: every connection that was opened to its servers. reuse: requests on one that was there.
		rows := strings.Split(b.run("show stat pages 2 -1")[0], "\n")
		names, values := strings.Split(rows[0], ","), strings.Split(rows[1], ",")
		n := -1
		_, _ = fmt.Sscan(values[slices.Index(names, "connect")], &n)
		return n
	}
	client := &http.Client{Timeout: 5 * time.Second}
	for range 50 {
		answer, err := client.Get("http://" + front.String() + "/")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Fatal(answer.Status)
		}
	}
	if n := opened(); n < 1 || n > 10 {
		t.Errorf("50 requests one after the other opened %d connections to the member", n)
	}
	servers, err := runtime.ParseServers(b.run("show servers state pages")[0])
	if err != nil || len(servers) != 1 || servers[0].Check&runtime.CheckEnabled == 0 {
		t.Errorf("default-server is not inherited, and its check has to be said: %+v, %v", servers, err)
	}
	client.CloseIdleConnections()
	d.must(attach(key, "pages", []providers.Member{m}, nil))
	b.eventually("its server is deleted", func() error {
		if servers, err := runtime.ParseServers(b.run("show servers state pages")[0]); err != nil || len(servers) > 0 {
			return fmt.Errorf("%+v, %w", servers, err)
		}
		return nil
	})
}

// TestTrapKeepAliveClientsOverReload: in HTTP mode each idle client would see a failed request per reload; in TCP mode its connection goes on
// in the old worker.
func TestTrapKeepAliveClientsOverReload(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, one := desk{t, p}, newPod(t, "one")
	address := b.serve(d, testKey("web"), 80, one)
	var clients []net.Conn
	for range 60 {
		c, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := talk(c, true); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	for n := range 5 {
		worker := b.worker()
		b.serve(d, testKey(fmt.Sprint("other-", n)), uint16(1000+n), one)
		if b.worker() == worker {
			t.Fatal("a new Service came without a reload")
		}
		for i, c := range clients {
			if _, err := talk(c, false); err != nil {
				t.Fatalf("client %d after reload %d: %v", i, n, err)
			}
		}
	}
}

// TestTrapCommandLineIsFull: the command line takes 10 clients, further ones hang without a word.
func TestTrapCommandLineIsFull(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key, one := desk{t, p}, testKey("web"), newPod(t, "one")
	b.serve(d, key, 80, one)
	var others []net.Conn
	full := func() error {
		c, err := net.Dial("unix", b.cfg.AdminSocket)
		if err != nil {
			return err
		}
		others = append(others, c)
		_ = c.SetDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := io.WriteString(c, "prompt\n"); err != nil {
			return err
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("client %d was answered: %w", len(others), err)
		}
		return nil
	}
	b.eventually("the command line is full", full)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := p.Observe(ctx, providers.Scope{}); err == nil || providers.KindOf(err) != providers.Unavailable {
		t.Errorf("nobody answers, and Observe says %v", err)
	}
	for _, c := range others {
		_ = c.Close()
	}
	b.eventually("it answers again", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Observe(ctx, providers.Scope{})
		return err
	})
	d.must(change(key, members(one), nil, nil))
}

// TestTrapPipelineIsCut: of the commands that were not answered some were carried out. They are read back, and the rest is done.
func TestTrapPipelineIsCut(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	direct := b.cfg.AdminSocket
	var left atomic.Int64 // writing commands until the connection breaks; 0 is never
	b.cfg.AdminSocket = filepath.Join(filepath.Dir(direct), "cut.sock")
	l, err := net.Listen("unix", b.cfg.AdminSocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			haproxy, err := net.Dial("unix", direct)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(client, haproxy); _ = client.Close() }()
			go func() {
				defer haproxy.Close()
				lines := bufio.NewScanner(client)
				for lines.Scan() {
					if _, err := fmt.Fprintln(haproxy, lines.Text()); err != nil {
						return
					}
					if strings.HasPrefix(lines.Text(), "add ") && left.Add(-1) == 0 {
						_ = client.Close()
						return
					}
				}
			}()
		}
	}()
	p := b.open()
	b.start()
	d, key := desk{t, p}, testKey("web")
	b.serve(d, key, 80)
	all := crowd(t, 200)
	left.Store(37)
	if err := p.Apply(t.Context(), change(key, nil, all, nil))[key]; providers.KindOf(err) != providers.Unavailable || err == nil {
		t.Fatalf("the connection broke after 37 of 200 members, and Apply says %v", err)
	}
	b.cfg.AdminSocket = direct
	seen := d.pool(key)
	if len(seen) == 0 || len(seen) == len(all) {
		t.Fatalf("%d members after the cut", len(seen))
	}
	d.must(change(key, seen, all, nil))
	want := providers.Pool{Key: key, Members: change(key, nil, all, nil).Pools[0].New.Members}
	if g, w := providertest.Render(providers.Pool{Key: key, Members: d.pool(key)}), providertest.Render(want); g != w {
		t.Errorf("after the repair\n%s", g)
	}
	for _, s := range b.servers(key) {
		if s.Check&runtime.CheckEnabled == 0 || stateOf(s) != providers.Enabled {
			t.Errorf("%s was left half done: %+v", s.Name, s)
		}
	}
}

// TestTrapWorkerDiesAlone: the master goes with it, and leaves sockets behind that refuse.
func TestTrapWorkerDiesAlone(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key, one := desk{t, p}, testKey("web"), newPod(t, "one")
	address := b.serve(d, key, 80, one)
	want := providertest.Render(d.observe().State)
	if err := p.Close(); err != nil { // the file is written
		t.Fatal(err)
	}
	p = b.open()
	d.p = p
	d.observe()
	if err := syscall.Kill(b.worker(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-b.done
	if _, err := os.Stat(b.cfg.AdminSocket); err != nil {
		t.Fatalf("this haproxy takes its socket with it: %v", err)
	}
	_, err := p.Observe(t.Context(), providers.Scope{})
	if providers.KindOf(err) != providers.Unavailable || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the socket is there and nobody behind it: %v", err)
	}
	b.start()
	b.reached(address, one)
	if o := d.observe(); !o.Restarted || providertest.Render(o.State) != want {
		t.Errorf("after the restart, restarted %v\n%s", o.Restarted, providertest.Render(o.State))
	}
}

// TestTrapKeywords: `enabled` makes a server that is up and gets nothing, `drain` lets clients with persistence through, and an id that is
// not said is not unique.
func TestTrapKeywords(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	s := spyOn(t, b)
	p := b.open()
	b.start()
	d, key := desk{t, p}, testKey("web")
	one, two, three := newPod(t, "one"), newPod(t, "two"), newPod(t, "three")
	b.serve(d, key, 80, one)
	d.must(change(key, members(one), members(one, two, three), nil))
	d.must(change(key, members(one, two, three), []providers.Member{one.draining(), two.Member}, nil))
	d.must(change(key, []providers.Member{one.draining(), two.Member}, members(one, two, three), nil))
	added := 0
	for _, c := range s.writes() {
		words := strings.Fields(c)
		if slices.Contains(words, "enabled") || slices.Contains(words, "drain") {
			t.Errorf("it says %q", c)
		}
		if words[0] != "add" {
			continue
		}
		added++
		for _, keyword := range []string{"id", "check", "pool-max-conn", "pool-purge-delay", "weight"} {
			if !slices.Contains(words, keyword) {
				t.Errorf("%q lacks %s", c, keyword)
			}
		}
	}
	if added < 2 {
		t.Errorf("%d servers were added at run time; the test shows nothing", added)
	}
	text := string(config.Render(p.model, p.settings))
	if !strings.Contains(text, "option redispatch") || !strings.Contains(text, "retries 3") {
		t.Errorf("no redispatch in\n%s", text)
	}
}
