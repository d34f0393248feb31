package loop

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// The acceptance cases of Antrea's own tests (1-51) and of the gaps past it (52-66) that one pass-by-pass story can tell: something is
// set up and settles, something changes, and then annotation and kernel must agree on what remains. The others are in packages model
// (selection, families, host ports), publish (patches) and dataplane (rules).
func TestCases(t *testing.T) {
	v6only := func(w *world, a *model.Pod) {
		a.IPs = []netip.Addr{netip.MustParseAddr("fd00::1")}
		w.addService("web", web, 80)
		s := w.services["web"]
		s.Families = []npl.Family{npl.IPv6}
		w.services["web"] = s
	}
	dual := func(w *world, a *model.Pod) {
		a.IPs = append(a.IPs, netip.MustParseAddr("fd00::1"))
		w.addService("web", web, 80)
		s := w.services["web"]
		s.Families = []npl.Family{npl.IPv4, npl.IPv6}
		w.services["web"] = s
	}
	serve := func(ports ...uint16) func(*world, *model.Pod) {
		return func(w *world, _ *model.Pod) { w.addService("web", web, ports...) }
	}
	change := func(f func(*model.Service)) func(*world, *model.Pod) {
		return func(w *world, _ *model.Pod) {
			s := w.services["web"]
			f(&s)
			w.services["web"] = s
		}
	}
	gone := func(w *world, _ *model.Pod) { delete(w.services, "web") } // what a Service that is no longer enabled is to the loop
	const (
		one  = "[192.0.2.1:61000->80/tcp]"
		none = "[]"
		both = "[192.0.2.1:61000->80/tcp [2001:db8::1]:61000->80/tcp]"
	)
	tests := []struct {
		name   string
		before func(*world, *model.Pod)
		middle string
		after  func(*world, *model.Pod)
		want   string
	}{
		{"Case03 ClusterIP to NodePort", serve(80), one, change(func(s *model.Service) { s.Type = "NodePort" }), none},
		{"Case03 and back to ClusterIP", func(w *world, a *model.Pod) {
			w.addService("web", web, 80)
			s := w.services["web"]
			s.Type = "NodePort"
			w.services["web"] = s
		}, none, change(func(s *model.Service) { s.Type = "ClusterIP" }), one},
		{"Case04 Case05 Case08 no longer enabled, or deleted", serve(80), one, gone, none},
		{"Case06 selector stops matching", serve(80), one, change(func(s *model.Service) { s.Selector = map[string]string{"app": "db"} }), none},
		{"Case07 label stops matching", serve(80), one, func(_ *world, a *model.Pod) { a.Labels = nil }, none},
		{"Case10 one of two ports goes", serve(80, 81), "[192.0.2.1:61000->80/tcp 192.0.2.1:61001->81/tcp]", serve(81), "[192.0.2.1:61001->81/tcp]"},
		{"Case12 named port becomes unknown", func(w *world, a *model.Pod) {
			a.Ports = []model.ContainerPort{{Name: "http", Port: 80, Protocol: npl.TCP}}
			w.addService("web", web)
			s := w.services["web"]
			s.Ports = []model.ServicePort{{Protocol: npl.TCP, TargetName: "http"}}
			w.services["web"] = s
		}, one, change(func(s *model.Service) { s.Ports = []model.ServicePort{{Protocol: npl.TCP, TargetName: "nope"}} }), none},
		{"Case15 another Service on the same port takes over", serve(80), one, func(w *world, a *model.Pod) {
			gone(w, a)
			w.addService("other", web, 80)
		}, one},
		{"Case19 a second protocol leaves the first alone", serve(80), one, change(func(s *model.Service) {
			s.Ports = append(s.Ports, model.ServicePort{Protocol: npl.UDP, TargetPort: 80})
		}), "[192.0.2.1:61000->80/tcp 192.0.2.1:61001->80/udp]"},
		{"Case20 host port takes over", serve(80), one, func(_ *world, a *model.Pod) {
			a.Ports = []model.ContainerPort{{Port: 80, Protocol: npl.TCP, HostPort: 8080}}
		}, "[192.0.2.1:8080->80/tcp]"},
		{"Case27 terminated", serve(80), one, func(_ *world, a *model.Pod) { a.Terminated = true }, none},
		{"Case28 Pod loses its address", serve(80), one, func(_ *world, a *model.Pod) { a.IPs = nil }, none},
		{"Case29 Pod address changes", serve(80), one, func(w *world, a *model.Pod) { a.IPs[0] = w.newIP() }, one},
		{"Case38 Node address changes", serve(80), one, func(w *world, _ *model.Pod) { w.node.Addresses[0].IP = netip.MustParseAddr("192.0.2.9") }, "[192.0.2.9:61000->80/tcp]"},
		{"Case39 IPv6 only", v6only, "[[2001:db8::1]:61000->80/tcp]", gone, none},
		{"Case40 dual stack", dual, both, gone, none},
		{"Case52 dual to single stack", dual, both, change(func(s *model.Service) { s.Families = s.Families[:1] }), one},
		{"Case54 junk annotation does not block clean-up", serve(80), one, func(w *world, a *model.Pod) {
			gone(w, a)
			a.Annotation = `{"junk"`
		}, none},
		{"Case61 Pod loses its IPv6 address", dual, both, func(_ *world, a *model.Pod) { a.IPs = a.IPs[:1] }, one},
	}
	for _, tt := range tests {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %v", tt.name, restart), func(t *testing.T) {
				w := newWorld(t)
				w.node.Addresses = append(w.node.Addresses, model.NodeAddress{Type: "InternalIP", IP: netip.MustParseAddr("2001:db8::1")})
				a := w.addPod("a", web)
				tt.before(w, a)
				w.settle()
				if got := fmt.Sprint(w.listed(a)); got != tt.middle {
					t.Fatalf("before: %s, want %s", got, tt.middle)
				}
				tt.after(w, a)
				if restart {
					w.start() // it changed while the agent was down
				}
				w.settle()
				if got := fmt.Sprint(w.listed(a)); got != tt.want {
					t.Errorf("annotation %s, want %s", got, tt.want)
				}
				if a.Annotated != (tt.want != none) {
					t.Errorf("annotation present: %v", a.Annotated)
				}
				w.after(w.settings.WithdrawGrace)
				ours := 0
				for _, m := range w.listed(a) {
					if m.NodePort >= w.settings.Range.First {
						ours++
					}
				}
				if got := len(w.kernel.Rules()); got != ours {
					t.Errorf("%d rules remain, want %d", got, ours)
				}
				if got := len(w.kernel.Sockets()); got != ours {
					t.Errorf("%d sockets remain, want %d", got, ours)
				}
			})
		}
	}
}

