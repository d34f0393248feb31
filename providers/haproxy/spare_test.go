package haproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// openBalancer is a balancer with open ports on its first address.
func openBalancer(t testing.TB, ports string) *balancer {
	t.Helper()
	b := newBalancer(t)
	b.cfg.OpenPorts = []string{b.vips[0].String() + ":" + ports}
	return b
}

// opened starts a haproxy and makes its ports open: with the first Service that needs a reload.
func opened(t testing.TB, b *balancer) (desk, *pod) {
	t.Helper()
	p := b.open()
	b.start()
	d, one := desk{t, p}, newPod(t, "first")
	d.must(providertest.Diff(providers.State{}, service(testKey("a-first"), b.vips[1], 80, one)))
	b.reached(netip.AddrPortFrom(b.vips[1], 80), one)
	return d, one
}

// numbered is the n-th of many Services, each on a port of its own with a Pod of its own.
func (b *balancer) numbered(t testing.TB, n int, pods ...*pod) (providers.Key, netip.AddrPort, providers.State) {
	key, port := testKey(fmt.Sprintf("s-%03d", n)), uint16(8000+n)
	return key, netip.AddrPortFrom(b.vips[0], port), service(key, b.vips[0], port, pods...)
}

// refused demands that a connection is refused, or reset at once.
func refused(t testing.TB, at netip.AddrPort) {
	t.Helper()
	if name, err := call(at); err == nil {
		t.Errorf("%s is still answered by %s", at, name)
	}
}

// TestServicesComeAndGoWithoutReload: fifty Services are made and deleted, and the worker stays the same.
func TestServicesComeAndGoWithoutReload(t *testing.T) {
	t.Parallel()
	b := openBalancer(t, "8000-8099")
	d, _ := opened(t, b)
	worker := b.worker()
	const services = 50
	pods := make([]*pod, services)
	addresses := make([]netip.AddrPort, services)
	states := make([]providers.State, services)
	for n := range services {
		pods[n] = newPod(t, fmt.Sprintf("pod-%d", n))
		_, addresses[n], states[n] = b.numbered(t, n, pods[n])
		refused(t, addresses[n])
		d.must(providertest.Diff(providers.State{}, states[n]))
		if name, err := call(addresses[n]); err != nil || name != pods[n].name {
			t.Fatalf("%s is answered by %q, %v; want %s", addresses[n], name, err, pods[n].name)
		}
	}
	want := providertest.Render(d.observe().State)
	if got := len(d.observe().State.VirtualServers); got != services+1 {
		t.Errorf("%d virtual servers are observed", got)
	}
	if b.worker() != worker {
		t.Fatal("haproxy was reloaded for a Service on an open port")
	}

	t.Run("restart by hand", func(t *testing.T) {
		b.written(d.p, services)
		b.kill()
		b.start()
		for n := range services {
			if name, err := call(addresses[n]); err != nil || name != pods[n].name {
				t.Fatalf("after a restart %s is answered by %q, %v; want %s", addresses[n], name, err, pods[n].name)
			}
		}
		if o := d.observe(); !o.Restarted || providertest.Render(o.State) != want {
			t.Errorf("restarted %v; observed\n%s", o.Restarted, providertest.Render(o.State))
		}
		worker = b.worker()
	})

	for n := range services {
		d.must(providertest.Diff(states[n], providers.State{}))
		refused(t, addresses[n])
		if n+1 < services {
			if name, err := call(addresses[n+1]); err != nil || name != pods[n+1].name {
				t.Fatalf("the next one: %q, %v", name, err)
			}
		}
	}
	if got := len(d.observe().State.Pools); got != 1 {
		t.Errorf("%d pools are left", got)
	}
	if b.worker() != worker {
		t.Error("haproxy was reloaded for a Service that goes")
	}
	b.eventually("the spare backends can be used again", func() error {
		d.observe()
		d.p.mu.Lock()
		defer d.p.mu.Unlock()
		if n := len(d.p.freeSpares()); n != b.cfg.SpareBackends {
			return fmt.Errorf("%d of %d", n, b.cfg.SpareBackends)
		}
		return nil
	})
}

