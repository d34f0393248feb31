package model

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/npl"
)

var (
	addr     = netip.MustParseAddr
	web      = map[string]string{"app": "web"}
	v4, v6   = []npl.Family{npl.IPv4}, []npl.Family{npl.IPv6}
	both     = []npl.Family{npl.IPv4, npl.IPv6}
	compare  = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	internal = AddressPolicy{Types: []string{"InternalIP"}}
)

func node() Node {
	return Node{Name: "node-1", Addresses: []NodeAddress{{"InternalIP", addr("192.0.2.1")}, {"InternalIP", addr("2001:db8::1")}}}
}

func pod(name string, ips ...string) Pod {
	p := Pod{UID: "uid-" + name, Namespace: "default", Name: name, Labels: web}
	for _, ip := range ips {
		p.IPs = append(p.IPs, addr(ip))
	}
	return p
}

func service(name string, families []npl.Family, ports ...ServicePort) Service {
	return Service{Namespace: "default", Name: name, Type: "ClusterIP", Selector: web, Families: families, Ports: ports}
}

func tcp(port uint16) ServicePort       { return ServicePort{Protocol: npl.TCP, TargetPort: port} }
func udp(port uint16) ServicePort       { return ServicePort{Protocol: npl.UDP, TargetPort: port} }
func named(name string) ServicePort     { return ServicePort{Protocol: npl.TCP, TargetName: name} }
func (p Pod) with(f func(*Pod)) Pod     { f(&p); return p }
func (s Service) as(typ string) Service { s.Type = typ; return s }

// wants writes the wants of every Pod, with the host port if there is one, and with the Services if there is not just one.
func wants(m Model) []string {
	out := []string{}
	for _, p := range m.Pods {
		for _, w := range p.Wants {
			s := fmt.Sprintf("%s %s/%s via %s", p.Pod.Name, w.Target, w.ID.Protocol, w.NodeIP)
			if w.HostPort != 0 {
				s += fmt.Sprintf(" hostPort %d", w.HostPort)
			}
			if len(w.Services) != 1 {
				s += fmt.Sprintf(" for %v", w.Services)
			}
			out = append(out, s)
		}
	}
	return out
}

func reasons(m Model) []Reason {
	var out []Reason
	for _, r := range m.Refusals {
		out = append(out, r.Reason)
	}
	return out
}

