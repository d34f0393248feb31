package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// restPatience is how long everything may take to come to rest after an action.
const restPatience = 90 * time.Second

// rest waits until everything wanted is there and nothing else, and returns what is still missing or too much.
func (s *site) rest(ctx context.Context) error {
	var last error
	for end := time.Now().Add(restPatience); time.Now().Before(end); {
		if last = s.atRest(ctx); last == nil {
			return s.checkForeign(ctx)
		}
		select {
		case <-ctx.Done():
			return errors.Join(last, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("not at rest after %v: %w", restPatience, last)
}

// wanted is what follows from the Services and Pods that there are.
type wanted struct {
	ports map[nodePort]netip.AddrPort
	pools map[string]member // by provider, service, protocol and address
}

func poolKey(m member) string {
	return fmt.Sprintf("%s %s %v/%s", m.provider, m.service, m.at, m.protocol)
}

func (s *site) atRest(ctx context.Context) error {
	pods, err := s.Lab.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	services, err := s.Lab.Client().CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	deployments, err := s.Lab.Client().AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, d := range deployments.Items {
		if err := complete(&d); err != nil {
			return err
		}
	}
	if err := s.agentsReady(ctx); err != nil {
		return err
	}
	for _, b := range s.Lab.LoadBalancers() {
		if err := b.LBSyncReady(ctx); err != nil {
			return err
		}
	}
	want, err := s.want(pods.Items, services.Items)
	if err != nil {
		return err
	}
	return errors.Join(
		s.kernelsEqual(ctx, want.ports), s.poolsEqual(ctx, want.pools), s.serversUp(ctx), statuses(services.Items), s.filesEqual(), s.resourcesBounded(ctx))
}

// complete says what is missing of a Deployment.
func complete(d *appsv1.Deployment) error {
	if d.Status.ObservedGeneration != d.Generation || d.Status.Replicas != *d.Spec.Replicas || d.Status.UpdatedReplicas != *d.Spec.Replicas || d.Status.ReadyReplicas != *d.Spec.Replicas {
		return fmt.Errorf("the Deployment %s has %d Pods, %d of them ready, of %d", d.Name, d.Status.Replicas, d.Status.ReadyReplicas, *d.Spec.Replicas)
	}
	return nil
}

func (s *site) agentsReady(ctx context.Context) error {
	pods, err := s.agents(ctx)
	if err != nil {
		return err
	}
	n := 0
	for _, p := range pods {
		if ready(&p) && p.DeletionTimestamp == nil {
			n++
		}
	}
	if nodes := len(s.Lab.Nodes()); n != nodes || len(pods) != nodes {
		return fmt.Errorf("%d of %d agents are ready", n, nodes)
	}
	return nil
}

func (s *site) agents(ctx context.Context) ([]corev1.Pod, error) {
	list, err := s.Lab.Client().CoreV1().Pods(system).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=agent"})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(x, y corev1.Pod) int { return cmp.Compare(x.Spec.NodeName, y.Spec.NodeName) })
	return list.Items, nil
}

// want works out what there should be; an annotation that is not as it should be is an error.
func (s *site) want(pods []corev1.Pod, services []corev1.Service) (wanted, error) {
	w := wanted{map[nodePort]netip.AddrPort{}, map[string]member{}}
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			return w, fmt.Errorf("the Pod %s is on its way out", p.Name)
		}
		if !ready(&p) {
			return w, fmt.Errorf("the Pod %s is not ready", p.Name)
		}
		mappings, err := npl.Decode(p.Annotations[npl.Annotation])
		if err != nil && p.Annotations[npl.Annotation] != "" {
			return w, fmt.Errorf("the annotation of Pod %s: %w", p.Name, err)
		}
		listed := map[string]bool{}
		for _, m := range mappings {
			ip, err := netip.ParseAddr(p.Status.PodIP)
			if err != nil {
				return w, fmt.Errorf("the Pod %s: %w", p.Name, err)
			}
			w.ports[nodePort{p.Spec.NodeName, m.Protocol, m.Family, m.NodePort}] = netip.AddrPortFrom(ip, m.PodPort)
			listed[fmt.Sprintf("%d/%s", m.PodPort, m.Protocol)] = true
		}
		needed := map[string]bool{}
		for _, svc := range services {
			provider, balanced := providerOf(&svc)
			if !selects(svc.Spec.Selector, p.Labels) || !balanced && !npl.Enabled(svc.Annotations) {
				continue
			}
			for _, port := range svc.Spec.Ports {
				protocol, podPort := npl.Protocol(strings.ToLower(string(port.Protocol))), targetOf(port)
				needed[fmt.Sprintf("%d/%s", podPort, protocol)] = true
				for _, m := range mappings {
					if !balanced || m.PodPort != podPort || m.Protocol != protocol {
						continue
					}
					for _, at := range s.writtenTo(provider) {
						of := member{at, svc.Name, netip.AddrPortFrom(m.NodeIP, m.NodePort), protocol, string(p.UID), true}
						w.pools[poolKey(of)] = of
					}
				}
			}
		}
		if !maps.Equal(listed, needed) {
			return w, fmt.Errorf("the Pod %s has node ports for %v, and Services want %v", p.Name, slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(needed)))
		}
	}
	return w, nil
}

