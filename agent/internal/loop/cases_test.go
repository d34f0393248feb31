package loop

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

const (
	none = "[]"
	one  = "[192.0.2.1:61000->80/tcp]"
	both = "[192.0.2.1:61000->80/tcp [2001:db8::1]:61000->80/tcp]"
)

// step is one thing that happens, and what the Pod is published with when it has settled.
type step struct {
	do   func(w *world, a *model.Pod)
	want string
}

// again begins a want in which a mapping comes back: its port was freed, and after a restart nobody knows whose it was.
const again = "again "

var nodePort = regexp.MustCompile(`:610\d\d->`)

// Cases that are a story of settled states: something changes, and then annotation, rules and sockets must agree. Each is told twice:
// with an agent that sees each change, and with one that is restarted after it and only finds what has become of it.
func TestStories(t *testing.T) {
	serve := func(ports ...uint16) func(*world, *model.Pod) {
		return func(w *world, _ *model.Pod) { w.addService("web", web, ports...) }
	}
	edit := func(f func(*model.Service)) func(*world, *model.Pod) {
		return func(w *world, _ *model.Pod) { w.edit("web", f) }
	}
	dual := func(w *world, a *model.Pod) {
		a.IPs = append(a.IPs, netip.MustParseAddr("fd00::1"))
		w.addService("web", web, 80)
		w.edit("web", func(s *model.Service) { s.Families = []npl.Family{npl.IPv4, npl.IPv6} })
	}
	named := func(name string) func(*model.Service) {
		return func(s *model.Service) { s.Ports = []model.ServicePort{{Protocol: npl.TCP, TargetName: name}} }
	}
	// A Service that is not enabled is not in the inventory: to the loop it is as if it were deleted.
	gone := func(w *world, _ *model.Pod) { delete(w.services, "web") }
	tests := []struct {
		name  string
		steps []step
	}{
		{"NPL01 one mapping for the target port", []step{{serve(80), one}}},
		{"NPL03 type NodePort and back", []step{{serve(80), one}, {edit(func(s *model.Service) { s.Type = "NodePort" }), none}, {edit(func(s *model.Service) { s.Type = "ClusterIP" }), again + one}}},
		{"NPL04 enabled false and true again", []step{{serve(80), one}, {gone, none}, {serve(80), again + one}}},
		{"NPL05 enabled annotation removed", []step{{serve(80), one}, {gone, none}}},
		{"NPL06 selector stops matching and matches again", []step{{serve(80), one},
			{edit(func(s *model.Service) { s.Selector = map[string]string{"app": "db"} }), none}, {edit(func(s *model.Service) { s.Selector = web }), again + one}}},
		{"NPL07 label stops matching", []step{{serve(80), one}, {func(_ *world, a *model.Pod) { a.Labels = nil }, none}}},
		{"NPL08 Service deleted", []step{{serve(80), one}, {gone, none}}},
		{"NPL10 one of two target ports goes", []step{{serve(80, 81), "[192.0.2.1:61000->80/tcp 192.0.2.1:61001->81/tcp]"}, {serve(81), "[192.0.2.1:61001->81/tcp]"}}},
		{"NPL12 named target port becomes unknown", []step{{func(w *world, a *model.Pod) {
			a.Ports = []model.ContainerPort{{Name: "http", Port: 80, Protocol: npl.TCP}}
			w.addService("web", web)
			w.edit("web", named("http"))
		}, one}, {edit(named("nope")), none}}},
		{"NPL19 TCP beside UDP", []step{
			{func(w *world, _ *model.Pod) {
				w.addService("web", web)
				w.edit("web", func(s *model.Service) { s.Ports = []model.ServicePort{{Protocol: npl.UDP, TargetPort: 80}} })
			}, "[192.0.2.1:61000->80/udp]"},
			{edit(func(s *model.Service) {
				s.Ports = append(s.Ports, model.ServicePort{Protocol: npl.TCP, TargetPort: 80})
			}),
				"[192.0.2.1:61001->80/tcp 192.0.2.1:61000->80/udp]"},
		}},
		{"NPL28 Pod loses its address", []step{{serve(80), one}, {func(_ *world, a *model.Pod) { a.IPs = nil }, none}}},
		{"NPL29 Pod address changes", []step{{serve(80), one}, {func(w *world, a *model.Pod) { a.IPs[0] = w.newIP() }, one}}},
		{"NPL38 Node address changes", []step{{serve(80), one},
			{func(w *world, _ *model.Pod) { w.node.Addresses[0].IP = netip.MustParseAddr("192.0.2.9") }, "[192.0.2.9:61000->80/tcp]"}}},
		{"NPL52 dual to single stack and to the other", []step{{dual, both}, {edit(func(s *model.Service) { s.Families = []npl.Family{npl.IPv4} }), one},
			{edit(func(s *model.Service) { s.Families = []npl.Family{npl.IPv6} }), again + "[[2001:db8::1]:61000->80/tcp]"}}},
		{"NPL54 junk does not block clean-up", []step{{serve(80), one}, {func(w *world, a *model.Pod) {
			gone(w, a)
			a.Annotation = `{"junk"`
		}, none}}},
		{"NPL61 Pod loses its IPv6 address", []step{{dual, both}, {func(_ *world, a *model.Pod) { a.IPs = a.IPs[:1] }, one}}},
		{"a host port takes over", []step{{serve(80), one}, {func(_ *world, a *model.Pod) {
			a.Ports = []model.ContainerPort{{Port: 80, Protocol: npl.TCP, HostPort: 8080}}
		}, "[192.0.2.1:8080->80/tcp]"}}},
		{"terminated", []step{{serve(80), one}, {func(_ *world, a *model.Pod) { a.Terminated = true }, none}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, restart := range []bool{false, true} {
				w := newWorld(t)
				w.node.Addresses = append(w.node.Addresses, model.NodeAddress{Type: "InternalIP", IP: netip.MustParseAddr("2001:db8::1")})
				a := w.addPod("a", web)
				for i, s := range tt.steps {
					s.do(w, a)
					if restart {
						w.start()
					}
					w.settle()
					w.after(w.settings.WithdrawGrace)
					want, back := strings.CutPrefix(s.want, again)
					if restart && back {
						want = nodePort.ReplaceAllString(want, nodePort.FindString(fmt.Sprint(w.listed(a))))
					}
					w.wantPublished(t, fmt.Sprintf("step %d, restart %v", i, restart), a, want)
				}
			}
		})
	}
}

