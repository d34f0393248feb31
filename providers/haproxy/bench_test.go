package haproxy

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// crowd returns n members on addresses of loopback, with one listener behind all of them.
func crowd(t testing.TB, n int) []providers.Member {
	t.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
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
			_ = c.Close()
		}
	}()
	port := netip.MustParseAddrPort(l.Addr().String()).Port()
	out := make([]providers.Member, n)
	for i := range out {
		out[i] = providers.Member{
			UID: fmt.Sprintf("0f4c5b6e-0000-4000-8000-%012d", i), State: providers.Enabled,
			Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 9, byte(i >> 8), byte(i)}), port),
		}
	}
	return out
}

// BenchmarkFill adds 1,000 members to an empty pool and takes them away again, on a real haproxy.
func BenchmarkFill(b *testing.B) {
	lb, p := running(b)
	d, key := desk{b, p}, testKey("big")
	lb.serve(d, key, 80)
	all := crowd(b, 1000)
	for b.Loop() {
		d.must(change(key, nil, all, nil))
		d.must(change(key, all, nil, nil))
	}
}

// BenchmarkOneOfMany adds and removes one member of a pool of 1,000, beside 9 other pools of 1,000.
func BenchmarkOneOfMany(b *testing.B) {
	lb, p := running(b)
	d, key := desk{b, p}, testKey("pool-0")
	all := crowd(b, 1000)
	for i := range 10 {
		key := testKey(fmt.Sprintf("pool-%d", i))
		d.must(change(key, nil, all[:999], &providers.VirtualServer{Key: key, VIPs: lb.vips[:1], Port: uint16(80 + i)}))
	}
	for b.Loop() {
		d.must(change(key, all[:999], all, nil))
		d.must(change(key, all, all[:999], nil))
	}
}

// BenchmarkObserve reads back 10 pools of 1,000 members.
func BenchmarkObserve(b *testing.B) {
	lb, p := running(b)
	d, all := desk{b, p}, crowd(b, 1000)
	for i := range 10 {
		key := testKey(fmt.Sprintf("pool-%d", i))
		d.must(change(key, nil, all, &providers.VirtualServer{Key: key, VIPs: lb.vips[:1], Port: uint16(80 + i)}))
	}
	for b.Loop() {
		d.observe()
	}
}

func TestThousandMembers(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("big")
	b.serve(d, key, 80)
	worker, all := b.worker(), crowd(t, 1000)
	d.must(change(key, nil, all, nil))
	if got := d.pool(key); len(got) != len(all) {
		t.Errorf("%d members, want %d", len(got), len(all))
	}
	ids := map[int]bool{}
	for _, s := range b.servers(key) {
		ids[s.ID] = true
	}
	if len(ids) != len(all) {
		t.Errorf("%d different ids for %d servers", len(ids), len(all))
	}
	d.must(change(key, all, all[:10], nil))
	if got := d.pool(key); len(got) != 10 {
		t.Errorf("%d members, want 10", len(got))
	}
	if b.worker() != worker {
		t.Error("haproxy was reloaded")
	}
}

// fleet is 1,000 Services with ten members each, on a haproxy that has their backends and no servers.
func fleet(b *testing.B) (*balancer, *Provider, [][]providers.Member) {
	b.Helper()
	lb := newBalancer(b)
	lb.log, lb.cfg.WriteDelay = zap.NewNop(), DefaultConfig().WriteDelay
	lb.cfg.CheckInterval = time.Hour // the checks of 10,000 members would be measured too
	p := lb.open()
	lb.start()
	all := crowd(b, 10000)
	var c providers.Changes
	for i := range 1000 {
		key := testKey(fmt.Sprintf("s-%04d", i))
		c.Pools = append(c.Pools, change(key, nil, nil, nil).Pools...)
	}
	desk{b, p}.must(c)
	var parts [][]providers.Member
	for i := range 1000 {
		parts = append(parts, all[10*i:10*i+10])
	}
	return lb, p, parts
}

// fill is what brings members into the fleet's pools; clear is what takes them out again.
func fill(parts [][]providers.Member, edit func(*providers.Member)) (fill, clear providers.Changes) {
	for i, part := range parts {
		key := testKey(fmt.Sprintf("s-%04d", i))
		now := slices.Clone(part)
		for j := range now {
			if edit != nil {
				edit(&now[j])
			}
		}
		fill.Pools = append(fill.Pools, change(key, nil, now, nil).Pools...)
		clear.Pools = append(clear.Pools, change(key, part, nil, nil).Pools...)
	}
	return fill, clear
}

