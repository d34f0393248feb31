package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/chaos/ledger"
)

// changes are what the owners of applications do, and what happens to their Pods.
func changes() []action {
	return []action{
		{"scale", "Deployments are scaled up, then down", careful, scale},
		{"rollout", "a Deployment with the readiness gate is rolled", careful, rollout},
		{"pod-crash", "a container is killed and started again", fault, podCrash},
		{"readiness", "a Pod loses its readiness and gets it back, several times", careful, readiness},
		{"label-edit", "a running Pod is taken out of its Service by a label", careful, labelEdit},
		{"selector-edit", "a Service selects other Pods, then the first ones again", careful, selectorEdit},
		{"service-type", "a Service leaves the load balancer and comes back", careful, serviceType},
		{"service-port", "a Service gets one more port, and loses it", careful, servicePort},
		{"service-annotation", "a Service balances by another algorithm", careful, serviceAnnotation},
		{"ip-reuse", "a Pod's address goes to a Pod of another Service", careful, ipReuse},
		{"exhaustion", "a Node runs out of node ports, and gets them back", careful, exhaustion},
	}
}

func scale(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	return nothing, s.upAndDown(ctx, pick(random, scalable), random)
}

// scalable are the Deployments that grow and shrink.
var scalable = []string{"api", "dns", "web"}

func (s *site) upAndDown(ctx context.Context, app string, random *rand.Rand) error {
	before := len(s.podsOf(app))
	more := 1 + random.IntN(2)
	if err := s.scale(ctx, app, before+more); err != nil {
		return err
	}
	if err := s.rest(ctx); err != nil {
		return err
	}
	return s.scale(ctx, app, before)
}

func rollout(ctx context.Context, s *site, _ *rand.Rand) (budget, error) {
	return nothing, s.patchDeployment(ctx, "web", object{"spec": object{"template": object{"metadata": object{"annotations": object{"rolled": time.Now().Format(time.RFC3339Nano)}}}}})
}

func podCrash(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	p := pick(random, s.podsOf(pick(random, []string{"web", "api", "dns"})))
	b := budget{"the Pod " + p.Name, func(r ledger.Request) bool {
		return r.Target == string(p.UID) || slices.Contains([]string{"dns-avi", "dns-bigip"}, r.Service) && p.Labels["app"] == "dns" || r.Service == p.Labels["app"] && r.Kind != udpDirect
	}, 6 * time.Second}
	if err := s.Lab.KillContainer(namespace, p.Name, "echo"); err != nil {
		return b, err
	}
	return b, s.restarted(ctx, namespace, p.Name, *p)
}

func readiness(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	p := pick(random, s.podsOf("api"))
	if len(p.Spec.ReadinessGates) == 0 {
		return nothing, fmt.Errorf("the Pod %s has no gate", p.Name)
	}
	for range 2 + random.IntN(3) {
		for _, open := range []bool{false, true} {
			if err := s.setGate(ctx, p, open); err != nil {
				return nothing, err
			}
			if err := sleep(ctx, time.Duration(50+random.IntN(400))*time.Millisecond); err != nil {
				return nothing, err
			}
		}
	}
	return nothing, nil
}

func labelEdit(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	p := pick(random, s.podsOf("api"))
	if err := s.patchPod(ctx, p.Name, object{"metadata": object{"labels": object{"app": "out"}}}); err != nil {
		return nothing, err
	}
	if err := sleep(ctx, 3*time.Second); err != nil { // the Pod goes on for those who are connected, and nobody new should come
		return nothing, err
	}
	return nothing, s.deleteAll(ctx, "pod", p.Name)
}

func selectorEdit(ctx context.Context, s *site, _ *rand.Rand) (budget, error) {
	for _, color := range []string{"green", "blue"} {
		if err := s.patchService(ctx, "color", object{"spec": object{"selector": object{"color": color}}}); err != nil {
			return nothing, err
		}
		if err := s.rest(ctx); err != nil {
			return nothing, err
		}
	}
	return nothing, nil
}