// wantPublished checks that a Pod, the only one, is published so, and that rules and sockets are there for that and for nothing else.
func (w *world) wantPublished(t *testing.T, when string, a *model.Pod, want string) {
	t.Helper()
	if got := fmt.Sprint(w.listed(a)); got != want || a.Annotated != (want != none) {
		t.Errorf("%s: annotation %q, want %s", when, a.Annotation, want)
	}
	ours := 0
	rules := w.kernel.Rules()
	for _, m := range w.listed(a) {
		if m.NodePort < w.settings.Range.First {
			continue // a host port
		}
		ours++
		ip, _ := a.IP(m.Family)
		k := tcp4(m.NodePort)
		k.Protocol, k.Family = m.Protocol, m.Family
		if got := rules[k]; got != netip.AddrPortFrom(ip, m.PodPort) {
			t.Errorf("%s: %s leads to %v, want %s port %d", when, k, got, ip, m.PodPort)
		}
	}
	if sockets := w.kernel.Sockets(); len(rules) != ours || len(sockets) != ours {
		t.Errorf("%s: rules %v and sockets %v, want %d of each", when, rules, sockets, ours)
	}
}

func TestNPL09PodDeleted(t *testing.T) {
	w := newWorld(t)
	a, b := w.addPod("a", web), w.addPod("b", web)
	w.addService("web", web, 80)
	w.settle()
	delete(w.pods, a.UID)
	w.settle()
	w.wantPublished(t, "after the deletion", b, "[192.0.2.1:61001->80/tcp]")
}

func TestNPL15AnotherServiceTakesOver(t *testing.T) {
	w := newWorld(t)
	a := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	writes, patches := w.kernel.Writes(), w.patches
	delete(w.services, "web")
	w.addService("other", web, 80)
	w.settle()
	w.after(w.settings.CoolDown)
	w.wantPublished(t, "with the other Service", a, one)
	if m := w.loop.Document().Mappings; len(m) != 1 || fmt.Sprint(m[0].Services) != "[default/other]" {
		t.Errorf("mappings %+v", m)
	}
	if w.kernel.Writes() != writes || w.patches != patches {
		t.Errorf("%d kernel writes and %d patches, want none", w.kernel.Writes()-writes, w.patches-patches)
	}
}

func TestNPL27TwoPodsWithOneAddress(t *testing.T) {
	for _, order := range []string{"terminates before the other comes", "terminates after the other has come"} {
		w := newWorld(t)
		dead := w.addPod("dead", web)
		w.addService("web", web, 80)
		w.settle()
		live := *dead
		live.UID, live.Name, live.Annotated, live.Annotation = "uid-live", "live", false, ""
		if order == "terminates before the other comes" {
			dead.Terminated = true
			w.settle()
		}
		w.pods[live.UID] = &live
		dead.Terminated, live.Terminated = true, false
		w.settle()
		w.after(w.settings.CoolDown)
		if dead.Annotated {
			t.Errorf("%s: the dead Pod is published at %s", order, dead.Annotation)
		}
		port := w.nodePort(&live, 80)
		check := func(when string) {
			if port == 0 || port == 61000 || w.nodePort(&live, 80) != port || w.kernel.Rules()[tcp4(port)].Addr() != live.IPs[0] || len(w.kernel.Rules()) != 1 {
				t.Errorf("%s, %s: the live Pod is published at %s, rules %v", order, when, live.Annotation, w.kernel.Rules())
			}
		}
		check("when the one has terminated")
		delete(w.pods, dead.UID)
		w.settle()
		w.after(w.settings.CoolDown)
		check("when it is deleted")
	}
}