// empty deletes all servers of the fleet.
func (b *balancer) empty(p *Provider, clear providers.Changes) {
	desk{b.t, p}.must(clear)
	b.eventually("the servers are deleted", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := len(p.leaving); n > 0 {
			return fmt.Errorf("%d are there", n)
		}
		return nil
	})
}

// commands are what fills the fleet, as the raw command line would be told.
func commandsFor(p *Provider, parts [][]providers.Member) []runtime.Command {
	var out []runtime.Command
	into, _ := fill(parts, nil)
	for _, c := range into.Pools {
		plan, err := mark("").planMembers(config.BackendName(c.Key), p.settings, nil, c)
		if err != nil {
			panic(err) // the addresses are good
		}
		out = append(out, plan.commands...)
	}
	return out
}

// raw gives commands over one connection and looks at nothing.
func (b *balancer) raw(into *testing.B, commands []runtime.Command) {
	s, err := runtime.Dial(into.Context(), b.cfg.AdminSocket)
	if err != nil {
		into.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Run(into.Context(), commands); err != nil {
		into.Fatal(err)
	}
}

// measured returns what runs one operation of a benchmark. It reports the shortest time that an operation took, and the processor time of each, here and in haproxy's
// worker: on a machine that others use too they say more than the mean.
func (b *balancer) measured(into *testing.B) func(op func()) {
	into.Helper()
	own := func() time.Duration {
		var use syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
			into.Fatal(err)
		}
		return time.Duration(use.Utime.Nano() + use.Stime.Nano())
	}
	theirs := func() time.Duration {
		var total time.Duration
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", b.worker()))
		if err != nil {
			into.Fatal(err)
		}
		for _, thread := range threads {
			var used time.Duration // the first of its numbers, in nanoseconds
			text, err := os.ReadFile(thread)
			if err == nil {
				_, err = fmt.Sscan(string(text), &used)
			}
			if err != nil {
				into.Fatal(err)
			}
			total += used
		}
		return total
	}
	var best, ours, haproxys time.Duration
	into.Cleanup(func() {
		into.ReportMetric(float64(best)/1e6, "best-ms")
		into.ReportMetric(float64(ours)/1e6/float64(into.N), "own-cpu-ms/op")
		into.ReportMetric(float64(haproxys)/1e6/float64(into.N), "haproxy-cpu-ms/op")
	})
	return func(op func()) {
		into.Helper()
		us, them, start := own(), theirs(), time.Now()
		op()
		took := time.Since(start)
		ours, haproxys = ours+own()-us, haproxys+theirs()-them
		if best == 0 || took < best {
			best = took
		}
	}
}

// BenchmarkConverge fills 1,000 backends with 10,000 servers: by the provider, by the same commands raw over one connection, by a connection for
// each command, and by rivals that write everything anew, with 42 slots for each backend.
func BenchmarkConverge(b *testing.B) {
	b.Run("provider", func(b *testing.B) {
		lb, p, parts := fleet(b)
		op := lb.measured(b)
		in, out := fill(parts, nil)
		for b.Loop() {
			op(func() { desk{b, p}.must(in) })
			b.StopTimer()
			lb.empty(p, out)
			b.StartTimer()
		}
	})
	b.Run("raw pipelined", func(b *testing.B) {
		lb, p, parts := fleet(b)
		_, out := fill(parts, nil)
		commands := commandsFor(p, parts)
		op := lb.measured(b)
		for b.Loop() {
			op(func() { lb.raw(b, commands) })
			b.StopTimer()
			lb.empty(p, out)
			b.StartTimer()
		}
	})
	b.Run("rival: connection per command", func(b *testing.B) {
		lb, p, parts := fleet(b)
		_, out := fill(parts, nil)
		commands := commandsFor(p, parts)
		op := lb.measured(b)
		for b.Loop() {
			op(func() {
				for _, c := range commands {
					conn, err := net.Dial("unix", lb.cfg.AdminSocket)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := io.WriteString(conn, c.Text+"\n"); err != nil {
						b.Fatal(err)
					}
					if _, err := io.Copy(io.Discard, conn); err != nil {
						b.Fatal(err)
					}
					_ = conn.Close()
				}
			})
			b.StopTimer()
			lb.empty(p, out)
			b.StartTimer()
		}
	})
	for _, slots := range []int{10, 42} {
		b.Run(fmt.Sprintf("rival: file with %d slots and reload", slots), func(b *testing.B) {
			lb, p, parts := fleet(b)
			for i, part := range parts {
				service := *p.model.Get(testKey(fmt.Sprintf("s-%04d", i)))
				var err error
				if service.Servers, err = newServers(part, nil); err != nil {
					b.Fatal(err)
				}
				service.Pool.Monitor.Type = providers.MonitorNone // a check of each slot takes more descriptors than many a host has
				for n := len(part); n < slots; n++ {
					service.Servers = append(service.Servers, config.Server{
						Name: fmt.Sprintf("slot-%d", n), ID: n + 1, Address: part[0].Address, Weight: 1, Drained: true,
					})
				}
				p.model.Set(service)
			}
			file := p.model.Clone()
			var best time.Duration // its processor time is spread over two workers and the master
			for b.Loop() {
				start := time.Now()
				file.Generation.Number++
				if err := p.files.WriteCurrent(config.Render(file, p.settings)); err != nil {
					b.Fatal(err)
				}
				if err := p.reloader.Reload(b.Context(), file.Generation); err != nil {
					b.Fatal(err)
				}
				if took := time.Since(start); best == 0 || took < best {
					best = took
				}
			}
			b.ReportMetric(float64(best)/1e6, "best-ms")
			lb.memory(b)
		})
	}
}