// extra is a Service of the Pods of "api" that only some actions have.
func (s *site) extra(ctx context.Context) error {
	return s.apply(ctx, "the Service extra", balanced("extra", viaHAProxy, "{app: api}", "[{name: http, port: 80, targetPort: http}]", ""))
}

func serviceType(ctx context.Context, s *site, _ *rand.Rand) (budget, error) {
	if err := s.extra(ctx); err != nil {
		return nothing, err
	}
	if err := s.answers(ctx, "extra", "http"); err != nil {
		return nothing, err
	}
	address := s.watch.address("extra", "http")
	if err := s.patchService(ctx, "extra", object{"spec": object{"type": "ClusterIP", "loadBalancerClass": nil, "allocateLoadBalancerNodePorts": nil}}); err != nil {
		return nothing, err
	}
	if err := s.refuses(ctx, address); err != nil {
		return nothing, err
	}
	if err := s.patchService(ctx, "extra", object{"spec": object{"type": "LoadBalancer", "loadBalancerClass": "nplbridge.io/" + viaHAProxy, "allocateLoadBalancerNodePorts": false}}); err != nil {
		return nothing, err
	}
	if err := s.answers(ctx, "extra", "http"); err != nil {
		return nothing, err
	}
	return nothing, s.deleteAll(ctx, "service", "extra")
}

func servicePort(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	http := object{"name": "http", "port": 80, "targetPort": "http"}
	line := object{"name": "tcp", "port": 90, "targetPort": "line"}
	more := object{"name": "more", "port": 100 + random.IntN(100), "targetPort": "line"}
	if err := s.patchService(ctx, "api", object{"spec": object{"ports": []object{http, line, more}}}); err != nil {
		return nothing, err
	}
	if err := s.answers(ctx, "api", "more"); err != nil {
		return nothing, err
	}
	address := s.watch.address("api", "more")
	if err := s.patchService(ctx, "api", object{"spec": object{"ports": []object{http, line}}}); err != nil {
		return nothing, err
	}
	return nothing, s.refuses(ctx, address)
}

func serviceAnnotation(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	algorithm := pick(random, []string{"LeastConnections", "SourceIP"})
	for _, value := range []any{algorithm, nil} {
		if err := s.patchService(ctx, "api", object{"metadata": object{"annotations": object{"nplbridge.io/algorithm": value}}}); err != nil {
			return nothing, err
		}
		if err := sleep(ctx, 1500*time.Millisecond); err != nil { // reloads are at least a second apart
			return nothing, err
		}
	}
	return nothing, nil
}

// answers waits until a port of a Service answers.
func (s *site) answers(ctx context.Context, service, port string) error {
	return poll(ctx, func() error {
		address := s.watch.address(service, port)
		if address == "" {
			return fmt.Errorf("the Service %s has no address", service)
		}
		conn, err := s.Lab.Dial(ctx, "client", "tcp", address)
		if err != nil {
			return err
		}
		return converse(conn)
	})
}

// converse returns nil when whoever is at the other end of a connection answers.
func converse(conn net.Conn) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}

// refuses waits until nobody listens at an address. HAProxy ends connections to an open port without a Service at once.
func (s *site) refuses(ctx context.Context, address string) error {
	return poll(ctx, func() error {
		conn, err := s.Lab.Dial(ctx, "client", "tcp", address)
		if err == nil && !s.openPorts {
			return errors.Join(errors.New("somebody listens at "+address), conn.Close())
		}
		if err == nil {
			err = converse(conn)
		}
		if err == nil {
			return errors.New("somebody answers at " + address)
		}
		if operation, is := errors.AsType[*net.OpError](err); is && operation.Timeout() {
			return err
		}
		return nil
	})
}

// lone is the manifest of a Pod by itself, on a certain Node.
func lone(name, app, node string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {app: %s}}
spec:
  nodeName: %s
