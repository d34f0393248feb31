package haproxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// serve brings up a Service with these Pods on the balancer's first address, on port, and waits until it answers.
func (b *balancer) serve(d desk, key providers.Key, port uint16, pods ...*pod) netip.AddrPort {
	b.t.Helper()
	vs := providers.VirtualServer{Key: key, VIPs: b.vips[:1], Port: port}
	d.must(change(key, nil, members(pods...), &vs))
	return netip.AddrPortFrom(b.vips[0], port)
}

// reached demands that calls to address are answered by exactly these Pods.
func (b *balancer) reached(address netip.AddrPort, pods ...*pod) {
	b.t.Helper()
	b.eventually("the Pods that answer", func() error {
		seen := map[string]bool{}
		for range 4 * len(pods) {
			name, err := call(address)
			if err != nil {
				return err
			}
			seen[name] = true
		}
		for _, p := range pods {
			if !seen[p.name] {
				return fmt.Errorf("%s does not answer, only %v", p.name, seen)
			}
		}
		if len(seen) != len(pods) {
			return fmt.Errorf("%v answer", seen)
		}
		return nil
	})
}

func TestMembersFollowWithoutReload(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	one, two, three := newPod(t, "one"), newPod(t, "two"), newPod(t, "three")
	address := b.serve(d, key, 80, one)
	worker := b.worker()
	stop := load(t, address)

	d.must(change(key, members(one), members(one, two, three), nil))
	// The very next connections reach the new members: no health check has to pass first.
	seen := map[string]bool{}
	for range 12 {
		name, err := call(address)
		if err != nil {
			t.Fatal(err)
		}
		seen[name] = true
	}
	if !seen["two"] || !seen["three"] {
		t.Errorf("after the Apply that added them only %v answer", seen)
	}
	for range 20 {
		d.must(change(key, members(one, two, three), []providers.Member{one.draining(), two.Member, three.Member}, nil))
		d.must(change(key, []providers.Member{one.draining(), two.Member, three.Member}, members(one, two, three), nil))
	}
	d.must(change(key, members(one, two, three), []providers.Member{one.draining(), two.Member, three.Member}, nil))
	b.reached(address, two, three)
	b.eventually("the draining member is idle", func() error {
		if n := d.observe().Members[key][one.ID()].Connections; n != 0 {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	})
	d.must(change(key, []providers.Member{one.draining(), two.Member, three.Member}, members(two, three), nil))
	_ = one.listener.Close()
	b.reached(address, two, three)
	if calls := stop(); calls < 20 {
		t.Errorf("only %d calls were made: the load proves nothing", calls)
	}
	if now := b.worker(); now != worker {
		t.Errorf("worker %d became %d: members must follow without a reload", worker, now)
	}
}

func TestStructureUnderLoad(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d := desk{t, p}
	one, two := newPod(t, "one"), newPod(t, "two")
	first := b.serve(d, testKey("first"), 80, one, two)
	worker := b.worker()
	stop := load(t, first)
	for i := range 5 {
		b.reached(b.serve(d, testKey(fmt.Sprintf("more-%d", i)), uint16(81+i), two), two)
	}
	for i := range 5 {
		key := testKey(fmt.Sprintf("more-%d", i))
		d.must(providers.Changes{
			Pools:          []providers.PoolChange{{Key: key}},
			VirtualServers: []providers.VirtualServerChange{{Key: key}},
		})
		if _, err := call(netip.AddrPortFrom(b.vips[0], uint16(81+i))); err == nil {
			t.Errorf("%s is deleted and still answers", key)
		}
	}
	if calls := stop(); calls < 20 {
		t.Errorf("only %d calls were made: the load proves nothing", calls)
	}
	if b.worker() == worker {
		t.Error("the structure changed without a reload")
	}
}

// dialLive opens a connection and keeps it.
func dialLive(t *testing.T, address netip.AddrPort) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := talk(c, true); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDrainKeepsAndRemoveCloses(t *testing.T) {
	t.Parallel()
	for _, reloaded := range []bool{false, true} {
		t.Run(fmt.Sprintf("reloaded in between %v", reloaded), func(t *testing.T) {
			b, p := running(t)
			d, key := desk{t, p}, testKey("web")
			one, two := newPod(t, "one"), newPod(t, "two")
			address := b.serve(d, key, 80, one)
			live := dialLive(t, address)
			d.must(change(key, members(one), []providers.Member{one.draining(), two.Member}, nil))
			if reloaded {
				b.serve(d, testKey("other"), 81, two)
			}
			if _, err := talk(live, false); err != nil {
				t.Fatalf("draining broke an established connection: %v", err)
			}
			b.reached(address, two)
			if n := d.observe().Members[key][one.ID()].Connections; n != 1 {
				t.Errorf("%d connections on the draining member, want 1", n)
			}
			d.must(change(key, []providers.Member{one.draining(), two.Member}, members(two), nil))
			b.eventually("the removed member's connection is closed", func() error {
				if _, err := talk(live, false); err == nil {
					return errors.New("it still echoes")
				}
				return nil
			})
			b.eventually("the server is deleted", func() error {
				if servers := b.servers(key); len(servers) != 1 {
					return fmt.Errorf("servers %v", servers)
				}
				return nil
			})
		})
	}
}

// A removed server is deleted only when it was seen without a connection, whatever HAProxy itself would refuse: 2.6.12
// has known faults in that place.
func TestNoDeleteUnderAConnection(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	real := b.cfg.AdminSocket
	spy := spyOn(t, b)
	p := b.open()
	b.start()
	d, key := desk{t, p}, testKey("web")
	one, two := newPod(t, "one"), newPod(t, "two")
	live := dialLive(t, b.serve(d, key, 80, one))
	d.must(change(key, members(one), members(one, two), nil))
	name, err := config.ServerName(one.ID())
	if err != nil {
		t.Fatal(err)
	}
	server := config.BackendName(key) + "/" + name
	b.cfg.AdminSocket = real // by hand, as an lbsync that died half way through a removal
	b.run("set server "+server+" weight 0", "set server "+server+" state maint")
	if got := d.pool(key); len(got) != 1 {
		t.Fatalf("members %v, want only two", got)
	}
	looks := func() (n int) {
		spy.mu.Lock()
		defer spy.mu.Unlock()
		for _, c := range spy.commands {
			if strings.HasPrefix(c, "show stat ") {
				n++
			}
		}
		return n
	}
	b.eventually("the keeper has looked four times", func() error {
		if n := looks(); n < 4 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	for _, c := range spy.writes() {
		if strings.HasPrefix(c, "del server") {
			t.Errorf("%s was sent under a live connection", c)
		}
	}
	if _, err := talk(live, false); err != nil {
		t.Error(err)
	}
	_ = live.Close()
	b.eventually("the server is deleted", func() error {
		if servers := b.servers(key); len(servers) != 1 {
			return fmt.Errorf("servers %v", servers)
		}
		return nil
	})
}

func TestDeletedPoolClosesOldConnections(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	live := dialLive(t, b.serve(d, key, 80, newPod(t, "one")))
	d.must(providers.Changes{
		Pools:          []providers.PoolChange{{Key: key}},
		VirtualServers: []providers.VirtualServerChange{{Key: key}},
	})
	b.eventually("the connection is closed", func() error {
		if _, err := talk(live, false); err == nil {
			return errors.New("it still echoes")
		}
		return nil
	})
}

func TestWantedAgainWhilePending(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	one, two := newPod(t, "one"), newPod(t, "two")
	address := b.serve(d, key, 80, one, two)
	d.must(change(key, members(one, two), members(two), nil))
	if got := d.pool(key); len(got) != 1 || got[0].ID() != two.ID() {
		t.Errorf("a removed member is still observed: %v", got)
	}
	// The same address belongs to another Pod now, and that Pod enters before the old server could be deleted.
	heir := one.Member
	heir.UID = "uid-heir"
	d.must(change(key, members(two), []providers.Member{two.Member, heir}, nil))
	b.reached(address, one, two)
	d.must(change(key, []providers.Member{two.Member, heir}, members(two), nil))
	d.must(change(key, members(two), members(one, two), nil)) // and the first Pod again
	b.reached(address, one, two)
	if got := d.pool(key); len(got) != 2 {
		t.Errorf("members %v, want one and two", got)
	}
}

func TestDeadMemberCostsNoRequest(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	one, dead := newPod(t, "one"), newPod(t, "dead")
	address := b.serve(d, key, 80, one)
	_ = dead.listener.Close()
	d.must(change(key, members(one), members(one, dead), nil))
	for range 20 {
		if name, err := call(address); err != nil || name != "one" {
			t.Errorf("answer %q, %v", name, err)
		}
	}
}

func TestIPv6(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("six")
	probe, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatalf("no IPv6 loopback: %v", err)
	}
	address := netip.MustParseAddrPort(probe.Addr().String())
	_ = probe.Close()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan struct{})
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if n, _ := c.Read(make([]byte, 1)); n == 1 {
				close(arrived)
			}
			_ = c.Close()
		}
	}()
	vs := providers.VirtualServer{Key: key, VIPs: []netip.Addr{b.vips[0], address.Addr()}, Port: address.Port()}
	m := providers.Member{UID: "six", State: providers.Enabled, Address: netip.MustParseAddrPort(l.Addr().String())}
	d.must(change(key, nil, nil, &vs))
	d.must(change(key, nil, []providers.Member{m}, nil))
	c, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-arrived:
	case <-time.After(30 * time.Second):
		t.Error("nothing arrives at the IPv6 member through the IPv6 address")
	}
}