// memory reports the resident memory of the worker and of this process, and what of the latter is in use.
func (b *balancer) memory(into *testing.B) {
	var use goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&use)
	into.ReportMetric(float64(use.HeapAlloc)/(1<<20), "own-heap-MiB")
	for name, pid := range map[string]int{"haproxy-MiB": b.worker(), "own-MiB": os.Getpid()} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			into.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			kilobytes := 0.0
			if n, _ := fmt.Sscanf(line, "VmRSS: %f kB", &kilobytes); n == 1 {
				into.ReportMetric(kilobytes/1024, name)
			}
		}
	}
}

// BenchmarkFleet changes and reads a fleet of 10,000 members.
func BenchmarkFleet(b *testing.B) {
	lb, p, parts := fleet(b)
	d := desk{b, p}
	in, _ := fill(parts, nil)
	d.must(in)
	heavy, _ := fill(parts, func(m *providers.Member) { m.Weight = 7 })
	drained, _ := fill(parts, func(m *providers.Member) { m.State = providers.Draining })
	b.Run("10,000 weights", func(b *testing.B) {
		op := lb.measured(b)
		for n := 0; b.Loop(); n++ {
			op(func() { d.must([]providers.Changes{heavy, in}[n%2]) })
		}
	})
	b.Run("10,000 weights, raw", func(b *testing.B) {
		op := lb.measured(b)
		lists := [2][]runtime.Command{}
		for i, part := range parts {
			for _, m := range part {
				name, err := config.ServerName(m.ID())
				if err != nil {
					b.Fatal(err)
				}
				for n, weight := range []int{7, 1} {
					lists[n] = append(lists[n], runtime.Weigh(config.BackendName(testKey(fmt.Sprintf("s-%04d", i))), name, weight))
				}
			}
		}
		for n := 0; b.Loop(); n++ {
			op(func() { lb.raw(b, lists[n%2]) })
		}
	})
	d.must(in)
	b.Run("10,000 states", func(b *testing.B) {
		op := lb.measured(b)
		for n := 0; b.Loop(); n++ {
			op(func() { d.must([]providers.Changes{drained, in}[n%2]) })
		}
	})
	d.must(in)
	b.Run("Observe", func(b *testing.B) {
		op := lb.measured(b)
		for b.Loop() {
			op(func() { d.observe() })
		}
		lb.memory(b)
	})
	b.Run("Observe, raw", func(b *testing.B) {
		op := lb.measured(b)
		for b.Loop() {
			op(func() { lb.raw(b, []runtime.Command{runtime.Ask("show servers state")}) })
		}
	})
	b.Run("one Pod", func(b *testing.B) {
		op := lb.measured(b)
		key := testKey("s-0500")
		now := slices.Clone(parts[500])
		now[3].State = providers.Draining
		there, back := change(key, parts[500], now, nil), change(key, now, parts[500], nil)
		for n := 0; b.Loop(); n++ {
			op(func() { d.must([]providers.Changes{there, back}[n%2]) })
		}
	})
	b.Run("one Pod, raw", func(b *testing.B) {
		op := lb.measured(b)
		name, err := config.ServerName(parts[500][3].ID())
		if err != nil {
			b.Fatal(err)
		}
		backend := config.BackendName(testKey("s-0500"))
		for n := 0; b.Loop(); n++ {
			op(func() {
				lb.raw(b, []runtime.Command{runtime.Maintain(backend, name), runtime.Ready(backend, name)}[n%2:n%2+1])
			})
		}
	})
}