// written waits until the file lists so many Services in spare backends, and all they have.
func (b *balancer) written(p *Provider, services int) {
	b.t.Helper()
	b.eventually("the file is written", func() error {
		text, err := os.ReadFile(p.files.Path())
		if err != nil {
			return err
		}
		f, err := config.Parse(text)
		if err != nil {
			return err
		}
		n := 0
		for _, s := range f.Services {
			if s.Spare != "" && len(s.Servers) > 0 {
				n++
			}
		}
		route, err := os.ReadFile(p.files.MapPath(f.Map))
		if err == nil && (n != services || string(route) != string(config.MapText(f.Routes()))) {
			err = errors.New("not yet")
		}
		if err != nil {
			return fmt.Errorf("%d Services, map %q: %w", n, route, err)
		}
		return nil
	})
}

// TestMoreServicesThanSpareBackends: when none is left, one reload makes as many again.
func TestMoreServicesThanSpareBackends(t *testing.T) {
	t.Parallel()
	b := openBalancer(t, "8000-8099")
	b.cfg.SpareBackends = 2
	d, _ := opened(t, b)
	workers := map[int]bool{b.worker(): true}
	one := newPod(t, "one")
	for n := range 7 {
		_, at, state := b.numbered(t, n, one)
		d.must(providertest.Diff(providers.State{}, state))
		b.reached(at, one)
		workers[b.worker()] = true
	}
	if len(workers) != 3 { // the third and the sixth Service find none, and are given one by the reload
		t.Errorf("%d workers served seven Services; want three", len(workers))
	}
}

// TestWhatNeedsAReload: what a spare backend cannot give is served all the same, with a reload, on the same port without a gap.
func TestWhatNeedsAReload(t *testing.T) {
	t.Parallel()
	b := openBalancer(t, "8000-8099")
	d, _ := opened(t, b)
	one := newPod(t, "one")
	_, at, plain := b.numbered(t, 1, one)
	d.must(providertest.Diff(providers.State{}, plain))
	stop := load(t, at)
	for _, c := range []struct {
		name string
		want func(*providers.State)
	}{
		{"algorithm", func(s *providers.State) { s.Pools[0].Settings.Algorithm = providers.LeastConnections }},
		{"persistence", func(s *providers.State) { s.Pools[0].Settings.Persistence.Kind = providers.SourceAddress }},
		{"monitor", func(s *providers.State) { s.Pools[0].Settings.Monitor.Type = providers.MonitorNone }},
		{"connections of a member", func(s *providers.State) { s.Pools[0].Settings.MemberConnections = 100 }},
		{"source ranges", func(s *providers.State) {
			s.VirtualServers[0].Settings.SourceRanges = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		}},
		{"another port", func(s *providers.State) { s.VirtualServers[0].Port = 9999 }},
	} {
		name := c.name
		_, _, special := b.numbered(t, 1, one)
		c.want(&special)
		if name == "another port" {
			stop()
		}
		before := b.worker()
		d.must(providertest.Diff(d.only(plain.Pools[0].Key), special))
		if b.worker() == before {
			t.Errorf("%s: no reload", name)
		}
		if got := providertest.Render(d.only(plain.Pools[0].Key)); got != providertest.Render(special) {
			t.Errorf("%s: observed\n%s", name, got)
		}
		b.reached(netip.AddrPortFrom(b.vips[0], special.VirtualServers[0].Port), one)
		before = b.worker()
		d.must(providertest.Diff(special, plain))
		if b.worker() == before {
			t.Errorf("back from %s: no reload", name)
		}
		b.reached(at, one)
		if s := d.p.model.Get(plain.Pools[0].Key); s == nil || s.Spare == "" {
			t.Errorf("back from %s it has no spare backend: %+v", name, s)
		}
	}
}

// only returns what is observed of one Key.
func (d desk) only(key providers.Key) providers.State {
	d.t.Helper()
	state := d.observe().State
	state.Pools = slices.DeleteFunc(state.Pools, func(p providers.Pool) bool { return p.Key != key })
	state.VirtualServers = slices.DeleteFunc(state.VirtualServers, func(v providers.VirtualServer) bool { return v.Key != key })
	return state
}

