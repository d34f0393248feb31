package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	vishnetlink "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

func manyMappings(n int) map[Key]netip.AddrPort {
	out := make(map[Key]netip.AddrPort, n)
	for i := range n {
		f := bothFamilies[i%2]
		out[Key{npl.TCP, f, uint16(20000 + i/2)}] = netip.AddrPortFrom(podAddr[i%2][f], uint16(1+i))
	}
	return out
}

func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("set-and-delete-%d", n), func(b *testing.B) {
			d := open(b, newNode(b), "")
			d.apply(Change{Set: manyMappings(1000)})
			set := map[Key]netip.AddrPort{}
			for i := range n {
				set[Key{npl.TCP, npl.IPv4, uint16(40000 + i)}] = netip.AddrPortFrom(podAddr[0][npl.IPv4], 80)
			}
			gone := slices.Collect(maps.Keys(set))
			d.node.do(func() {
				for b.Loop() {
					if err := errors.Join(d.n.Apply(Change{Set: set}), d.n.Apply(Change{Delete: gone})); err != nil {
						b.Error(err)
					}
				}
			})
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*2*n), "us/mapping")
		})
	}
}

func BenchmarkRepairIntact(b *testing.B) {
	d := open(b, newNode(b), "")
	want := manyMappings(1000)
	d.apply(Change{Set: want})
	d.node.do(func() {
		for b.Loop() {
			if got, err := d.n.Repair(want); err != nil || got != 0 {
				b.Error(got, err)
			}
		}
	})
}

func BenchmarkApplyUDPAmongConnections(b *testing.B) {
	for _, connections := range []int{0, 50000} {
		b.Run(fmt.Sprint(connections), func(b *testing.B) {
			d := open(b, newNode(b), "")
			k := Key{npl.UDP, npl.IPv4, 61000}
			d.node.do(func() {
				for i := range connections {
					client := []byte{10, 99, byte(i >> 8), byte(i)}
					entry := &vishnetlink.ConntrackFlow{
						FamilyType: unix.AF_INET, TimeOut: 3600, ProtoInfo: &vishnetlink.ProtoInfoTCP{State: 3},
						Forward: vishnetlink.IPTuple{Protocol: unix.IPPROTO_TCP, SrcIP: client, SrcPort: 1000, DstIP: []byte{192, 0, 2, 1}, DstPort: 443},
						Reverse: vishnetlink.IPTuple{Protocol: unix.IPPROTO_TCP, SrcIP: []byte{192, 0, 2, 1}, SrcPort: 443, DstIP: client, DstPort: 1000},
					}
					if err := vishnetlink.ConntrackCreate(vishnetlink.ConntrackTable, unix.AF_INET, entry); err != nil {
						b.Fatal(i, err)
					}
				}
				for i := 0; b.Loop(); i++ {
					if err := d.n.Apply(Change{Set: map[Key]netip.AddrPort{k: netip.AddrPortFrom(podAddr[i%2][npl.IPv4], 80)}}); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
