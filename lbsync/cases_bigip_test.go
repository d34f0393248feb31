package lbsync

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	ktesting "k8s.io/client-go/testing"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// The cases of the list BIGIP about Kubernetes, which are the same in front of every load balancer. See docs/reference/cases.md.

func TestBIGIP01TwoPodsTwoMembers(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("web", 2))
	w.start("one")
	w.members("web", "web-1:Enabled", "web-2:Enabled")
	for uid, want := range map[string]string{"web-1": "198.51.100.11:61001", "web-2": "198.51.100.11:61002"} {
		if got := w.address("web", uid); got != want {
			t.Errorf("%s is at %s, want %s", uid, got, want)
		}
	}
}

func TestBIGIP02OnlyTheMemberOfTheDeletedPodIsWritten(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("web", 2))
	w.start("one")
	w.served("web")
	before := len(w.lb.Journal())
	w.removePod("web-1")
	w.members("web", "web-2:Enabled")
	for _, op := range w.lb.Journal()[before:] {
		if op.Member.UID == "web-2" {
			t.Errorf("the other member was written: %v", op)
		}
	}
}

func TestBIGIP03AnnotationRemoved(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("web", 2), pod("web", 3))
	w.start("one")
	w.members("web", "web-1:Enabled", "web-2:Enabled", "web-3:Enabled")
	w.put(with(pod("web", 3), func(p *corev1.Pod) { p.Annotations = nil }))
	w.members("web", "web-1:Enabled", "web-2:Enabled")
}

func TestBIGIP04MalformedAnnotationKeepsTheLastGoodMember(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("web", 2))
	w.start("one")
	w.served("web")
	w.put(with(pod("web", 1), func(p *corev1.Pod) { p.Annotations = map[string]string{npl.Annotation: `[{"podPort":`} }))
	w.event("web-1", "cannot be read")
	w.put(pod("web", 3))
	w.members("web", "web-1:Enabled", "web-2:Enabled", "web-3:Enabled")
	w.removePod("web-1") // which ends what was kept
	w.members("web", "web-2:Enabled", "web-3:Enabled")
}

func TestBIGIP05AnnotationThatIsNoList(t *testing.T) {
	w := newWorld(t, node(), service("web"), with(pod("web", 1), func(p *corev1.Pod) { p.Annotations = map[string]string{npl.Annotation: "true"} }), pod("web", 2))
	w.start("one")
	w.members("web", "web-2:Enabled")
	w.event("web-1", "MalformedAnnotation")
}

func TestBIGIP06UserWantsNoNodePorts(t *testing.T) {
	unasked := with(pod("web", 1), func(p *corev1.Pod) { p.Annotations = nil })
	w := newWorld(t, node(), with(service("web"), func(s *corev1.Service) { s.Annotations = map[string]string{npl.EnabledAnnotation: "no"} }), unasked)
	w.start("one")
	w.event("web", "NodePortLocalDisabled")
	w.members("web")
	if v := w.service("web").Annotations[npl.EnabledAnnotation]; v != "no" {
		t.Errorf("the user's annotation became %q", v)
	}
}

func TestBIGIP07ServiceAfterItsPods(t *testing.T) {
	w := newWorld(t, node(), pod("web", 1))
	w.put(service("api"))
	w.start("one")
	w.served("api")
	if w.pool("web") != nil {
		t.Error("a pool without a Service")
	}
	w.put(service("web")) // no Pod has an event after it
	w.members("web", "web-1:Enabled")
}

func TestBIGIP08ServicesWithoutPods(t *testing.T) {
	none := with(service("none"), func(s *corev1.Service) { s.Spec.Selector = nil })
	external := with(attached("external", "lb-pool"), func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalName, s.Spec.Selector, s.Spec.Ports = corev1.ServiceTypeExternalName, "shop.example", nil, nil
	})
	w := newWorld(t, node(), none, external, pod("web", 1))
	w.lb.PlantPool("lb-pool")
	w.start("one")
	w.members("none")
	w.event("none", "selector")
	w.event("external", "ExternalName")
	list, err := w.client.EventsV1().Events("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, e := range list.Items {
		if e.Type == corev1.EventTypeWarning {
			count[e.Regarding.Name]++
		}
	}
	if count["none"] != 1 || count["external"] != 1 {
		t.Errorf("warnings %v, want one each", count)
	}
}

func TestBIGIP09SelectorThatMatchesNothing(t *testing.T) {
	w := newWorld(t, node(), with(service("web"), func(s *corev1.Service) { s.Spec.Selector["tier"] = "front" }), pod("web", 1))
	w.start("one")
	w.members("web")
}

