package haproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
)

// with serves a Service whose pool and virtual server have these settings.
func (b *balancer) with(d desk, key providers.Key, pool providers.PoolSettings, virtual providers.VirtualServerSettings, all ...providers.Member) netip.AddrPort {
	b.t.Helper()
	c := change(key, nil, all, &providers.VirtualServer{Key: key, VIPs: b.vips[:1], Port: 80, Settings: virtual})
	pool.Algorithm = providers.RoundRobin
	c.Pools[0].New.Settings = pool
	d.must(c)
	return netip.AddrPortFrom(b.vips[0], 80)
}

func TestSourceRangesKeepClientsOut(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key, one := desk{t, p}, testKey("web"), newPod(t, "one")
	address := b.with(d, key, providers.PoolSettings{}, providers.VirtualServerSettings{
		SourceRanges: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/24")}}, one.Member)
	b.reached(address, one)
	b.with(d, key, providers.PoolSettings{}, providers.VirtualServerSettings{SourceRanges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, one.Member)
	if name, err := call(address); err == nil {
		t.Errorf("a client from outside the ranges reached %s", name)
	}
}

// A client keeps its member while others come, and over a reload.
func TestPersistenceOutlivesReload(t *testing.T) {
	t.Parallel() // it waits for HAProxy most of the time
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	var pods []*pod
	for i := range 8 {
		pods = append(pods, newPod(t, fmt.Sprint("p", i)))
	}
	persistent := providers.PoolSettings{Persistence: providers.Persistence{Kind: providers.SourceAddress, Timeout: time.Hour}}
	address := b.with(d, key, persistent, providers.VirtualServerSettings{}, members(pods...)...)
	first, err := call(address)
	if err != nil {
		t.Fatal(err)
	}
	same := func(when string) {
		t.Helper()
		for range 8 {
			if name, err := call(address); err != nil || name != first {
				t.Fatalf("%s: %q answers, %v; it was %s", when, name, err, first)
			}
		}
	}
	same("at once")
	p.tableSync = tableSync
	other := newPod(t, "other")
	for n := range 2 { // the second worker must be able to hand over what the first one did
		c := change(testKey(fmt.Sprint("other-", n)), nil, members(other), &providers.VirtualServer{Key: testKey(fmt.Sprint("other-", n)), VIPs: b.vips[:1], Port: uint16(1000 + n)})
		b.eventually("another Service is served", func() error { return p.Apply(t.Context(), c)[c.Pools[0].Key] })
		b.eventually("the table outlives the reload", func() error {
			if table := b.run("show table " + config.BackendName(key))[0]; !strings.Contains(table, "used:1") {
				return errors.New(table)
			}
			return nil
		})
		same("after a reload")
	}
}

func TestWeightsShare(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	one, two := newPod(t, "one"), newPod(t, "two")
	two.Weight = 5
	address := b.with(d, key, providers.PoolSettings{}, providers.VirtualServerSettings{}, one.Member, two.Member)
	count := func() map[string]int {
		seen := map[string]int{}
		for range 60 {
			name, err := call(address)
			if err != nil {
				t.Fatal(err)
			}
			seen[name]++
		}
		return seen
	}
	if seen := count(); seen["one"] != 10 || seen["two"] != 50 {
		t.Errorf("60 connections went to %v, want one sixth and the rest", seen)
	}
	worker := b.worker()
	lighter := two.Member
	lighter.Weight = 0
	d.must(change(key, members(one, two), []providers.Member{one.Member, lighter}, nil))
	if seen := count(); seen["one"] != 30 || seen["two"] != 30 {
		t.Errorf("60 connections went to %v, want halves", seen)
	}
	if b.worker() != worker {
		t.Error("a weight needed a reload")
	}
}

// firstLine is a member that tells the first line it is sent.
func firstLine(t *testing.T) (m providers.Member, lines <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	told := make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if line, err := bufio.NewReader(c).ReadString('\n'); err == nil {
					select {
					case told <- line:
					default:
					}
				}
			}()
		}
	}()
	return providers.Member{UID: "lines", State: providers.Enabled, Address: netip.MustParseAddrPort(l.Addr().String())}, told
}

