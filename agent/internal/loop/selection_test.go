package loop

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// serves says what came of it: each Pod's annotation, the kernel's rules, and for which Services each node port is there.
func (w *world) serves() (out []string) {
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		out = append(out, fmt.Sprintf("%s publishes %v", w.pods[uid].Name, w.listed(w.pods[uid])))
	}
	rules := w.kernel.Rules()
	for _, k := range slices.SortedFunc(maps.Keys(rules), dataplane.Key.Compare) {
		out = append(out, fmt.Sprintf("rule %s %s", k, rules[k]))
	}
	for _, m := range w.loop.Document().Mappings {
		out = append(out, fmt.Sprintf("%s %d for %s", m.Pod, m.NodePort, strings.Join(m.Services, ", ")))
	}
	return out
}

func (w *world) wantServes(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, w.serves()); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
	if rules, sockets := w.kernel.Rules(), w.kernel.Sockets(); len(rules) != len(sockets) {
		t.Errorf("%d rules and %d sockets", len(rules), len(sockets))
	}
}

// edit changes a Service of namespace default.
func (w *world) edit(name string, f func(*model.Service)) {
	s := w.services[name]
	f(&s)
	w.services[name] = s
}

// What Services, Pods and their ports come to: the annotation, the rules, and who they are for.
func TestSelection(t *testing.T) {
	declare := func(ports ...model.ContainerPort) func(*world, *model.Pod) {
		return func(w *world, a *model.Pod) {
			a.Ports = ports
			w.addService("web", web, 80)
		}
	}
	const (
		published = "a publishes [192.0.2.1:61000->80/tcp]"
		rule      = "rule 61000/tcp IPv4 10.0.0.1:80"
		owned     = "default/a 61000 for default/web"
	)
	families := func(families []npl.Family, ips ...string) func(*world, *model.Pod) {
		return func(w *world, a *model.Pod) {
			w.node.Addresses = append(w.node.Addresses, model.NodeAddress{Type: "InternalIP", IP: netip.MustParseAddr("2001:db8::1")})
			a.IPs = nil
			for _, ip := range ips {
				a.IPs = append(a.IPs, netip.MustParseAddr(ip))
			}
			w.addService("web", web, 80)
			w.edit("web", func(s *model.Service) { s.Families = families })
		}
	}
	tests := []struct {
		name  string
		given func(*world, *model.Pod)
		want  []string
	}{
		{"NPL11 two container ports, one targeted", declare(model.ContainerPort{Port: 80, Protocol: npl.TCP}, model.ContainerPort{Port: 81, Protocol: npl.TCP}), []string{published, rule, owned}},
		{"NPL13 two Services with different target ports", func(w *world, _ *model.Pod) {
			w.addService("web", web, 80)
			w.addService("admin", web, 81)
		}, []string{"a publishes [192.0.2.1:61000->80/tcp 192.0.2.1:61001->81/tcp]", rule, "rule 61001/tcp IPv4 10.0.0.1:81", owned, "default/a 61001 for default/admin"}},
		{"NPL14 Services on one port, by number and by name", func(w *world, a *model.Pod) {
			a.Ports = []model.ContainerPort{{Name: "http", Port: 80, Protocol: npl.TCP}}
			w.addService("web", web, 80)
			w.addService("again", web, 80)
			w.addService("named", web)
			w.edit("named", func(s *model.Service) { s.Ports = []model.ServicePort{{Protocol: npl.TCP, TargetName: "http"}} })
		}, []string{published, rule, "default/a 61000 for default/again, default/named, default/web"}},
		{"NPL20 host port", declare(model.ContainerPort{Port: 80, Protocol: npl.TCP, HostPort: 4080}),
			[]string{"a publishes [192.0.2.1:4080->80/tcp]", "default/a 4080 for default/web"}},
		{"NPL21 host port on TCP and UDP, Service on TCP", declare(model.ContainerPort{Port: 80, Protocol: npl.UDP, HostPort: 4080}, model.ContainerPort{Port: 80, Protocol: npl.TCP, HostPort: 4080}),
			[]string{"a publishes [192.0.2.1:4080->80/tcp]", "default/a 4080 for default/web"}},
		{"NPL22 host port of another protocol", declare(model.ContainerPort{Port: 80, Protocol: npl.UDP, HostPort: 4080}), []string{published, rule, owned}},
		{"host network, port declared", func(w *world, a *model.Pod) {
			a.IPs = []netip.Addr{w.node.Addresses[0].IP}
			declare(model.ContainerPort{Port: 80, Protocol: npl.TCP, HostPort: 80})(w, a)
		}, []string{"a publishes [192.0.2.1:80->80/tcp]", "default/a 80 for default/web"}},
		{"host network, port not declared", func(w *world, a *model.Pod) {
			a.IPs = []netip.Addr{w.node.Addresses[0].IP}
			w.addService("web", web, 80)
		}, []string{published, "rule 61000/tcp IPv4 192.0.2.1:80", owned}},
		{"NPL39 IPv6 only", families([]npl.Family{npl.IPv6}, "fd00::1"), []string{"a publishes [[2001:db8::1]:61000->80/tcp]", "rule 61000/tcp IPv6 [fd00::1]:80", owned}},
		{"NPL40 dual stack", families([]npl.Family{npl.IPv4, npl.IPv6}, "10.0.0.1", "fd00::1"),
			[]string{"a publishes [192.0.2.1:61000->80/tcp [2001:db8::1]:61000->80/tcp]", rule, "rule 61000/tcp IPv6 [fd00::1]:80", owned, owned}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.given(w, w.addPod("a", web))
			w.settle()
			w.wantServes(t, tt.want...)
		})
	}
}