func TestBIGIP10NamedTargetPortWithTwoNumbers(t *testing.T) {
	named := func(n int, number int32) *corev1.Pod {
		other := mapping(7070, uint16(61100+n), npl.TCP, "198.51.100.11")
		p := mapped(pod("web", n), mapping(uint16(number), uint16(61000+n), npl.TCP, "198.51.100.11"), other)
		p.Spec.Containers = []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{
			{Name: "metrics", ContainerPort: 7070, Protocol: corev1.ProtocolTCP}, {Name: "http", ContainerPort: number, Protocol: corev1.ProtocolTCP},
		}}}
		return p
	}
	w := newWorld(t, node(), with(service("web"), func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("http") }), named(1, 8080), named(2, 9090))
	w.start("one")
	w.members("web", "web-1:Enabled", "web-2:Enabled")
	if one, two := w.address("web", "web-1"), w.address("web", "web-2"); one != "198.51.100.11:61001" || two != "198.51.100.11:61002" {
		t.Errorf("members %s and %s", one, two)
	}
}

func TestBIGIP11NodePortRefusedLoadBalancerAccepted(t *testing.T) {
	w := newWorld(t, node(), with(attached("web", "lb-pool"), func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }), pod("web", 1))
	w.lb.PlantPool("lb-pool")
	w.start("one")
	w.event("web", "NodePort")
	w.steady("web")
	w.change("web", func(s *corev1.Service) {
		s.Annotations, s.Spec.Type, s.Spec.LoadBalancerClass = nil, corev1.ServiceTypeLoadBalancer, new("nplbridge.io/memory")
	})
	w.members("web", "web-1:Enabled")
}

func TestBIGIP12ScaledToZero(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1), pod("web", 2))
	w.start("one")
	w.served("web")
	w.removePod("web-1")
	w.removePod("web-2")
	w.members("web")
}

func TestBIGIP13OneNameInTwoNamespaces(t *testing.T) {
	elsewhere := func(o metav1.Object) { o.SetNamespace("other"); o.SetUID(types.UID("other-" + o.GetName())) }
	service2, pod2 := service("web"), mapped(pod("web", 1), mapping(8080, 61009, npl.TCP, "198.51.100.11"))
	elsewhere(service2)
	elsewhere(pod2)
	w := newWorld(t, node(), service("web"), pod("web", 1), service2, pod2)
	w.start("one")
	w.eventually("two pools", func() bool { return len(w.lb.State().Pools) == 2 })
	var got []string
	for _, p := range w.lb.State().Pools {
		for _, m := range p.Members {
			got = append(got, p.Key.Namespace+"="+m.UID)
		}
	}
	if want := []string{"other=other-web-1", "shop=web-1"}; !slices.Equal(got, want) {
		t.Errorf("members %v, want %v", got, want)
	}
}

func TestBIGIP14ProtocolOfTheServicePort(t *testing.T) {
	both := mapped(pod("web", 1), mapping(8080, 61000, npl.UDP, "198.51.100.11"), mapping(8080, 61001, npl.TCP, "198.51.100.11"))
	w := newWorld(t, node(), service("web"), both)
	w.start("one")
	w.members("web", "web-1:Enabled")
	if a := w.address("web", "web-1"); a != "198.51.100.11:61001" {
		t.Errorf("a TCP Service has the member %s", a)
	}
}

func TestBIGIP15PodInTwoServices(t *testing.T) {
	second := with(service("also"), func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "web"} })
	w := newWorld(t, node(), service("web"), second, pod("web", 1))
	w.start("one")
	w.served("web", "also")
	w.put(readiness(pod("web", 1), false))
	w.members("web")
	w.members("also")
	w.put(readiness(pod("web", 1), true))
	w.members("web", "web-1:Enabled")
	w.members("also", "web-1:Enabled")
}

func TestBIGIP16ReadyAgain(t *testing.T) {
	w := newWorld(t, node(), service("web"), readiness(pod("web", 1), false), pod("web", 2))
	w.start("one")
	w.members("web", "web-2:Enabled")
	before := len(w.lb.Journal())
	w.put(readiness(pod("web", 1), true))
	w.members("web", "web-1:Enabled", "web-2:Enabled")
	if ops := w.lb.Journal()[before:]; len(ops) != 1 || ops[0].Member.UID != "web-1" {
		t.Errorf("it took %v", ops)
	}
}

