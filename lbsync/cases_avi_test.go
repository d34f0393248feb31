package lbsync

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// The cases of the list AVI that are the same in front of every load balancer, tried on one in memory. See docs/reference/cases.md.

func TestAVI01AnnotatedReadyPodIsMember(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	w.start("one")
	w.members("web", "web-1:Enabled")
	if a := w.address("web", "web-1"); a != "198.51.100.11:61001" {
		t.Errorf("the member is %s", a)
	}
}

func TestAVI02DeletedPodLeaves(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("web", 2))
	w.start("one")
	w.members("web", "web-1:Enabled", "web-2:Enabled")
	w.removePod("web-1")
	w.members("web", "web-2:Enabled")
}

func TestAVI03PodThatIsNotSelected(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("api", 2))
	w.start("one")
	w.members("web", "web-1:Enabled")
}

func TestAVI04LabelAdded(t *testing.T) {
	stranger := with(pod("web", 2), func(p *corev1.Pod) { p.Labels = nil })
	w := newWorld(t, node(), service("web"), pod("web", 1), stranger)
	w.start("one")
	w.members("web", "web-1:Enabled")
	w.put(pod("web", 2))
	w.members("web", "web-1:Enabled", "web-2:Enabled")
}

func TestAVI05LabelRemoved(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("web", 2))
	w.start("one")
	w.members("web", "web-1:Enabled", "web-2:Enabled")
	w.put(with(pod("web", 2), func(p *corev1.Pod) { p.Labels = nil }))
	w.members("web", "web-1:Enabled")
}

func TestAVI06DeletedServiceLeavesNothing(t *testing.T) {
	w := newWorld(t, node(), service("web"), service("api"), pod("web", 1))
	w.start("one")
	w.served("web", "api")
	w.removeService("web")
	w.eventually("nothing of it is left", func() bool { return w.pool("web") == nil && len(w.service("web").Finalizers) == 0 })
	w.put(readiness(pod("web", 1), true)) // its annotation alone makes no pool
	w.steady("web")
}

func TestAVI07ClusterIPAndBack(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	w.start("one")
	w.served("web")
	w.change("web", func(s *corev1.Service) { s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil })
	w.eventually("the load balancer has let go", func() bool { return len(w.lb.State().VirtualServers) == 0 && w.pool("web") == nil })
	w.change("web", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, new("nplbridge.io/memory")
	})
	w.served("web")
	w.members("web", "web-1:Enabled")
}

func TestAVI08LastPodLeavesAnEmptyPool(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	w.start("one")
	w.served("web")
	w.removePod("web-1")
	w.members("web")
	if len(w.lb.State().VirtualServers) != 1 {
		t.Error("the virtual server went with the last Pod")
	}
}

func TestAVI09ServiceWithoutSelector(t *testing.T) {
	w := newWorld(t, node(), with(service("web"), func(s *corev1.Service) { s.Spec.Selector = nil }), pod("web", 1))
	w.start("one")
	w.members("web")
	if len(w.lb.State().VirtualServers) != 1 {
		t.Error("there is no virtual server")
	}
}

func TestAVI10SelectorCorrected(t *testing.T) {
	w := newWorld(t, node(), with(service("web"), func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "wbe"} }), pod("web", 1))
	w.start("one")
	w.members("web")
	w.change("web", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "web"} })
	w.members("web", "web-1:Enabled")
}

func TestAVI11NodePortsAreAskedForAndTakenBack(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	w.start("one")
	w.served("web")
	if !w.enabled("web") {
		t.Error("the Service asks for no node ports")
	}
	w.removeService("web")
	w.eventually("the annotation is taken back", func() bool { return !w.enabled("web") })
}

func TestAVI12ServiceThatBeginsToAsk(t *testing.T) {
	plain := with(attached("web", "lb-pool"), func(s *corev1.Service) { s.Annotations = nil })
	w := newWorld(t, node(), plain, service("api"), pod("web", 1))
	w.lb.PlantPool("lb-pool")
	w.start("one")
	w.served("api")
	if w.enabled("web") {
		t.Error("a Service that asks for nothing was annotated")
	}
	w.change("web", func(s *corev1.Service) { s.Annotations = attached("web", "lb-pool").Annotations })
	w.eventually("it asks for node ports", func() bool { return w.enabled("web") })
	w.members("web", "web-1:Enabled")
}