func TestBuild(t *testing.T) {
	const target = "a 10.0.0.1:80/tcp via 192.0.2.1"
	httpPort := ContainerPort{Name: "http", Port: 8080, Protocol: npl.TCP}
	hostPort := func(p npl.Protocol, hostIP string) func(*Pod) {
		ip, _ := netip.ParseAddr(hostIP)
		return func(pod *Pod) {
			pod.Ports = append(pod.Ports, ContainerPort{Port: 80, Protocol: p, HostPort: 4080, HostIP: ip})
		}
	}
	tests := []struct {
		name     string
		pods     []Pod
		services []Service
		change   func(*Input)
		want     []string
		refused  []Reason
	}{
		{name: "enabled Service selects the Pod", pods: []Pod{pod("a", "10.0.0.1")}, services: []Service{service("s", v4, tcp(80))}, want: []string{target}},
		{name: "LoadBalancer", pods: []Pod{pod("a", "10.0.0.1")}, services: []Service{service("s", v4, tcp(80)).as("LoadBalancer")}, want: []string{target}},
		{name: "Service of another namespace", pods: []Pod{pod("a", "10.0.0.1")},
			services: []Service{{Namespace: "other", Name: "s", Type: "ClusterIP", Selector: web, Families: v4, Ports: []ServicePort{tcp(80)}}}},
		{name: "type NodePort", pods: []Pod{pod("a", "10.0.0.1")}, services: []Service{service("s", v4, tcp(80)).as("NodePort")}, refused: []Reason{ServiceTypeUnsupported}},
		{name: "type ExternalName", pods: []Pod{pod("a", "10.0.0.1")}, services: []Service{service("s", v4, tcp(80)).as("ExternalName")}, refused: []Reason{ServiceTypeUnsupported}},
		{name: "labels do not match", pods: []Pod{pod("a", "10.0.0.1").with(func(p *Pod) { p.Labels = map[string]string{"app": "db"} })}, services: []Service{service("s", v4, tcp(80))}},
		{name: "every pair of the selector must match", pods: []Pod{pod("a", "10.0.0.1")}, services: []Service{{Namespace: "default", Name: "s", Type: "ClusterIP",
			Selector: map[string]string{"app": "web", "tier": ""}, Families: v4, Ports: []ServicePort{tcp(80)}}}},
		{name: "empty selector", pods: []Pod{pod("a", "10.0.0.1")}, services: []Service{{Namespace: "default", Name: "s", Type: "ClusterIP", Families: v4, Ports: []ServicePort{tcp(80)}}}},
		{name: "no Service", pods: []Pod{pod("a", "10.0.0.1")}},
		{name: "two target ports", pods: []Pod{pod("a", "10.0.0.1")}, services: []Service{service("s", v4, tcp(80), tcp(81))}, want: []string{target, "a 10.0.0.1:81/tcp via 192.0.2.1"}},
		{name: "two container ports, one targeted", pods: []Pod{pod("a", "10.0.0.1").with(func(p *Pod) {
			p.Ports = []ContainerPort{{Port: 80, Protocol: npl.TCP}, {Port: 81, Protocol: npl.TCP}}
		})}, services: []Service{service("s", v4, tcp(80))}, want: []string{target}},
		{name: "named port", pods: []Pod{pod("a", "10.0.0.1").with(func(p *Pod) { p.Ports = []ContainerPort{httpPort} })}, services: []Service{service("s", v4, named("http"))},
			want: []string{"a 10.0.0.1:8080/tcp via 192.0.2.1"}},
		{name: "unknown name", pods: []Pod{pod("a", "10.0.0.1").with(func(p *Pod) { p.Ports = []ContainerPort{httpPort} })}, services: []Service{service("s", v4, named("https"), tcp(80))},
			want: []string{target}, refused: []Reason{TargetPortUnknown}},
		{name: "named port of another protocol", pods: []Pod{pod("a", "10.0.0.1").with(func(p *Pod) { p.Ports = []ContainerPort{{Name: "http", Port: 80, Protocol: npl.UDP}} })},
			services: []Service{service("s", v4, named("http"))}, refused: []Reason{TargetPortUnknown}},
		{name: "two Services, two ports", pods: []Pod{pod("a", "10.0.0.1")}, services: []Service{service("s", v4, tcp(80)), service("t", v4, tcp(81))}, want: []string{target, "a 10.0.0.1:81/tcp via 192.0.2.1"}},
		{name: "two Services, one port by number and name", pods: []Pod{pod("a", "10.0.0.1").with(func(p *Pod) { p.Ports = []ContainerPort{httpPort} })},
			services: []Service{service("t", v4, named("http")), service("s", v4, tcp(8080)), service("u", v4, tcp(8080))}, want: []string{"a 10.0.0.1:8080/tcp via 192.0.2.1 for [default/s default/t default/u]"}},
		{name: "two ports of one Service, one of the Pod", pods: []Pod{pod("a", "10.0.0.1")}, services: []Service{service("s", v4, tcp(80), tcp(80))}, want: []string{target}},
		{name: "headless counts as ClusterIP, and without ports wants nothing", pods: []Pod{pod("a", "10.0.0.1")}, services: []Service{service("s", v4)}},
		{name: "TCP and UDP on one port", pods: []Pod{pod("a", "10.0.0.1")}, services: []Service{service("s", v4, udp(80), tcp(80))}, want: []string{target, "a 10.0.0.1:80/udp via 192.0.2.1"}},
		{name: "SCTP", pods: []Pod{pod("a", "10.0.0.1")}, services: []Service{service("s", v4, ServicePort{Protocol: npl.SCTP, TargetPort: 80})}, want: []string{"a 10.0.0.1:80/sctp via 192.0.2.1"}},
		{name: "host port", pods: []Pod{pod("a", "10.0.0.1").with(hostPort(npl.TCP, ""))}, services: []Service{service("s", v4, tcp(80))}, want: []string{target + " hostPort 4080"}},
		{name: "host port on TCP and UDP", pods: []Pod{pod("a", "10.0.0.1").with(hostPort(npl.UDP, "")).with(hostPort(npl.TCP, ""))}, services: []Service{service("s", v4, tcp(80))}, want: []string{target + " hostPort 4080"}},
		{name: "host port of another protocol", pods: []Pod{pod("a", "10.0.0.1").with(hostPort(npl.UDP, ""))}, services: []Service{service("s", v4, tcp(80))}, want: []string{target}},
		{name: "host network, declared port", pods: []Pod{pod("a", "192.0.2.1").with(func(p *Pod) { p.Ports = []ContainerPort{{Port: 80, Protocol: npl.TCP, HostPort: 80}} })},
			services: []Service{service("s", v4, tcp(80))}, want: []string{"a 192.0.2.1:80/tcp via 192.0.2.1 hostPort 80"}},
		{name: "host network, undeclared port", pods: []Pod{pod("a", "192.0.2.1")}, services: []Service{service("s", v4, tcp(80))}, want: []string{"a 192.0.2.1:80/tcp via 192.0.2.1"}},
		{name: "one of two Pods with one address has terminated", pods: []Pod{pod("a", "10.0.0.1"), pod("b", "10.0.0.1").with(func(p *Pod) { p.Terminated = true })},
			services: []Service{service("s", v4, tcp(80))}, want: []string{target}},
		{name: "no address yet", pods: []Pod{pod("a")}, services: []Service{service("s", v4, tcp(80))}},
		{name: "IPv6 only", pods: []Pod{pod("a", "fd00::1")}, services: []Service{service("s", v6, tcp(80))}, want: []string{"a [fd00::1]:80/tcp via 2001:db8::1"}},
		{name: "dual stack", pods: []Pod{pod("a", "10.0.0.1", "fd00::1")}, services: []Service{service("s", both, tcp(80))}, want: []string{target, "a [fd00::1]:80/tcp via 2001:db8::1"}},
		{name: "Service of one family, Pod of two", pods: []Pod{pod("a", "10.0.0.1", "fd00::1")}, services: []Service{service("s", v6, tcp(80))}, want: []string{"a [fd00::1]:80/tcp via 2001:db8::1"}},
		{name: "Service without families", pods: []Pod{pod("a", "fd00::1", "10.0.0.1")}, services: []Service{service("s", nil, tcp(80))}, want: []string{"a [fd00::1]:80/tcp via 2001:db8::1"}},
		{name: "Node lacks the family", pods: []Pod{pod("a", "10.0.0.1", "fd00::1")}, services: []Service{service("s", both, tcp(80))},
			change: func(in *Input) { in.Node.Addresses = in.Node.Addresses[:1] }, want: []string{target}, refused: []Reason{NodeAddressMissing}},
		{name: "kernel lacks the family", pods: []Pod{pod("a", "10.0.0.1", "fd00::1")}, services: []Service{service("s", both, tcp(80))},
			change: func(in *Input) { in.KernelFamilies = v4 }, want: []string{target}, refused: []Reason{FamilyUnsupported}},
		{name: "ipFamilies leaves a family out silently", pods: []Pod{pod("a", "10.0.0.1")}, services: []Service{service("s", both, tcp(80))},
			change: func(in *Input) { in.IPFamilies = v4 }, want: []string{target}},
		{name: "ipFamilies leaves a Service out silently", pods: []Pod{pod("a", "10.0.0.1")}, services: []Service{service("s", v6, named("unknown"))},
			change: func(in *Input) { in.IPFamilies = v4 }},
		{name: "each family has the preferred type it is present in", pods: []Pod{pod("a", "10.0.0.1", "fd00::1")}, services: []Service{service("s", both, tcp(80))},
			change: func(in *Input) {
				in.Addresses.Types = []string{"ExternalIP", "InternalIP"}
				in.Node.Addresses = append(in.Node.Addresses, NodeAddress{"ExternalIP", addr("203.0.113.1")})
			}, want: []string{"a 10.0.0.1:80/tcp via 203.0.113.1", "a [fd00::1]:80/tcp via 2001:db8::1"}},
		{name: "sidecar after container of the same port name", pods: []Pod{pod("a", "10.0.0.1").with(func(p *Pod) {
			p.Ports = []ContainerPort{httpPort, {Name: "metrics", Port: 9090, Protocol: npl.TCP}, {Name: "http", Port: 9999, Protocol: npl.TCP}}
		})}, services: []Service{service("s", v4, named("http"), named("metrics"))}, want: []string{"a 10.0.0.1:8080/tcp via 192.0.2.1", "a 10.0.0.1:9090/tcp via 192.0.2.1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := Input{Node: node(), Pods: tt.pods, Services: tt.services, Addresses: internal, IPFamilies: both, KernelFamilies: both}
			if tt.change != nil {
				tt.change(&in)
			}
			m := Build(in)
			if tt.want == nil {
				tt.want = []string{}
			}
			if diff := cmp.Diff(tt.want, wants(m)); diff != "" {
				t.Errorf("wants (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.refused, reasons(m)); diff != "" {
				t.Errorf("refusals (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHostPortsRuleOutPorts(t *testing.T) {
	m := Build(Input{Node: node(), IPFamilies: both, KernelFamilies: both, Pods: []Pod{
		pod("b", "10.0.0.2").with(func(p *Pod) { p.Ports = []ContainerPort{{Port: 80, Protocol: npl.TCP, HostPort: 61000}} }),
		pod("c", "10.0.0.3").with(func(p *Pod) {
			p.Ports = []ContainerPort{{Port: 53, Protocol: npl.UDP, HostPort: 61001, HostIP: addr("127.0.0.1")}}
		}),
		pod("d", "10.0.0.4").with(func(p *Pod) {
			p.Terminated, p.Ports = true, []ContainerPort{{Port: 80, Protocol: npl.TCP, HostPort: 61002}}
		}),
	}})
	want := map[Key]string{{npl.TCP, npl.IPv4, 61000}: "uid-b", {npl.TCP, npl.IPv6, 61000}: "uid-b", {npl.UDP, npl.IPv4, 61001}: "uid-c"}
	if diff := cmp.Diff(want, m.HostPorts); diff != "" {
		t.Error(diff)
	}
}

func TestTerminatedPodIsListedOnlyWhileAnnotated(t *testing.T) {
	annotated := pod("a", "10.0.0.1").with(func(p *Pod) { p.Terminated, p.Annotated = true, true })
	m := Build(Input{Node: node(), Pods: []Pod{annotated, pod("b", "10.0.0.2").with(func(p *Pod) { p.Terminated = true })}, Services: []Service{service("s", v4, tcp(80))}, Addresses: internal, IPFamilies: both, KernelFamilies: both})
	if len(m.Pods) != 1 || m.Pods[0].Pod.Name != "a" || len(m.Pods[0].Wants) != 0 {
		t.Errorf("Pods %+v", m.Pods)
	}
}

func TestOldestPodFirst(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := Build(Input{Node: node(), Pods: []Pod{
		pod("young").with(func(p *Pod) { p.Created = now.Add(time.Minute) }), pod("b").with(func(p *Pod) { p.Created = now }), pod("a").with(func(p *Pod) { p.Created = now }),
	}})
	var got []string
	for _, p := range m.Pods {
		got = append(got, p.Pod.Name)
	}
	if !slices.Equal(got, []string{"a", "b", "young"}) {
		t.Errorf("order %v", got)
	}
}

func TestRefusalsNameObjectValueAndFix(t *testing.T) {
	m := Build(Input{Node: node(), Pods: []Pod{pod("a", "10.0.0.1")}, Services: []Service{service("s", v4, named("web"))}, Addresses: internal, IPFamilies: both, KernelFamilies: both})
	want := Refusal{TargetPortUnknown, "uid-a", "default/a", "default/s",
		`Service default/s has targetPort "web" (tcp), which no container of Pod default/a declares: name a port of the container so, or use its number`}
	if len(m.Refusals) != 1 || m.Refusals[0] != want {
		t.Errorf("got %+v", m.Refusals)
	}
}

func TestNodeAddressMissingNamesTheSettings(t *testing.T) {
	in := Input{Node: node(), Pods: []Pod{pod("a", "10.0.0.1")}, Services: []Service{service("s", v4, tcp(80))}, Addresses: internal, IPFamilies: both, KernelFamilies: both}
	in.Addresses.CIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	want := Refusal{NodeAddressMissing, "uid-a", "default/a", "default/s", "Service default/s wants IPv4, but Node node-1 has no IPv4 address that nodeAddressTypes [InternalIP] " +
		"with nodeAddressCIDRs [10.0.0.0/8 2001:db8::/32] would publish: widen the setting, or give the Node such an address"}
	if m := Build(in); len(m.Refusals) != 1 || m.Refusals[0] != want {
		t.Errorf("got %+v", m.Refusals)
	}
}

// The type is a fact about the Service: however many Pods it selects, it is said once.
func TestServiceTypeIsRefusedOncePerService(t *testing.T) {
	m := Build(Input{Node: node(), Pods: []Pod{pod("a", "10.0.0.1"), pod("b", "10.0.0.2"), pod("c")}, Addresses: internal, IPFamilies: both, KernelFamilies: both,
		Services: []Service{service("s", v4, tcp(80)).as("NodePort"), service("t", v4, tcp(80)).as("ExternalName")}})
	const why = ": node ports are given for types ClusterIP and LoadBalancer only"
	want := []Refusal{
		{ServiceTypeUnsupported, "", "", "default/s", "Service default/s has type NodePort" + why},
		{ServiceTypeUnsupported, "", "", "default/t", "Service default/t has type ExternalName" + why},
	}
	if diff := cmp.Diff(want, m.Refusals); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
}

// The order in which caches hand out objects says nothing.
func TestOrderOfInputDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := Input{Node: node(), Addresses: internal, IPFamilies: both, KernelFamilies: both}
		for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
			p := pod(fmt.Sprintf("p%d", i), fmt.Sprintf("10.0.0.%d", i+1))
			if rapid.Bool().Draw(t, "host port") {
				p.Ports = []ContainerPort{{Port: 80, Protocol: npl.TCP, HostPort: uint16(rapid.IntRange(1, 3).Draw(t, "port"))}}
			}
			in.Pods = append(in.Pods, p)
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "services") {
			s := service(fmt.Sprintf("s%d", i), rapid.SampledFrom([][]npl.Family{v4, v6, both}).Draw(t, "families"), tcp(uint16(rapid.IntRange(80, 82).Draw(t, "target"))), named("x"))
			in.Services = append(in.Services, s.as(rapid.SampledFrom([]string{"ClusterIP", "NodePort"}).Draw(t, "type")))
		}
		want := Build(in)
		seed := rapid.Uint64().Draw(t, "seed")
		r := rand.New(rand.NewPCG(seed, seed))
		r.Shuffle(len(in.Pods), func(i, j int) { in.Pods[i], in.Pods[j] = in.Pods[j], in.Pods[i] })
		r.Shuffle(len(in.Services), func(i, j int) { in.Services[i], in.Services[j] = in.Services[j], in.Services[i] })
		opts := cmp.Options{compare, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })}
		if diff := cmp.Diff(want, Build(in), opts); diff != "" {
			t.Fatal(diff)
		}
	})
}