%s`, name, namespace, app, node, indent(podSpec, "  "))
}

// ipReuse deletes a Pod and makes one of another Service in its place until that has its address, as the lab's network gives out the lowest free one.
func ipReuse(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	node := pick(random, s.Lab.Nodes())
	if err := s.apply(ctx, "a Pod", lone("first", "api", node)); err != nil {
		return nothing, err
	}
	first, err := s.running(ctx, "first")
	if err != nil {
		return nothing, err
	}
	if err := s.rest(ctx); err != nil {
		return nothing, err
	}
	if err := s.deleteAll(ctx, "pod", "first"); err != nil {
		return nothing, err
	}
	if err := s.apply(ctx, "a Pod", lone("second", "blue", node)); err != nil {
		return nothing, err
	}
	if err := s.patchPod(ctx, "second", object{"metadata": object{"labels": object{"color": "blue"}}}); err != nil {
		return nothing, err
	}
	second, err := s.running(ctx, "second")
	if err != nil {
		return nothing, err
	}
	if first.Status.PodIP == second.Status.PodIP {
		s.watch.count("Pod addresses that went to a Pod of another Service")
	}
	if err := s.rest(ctx); err != nil {
		return nothing, err
	}
	return nothing, s.deleteAll(ctx, "pod", "second")
}

// running waits until a Pod has an address.
func (s *site) running(ctx context.Context, name string) (p *corev1.Pod, err error) {
	err = poll(ctx, func() error {
		for _, p = range s.watch.list() {
			if p.Name == name && p.Status.PodIP != "" {
				return nil
			}
		}
		return fmt.Errorf("the Pod %s has no address", name)
	})
	return p, err
}

// exhaustion makes two Pods that each want all node ports but one that are left on a Node: one has to wait until the other is gone and its
// ports have cooled.
func exhaustion(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	node := pick(random, s.Lab.Nodes())
	programmed, err := s.rules.of(node)
	if err != nil {
		return nothing, err
	}
	many := ports - 1
	for port := range programmed {
		if port.protocol == npl.TCP && port.family == npl.IPv4 {
			many--
		}
	}
	var list []string
	for n := range many {
		list = append(list, fmt.Sprintf("{name: p%d, port: %d, targetPort: %d}", n, 10000+n, 10000+n))
	}
	manifest := balanced("many", viaHAProxy, "{app: many}", "["+strings.Join(list, ", ")+"]", "nplbridge.io/monitor: None")
	if err := s.apply(ctx, "the Pod that uses up a Node", manifest+lone("many-1", "many", node)); err != nil {
		return nothing, err
	}
	if err := s.has(ctx, "many-1", many); err != nil {
		return nothing, err
	}
	if err := s.apply(ctx, "the Pod that has to wait", lone("many-2", "many", node)); err != nil {
		return nothing, err
	}
	if err := s.event(ctx, "many-2", "Ports"); err != nil { // PortsExhausted or PortsUnconfirmed
		return nothing, err
	}
	if err := s.deleteAll(ctx, "pod", "many-1", "--grace-period=1"); err != nil {
		return nothing, err
	}
	if err := s.has(ctx, "many-2", many); err != nil {
		return nothing, err
	}
	if err := s.deleteAll(ctx, "pod", "many-2", "--grace-period=1"); err != nil {
		return nothing, err
	}
	return nothing, s.deleteAll(ctx, "service", "many")
}

// has waits until a Pod has so many node ports.
func (s *site) has(ctx context.Context, pod string, ports int) error {
	return poll(ctx, func() error {
		for _, p := range s.watch.list() {
			if p.Name == pod {
				if n := strings.Count(p.Annotations["nodeportlocal.antrea.io"], `"nodePort"`); n != ports {
					return fmt.Errorf("the Pod %s has %d node ports, not %d", pod, n, ports)
				}
				return nil
			}
		}
		return fmt.Errorf("there is no Pod %s", pod)
	})
}
