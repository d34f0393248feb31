package nodecheck

import (
	"net/netip"
	"testing"
)

// BenchmarkCollect is one test of a Node with 250 Pods behind a bridge.
func BenchmarkCollect(b *testing.B) {
	h := newHost(b)
	h.run(bridgedPods)
	s := subject()
	for i := range 250 {
		s.Pods = append(s.Pods, netip.AddrFrom4([4]byte{10, 244, 0, byte(i + 1)}))
	}
	h.do(func() {
		for b.Loop() {
			Findings(Collect(s))
		}
	})
}