// providerOf is the load balancer of a Service; ok is false for one that is on none of ours.
func providerOf(svc *corev1.Service) (provider string, ok bool) {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer || svc.Spec.LoadBalancerClass == nil || svc.DeletionTimestamp != nil {
		return "", false
	}
	return strings.CutPrefix(*svc.Spec.LoadBalancerClass, "nplbridge.io/")
}

// targetOf is the Pod port of a Service port: the names are those of the echo server's ports.
func targetOf(port corev1.ServicePort) uint16 {
	switch port.TargetPort.String() {
	case "http":
		return 8080
	case "line", "datagram":
		return 9090
	}
	n, _ := strconv.ParseUint(port.TargetPort.String(), 10, 16)
	return uint16(n)
}

// kernelsEqual compares rules, and the sockets that hold their ports, with what is wanted.
func (s *site) kernelsEqual(ctx context.Context, want map[nodePort]netip.AddrPort) error {
	have := map[nodePort]netip.AddrPort{}
	for _, node := range s.Lab.Nodes() {
		some, err := s.rules.of(node)
		if err != nil {
			return err
		}
		maps.Copy(have, some)
		held, err := s.sockets(ctx, node)
		if err != nil {
			return err
		}
		for port := range held {
			if _, has := some[port]; !has {
				return fmt.Errorf("a socket holds %v, which has no rule", port)
			}
		}
		for port := range some {
			if !held[port] {
				return fmt.Errorf("no socket holds %v, which has a rule", port)
			}
		}
	}
	for port, target := range have {
		if want[port] != target {
			return fmt.Errorf("%v leads to %v, wanted is %v", port, target, want[port])
		}
	}
	for port, target := range want {
		if _, has := have[port]; !has {
			return fmt.Errorf("%v should lead to %v and leads nowhere", port, target)
		}
	}
	return nil
}

// sockets are the ports of the range that somebody holds on a Node.
func (s *site) sockets(ctx context.Context, node string) (map[nodePort]bool, error) {
	first, _ := strconv.Atoi(portRange[:5])
	held := map[nodePort]bool{}
	err := s.Lab.Do(ctx, node, func() error {
		for number := first; number < first+ports; number++ {
			for family, digit := range map[npl.Family]string{npl.IPv4: "4", npl.IPv6: "6"} {
				for _, protocol := range []npl.Protocol{npl.TCP, npl.UDP} {
					switch err := bind(ctx, string(protocol)+digit, number); {
					case errors.Is(err, unix.EADDRINUSE):
						held[nodePort{node, protocol, family, uint16(number)}] = true
					case err != nil:
						return err
					}
				}
			}
		}
		return nil
	})
	return held, err
}

