package plan

import (
	"fmt"
	"testing"

	"github.com/nplbridge/nplbridge/providers"
)

// One Pod of a pool becomes another one.
func BenchmarkBetween(b *testing.B) {
	for _, members := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			var before, after []providers.Member
			for n := range members {
				m := member(fmt.Sprintf("pod-%d", n), uint16(61000+n), providers.Enabled)
				before = append(before, m)
				if n == members/2 {
					m = member("new", uint16(60000), providers.Enabled)
				}
				after = append(after, m)
			}
			current, wanted := providers.State{Pools: []providers.Pool{*pool(before...)}}, providers.State{Pools: []providers.Pool{*pool(after...)}}
			b.ReportAllocs()
			for b.Loop() {
				if c := Between(current, wanted); len(c.Pools) != 1 || len(c.Pools[0].Members) != 2 {
					b.Fatalf("%+v", c)
				}
			}
		})
	}
}
