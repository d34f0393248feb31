package model

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// One pass of the agent makes the model of the whole Node, here of Pods in groups of ten behind a Service with two ports, both families.
func BenchmarkBuild(b *testing.B) {
	for _, pods := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			in := Input{Node: node(), Addresses: internal, IPFamilies: both, KernelFamilies: both}
			for n := range pods {
				app := map[string]string{"app": fmt.Sprintf("app-%d", n/10), "pod-template-hash": "6d5f8c7b9d"}
				in.Pods = append(in.Pods, Pod{
					UID: fmt.Sprintf("uid-%d", n), Namespace: "default", Name: fmt.Sprintf("pod-%d", n), Labels: app,
					IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), addr(fmt.Sprintf("fd00::%x", n+1))},
				})
				if n%10 == 0 {
					s := service(fmt.Sprintf("app-%d", n/10), []npl.Family{npl.IPv4, npl.IPv6}, tcp(8080), tcp(9090))
					s.Selector = map[string]string{"app": app["app"]}
					in.Services = append(in.Services, s)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if m := Build(in); len(m.Pods) != pods || len(m.Pods[0].Wants) != 4 {
					b.Fatalf("%d Pods, %v", len(m.Pods), m.Refusals)
				}
			}
		})
	}
}