// bind takes a port and gives it back.
func bind(ctx context.Context, network string, number int) error {
	address := ":" + strconv.Itoa(number)
	if strings.HasPrefix(network, "udp") {
		conn, err := new(net.ListenConfig).ListenPacket(ctx, network, address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	listener, err := new(net.ListenConfig).Listen(ctx, network, address)
	if err != nil {
		return err
	}
	return listener.Close()
}

func (s *site) poolsEqual(ctx context.Context, want map[string]member) error {
	have, err := s.pools(ctx)
	if err != nil {
		return err
	}
	return equal(have, want)
}

func equal(have []member, want map[string]member) error {
	seen := map[string]bool{}
	for _, m := range have {
		key := poolKey(m)
		seen[key] = true
		if w, wanted := want[key]; !wanted {
			return fmt.Errorf("%v is not wanted", m)
		} else if w.uid != m.uid || !m.enabled {
			return fmt.Errorf("%v (enabled: %v) should be of Pod %s and enabled", m, m.enabled, w.uid)
		}
	}
	for key, m := range want {
		if !seen[key] {
			return fmt.Errorf("%v is missing", m)
		}
	}
	return nil
}

// statuses looks at what Services say of themselves.
func statuses(services []corev1.Service) error {
	for _, svc := range services {
		_, balanced := providerOf(&svc)
		if svc.Name == foreignName {
			continue
		}
		if !balanced {
			if len(svc.Status.LoadBalancer.Ingress) > 0 || len(svc.Finalizers) > 0 {
				return fmt.Errorf("the Service %s is on no load balancer and still has %v and finalizers %v", svc.Name, svc.Status.LoadBalancer.Ingress, svc.Finalizers)
			}
			continue
		}
		if len(svc.Status.LoadBalancer.Ingress) != 1 {
			return fmt.Errorf("the Service %s has the addresses %v", svc.Name, svc.Status.LoadBalancer.Ingress)
		}
		for _, name := range []string{"nplbridge.io/Accepted", "nplbridge.io/Programmed"} {
			i := slices.IndexFunc(svc.Status.Conditions, func(c metav1.Condition) bool { return c.Type == name })
			if i < 0 || svc.Status.Conditions[i].Status != metav1.ConditionTrue {
				return fmt.Errorf("the Service %s is not %s", svc.Name, name)
			}
		}
	}
	return nil
}

// ourFiles are those that may be in a directory that HAProxy loads.
var ourFiles = []string{"50-npl.cfg", "50-npl.cfg.bak", "50-npl.state", "50-npl.drains", "50-npl.map.a", "50-npl.map.b", "90-stranger.cfg"}

func (s *site) filesEqual() error {
	for _, b := range s.Lab.LoadBalancers() {
		entries, err := os.ReadDir(filepath.Join(dirOf(b), "npl.d"))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !slices.Contains(ourFiles, e.Name()) {
				return fmt.Errorf("the file %s is left in the directory of HAProxy on %s", e.Name(), b.Place())
			}
		}
	}
	return nil
}

// resources are what processes hold, by process and name.
type resources map[string]float64

// held are the metrics of what a process holds.
var held = []string{"go_goroutines", "process_open_fds"}

// spare is how many more of each there may be than when the run began: what is held for a moment.
const spare = 25

// remember makes what processes hold now the baseline. Each lbsync may hold as much as the one that leads.
func (s *site) remember(ctx context.Context) (err error) {
	if s.baseline, err = s.resources(ctx); err != nil {
		return err
	}
	for _, name := range held {
		var most float64
		for _, b := range s.Lab.LoadBalancers() {
			most = max(most, s.baseline[lbsyncOn(b.Place())+" "+name])
		}
		for _, b := range s.Lab.LoadBalancers() {
			s.baseline[lbsyncOn(b.Place())+" "+name] = most
		}
	}
	return nil
}

// resourcesBounded compares goroutines and file descriptors with those of the beginning.
func (s *site) resourcesBounded(ctx context.Context) error {
	now, err := s.resources(ctx)
	if err != nil {
		return err
	}
	if s.baseline == nil {
		return nil
	}
	for _, what := range slices.Sorted(maps.Keys(now)) {
		if now[what] > s.baseline[what]+spare {
			return fmt.Errorf("%s: %.0f, and %.0f when the run began", what, now[what], s.baseline[what])
		}
	}
	return nil
}

func (s *site) resources(ctx context.Context) (resources, error) {
	out := resources{}
	read := func(who, text string) error {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		found, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			return fmt.Errorf("metrics of %s: %w", who, err)
		}
		for _, name := range held {
			if f := found[name]; f != nil && len(f.Metric) == 1 {
				out[who+" "+name] = f.Metric[0].GetGauge().GetValue()
			}
		}
		return nil
	}
	for _, b := range s.Lab.LoadBalancers() {
		text, err := b.LBSyncMetrics(ctx)
		if err == nil {
			err = read(lbsyncOn(b.Place()), text)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, node := range s.Lab.Nodes() {
		text, err := s.agentMetrics(ctx, node)
		if err != nil {
			return nil, err
		}
		if err := read("npl-agent on "+node, text); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// nothingCools waits until no node port cools, waits for a load balancer or is missing anywhere: what was given up is free again.
func (s *site) nothingCools(ctx context.Context) error {
	none := []string{"npl_agent_ports_cooling", "npl_agent_ports_unconfirmed", "npl_agent_ports_missing"}
	return poll(ctx, func() error {
		for _, node := range s.Lab.Nodes() {
			text, err := s.agentMetrics(ctx, node)
			if err != nil {
				return err
			}
			for line := range strings.Lines(text) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
				if family, _, _ := strings.Cut(name, "{"); slices.Contains(none, family) && value != "0" {
					return fmt.Errorf("npl-agent on %s: %s} is %s", node, name, value)
				}
			}
		}
		return nil
	})
}

func (s *site) agentMetrics(ctx context.Context, node string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return s.Lab.Dial(ctx, node, network, address)
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10361/metrics", nil)
	if err != nil {
		return "", err
	}
	response, err := (&http.Client{Transport: transport, Timeout: patience}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}