func TestNPL02ServicesOfOneNameInTwoNamespaces(t *testing.T) {
	w := newWorld(t)
	w.addPod("a", web)
	w.addService("web", web, 80)
	elsewhere := w.services["web"]
	elsewhere.Namespace, elsewhere.Ports = "other", []model.ServicePort{{Protocol: npl.TCP, TargetPort: 81}}
	w.services["other/web"] = elsewhere
	w.settle()
	w.wantServes(t, "a publishes [192.0.2.1:61000->80/tcp]", "rule 61000/tcp IPv4 10.0.0.1:80", "default/a 61000 for default/web")
	delete(w.services, "web")
	w.settle()
	w.after(w.settings.WithdrawGrace)
	w.wantServes(t, "a publishes []")
}

// A starting agent knows a node port by its rule alone; whom it is for, the Services tell.
func TestNPL16OwnersAreKnownAgainAfterARestart(t *testing.T) {
	const published, rule = "a publishes [192.0.2.1:61000->80/tcp]", "rule 61000/tcp IPv4 10.0.0.1:80"
	w := newWorld(t)
	a := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	w.start()
	w.settle()
	w.wantServes(t, published, rule, "default/a 61000 for default/web")
	w.start() // meanwhile, another Service came
	w.addService("again", web, 80)
	w.settle()
	w.wantServes(t, published, rule, "default/a 61000 for default/again, default/web")
	if w.patches != 1 || w.nodePort(a, 80) != 61000 {
		t.Errorf("%d patches, want 1", w.patches)
	}
}

func TestNPL17TwoPodsHaveDifferentPorts(t *testing.T) {
	w := newWorld(t)
	w.addPod("a", web)
	w.addPod("b", web)
	w.addService("web", web, 80)
	w.settle()
	w.wantServes(t, "a publishes [192.0.2.1:61000->80/tcp]", "b publishes [192.0.2.1:61001->80/tcp]",
		"rule 61000/tcp IPv4 10.0.0.1:80", "rule 61001/tcp IPv4 10.0.0.2:80", "default/a 61000 for default/web", "default/b 61001 for default/web")
}

func TestNPL18OnePodPortOverTCPAndOneOverUDP(t *testing.T) {
	w := newWorld(t)
	dns := map[string]string{"app": "dns"}
	w.addPod("a", web)
	w.addPod("b", dns)
	w.addService("web", web, 80)
	w.addService("dns", dns, 80)
	w.edit("dns", func(s *model.Service) { s.Ports[0].Protocol = npl.UDP })
	w.settle()
	w.wantServes(t, "a publishes [192.0.2.1:61000->80/tcp]", "b publishes [192.0.2.1:61001->80/udp]",
		"rule 61000/tcp IPv4 10.0.0.1:80", "rule 61001/udp IPv4 10.0.0.2:80", "default/a 61000 for default/web", "default/b 61001 for default/dns")
}

// Switching sameNodePortPerProtocol on moves what differs, and only that, the new rule first and the old one last; off moves nothing.
func TestOneNumberForAllProtocols(t *testing.T) {
	w := newWorld(t)
	a := w.addPod("a", web)
	w.addService("web", web, 80, 81)
	w.edit("web", func(s *model.Service) {
		s.Ports = append(s.Ports, model.ServicePort{Protocol: npl.UDP, TargetPort: 80})
	})
	w.settle()
	if got := fmt.Sprint(w.listed(a)); got != "[192.0.2.1:61000->80/tcp 192.0.2.1:61001->80/udp 192.0.2.1:61002->81/tcp]" {
		t.Fatal(got)
	}
	w.log = nil
	w.settings.JointPorts = true
	w.start()
	w.settle()
	w.after(w.settings.WithdrawGrace)
	w.wantLog(t, "program 61000 10.0.0.1:80", "publish a [192.0.2.1:61000->80/tcp 192.0.2.1:61000->80/udp 192.0.2.1:61002->81/tcp]", "remove 61001")
	w.settings.JointPorts = false
	w.start()
	w.settle()
	w.wantLog(t)
}