func TestBIGIP17TerminatingPodDrainsUntilIdleOrTheLimit(t *testing.T) {
	key := keyOf("web", 80, providers.TCP)
	draining := func(t *testing.T) *world {
		w := newWorld(t, node(), service("web"), pod("web", 1), pod("web", 2))
		w.start("one")
		w.members("web", "web-1:Enabled", "web-2:Enabled")
		w.lb.SetConnections(key, w.lb.State().Pools[0].Members[0].ID(), 3)
		w.put(w.terminating(pod("web", 1)))
		w.members("web", "web-1:Draining", "web-2:Enabled")
		return w
	}
	for name, end := range map[string]func(*world){
		"idle":      func(w *world) { w.lb.SetConnections(key, w.lb.State().Pools[0].Members[0].ID(), 0) },
		"the limit": func(w *world) { w.clock.Step(DefaultConfig().DrainLimit) },
		"node lost": func(w *world) { w.removePod("web-1") },
	} {
		w := draining(t)
		end(w)
		w.eventually("after "+name+" it is gone", func() bool { return slices.Equal(w.pool("web"), []string{"web-2:Enabled"}) })
	}
}

func TestBIGIP18NothingIsWrittenBeforeTheCachesAreFull(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	tried := make(chan struct{}, 100)
	w.client.PrependReactor("list", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
		select {
		case tried <- struct{}{}:
		default:
		}
		return true, nil, apierrors.NewServerTimeout(schema.GroupResource{Resource: "pods"}, "list", 1)
	})
	s, err := New(config("one"), w.client, w.open(), zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-tried
	<-tried
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if w.lb.Writes() > 0 || w.lb.Observations() > 0 || w.serviceWrites() > 0 {
		t.Errorf("written: %v, %v", w.lb.Journal(), w.writes)
	}
}

func TestBIGIP19FamiliesOfMembers(t *testing.T) {
	dual := with(node(), func(n *corev1.Node) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "2001:db8::11"})
	})
	both := mapped(pod("web", 1), mapping(8080, 61001, npl.TCP, "198.51.100.11"), mapping(8080, 61001, npl.TCP, "2001:db8::11"))
	six := with(service("web"), func(s *corev1.Service) {
		s.Spec.IPFamilies, s.Spec.LoadBalancerIP = []corev1.IPFamily{corev1.IPv6Protocol}, "2001:db8:1::7"
	})
	w := newWorld(t, dual, six, both)
	w.pools = []AddressPool{}
	w.start("one")
	w.members("web", "web-1:Enabled")
	if a := w.address("web", "web-1"); a != "[2001:db8::11]:61001" {
		t.Errorf("an IPv6 Service has the member %s", a)
	}
	w.change("web", func(s *corev1.Service) {
		s.Spec.IPFamilies, s.Spec.LoadBalancerIP = []corev1.IPFamily{corev1.IPv4Protocol}, "203.0.113.7"
	})
	w.eventually("the member follows the family", func() bool { return w.address("web", "web-1") == "198.51.100.11:61001" && len(w.pool("web")) == 1 })
}

func TestBIGIP20OnlyTheLeaseHolderWrites(t *testing.T) {
	w := newWorld(t, node(), service("web"), pod("web", 1))
	one, stop := w.start("one")
	w.served("web")
	two, _ := w.start("two")
	if two.balancers[0].loop.Load() != nil || !one.leading.Load() {
		t.Fatal("the second works on the load balancer, too")
	}
	before := w.lb.Writes()
	stop()
	w.eventually("the second has taken over", func() bool { return two.leading.Load() && two.Checks()[1].Check() == nil })
	if w.lb.Writes() != before {
		t.Errorf("the takeover wrote %v", w.lb.Journal()[before:])
	}
	w.put(pod("web", 2))
	w.members("web", "web-1:Enabled", "web-2:Enabled")
}

func TestBIGIP21RestartWithAThousandServices(t *testing.T) {
	var objects []runtime.Object
	objects = append(objects, node())
	const services = 1000
	for n := range services {
		name := fmt.Sprintf("s%d", n)
		objects = append(objects, service(name), mapped(pod(name, 1), mapping(8080, uint16(20000+n), npl.TCP, "198.51.100.11")))
	}
	w := newWorld(t, objects...)
	w.pools = []AddressPool{{Name: "large", Ranges: []AddressRange{must(ParseAddressRange("10.0.0.0/16"))}}}
	_, stop := w.start("one")
	w.eventually("all are served", func() bool { return len(w.lb.State().VirtualServers) == services })
	w.eventually("and said to be", func() bool {
		for n := range services {
			if !programmed(w.service(fmt.Sprintf("s%d", n))) {
				return false
			}
		}
		return true
	})
	stop()
	before, state, said := w.lb.Writes(), providertest.Render(w.lb.State()), w.serviceWrites()
	two, _ := w.start("two")
	w.eventually("the next one is ready", func() bool { return two.leading.Load() && two.Checks()[1].Check() == nil })
	if w.lb.Writes() != before || w.serviceWrites() != said || providertest.Render(w.lb.State()) != state {
		t.Errorf("a restart with nothing changed wrote %d times to the load balancer and %d times to Services", w.lb.Writes()-before, w.serviceWrites()-said)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