func TestProxyProtocolToMembers(t *testing.T) {
	t.Parallel()
	for version, want := range map[providers.ProxyProtocol]string{providers.ProxyV1: "PROXY TCP4 ", providers.ProxyV2: "\r\n"} {
		t.Run(string(version), func(t *testing.T) {
			b, p := running(t)
			m, lines := firstLine(t)
			address := b.with(desk{t, p}, testKey("web"), providers.PoolSettings{ProxyProtocol: version, Monitor: providers.Monitor{Type: providers.MonitorNone}},
				providers.VirtualServerSettings{}, m)
			c, err := net.Dial("tcp", address.String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, "hello\n"); err != nil {
				t.Fatal(err)
			}
			if line := <-lines; !strings.HasPrefix(line, want) {
				t.Errorf("the member was sent %q first", line)
			}
		})
	}
}

func TestProxyProtocolFromClients(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	one := newPod(t, "one")
	address := b.with(desk{t, p}, testKey("web"), providers.PoolSettings{}, providers.VirtualServerSettings{
		AcceptProxyProtocol: true, SourceRanges: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}, one.Member)
	for source, want := range map[string]bool{"203.0.113.9": true, "198.51.100.9": false} {
		c, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "PROXY TCP4 %s 192.0.2.1 4711 80\r\n", source); err != nil {
			t.Fatal(err)
		}
		if _, err := talk(c, true); (err == nil) != want {
			t.Errorf("a client at %s behind another load balancer: %v", source, err)
		}
	}
}

func TestIdleTimeoutOfOneService(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	one := newPod(t, "one")
	address := b.with(desk{t, p}, testKey("web"), providers.PoolSettings{}, providers.VirtualServerSettings{IdleTimeout: time.Second}, one.Member)
	c := dialLive(t, address)
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("an idle connection: %v, want its end", err)
	}
}

func TestMemberConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	one, two := newPod(t, "one"), newPod(t, "two")
	address := b.with(desk{t, p}, testKey("web"), providers.PoolSettings{MemberConnections: 1}, providers.VirtualServerSettings{}, one.Member, two.Member)
	first, _ := dialLive(t, address), dialLive(t, address)
	third := make(chan error, 1)
	go func() { _, err := call(address); third <- err }()
	select {
	case err := <-third:
		t.Errorf("a third connection found a member: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	_ = first.Close()
	if err := <-third; err != nil {
		t.Errorf("the connection that waited: %v", err)
	}
}

func TestHTTPMonitorTakesOutWhoAnswersBadly(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	bad := atomic.Bool{}
	web := func(name string, fails *atomic.Bool) providers.Member {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/healthz" && (r.Host != "shop.example" || fails != nil && fails.Load()) {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, name)
		})}
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close() })
		return providers.Member{UID: name, Name: name, State: providers.Enabled, Address: netip.MustParseAddrPort(l.Addr().String())}
	}
	one, two := web("one", nil), web("two", &bad)
	address := b.with(d, key, providers.PoolSettings{Monitor: providers.Monitor{
		Type: providers.MonitorHTTP, Path: "/healthz", Host: "shop.example", Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1,
	}}, providers.VirtualServerSettings{}, one, two)
	health := func(want providers.Health) {
		t.Helper()
		b.eventually("health is "+string(want), func() error {
			members := d.observe().Members[key]
			if members[one.ID()].Health != providers.HealthUp || members[two.ID()].Health != want {
				return fmt.Errorf("%v", members)
			}
			return nil
		})
	}
	health(providers.HealthUp)
	bad.Store(true)
	health(providers.HealthDown)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 6 {
		answer, err := client.Get("http://" + address.String() + "/")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if string(body) != "one" {
			t.Errorf("%s answered", body)
		}
	}
	bad.Store(false)
	health(providers.HealthUp)
}

func TestMonitorThatCannotBe(t *testing.T) {
	t.Parallel()
	_, p := running(t)
	for _, m := range []providers.Monitor{
		{Type: providers.MonitorHTTP, Path: "healthz"}, {Type: providers.MonitorHTTP, Path: "/a b"}, {Type: providers.MonitorHTTP, Host: "x'y"},
		{Type: providers.MonitorTCP, Interval: time.Second, Timeout: time.Minute},
	} {
		c := change(testKey("web"), nil, nil, nil)
		c.Pools[0].New.Settings.Monitor = m
		if err := p.Apply(t.Context(), c)[testKey("web")]; providers.KindOf(err) != providers.Rejected || !strings.Contains(err.Error(), "monitor") {
			t.Errorf("%+v: %v", m, err)
		}
	}
}