// What a starting agent finds in the annotation when the kernel has nothing.
func TestCasesAtStart(t *testing.T) {
	const target = "[192.0.2.1:61000->80/tcp]"
	for _, tt := range []struct{ name, annotation, want string }{
		{"Case32 invalid", "][", target},
		{"Case33 port outside the range", `[{"podPort":80,"nodeIP":"192.0.2.1","nodePort":4000,"protocol":"tcp"}]`, target},
		{"Case35 field missing", `[{"podPort":80,"nodeIP":"192.0.2.1","protocol":"tcp"}]`, target},
		{"older form is honoured", `[{"podPort":80,"nodeIP":"192.0.2.1","nodePort":61003}]`, "[192.0.2.1:61003->80/tcp]"},
		{"address of another Node", `[{"podPort":80,"nodeIP":"192.0.2.77","nodePort":61003}]`, "[192.0.2.1:61003->80/tcp]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			a := w.addPod("a", web)
			a.Annotated, a.Annotation = true, tt.annotation
			w.addService("web", web, 80)
			w.settle()
			w.after(w.settings.CoolDown) // where the annotation proved that the Node had served before, free ports rest first
			if got := fmt.Sprint(w.listed(a)); got != tt.want {
				t.Errorf("annotation %s, want %s", got, tt.want)
			}
		})
	}
	t.Run("Case34 annotated without address", func(t *testing.T) {
		w := newWorld(t)
		a := w.addPod("a", web)
		a.IPs, a.Annotated, a.Annotation = nil, true, `[{"podPort":80,"nodeIP":"192.0.2.1","nodePort":61003}]`
		w.addService("web", web, 80)
		w.settle()
		if a.Annotated {
			t.Errorf("annotation %s", a.Annotation)
		}
		a.IPs = []netip.Addr{w.newIP()}
		w.after(w.settings.CoolDown)
		if w.nodePort(a, 80) == 0 {
			t.Error("no mapping when the address came")
		}
	})
}

func TestCase17TwoPodsHaveDifferentPorts(t *testing.T) {
	w := newWorld(t)
	a, b := w.addPod("a", web), w.addPod("b", web)
	w.addService("web", web, 80)
	w.settle()
	if pa, pb := w.nodePort(a, 80), w.nodePort(b, 80); pa == 0 || pb == 0 || pa == pb {
		t.Errorf("ports %d and %d", pa, pb)
	}
}

func TestCase60SameNameAnotherUID(t *testing.T) {
	w := newWorld(t)
	a := w.addPod("a", web)
	w.addService("web", web, 80)
	w.settle()
	old := w.nodePort(a, 80)
	delete(w.pods, a.UID)
	b := w.addPod("a", web)
	delete(w.pods, b.UID)
	b.UID = "uid-other"
	w.pods[b.UID] = b
	w.after(time.Second)
	if got := w.nodePort(b, 80); got == 0 || got == old {
		t.Errorf("the new Pod of the same name has port %d, the old one had %d", got, old)
	}
}
