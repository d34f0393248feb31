package applied

import (
	"bytes"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/lbsync/internal/onnode"
	"github.com/nplbridge/nplbridge/providers"
)

var (
	here  = netip.MustParseAddr("198.51.100.12")
	there = netip.MustParseAddr("198.51.100.13")
)

// many returns what a load balancer has of so many Services.
func many(services int) map[string]onnode.Served {
	out := map[string]onnode.Served{}
	for n := range services {
		out[fmt.Sprintf("team-%d/application-%d", n%97, n)] = onnode.Served{At: []netip.Addr{here}}
	}
	return out
}

func TestContent(t *testing.T) {
	long := strings.Repeat("x", 1000)
	serves := many(40)
	serves["shop/web"] = onnode.Served{At: []netip.Addr{there}}
	serves["shop/api"] = onnode.Served{Failed: []onnode.Failure{{Port: "80/TCP", Kind: providers.Rejected, Problem: long}}}
	in := NewContent("ns/lbsync", "two", "haproxy", serves, []netip.Addr{here})
	packed, digest := in.Pack()
	out, err := Unpack(packed)
	if err != nil || out.Digest != digest || !reflect.DeepEqual(out.Serves, in.Serves) || !slices.Equal(out.Holds, in.Holds) || out.Identity != "two" {
		t.Errorf("%+v, %v", out, err)
	}
	for service, has := range serves {
		if service != "shop/api" && !out.of(service).Equal(has) {
			t.Errorf("%s: %+v, want %+v", service, out.of(service), has)
		}
	}
	if got := out.of("shop/api").Failed; len(got) != 1 || len(got[0].Problem) != 256 || serves["shop/api"].Failed[0].Problem != long {
		t.Errorf("a long problem: %+v", got)
	}
	if !out.of("shop/none").Empty() || !out.of("").Empty() {
		t.Error("it has what nobody said")
	}
	if got := slices.Sorted(out.services); len(got) != len(serves) {
		t.Errorf("%d Services", len(got))
	}
	for range 10 { // a map has no order
		if again, d := NewContent("ns/lbsync", "two", "haproxy", serves, []netip.Addr{here}).Pack(); d != digest || !bytes.Equal(again, packed) {
			t.Fatal("the same content is not the same bytes")
		}
	}
	delete(serves, "shop/web")
	if _, d := NewContent("ns/lbsync", "two", "haproxy", serves, []netip.Addr{here}).Pack(); d == digest {
		t.Error("another content has the same digest")
	}
	for _, bad := range [][]byte{nil, []byte("x"), packed[:len(packed)/2], packed[:len(packed)-4]} {
		if _, err := Unpack(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	empty, _ := Content{}.Pack()
	if _, err := Unpack(empty); err == nil {
		t.Error("nobody's content was read")
	}
}

// Nodes that serve the same Services share the list of them.
func TestContentsShareLists(t *testing.T) {
	unpacked := func(serves map[string]onnode.Served) *Content {
		packed, _ := NewContent("ns/lbsync", "two", "haproxy", serves, nil).Pack()
		c, err := Unpack(packed)
		if err != nil {
			t.Fatal(err)
		}
		return &c
	}
	a, b, c := unpacked(many(100)), unpacked(many(100)), unpacked(many(101))
	if !b.share(a) || &a.many[0].Services[0] != &b.many[0].Services[0] || !b.share(a) {
		t.Error("the same list is there twice")
	}
	if c.share(a) || &a.many[0].Services[0] == &c.many[0].Services[0] {
		t.Error("another list is taken for the same")
	}
}

// A ConfigMap takes 1 MiB.
func TestContentOfManyServices(t *testing.T) {
	packed, _ := NewContent("ns/lbsync", "two", "haproxy", many(100_000), nil).Pack()
	if len(packed) > 1<<20 {
		t.Errorf("100,000 Services make %d bytes", len(packed))
	}
}

func FuzzUnpack(f *testing.F) {
	packed, _ := NewContent("ns/lbsync", "two", "haproxy", many(20), []netip.Addr{here}).Pack()
	f.Add(packed)
	f.Add(packed[:20])
	f.Fuzz(func(t *testing.T, packed []byte) {
		c, err := Unpack(packed)
		if err != nil {
			return
		}
		for service := range c.services {
			c.of(service)
		}
		again, _ := c.Pack()
		if _, err := Unpack(again); err != nil {
			t.Error(err)
		}
	})
}

// What each process sends to the API server: before the two were told apart, each heartbeat had the whole content in it.
func BenchmarkBytes(b *testing.B) {
	for _, services := range []int{1_000, 10_000, 50_000} {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			serves := many(services)
			var packed []byte
			var digest string
			for b.Loop() {
				packed, digest = NewContent("nplbridge-system/nplbridge", "nplbridge-lbsync-haproxy-abcde", "haproxy", serves, nil).Pack()
			}
			s := Standing{
				Instance: "nplbridge-system/nplbridge", Identity: "nplbridge-lbsync-haproxy-abcde", Provider: "haproxy", Node: "worker-1234", Seen: "123456789", Content: digest,
			}
			b.ReportMetric(float64(len(Encode(s))), "B/heartbeat")
			b.ReportMetric(float64(len(Encode(s))+len(marshal(serves))), "B/heartbeat-before")
			b.ReportMetric(float64(len(packed)), "B/content")
		})
	}
}

// BenchmarkHeartbeat is one whole heartbeat of a process whose load balancer has not changed, without the API server.
func BenchmarkHeartbeat(b *testing.B) {
	for _, services := range []int{1_000, 10_000, 50_000} {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			serves := many(services)
			now := many(services)
			for b.Loop() {
				if len(changesOf(serves, now)) > 0 {
					b.Fatal("it changed")
				}
			}
		})
	}
}

// BenchmarkUnpack is what the holder of the Lease does once for each content.
func BenchmarkUnpack(b *testing.B) {
	packed, _ := NewContent("ns/lbsync", "two", "haproxy", many(10_000), nil).Pack()
	for b.Loop() {
		if _, err := Unpack(packed); err != nil {
			b.Fatal(err)
		}
	}
}
