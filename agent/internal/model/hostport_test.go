package model

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// A host port that is open on one address only is published for that address only. On any other the Pod gets a node port of ours.
func TestNPL65HostPortOfOneAddress(t *testing.T) {
	const ours4, ours6 = "a 10.0.0.1:80/tcp via 192.0.2.1", "a [fd00::1]:80/tcp via 2001:db8::1"
	const host4, host6 = ours4 + " hostPort 4080", ours6 + " hostPort 4080"
	for _, tt := range []struct {
		name    string
		hostIPs []string // of one container port each
		want    []string
	}{
		{"every address", []string{""}, []string{host4, host6}},
		{"the published IPv4 address", []string{"192.0.2.1"}, []string{host4, ours6}},
		{"the published IPv6 address", []string{"2001:db8::1"}, []string{ours4, host6}},
		{"another address of the Node", []string{"192.0.2.2"}, []string{ours4, ours6}},
		{"loopback", []string{"127.0.0.1"}, []string{ours4, ours6}},
		{"every IPv4 address", []string{"0.0.0.0"}, []string{host4, ours6}},
		{"every IPv6 address", []string{"::"}, []string{ours4, host6}},
		{"another address, and in a second entry the published one", []string{"192.0.2.2", "192.0.2.1"}, []string{host4, ours6}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := pod("a", "10.0.0.1", "fd00::1")
			for _, ip := range tt.hostIPs {
				hostIP, _ := netip.ParseAddr(ip)
				p.Ports = append(p.Ports, ContainerPort{Port: 80, Protocol: npl.TCP, HostPort: 4080, HostIP: hostIP})
			}
			m := Build(Input{Node: node(), Pods: []Pod{p}, Services: []Service{service("s", both, tcp(80))}, Addresses: internal, IPFamilies: both, KernelFamilies: both})
			if diff := cmp.Diff(tt.want, wants(m)); diff != "" {
				t.Errorf("wants (-want +got):\n%s", diff)
			}
		})
	}
}