func TestAVI13PoolGivenToAnotherService(t *testing.T) {
	w := newWorld(t, node(), attached("web", "lb-pool"), with(attached("api", "x"), func(s *corev1.Service) { s.Annotations = nil }),
		pod("web", 1), pod("api", 2))
	w.lb.PlantPool("lb-pool")
	w.start("one")
	w.members("web", "web-1:Enabled")
	w.change("web", func(s *corev1.Service) { delete(s.Annotations, annotations.Pool) })
	w.change("api", func(s *corev1.Service) { s.Annotations = attached("api", "lb-pool").Annotations })
	w.members("api", "api-2:Enabled")
	w.eventually("the first asks for nothing any more", func() bool { return !w.enabled("web") && w.pool("web") == nil })
}

func TestAVI14AnotherClassAndBack(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	w.start("one")
	w.served("web")
	w.change("web", func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("example.com/other") })
	w.eventually("it is left to the other class", func() bool { return !w.enabled("web") && w.pool("web") == nil && len(w.service("web").Finalizers) == 0 })
	w.change("web", func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("nplbridge.io/memory") })
	w.served("web")
	w.members("web", "web-1:Enabled")
}

func TestAVI15ClassRemovedAndAdded(t *testing.T) {
	w := newWorld(t, node(), with(service("web"), func(s *corev1.Service) { s.Spec.LoadBalancerClass = nil }), service("api"), pod("web", 1))
	w.start("one")
	w.served("api")
	if w.enabled("web") || w.pool("web") != nil {
		t.Error("a Service without a class was served though that is not configured")
	}
	w.change("web", func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("nplbridge.io/memory") })
	w.served("web")
	w.change("web", func(s *corev1.Service) { s.Spec.LoadBalancerClass = nil })
	w.eventually("it is let go of", func() bool { return !w.enabled("web") && w.pool("web") == nil })
}

func TestAVI16NobodyHasToAnnotate(t *testing.T) {
	unasked := with(pod("web", 1), func(p *corev1.Pod) { p.Annotations = nil })
	w := newWorld(t, node(), service("web"), unasked)
	w.start("one")
	w.eventually("lbsync asks for node ports", func() bool { return w.enabled("web") })
	w.put(pod("web", 1)) // npl-agent answers
	w.members("web", "web-1:Enabled")
}

func TestAVI17NodePortServiceIsNotAnnotated(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	w.start("one")
	w.served("web")
	w.change("web", func(s *corev1.Service) { s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeNodePort, nil })
	w.eventually("the annotation is taken back", func() bool { return !w.enabled("web") && w.pool("web") == nil })
}

func TestAVI18TwoPortsTwoPools(t *testing.T) {
	web := with(service("web"), func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{servicePort(80, 8080, corev1.ProtocolTCP), servicePort(81, 8081, corev1.ProtocolTCP)}
	})
	two := mapped(pod("web", 1), mapping(8080, 61000, npl.TCP, "198.51.100.11"), mapping(8081, 61001, npl.TCP, "198.51.100.11"))
	w := newWorld(t, node(), web, two)
	w.start("one")
	w.served("web")
	var got []string
	for _, p := range w.lb.State().Pools {
		for _, m := range p.Members {
			got = append(got, p.Key.String()+"="+m.Address.String())
		}
	}
	if want := []string{"shop/web:80/TCP=198.51.100.11:61000", "shop/web:81/TCP=198.51.100.11:61001"}; !slices.Equal(got, want) {
		t.Errorf("pools %v, want %v", got, want)
	}
}

func TestAVI19ReadinessInAPoolOfSomebodyElse(t *testing.T) {
	w := newWorld(t, node(), attached("web", "lb-pool"), readiness(pod("web", 1), false))
	w.lb.PlantPool("lb-pool")
	w.start("one")
	w.members("web")
	for range 2 {
		w.put(readiness(pod("web", 1), true))
		w.members("web", "web-1:Enabled")
		w.put(readiness(pod("web", 1), false))
		w.members("web")
	}
}

func TestAVI20Readiness(t *testing.T) {
	w := newWorld(t, node(), service("web"), readiness(pod("web", 1), false))
	w.start("one")
	w.members("web")
	for range 2 {
		w.put(readiness(pod("web", 1), true))
		w.members("web", "web-1:Enabled")
		w.put(readiness(pod("web", 1), false))
		w.members("web")
	}
}