// TestOpenPortsHideNobody: what another program listens on stays its own, and the Service that wants it is told.
func TestOpenPortsHideNobody(t *testing.T) {
	t.Parallel()
	b := openBalancer(t, "8000-8009")
	host, err := net.Listen("tcp", netip.AddrPortFrom(b.vips[0], 8004).String())
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	d, _ := opened(t, b)
	one := newPod(t, "one")
	_, _, state := b.numbered(t, 4, one)
	key := state.Pools[0].Key
	refuse(t, d.p, providertest.Diff(providers.State{}, state), key, providers.Rejected, "8004", "in use by another listener")
	_, at, next := b.numbered(t, 5, one)
	worker := b.worker()
	d.must(providertest.Diff(providers.State{}, next))
	b.reached(at, one)
	if b.worker() != worker {
		t.Error("the port beside it is not open")
	}
	arrived := make(chan bool, 1)
	go func() {
		if c, err := host.Accept(); err == nil {
			arrived <- true
			_ = c.Close()
		}
	}()
	if c, err := net.Dial("tcp", host.Addr().String()); err != nil || !<-arrived {
		t.Errorf("the other program: %v", err)
	} else {
		_ = c.Close()
	}
	_ = host.Close()
	d.must(providertest.Diff(providers.State{}, state)) // and the reload opens it
	if s := d.p.model.Get(key); s == nil || s.Spare == "" {
		t.Errorf("the port that is free again is not open: %+v", s)
	}
}

// TestOpenPortsOnAndOff: what is served stays served when the setting changes, by the same Pods, over one reload.
func TestOpenPortsOnAndOff(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	p := b.open()
	b.start()
	d, one, two := desk{t, p}, newPod(t, "one"), newPod(t, "two")
	_, at, state := b.numbered(t, 1, one, two)
	d.must(providertest.Diff(providers.State{}, state))
	want := providertest.Render(d.observe().State)
	stop := load(t, at)
	for _, ports := range [][]string{{b.vips[0].String() + ":8000-8009"}, nil, {b.vips[0].String() + ":8001"}, {b.vips[0].String() + ":8002"}} {
		if err := d.p.Close(); err != nil {
			t.Fatal(err)
		}
		b.cfg.OpenPorts = ports
		d.p = b.open()
		now := d.observe().State
		if len(now.Pools) != 1 || len(now.Pools[0].Members) != 2 {
			t.Fatalf("with %v the pool is observed as %+v", ports, now.Pools)
		}
		d.must(providertest.Diff(now, state))
		if got := providertest.Render(d.observe().State); got != want {
			t.Errorf("with %v observed\n%s", ports, got)
		}
		open := len(ports) > 0 && !strings.HasSuffix(ports[0], "8002")
		if s := d.p.model.Get(state.Pools[0].Key); s == nil || (s.Spare != "") != open {
			t.Errorf("with %v it is %+v", ports, s)
		}
		b.reached(at, one, two)
	}
	stop()
}