// What a starting agent finds in the annotation when the kernel has nothing.
func TestStart(t *testing.T) {
	for _, tt := range []struct{ name, annotation, want string }{
		{"NPL32 annotation cannot be read", "][", one},
		{"NPL33 node port outside the range", `[{"podPort":80,"nodeIP":"192.0.2.1","nodePort":4000,"protocol":"tcp"}]`, one},
		{"NPL35 field missing", `[{"podPort":80,"nodeIP":"192.0.2.1","protocol":"tcp"}]`, one},
		{"an older form is honoured", `[{"podPort":80,"nodeIP":"192.0.2.1","nodePort":61003}]`, "[192.0.2.1:61003->80/tcp]"},
		{"address of another Node", `[{"podPort":80,"nodeIP":"192.0.2.77","nodePort":61003}]`, "[192.0.2.1:61003->80/tcp]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			a := w.addPod("a", web)
			a.Annotated, a.Annotation = true, tt.annotation
			w.addService("web", web, 80)
			w.settle()
			w.after(w.settings.CoolDown) // where the annotation proved that the Node had served before, free ports rest first
			w.wantPublished(t, "at last", a, tt.want)
		})
	}
}

func TestNPL34AnnotatedWithoutAddressAtStart(t *testing.T) {
	w := newWorld(t)
	a := w.addPod("a", web)
	a.IPs, a.Annotated, a.Annotation = nil, true, `[{"podPort":80,"nodeIP":"192.0.2.1","nodePort":61003}]`
	w.addService("web", web, 80)
	w.settle()
	w.wantPublished(t, "without address", a, none)
	a.IPs = []netip.Addr{w.newIP()}
	w.after(w.settings.CoolDown)
	w.wantPublished(t, "with an address", a, one)
}

func TestNPL42Lookup(t *testing.T) {
	w := newWorld(t)
	w.node.Addresses = append(w.node.Addresses,
		model.NodeAddress{Type: "InternalIP", IP: netip.MustParseAddr("2001:db8::1")}, model.NodeAddress{Type: "ExternalIP", IP: netip.MustParseAddr("203.0.113.1")})
	a := w.addPod("a", web)
	a.IPs = append(a.IPs, netip.MustParseAddr("fd00::1"))
	a.Ports = []model.ContainerPort{{Port: 81, Protocol: npl.TCP, HostPort: 8081}}
	w.addService("web", web, 80, 81)
	w.edit("web", func(s *model.Service) { s.Families = []npl.Family{npl.IPv4, npl.IPv6} })
	w.addService("again", web, 80)
	w.settle()
	for _, tt := range []struct{ at, protocol, want string }{
		{"192.0.2.1:61000", "tcp", "default/a 10.0.0.1:80 [default/again default/web]"},
		{"192.0.2.1:61000", "TCP", "default/a 10.0.0.1:80 [default/again default/web]"},
		{"[::ffff:192.0.2.1]:61000", "Tcp", "default/a 10.0.0.1:80 [default/again default/web]"},
		{"[2001:db8::1]:61000", "tcp", "default/a [fd00::1]:80 [default/web]"},
		{"192.0.2.1:8081", "tcp", "default/a 10.0.0.1:81 [default/web]"},
		{"192.0.2.1:61000", "udp", ""},
		{"192.0.2.1:61001", "tcp", ""},
		{"192.0.2.2:61000", "tcp", ""},
		{"203.0.113.1:61000", "tcp", ""}, // an address of the Node, but not the published one
		{"[2001:db8::2]:61000", "tcp", ""},
		{"127.0.0.1:61000", "tcp", ""},
		{"192.0.2.1:61000", "", ""},
	} {
		got := ""
		for _, m := range w.loop.Document().Lookup(netip.MustParseAddrPort(tt.at), tt.protocol) {
			got += fmt.Sprint(m.Pod, " ", m.Target, " ", m.Services)
		}
		if got != tt.want {
			t.Errorf("%s/%s: %q, want %q", tt.at, tt.protocol, got, tt.want)
		}
	}
	if got := (Document{}).Lookup(netip.AddrPort{}, "tcp"); got != nil {
		t.Errorf("an invalid address finds %v", got)
	}
}