func TestStaleSession(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d := desk{t, p}
	b.serve(d, testKey("web"), 80, newPod(t, "one"))
	s, err := runtime.Dial(t.Context(), b.cfg.AdminSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Run(t.Context(), nil); err != nil {
		t.Fatalf("before the reload: %v", err)
	}
	b.serve(d, testKey("other"), 81, newPod(t, "two"))
	if _, err := s.Run(t.Context(), nil); !errors.Is(err, runtime.ErrStale) {
		t.Errorf("after a reload the session says %v, want ErrStale", err)
	}

	// A batch that is overtaken by a reload is done again, on the new worker.
	p.mu.Lock()
	defer p.mu.Unlock()
	var workers []int
	if err := p.withWorker(t.Context(), func(s *runtime.Session) error {
		workers = append(workers, s.Info().Worker.PID)
		if len(workers) == 1 {
			if err := p.master.Reload(t.Context()); err != nil {
				return err
			}
			b.eventually("another worker", func() error {
				if b.worker() == workers[0] {
					return errors.New("not yet")
				}
				return nil
			})
		}
		_, err := s.Run(t.Context(), []runtime.Command{runtime.Ask("show backend")})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(workers) != 2 || workers[0] == workers[1] {
		t.Errorf("the batch ran on workers %v, want two different ones", workers)
	}
}
