package haproxy

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/nplbridge/nplbridge/providers"
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