func TestAVI21PodsComeAndGoInAPoolOfSomebodyElse(t *testing.T) {
	w := newWorld(t, node(), attached("web", "lb-pool"))
	w.lb.PlantPool("lb-pool")
	w.start("one")
	w.members("web")
	w.put(pod("web", 1))
	w.members("web", "web-1:Enabled")
	w.removePod("web-1")
	w.members("web")
}

func TestAVI22LabelsInAPoolOfSomebodyElse(t *testing.T) {
	w := newWorld(t, node(), attached("web", "lb-pool"), pod("web", 1))
	w.lb.PlantPool("lb-pool")
	w.start("one")
	w.members("web", "web-1:Enabled")
	w.put(with(pod("web", 1), func(p *corev1.Pod) { p.Labels = nil }))
	w.members("web")
	w.put(pod("web", 1))
	w.members("web", "web-1:Enabled")
}

func TestAVI23DeletedServiceLeavesThePoolOfSomebodyElse(t *testing.T) {
	w := newWorld(t, node(), attached("web", "lb-pool"), pod("web", 1))
	w.lb.PlantPool("lb-pool")
	w.start("one")
	w.members("web", "web-1:Enabled")
	w.removeService("web")
	w.eventually("the members are gone", func() bool { return len(w.service("web").Finalizers) == 0 })
	for _, p := range w.lb.State().Pools {
		if len(p.Members) > 0 {
			t.Errorf("left: %v", p)
		}
	}
}

func TestAVI24NodePortsStayUntilTheLastUse(t *testing.T) {
	both := with(attached("web", "first"), func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, servicePort(81, 8080, corev1.ProtocolTCP))
		s.Annotations[annotations.Pool] = "80=memory:first,81=memory:second"
	})
	w := newWorld(t, node(), both, pod("web", 1))
	w.lb.PlantPool("first")
	w.lb.PlantPool("second")
	w.start("one")
	w.eventually("two pools have the Pod", func() bool { return len(w.lb.State().Pools) == 2 && w.enabled("web") })
	w.change("web", func(s *corev1.Service) { s.Annotations[annotations.Pool] = "81=memory:second" })
	w.eventually("one pool has it", func() bool { return len(w.lb.State().Pools) == 1 })
	if !w.enabled("web") {
		t.Error("node ports were taken back while a pool needs them")
	}
	w.change("web", func(s *corev1.Service) { delete(s.Annotations, annotations.Pool) })
	w.eventually("none needs them", func() bool { return !w.enabled("web") && len(w.lb.State().Pools) == 0 })
}

func TestAVI25NodePortServiceBehindAPoolBecomesClusterIP(t *testing.T) {
	w := newWorld(t, node(), with(attached("web", "lb-pool"), func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }), service("api"), pod("web", 1))
	w.lb.PlantPool("lb-pool")
	w.start("one")
	w.served("api")
	if w.enabled("web") {
		t.Error("a Service of type NodePort was annotated, though agents ignore it")
	}
	w.change("web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
	w.eventually("it asks for node ports", func() bool { return w.enabled("web") })
	w.members("web", "web-1:Enabled")
}

func TestAVI26TerminatingPodDrains(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("web", 2))
	w.start("one")
	w.members("web", "web-1:Enabled", "web-2:Enabled")
	key := keyOf("web", 80, providers.TCP)
	w.lb.SetConnections(key, w.lb.State().Pools[0].Members[0].ID(), 1)
	w.put(w.terminating(pod("web", 1)))
	w.members("web", "web-1:Draining", "web-2:Enabled")
	w.lb.SetConnections(key, w.lb.State().Pools[0].Members[0].ID(), 0)
	w.members("web", "web-2:Enabled")
}

func TestAVI27FamilyOfTheService(t *testing.T) {
	both := mapped(pod("web", 1), mapping(8080, 61001, npl.TCP, "198.51.100.11"), mapping(8080, 61001, npl.TCP, "2001:db8::11"))
	dual := with(node(), func(n *corev1.Node) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "2001:db8::11"})
	})
	w := newWorld(t, dual, service("web"), both)
	w.start("one")
	w.members("web", "web-1:Enabled")
	if a := w.address("web", "web-1"); a != "198.51.100.11:61001" {
		t.Errorf("an IPv4 Service has the member %s", a)
	}
}

