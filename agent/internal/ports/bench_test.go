package ports

import (
	"fmt"
	"testing"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

func many(n int, podUID func(int) string, podPort func(int) uint16) []model.ID {
	ids := make([]model.ID, n)
	for i := range ids {
		ids[i] = model.ID{PodUID: podUID(i), PodPort: podPort(i), Protocol: npl.TCP, Family: npl.IPv4}
	}
	return ids
}

func BenchmarkAllocate(b *testing.B) {
	r := Range{61000, 62000}
	pods := many(1000, func(i int) string { return fmt.Sprint(i) }, func(int) uint16 { return 80 })
	for _, joint := range []bool{false, true} {
		b.Run(fmt.Sprintf("the last of 1001/joint=%v", joint), func(b *testing.B) {
			a := New(r, 0, joint)
			for _, id := range pods {
				a.Allocate([]model.ID{id}, all)
			}
			last := []model.ID{id("last")}
			for b.Loop() {
				if !a.Allocate(last, all) {
					b.Fatal("no port")
				}
				k, _ := a.Current(last[0])
				a.Release(k, epoch)
				a.Expire(epoch, always)
			}
		})
		b.Run(fmt.Sprintf("1000 Pods/joint=%v", joint), func(b *testing.B) {
			for b.Loop() {
				a := New(r, 0, joint)
				for i := range pods {
					a.Allocate(pods[i:i+1], all)
				}
			}
		})
	}
	b.Run("1000 ports of one Pod", func(b *testing.B) {
		ids := many(1000, func(int) string { return "a" }, func(i int) uint16 { return uint16(i + 1) })
		for b.Loop() {
			New(r, 0, false).Allocate(ids, all)
		}
	})
	b.Run("none is free", func(b *testing.B) {
		a := New(r, 0, false)
		for _, id := range append(pods, id("last")) {
			a.Allocate([]model.ID{id}, all)
		}
		for b.Loop() {
			if a.Allocate([]model.ID{id("waiting")}, all) {
				b.Fatal("a port")
			}
		}
	})
}
