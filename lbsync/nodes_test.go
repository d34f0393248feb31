package lbsync

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap/zaptest"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nplbridge/nplbridge/lbsync/internal/applied"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/status"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// onNodes is a world with a load balancer on each of some Nodes, and an lbsync in a Pod beside each.
type onNodes struct {
	*world
	at map[string]*providertest.LoadBalancer // by Node
}

func newOnNodes(t *testing.T, nodes int, objects ...runtime.Object) *onNodes {
	for n := range nodes {
		objects = append(objects, numbered(n+1))
	}
	return &onNodes{newWorld(t, objects...), map[string]*providertest.LoadBalancer{}}
}

// numbered is a ready Node.
func numbered(n int) *corev1.Node {
	out := node()
	out.Name, out.UID = fmt.Sprintf("node-%d", n), types.UID(fmt.Sprintf("node-%d", n))
	out.Status.Addresses[0].Address = fmt.Sprintf("198.51.100.%d", 10+n)
	return out
}

// place runs an lbsync on a Node, in a Pod of the name lb-<round>-<node>.
func (w *onNodes) place(node string, round int, edit ...func(*Syncer)) (s *Syncer, kill func()) {
	w.t.Helper()
	if w.at[node] == nil {
		can := providertest.MemoryCapabilities()
		can.Local = true
		w.at[node] = providertest.NewLoadBalancer(can)
	}
	identity := fmt.Sprintf("lb-%d-%s", round, node)
	cfg := config(identity)
	cfg.NodeAddresses, cfg.NodeName = cfg.Providers, node
	cfg.AddressPools = []AddressPool{{Name: "asked", Ranges: []AddressRange{{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.9")}}}}
	s, err := newSyncer(cfg, w.client, map[string]providers.Provider{"memory": w.at[node].Open(owner)}, zaptest.NewLogger(w.t), prometheus.NewRegistry(), w.clock)
	if err != nil {
		w.t.Fatal(err)
	}
	s.host.Read = func() ([]netip.Addr, error) { return nil, nil }
	s.getenv = func(key string) string {
		return map[string]string{"POD_NAMESPACE": "nplbridge-system", "POD_NAME": identity, "POD_UID": "uid-" + identity}[key]
	}
	for _, e := range edit {
		e(s)
	}
	pods := w.client.CoreV1().Pods("nplbridge-system")
	if _, err := pods.Get(w.t.Context(), identity, metav1.GetOptions{}); err != nil {
		p := pod("lb", 0)
		p.Namespace, p.Name, p.UID, p.Labels, p.Annotations, p.Spec.NodeName = "nplbridge-system", identity, types.UID("uid-"+identity), nil, nil, node
		if _, err := pods.Create(w.t.Context(), p, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	kill = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(kill)
	return s, kill
}

// ingress returns what the Service publishes, in its order, a port that does not answer as "!reason".
func (w *onNodes) ingress(name string) string {
	var out []string
	for _, i := range w.service(name).Status.LoadBalancer.Ingress {
		text := i.IP
		for _, p := range i.Ports {
			if p.Error != nil {
				text += fmt.Sprintf("!%d:%s", p.Port, *p.Error)
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func (w *onNodes) publishes(name, want string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s publishes %q", name, want), func() bool { return w.ingress(name) == want })
}

func (w *onNodes) condition(name, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(w.service(name).Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func (w *onNodes) events(reason string) (out []string) {
	list, err := w.client.EventsV1().Events("").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Reason == reason {
			out = append(out, e.Note)
		}
	}
	slices.Sort(out)
	return out
}

func (w *onNodes) edit(name string, change func(*corev1.Service)) {
	w.t.Helper()
	w.eventually("edited", func() bool {
		s := w.service(name)
		change(s)
		_, err := w.client.CoreV1().Services("shop").Update(w.t.Context(), s, metav1.UpdateOptions{})
		return err == nil
	})
}

// pass lets time pass while every lbsync lives.
func (w *onNodes) pass(d time.Duration) {
	until := w.clock.Now().Add(d)
	w.eventually(d.String()+" have passed", func() bool { return w.clock.Now().After(until) })
}

var keyWeb = providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP}

func TestOnNodes(t *testing.T) {
	w := newOnNodes(t, 3, service("web"), pod("web", 1))
	_, killOne := w.place("node-1", 1)
	w.publishes("web", "198.51.100.11")
	w.place("node-2", 1)
	w.publishes("web", "198.51.100.11 198.51.100.12")
	w.at["node-3"] = nil
	_, killThree := w.place("node-3", 1)
	all := "198.51.100.11 198.51.100.12 198.51.100.13"
	w.publishes("web", all)
	w.eventually("programmed", func() bool { return programmed(w.service("web")) })
	s := w.service("web")
	if i := s.Status.LoadBalancer.Ingress[0]; *i.IPMode != corev1.LoadBalancerIPModeProxy {
		t.Errorf("ipMode %s", *i.IPMode)
	}
	if m := w.condition("web", status.Programmed).Message; !strings.Contains(m, "198.51.100.11,198.51.100.12,198.51.100.13") {
		t.Errorf("message %q", m)
	}
	for name, lb := range w.at {
		vs := lb.State().VirtualServers
		if len(vs) != 1 || len(vs[0].VIPs) != 1 || !strings.HasSuffix(vs[0].VIPs[0].String(), "1"+name[len(name)-1:]) {
			t.Errorf("on %s there is %+v", name, vs)
		}
	}

	// I4: whoever leads is killed and starts again on the same load balancer. Nothing is written, on no Service and no load balancer.
	before, journal := w.serviceWrites(), w.at["node-1"].Writes()
	killOne()
	one, _ := w.place("node-1", 1)
	w.eventually("it works", func() bool { return one.Checks()[1].Check() == nil })
	w.pass(15 * time.Second)
	if n := w.serviceWrites() - before; n != 0 || w.at["node-1"].Writes() != journal {
		t.Errorf("%d writes of Services, %v, and %v", n, w.writes[before:], w.at["node-1"].Journal()[journal:])
	}

	// A Node that is not ready, and comes back.
	sick := numbered(2)
	sick.Status.Conditions[0].Status = corev1.ConditionFalse
	w.updateNode(sick)
	w.publishes("web", "198.51.100.11 198.51.100.13")
	w.updateNode(numbered(2))
	w.publishes("web", all)

	// A Pod that is deleted takes the Node's address with it at once, though its ConfigMap lingers.
	killThree()
	if err := w.client.CoreV1().Pods("nplbridge-system").Delete(t.Context(), "lb-1-node-3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	start := w.clock.Now()
	w.publishes("web", "198.51.100.11 198.51.100.12")
	if took := w.clock.Since(start); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	w.place("node-3", 2)
	w.publishes("web", all)

	// Gone, with nothing left anywhere.
	w.edit("web", func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("example.com/other") })
	w.eventually("nothing is left", func() bool {
		s := w.service("web")
		return len(s.Finalizers) == 0 && len(s.Status.LoadBalancer.Ingress) == 0 && len(s.Status.Conditions) == 0
	})
	for name, lb := range w.at {
		if left := providertest.Render(lb.State()); left != "" {
			t.Errorf("left on %s:\n%s", name, left)
		}
	}
}

func (w *onNodes) updateNode(n *corev1.Node) {
	w.t.Helper()
	if _, err := w.client.CoreV1().Nodes().Update(w.t.Context(), n, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// A process that is silent for long does not count any more, nor does one whose Pod is not ready for longer than a restart takes.
func TestOnNodesSilence(t *testing.T) {
	w := newOnNodes(t, 3, service("web"), pod("web", 1))
	w.place("node-1", 1)
	_, killTwo := w.place("node-2", 1)
	w.place("node-3", 1)
	w.publishes("web", "198.51.100.11 198.51.100.12 198.51.100.13")
	unready, err := w.client.CoreV1().Pods("nplbridge-system").Get(t.Context(), "lb-1-node-3", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	unready.Status.Conditions[0].Status, unready.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(w.clock.Now())
	w.update(unready)
	killTwo()
	start := w.clock.Now()
	w.publishes("web", "198.51.100.11 198.51.100.12")
	if took := w.clock.Since(start); took < 8*time.Second {
		t.Errorf("not ready for %s, and not published any more", took)
	}
	w.publishes("web", "198.51.100.11")
	if took := w.clock.Since(start); took < 20*time.Second {
		t.Errorf("silent for %s, and not published any more", took)
	}
	w.eventually("programmed", func() bool { return programmed(w.service("web")) })
}

// Of two Services with one port the older has it, on every Node; the other says so, and takes over.
func TestOnNodesTwoServicesOnePort(t *testing.T) {
	older, younger := service("web"), service("api")
	older.CreationTimestamp, younger.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	younger.Spec.Ports = append(younger.Spec.Ports, corev1.ServicePort{Name: "tls", Port: 443, Protocol: corev1.ProtocolTCP})
	w := newOnNodes(t, 2, older, younger, pod("web", 1), pod("api", 2))
	w.place("node-1", 1)
	w.place("node-2", 1)
	w.publishes("web", "198.51.100.11 198.51.100.12")
	w.publishes("api", "198.51.100.11!80:nplbridge.io/PortTaken 198.51.100.12!80:nplbridge.io/PortTaken")
	c := w.condition("api", status.Accepted)
	if c.Status != metav1.ConditionFalse || c.Reason != "PortTaken" || !strings.Contains(c.Message, "80/TCP belongs to Service shop/web, which is older") ||
		!strings.Contains(c.Message, "the other ports are served") {
		t.Errorf("%+v", c)
	}
	w.eventually("an Event says so, too", func() bool { return len(w.events("PortTaken")) > 0 })

	w.edit("web", func(s *corev1.Service) { s.Spec.Ports[0].Port = 8080 })
	w.publishes("api", "198.51.100.11 198.51.100.12")
	w.eventually("accepted", func() bool {
		return w.condition("api", status.Accepted).Status == metav1.ConditionTrue && programmed(w.service("api"))
	})
	w.edit("web", func(s *corev1.Service) { s.Spec.Ports[0].Port = 80 })
	w.publishes("api", "198.51.100.11!80:nplbridge.io/PortTaken 198.51.100.12!80:nplbridge.io/PortTaken")
	w.edit("web", func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Now()) })
	w.publishes("api", "198.51.100.11 198.51.100.12")
}

// A port that something else on one Node has costs that Node's address, as long as another Node has the port.
func TestOnNodesPortInUse(t *testing.T) {
	w := newOnNodes(t, 2, service("web"), pod("web", 1))
	can := providertest.MemoryCapabilities()
	can.Local = true
	for _, n := range []string{"node-1", "node-2"} {
		w.at[n] = providertest.NewLoadBalancer(can)
	}
	inUse := &providers.Error{Kind: providers.Rejected, What: "198.51.100.12:80 is in use by another listener"}
	w.at["node-2"].FailKey(keyWeb, inUse)
	w.place("node-1", 1)
	w.place("node-2", 1)
	w.publishes("web", "198.51.100.11")
	w.eventually("programmed, and it says where not", func() bool {
		c := w.condition("web", status.Programmed)
		return c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "not on Node node-2: 80/TCP: ")
	})
	w.eventually("an Event names Node and port", func() bool {
		e := w.events("NotOnNode")
		return len(e) == 1 && strings.Contains(e[0], "Node node-2: 80/TCP: ") && strings.Contains(e[0], "in use by another listener")
	})
	w.at["node-1"].FailKey(keyWeb, inUse)
	w.at["node-2"].FailKey(keyWeb, nil)
	w.publishes("web", "198.51.100.11 198.51.100.12")

	w.at["node-2"].FailKey(keyWeb, inUse)
	w.edit("web", func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 })
	second := keyWeb
	second.Port = 82
	w.at["node-1"].FailKey(second, inUse)
	w.at["node-2"].FailKey(second, inUse)
	w.edit("web", func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "b", Port: 82, Protocol: corev1.ProtocolTCP})
	})
	w.publishes("web", "198.51.100.11!82:nplbridge.io/ProviderRejected 198.51.100.12!82:nplbridge.io/ProviderRejected")
	w.eventually("nobody has the port", func() bool {
		c := w.condition("web", status.Programmed)
		return c.Reason == "ProviderRejected" && strings.Contains(c.Message, "on Node node-1: 82/TCP") && strings.Contains(c.Message, "on Node node-2: 82/TCP")
	})
}

func TestOnNodesReservedPorts(t *testing.T) {
	web := service("web")
	web.Spec.Ports = append(web.Spec.Ports, corev1.ServicePort{Name: "a", Port: 30080, Protocol: corev1.ProtocolTCP},
		corev1.ServicePort{Name: "b", Port: 61005, Protocol: corev1.ProtocolTCP})
	w := newOnNodes(t, 1, web, pod("web", 1))
	s, _ := w.place("node-1", 1, func(s *Syncer) {
		cfg := *s.settings.Load()
		cfg.PortRange = PortRange{61000, 62000}
		s.settings.Store(&cfg)
	})
	w.publishes("web", "198.51.100.11!30080:nplbridge.io/PortReserved!61005:nplbridge.io/PortReserved")
	c := w.condition("web", status.Accepted)
	if c.Reason != "PortReserved" || !strings.Contains(c.Message, "30000-32767") || !strings.Contains(c.Message, "kube-proxy") || !strings.Contains(c.Message, "npl-agents") {
		t.Errorf("%+v", c)
	}
	cfg := *s.settings.Load()
	cfg.NodePortRange = PortRange{}
	if err := s.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	w.publishes("web", "198.51.100.11!61005:nplbridge.io/PortReserved")
}

// Who asks for an address gets one of a pool, and may change its mind.
func TestOnNodesBesideAPool(t *testing.T) {
	w := newOnNodes(t, 2, service("web"), pod("web", 1))
	w.place("node-1", 1)
	w.place("node-2", 1)
	w.publishes("web", "198.51.100.11 198.51.100.12")
	w.edit("web", func(s *corev1.Service) {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations["nplbridge.io/address-pool"] = "asked"
	})
	w.publishes("web", "192.0.2.1")
	w.eventually("programmed", func() bool { return programmed(w.service("web")) })
	w.edit("web", func(s *corev1.Service) { delete(s.Annotations, "nplbridge.io/address-pool") })
	w.publishes("web", "198.51.100.11 198.51.100.12")
	w.eventually("programmed", func() bool { return programmed(w.service("web")) })
	w.eventually("the address is free", func() bool { return w.service("web").Annotations["nplbridge.io/load-balancer-ips-assigned"] == "" })
}

// A Service of a family that no Node has says so.
func TestOnNodesWithoutTheFamily(t *testing.T) {
	web := service("web")
	web.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	w := newOnNodes(t, 1, web, pod("web", 1))
	w.place("node-1", 1)
	w.eventually("no Node serves it", func() bool {
		c := w.condition("web", status.Programmed)
		return c.Reason == "NoNode" && strings.Contains(c.Message, "node-1: the Node has no address of the Service's families (IPv6)")
	})
	six := numbered(1)
	six.Status.Addresses = append(six.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "2001:db8::11"})
	w.updateNode(six)
	w.publishes("web", "2001:db8::11")
}

// External addresses are what is published, whether they are on the Node or on a router in front of it.
func TestOnNodesExternalAddresses(t *testing.T) {
	w := newOnNodes(t, 2, service("web"), pod("web", 1))
	for n, external := range map[int]string{1: "203.0.113.1", 2: "203.0.113.2"} {
		one := numbered(n)
		one.Status.Addresses = append(one.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: external})
		w.updateNode(one)
	}
	w.place("node-1", 1, func(s *Syncer) {
		s.host.Read = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("203.0.113.1")}, nil }
	})
	w.place("node-2", 1)
	w.publishes("web", "203.0.113.1 203.0.113.2")
	for n, want := range map[string]string{"node-1": "[198.51.100.11 203.0.113.1]", "node-2": "[198.51.100.12]"} {
		if got := fmt.Sprint(w.at[n].State().VirtualServers[0].VIPs); got != want {
			t.Errorf("%s listens at %s, want %s", n, got, want)
		}
	}
}

// What no host has on an interface is not published.
func TestAnnouncedByInterface(t *testing.T) {
	w := newOnNodes(t, 2, service("web"), pod("web", 1))
	w.pools = config("").AddressPools
	var mu sync.Mutex
	holder := ""
	move := func(to string) {
		mu.Lock()
		defer mu.Unlock()
		holder = to
	}
	edit := func(node string) func(*Syncer) {
		return func(s *Syncer) {
			cfg := s.cfg
			cfg.NodeAddresses, cfg.AnnounceByInterface = nil, cfg.Providers
			s.cfg = cfg
			s.settings.Store(&cfg)
			s.watch.Selection.AtNodes = nil
			s.host.Read = func() ([]netip.Addr, error) {
				mu.Lock()
				defer mu.Unlock()
				if holder == node {
					return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
				}
				return nil, nil
			}
		}
	}
	w.place("node-1", 1, edit("node-1"))
	w.place("node-2", 1, edit("node-2"))
	w.eventually("nobody announces it", func() bool {
		c := w.condition("web", status.Programmed)
		return c.Reason == "VIPNotAnnounced" && strings.Contains(c.Message, "192.0.2.1") && w.ingress("web") == ""
	})
	move("node-2")
	w.publishes("web", "192.0.2.1")
	w.eventually("programmed", func() bool { return programmed(w.service("web")) })
	move("node-1")
	w.pass(15 * time.Second)
	if got := w.ingress("web"); got != "192.0.2.1" || !programmed(w.service("web")) {
		t.Errorf("after it moved %q, %+v", got, w.condition("web", status.Programmed))
	}
	move("")
	w.pass(5 * time.Second)
	if got := w.ingress("web"); got != "192.0.2.1" {
		t.Errorf("while it moves %q", got)
	}
	w.publishes("web", "")
	w.eventually("it says so", func() bool { return w.condition("web", status.Programmed).Reason == "VIPNotAnnounced" })
}

// The pace follows from the processes that there are, however many Nodes there are without one.
func TestCountInstances(t *testing.T) {
	w := newOnNodes(t, 0)
	s, err := newSyncer(config("lb-1"), w.client, w.open(), zaptest.NewLogger(t), prometheus.NewRegistry(), w.clock)
	if err != nil {
		t.Fatal(err)
	}
	index, now := s.watch.Index, w.clock.Now()
	s.getenv = func(string) string { return "" }
	if n := s.countInstances(); n != 0 {
		t.Errorf("before anything is known %d", n)
	}
	for n := range 500 {
		index.SetNode(&model.Node{Name: fmt.Sprint("node-", n)}, now)
	}
	if n := s.countInstances(); n != 500 {
		t.Errorf("outside of a Pod %d, want as many as Nodes", n)
	}
	env := map[string]string{"POD_NAMESPACE": "nplbridge-system", "POD_NAME": "lb-1", "POD_UID": "uid-1"}
	s.getenv = func(key string) string { return env[key] }
	if n := s.countInstances(); n != 500 {
		t.Errorf("before its own Pod is known %d, want as many as Nodes", n)
	}
	enter := func(namespace, name, component, revision string) {
		index.SetPod(&model.Pod{Namespace: namespace, Name: name, UID: name, Labels: map[string]string{
			"app.kubernetes.io/component": component, "controller-revision-hash": revision, "pod-template-generation": revision,
		}}, now)
	}
	enter("nplbridge-system", "lb-1", "lbsync", "1")
	enter("nplbridge-system", "lb-2", "lbsync", "1")
	enter("nplbridge-system", "lb-3", "lbsync", "2") // during an update
	enter("elsewhere", "lb-4", "lbsync", "1")
	for n := range 500 {
		enter("nplbridge-system", fmt.Sprint("agent-", n), "agent", "1")
	}
	if n := s.countInstances(); n != 3 {
		t.Errorf("%d, want the three Pods like ours", n)
	}
}

// A new leader hears of a process between its two writes: what its load balancer has is not known then, and its Node stays published.
func TestOnNodesBetweenTwoWrites(t *testing.T) {
	w := newOnNodes(t, 2, service("web"), pod("web", 1))
	_, killOne := w.place("node-1", 1)
	_, killTwo := w.place("node-2", 1)
	all := "198.51.100.11 198.51.100.12"
	w.publishes("web", all)
	objects := w.client.CoreV1().ConfigMaps("nplbridge-system")
	killTwo()
	killOne()
	torn, err := objects.List(t.Context(), metav1.ListOptions{LabelSelector: applied.Label})
	if err != nil {
		t.Fatal(err)
	}
	packed, digest := applied.NewContent(owner.Instance, "lb-1-node-2", "memory", nil, []netip.Addr{netip.MustParseAddr("192.0.2.99")}).Pack()
	found := false
	for _, m := range torn.Items {
		if c, err := applied.Unpack(m.BinaryData[applied.ContentKey]); err == nil && c.Identity == "lb-1-node-2" && c.Digest != digest {
			m.BinaryData[applied.ContentKey], found = packed, true
			if _, err := objects.Update(t.Context(), &m, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !found {
		t.Fatal("node-2 has published no content")
	}
	one, _ := w.place("node-1", 1)
	w.eventually("it works", func() bool { return one.Checks()[1].Check() == nil })
	before := w.serviceWrites()
	w.pass(25 * time.Second)
	if got := w.ingress("web"); got != all {
		t.Errorf("between the two writes %q is published, writes %v", got, w.writes[before:])
	}
	w.publishes("web", "198.51.100.11") // nobody waits for ever for what does not come
}