func TestAVI28NamedTargetPort(t *testing.T) {
	named := func(n int, number int32) *corev1.Pod {
		p := mapped(pod("web", n), mapping(uint16(number), uint16(61000+n), npl.TCP, "198.51.100.11"))
		p.Spec.Containers = []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: number, Protocol: corev1.ProtocolTCP}}}}
		return p
	}
	w := newWorld(t, node(), with(service("web"), func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("http") }), named(1, 8080), named(2, 9090))
	w.start("one")
	w.members("web", "web-1:Enabled", "web-2:Enabled")
}

func TestAVI29NodePortServiceIsLeftAloneWithAnEvent(t *testing.T) {
	w := newWorld(t, node(), with(attached("web", "lb-pool"), func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }), pod("web", 1))
	w.lb.PlantPool("lb-pool")
	w.start("one")
	w.event("web", "NodePort")
	w.steady("web")
	if w.enabled("web") || len(w.service("web").Finalizers) > 0 {
		t.Errorf("the Service was touched: %v %v", w.service("web").Annotations, w.service("web").Finalizers)
	}
}

func TestAVI30Cleanup(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	_, stop := w.start("one")
	w.served("web")
	stop()
	before := providertest.Render(w.lb.State())
	unreadable := config("cleaner")
	unreadable.Instance = "" // as of an empty file
	if err := Cleanup(t.Context(), unreadable, w.client, w.open(), zaptest.NewLogger(t), Cleaning{}); err == nil {
		t.Error("a configuration that says nothing was taken")
	}
	if after := providertest.Render(w.lb.State()); after != before || !programmed(w.service("web")) {
		t.Errorf("a configuration that cannot be read removed something:\n%s", after)
	}
	if err := w.cleanup(t.Context(), Cleaning{}); err != nil {
		t.Fatal(err)
	}
	if left := providertest.Render(w.lb.State()); left != "" {
		t.Errorf("left on the load balancer:\n%s", left)
	}
	if left := trace(w.service("web")); len(left) > 0 {
		t.Errorf("left on the Service: %v", left)
	}
}

func TestAVI31OneWriterAndNoGap(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	one, stop := w.start("one")
	w.served("web")
	two, _ := w.start("two")
	before, written := w.lb.Writes(), w.serviceWrites()
	if !one.leading.Load() || two.leading.Load() {
		t.Fatal("one leads, two does not")
	}
	w.put(pod("web", 2))
	w.members("web", "web-1:Enabled", "web-2:Enabled")
	if w.lb.Writes() == before {
		t.Fatal("nothing was counted")
	}
	before = w.lb.Writes()
	stop()
	w.eventually("the second takes over", func() bool { return two.leading.Load() && two.Checks()[1].Check() == nil })
	if w.lb.Writes() != before || w.serviceWrites() != written {
		t.Errorf("the takeover wrote: %v, %v", w.lb.Journal(), w.writes)
	}
	w.steady("web", "web-1:Enabled", "web-2:Enabled")
}

func TestAVI32OnlyUnreadyPods(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("web", 2))
	w.start("one")
	w.served("web")
	w.put(readiness(pod("web", 1), false), readiness(pod("web", 2), false))
	w.eventually("no member is enabled", func() bool {
		return !slices.ContainsFunc(w.pool("web"), func(m string) bool { return strings.HasSuffix(m, ":Enabled") })
	})
	if len(w.lb.State().VirtualServers) != 1 {
		t.Error("the virtual server is gone")
	}
}

func TestAVI33TargetPortChanged(t *testing.T) {
	two := mapped(pod("web", 1), mapping(8080, 61000, npl.TCP, "198.51.100.11"), mapping(9090, 61001, npl.TCP, "198.51.100.11"))
	w := newWorld(t, node(), service("web"), two)
	w.start("one")
	w.served("web")
	before := len(w.lb.Journal())
	w.change("web", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(9090) })
	w.eventually("the member has the other port", func() bool { return w.address("web", "web-1") == "198.51.100.11:61001" && len(w.pool("web")) == 1 })
	for _, op := range w.lb.Journal()[before:] {
		if op.Key != keyOf("web", 80, providers.TCP) {
			t.Errorf("something else was written: %v", op)
		}
	}
}