// TestCrashOfLbsyncBetweenSteps: whatever command was the last one that lbsync sent, the next lbsync completes the work from what the worker
// says, and no address ever leads to another Service's Pod.
func TestCrashOfLbsyncBetweenSteps(t *testing.T) {
	t.Parallel()
	b := openBalancer(t, "8000-8009")
	b.cfg.SpareBackends = 200
	b.cfg.WriteDelay = time.Minute // as if killed before the file is written
	d, first := opened(t, b)
	abandon(d.p)
	one, two := newPod(t, "one"), newPod(t, "two")
	_, at, state := b.numbered(t, 1, one)
	_, at2, state2 := b.numbered(t, 2, two)
	all := both(service(testKey("a-first"), b.vips[1], 80, first), both(state, state2))
	worker := b.worker()
	address := b.cfg.AdminSocket
	steps := []struct {
		name     string
		from, to providers.State
	}{{"come", providers.State{}, both(state, state2)}, {"go", both(state, state2), providers.State{}}}
	for _, step := range steps {
		for cut := 1; ; cut++ {
			cutter := newCutter(t, address, cut)
			b.cfg.AdminSocket = cutter.path
			dying := b.open()
			if _, err := dying.Observe(t.Context(), providers.Scope{}); err != nil {
				t.Fatal(err)
			}
			dying.Apply(t.Context(), providertest.Diff(step.from, step.to))
			abandon(dying)
			whole := !cutter.cut()
			b.cfg.AdminSocket = address
			next := b.open()
			dn := desk{t, next}
			now := dn.observe().State
			for to, pod := range map[netip.AddrPort]*pod{at: one, at2: two} {
				if name, err := call(to); err == nil && name != pod.name {
					t.Fatalf("%s cut after %d: %s is answered by %s", step.name, cut, to, name)
				}
			}
			want := all
			if step.name == "go" {
				want = service(testKey("a-first"), b.vips[1], 80, first)
			}
			dn.must(providertest.Diff(now, want))
			if got := providertest.Render(dn.observe().State); got != providertest.Render(want) {
				t.Fatalf("%s cut after %d: completed to\n%s", step.name, cut, got)
			}
			dn.must(providertest.Diff(want, map[bool]providers.State{true: service(testKey("a-first"), b.vips[1], 80, first), false: all}[step.name == "come"]))
			abandon(next)
			if whole {
				if cut < 5 {
					t.Errorf("%s has %d steps only; the test shows nothing", step.name, cut)
				}
				break
			}
		}
		if step.name == "come" {
			last := desk{t, b.open()}
			last.must(providertest.Diff(last.observe().State, all))
			abandon(last.p)
		}
	}
	if b.worker() != worker {
		t.Error("haproxy was reloaded")
	}
}

// abandon ends a Provider as kill -9 would: nothing is written any more.
func abandon(p *Provider) {
	p.closed.Do(func() { p.stop(); p.kept.Wait() })
}

// TestRoutesByHand: what somebody does to the map is repaired.
func TestRoutesByHand(t *testing.T) {
	t.Parallel()
	b := openBalancer(t, "8000-8009")
	d, _ := opened(t, b)
	one := newPod(t, "one")
	key, at, state := b.numbered(t, 1, one)
	d.must(providertest.Diff(providers.State{}, state))
	worker, path := b.worker(), d.p.spares.path
	spare := d.p.model.Get(key).Spare
	b.run("del map "+path+" "+at.String(), "add map "+path+" "+netip.AddrPortFrom(b.vips[0], 8009).String()+" "+spare)
	refused(t, at)
	now := d.only(key)
	if len(now.VirtualServers) != 0 {
		t.Fatalf("the virtual server without a route is observed: %+v", now)
	}
	d.must(providertest.Diff(now, state))
	b.reached(at, one)
	b.run("add map " + path + " " + netip.AddrPortFrom(b.vips[0], 8009).String() + " " + spare)
	if name, err := call(netip.AddrPortFrom(b.vips[0], 8009)); err != nil {
		t.Errorf("the test shows nothing: %q, %v", name, err)
	}
	b.eventually("the foreign route is gone", func() error {
		d.observe()
		if name, err := call(netip.AddrPortFrom(b.vips[0], 8009)); err == nil {
			return errors.New("answered by " + name)
		}
		return nil
	})
	if b.worker() != worker {
		t.Error("haproxy was reloaded")
	}
	refuse(t, d.p, providers.Changes{Pools: []providers.PoolChange{{Key: testKey("thief"), New: &providers.Pool{Key: testKey("thief"), Attached: spare}}}},
		testKey("thief"), providers.Rejected, "lbsync's own")
}

// cutter stands between a Provider and a haproxy and lets some commands pass that change something; then it is as if the Provider had died.
type cutter struct {
	path string
	mu   sync.Mutex
	left int
	dead bool
}