func TestAVI34AnnotationRemovedFromALivePod(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("web", 2))
	w.start("one")
	w.members("web", "web-1:Enabled", "web-2:Enabled")
	w.put(with(pod("web", 1), func(p *corev1.Pod) { p.Annotations = nil }))
	w.members("web", "web-2:Enabled")
}

func TestAVI35CrashedAndFinishedPods(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("web", 2), pod("web", 3))
	w.start("one")
	w.members("web", "web-1:Enabled", "web-2:Enabled", "web-3:Enabled")
	w.put(readiness(pod("web", 1), false)) // as the kubelet says of a container in CrashLoopBackOff
	w.put(with(pod("web", 2), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }))
	w.members("web", "web-3:Enabled")
}

func TestAVI36ProtocolsHaveNodePortsOfTheirOwn(t *testing.T) {
	web := with(service("web"), func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{servicePort(53, 5353, corev1.ProtocolTCP), servicePort(53, 5353, corev1.ProtocolUDP)}
	})
	both := mapped(pod("web", 1), mapping(5353, 61000, npl.TCP, "198.51.100.11"), mapping(5353, 61001, npl.UDP, "198.51.100.11"))
	w := newWorld(t, node(), web, both)
	w.start("one")
	w.served("web")
	for _, p := range w.lb.State().Pools {
		want := map[providers.Protocol]string{providers.TCP: "198.51.100.11:61000", providers.UDP: "198.51.100.11:61001"}[p.Key.Protocol]
		if len(p.Members) != 1 || p.Members[0].Address.String() != want {
			t.Errorf("%s has %v, want %s", p.Key, p.Members, want)
		}
	}
}

func TestAVI49BadAnnotations(t *testing.T) {
	foreign := mapped(pod("web", 3), mapping(8080, 61003, npl.TCP, "203.0.113.9"))
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("web", 2), foreign)
	w.start("one")
	w.members("web", "web-1:Enabled", "web-2:Enabled")
	w.event("web-3", "203.0.113.9")
	w.put(with(pod("web", 1), func(p *corev1.Pod) { p.Annotations = map[string]string{npl.Annotation: "{"} }))
	w.event("web-1", "cannot be read")
	w.steady("web", "web-1:Enabled", "web-2:Enabled")
}

func TestAVI50NodeIsGone(t *testing.T) {
	second := with(node(), func(n *corev1.Node) { n.Name, n.Status.Addresses[0].Address = "node-2", "198.51.100.12" })
	away := mapped(with(pod("web", 2), func(p *corev1.Pod) { p.Spec.NodeName = "node-2" }), mapping(8080, 61002, npl.TCP, "198.51.100.12"))
	w := newWorld(t, node(), second, service("web"), pod("web", 1), away)
	w.start("one")
	w.members("web", "web-1:Enabled", "web-2:Enabled")
	if err := w.client.CoreV1().Nodes().Delete(t.Context(), "node-2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.members("web", "web-1:Enabled") // its Pod object lingers
}

func TestAVI51NodePortOfAnotherPod(t *testing.T) {
	w := newWorld(t, node(), service("web"), service("api"), pod("web", 1), pod("web", 2), with(pod("api", 1), func(p *corev1.Pod) { p.Annotations = nil }))
	w.start("one")
	w.members("web", "web-1:Enabled", "web-2:Enabled")
	w.removePod("web-1")
	w.put(mapped(pod("api", 1), mapping(8080, 61001, npl.TCP, "198.51.100.11"))) // the very next Pod gets its port
	w.members("api", "api-1:Enabled")
	w.members("web", "web-2:Enabled")
	held := map[string]string{}
	for _, op := range w.lb.Journal() {
		address, pool := op.Member.Address.String(), op.Key.String()
		switch op.What {
		case string(providers.AddMember):
			if other := held[address]; other != "" && other != pool {
				t.Errorf("%s was in %s and in %s at once", address, other, pool)
			}
			held[address] = pool
		case string(providers.RemoveMember):
			if held[address] == pool {
				delete(held, address)
			}
		}
	}
	if held["198.51.100.11:61001"] != "shop/api:80/TCP" {
		t.Errorf("the journal tells nothing of the port: %v", held)
	}
}