func newCutter(t *testing.T, real string, passes int) *cutter {
	t.Helper()
	c := &cutter{path: filepath.Join(t.TempDir(), "c"), left: passes}
	l, err := net.Listen("unix", c.path)
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
			haproxy, err := net.Dial("unix", real)
			if err != nil || c.cut() {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(client, haproxy); _ = client.Close() }()
			go func() {
				defer haproxy.Close()
				defer client.Close()
				for lines := bufio.NewScanner(client); lines.Scan(); {
					if !c.pass(lines.Text()) {
						return
					}
					if _, err := fmt.Fprintln(haproxy, lines.Text()); err != nil {
						return
					}
				}
			}()
		}
	}()
	return c
}

func (c *cutter) pass(command string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, word := range []string{"add ", "set map", "set server", "del ", "shutdown "} {
		if strings.HasPrefix(command, word) {
			c.dead = c.dead || c.left == 0
			c.left--
		}
	}
	return !c.dead
}

func (c *cutter) cut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

// backend returns the name of the backend that a Key has now.
func (p *Provider) backend(key providers.Key) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.backendOf(providers.Pool{Key: key})
}

// TestBackendsAreAddedAtRunTime: from 3.4 on spare backends never run out. No such haproxy is here: this one says that it is 3.4, and has
// hidden the backend that it is asked to add.
func TestBackendsAreAddedAtRunTime(t *testing.T) {
	t.Parallel()
	b := openBalancer(t, "8000-8009")
	b.cfg.SpareBackends = 1
	text, err := os.ReadFile(b.cfg.ConfigFiles[0])
	if err != nil {
		t.Fatal(err)
	}
	b.write(b.cfg.ConfigFiles[0], string(text)+"backend npl_h_0002\n    mode tcp\n")
	d, _ := opened(t, b)
	worker := b.worker()
	real := b.cfg.AdminSocket
	newer := newPretender(t, real)
	if err := d.p.Close(); err != nil {
		t.Fatal(err)
	}
	b.cfg.AdminSocket = newer.path
	d.p = b.open()
	var pods []*pod
	for n := range 2 {
		pods = append(pods, newPod(t, fmt.Sprint("pod-", n)))
		_, at, state := b.numbered(t, n, pods[n])
		d.observe()
		d.must(providertest.Diff(providers.State{}, state))
		b.reached(at, pods[n])
	}
	want := providertest.Render(d.observe().State)
	if !newer.added.Load() || b.worker() != worker {
		t.Errorf("added %v, worker %d, was %d", newer.added.Load(), b.worker(), worker)
	}
	b.written(d.p, 2)
	b.cfg.AdminSocket = real
	b.kill()
	b.start()
	for n := range 2 {
		_, at, _ := b.numbered(t, n)
		b.reached(at, pods[n])
	}
	if err := d.p.Close(); err != nil {
		t.Fatal(err)
	}
	if got := providertest.Render((desk{t, b.open()}).observe().State); got != want {
		t.Errorf("after a restart\n%s", got)
	}
}

// pretender makes a haproxy look as if it were 3.4.
type pretender struct {
	path  string
	added atomic.Bool
}

func newPretender(t *testing.T, real string) *pretender {
	t.Helper()
	d := &pretender{path: filepath.Join(t.TempDir(), "d")}
	l, err := net.Listen("unix", d.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	const wanted, hidden = "npl_s_0002", "npl_h_0002"
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			haproxy, err := net.Dial("unix", real)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				defer client.Close()
				for in := bufio.NewReader(haproxy); ; {
					line, err := in.ReadString('\n')
					line = strings.Replace(line, "Version: 2.6", "Version: 3.4", 1)
					if d.added.Load() {
						line = strings.ReplaceAll(line, hidden, wanted)
					}
					if strings.HasPrefix(line, "  add acl") {
						line += "  add backend x\n  publish backend x\n  unpublish backend x\n  del backend x\n"
					}
					if next, _ := in.Peek(1); err == nil && string(next) == ">" { // the prompt has no line of its own
						prompt := make([]byte, 2)
						_, err = io.ReadFull(in, prompt)
						line += string(prompt)
					}
					if _, writing := io.WriteString(client, line); err != nil || writing != nil {
						return
					}
				}
			}()
			go func() {
				defer haproxy.Close()
				for lines := bufio.NewScanner(client); lines.Scan(); {
					line := strings.ReplaceAll(lines.Text(), wanted, hidden)
					switch line {
					case "add backend " + hidden + " from npl-tcp":
						d.added.Store(true)
						line = "set severity-output number" // answered by nothing, as all is well
					case "publish backend " + hidden:
						line = "set severity-output number"
					}
					if _, err := fmt.Fprintln(haproxy, line); err != nil {
						return
					}
				}
			}()
		}
	}()
	return d
}

// TestDoctorSeesOpenPorts: how many are open and which not, what is routed otherwise than the file says, and another program than the one that runs.
func TestDoctorSeesOpenPorts(t *testing.T) {
	t.Parallel()
	b := openBalancer(t, "8000-8009")
	b.cfg.SpareBackends = 2
	host, err := net.Listen("tcp", netip.AddrPortFrom(b.vips[0], 8004).String())
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	d, one := opened(t, b)
	finds(t, Doctor(t.Context(), b.cfg), Warning, "open ports", "9 are open, 2 spare backends, 1 are closed", b.vips[0].String()+":8004")
	finds(t, Doctor(t.Context(), b.cfg), Good, "descriptors", "a new worker needs")
	_, at, state := b.numbered(t, 1, one)
	d.must(providertest.Diff(providers.State{}, state))
	b.written(d.p, 1)
	text, err := d.p.files.Current()
	if err != nil || strings.Contains(string(text), d.p.spares.path) {
		t.Errorf("the file refers to the map that the worker has loaded, of another text: %v", err)
	}
	i, err := Inspect(t.Context(), b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	route := InspectedRoute{at.String(), "npl_s_0001", "npl_s_0001"}
	if len(i.Routes) != 1 || i.Routes[0] != route || i.SpareBackends != 1 {
		t.Errorf("routes %+v, %d spare backends", i.Routes, i.SpareBackends)
	}
	if diff := i.Differences(); len(diff) != 1 { // the administrator's backend with a name like ours
		t.Errorf("differences %+v", diff)
	}
	if err := d.p.Close(); err != nil { // who would repair it
		t.Fatal(err)
	}
	b.run("del map " + d.p.spares.path + " " + at.String())
	if i, err = Inspect(t.Context(), b.cfg); err != nil || !slices.Contains(i.Differences(), Difference{"route " + at.String(), "npl_s_0001", ""}) {
		t.Errorf("differences %+v, %v", i.Differences(), err)
	}
	b.globals("    maxconn 600000000\n")
	b.cfg.Binary = filepath.Join(t.TempDir(), "haproxy")
	b.write(b.cfg.Binary, "#!/bin/sh\necho 'HAProxy version 9.9.9 2026/01/01'\n")
	if err := os.Chmod(b.cfg.Binary, 0o755); err != nil {
		t.Fatal(err)
	}
	found := Doctor(t.Context(), b.cfg)
	finds(t, found, Warning, "program", "9.9.9, and 2.", "restart haproxy once")
	finds(t, found, Failure, "descriptors", "not enough", "LimitNOFILE")
}

// TestSpareBackendsThatAreNotFree: a new Service takes none that somebody has put a server into, and none whose last servers have not gone yet.
func TestSpareBackendsThatAreNotFree(t *testing.T) {
	t.Parallel()
	b := openBalancer(t, "8000-8009")
	b.cfg.SpareBackends = 4
	b.cfg.DeleteServers = false
	d, one := opened(t, b)
	worker := b.worker()
	b.run("add server npl_s_0001/byhand 127.0.0.9:9 id 9")
	d.observe()
	took := map[string]bool{}
	for n := range 3 {
		key, at, state := b.numbered(t, n, one)
		d.must(providertest.Diff(providers.State{}, state))
		b.reached(at, one)
		took[d.p.backend(key)] = true
		d.must(providertest.Diff(state, providers.State{}))
		refused(t, at)
	}
	if len(took) != 3 || took["npl_s_0001"] || b.worker() != worker {
		t.Errorf("three Services took %v", took)
	}
	if byhand := b.run("show servers state npl_s_0001")[0]; !strings.Contains(byhand, "byhand") {
		t.Errorf("the server of somebody else is gone:\n%s", byhand)
	}
}
