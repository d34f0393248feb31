package chaos

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/lab"
)

// excuses are what the fault of the moment breaks itself, so that nobody else is blamed for it.
type excuses struct {
	mutex  sync.Mutex
	tables map[string]bool // Nodes whose rules or addresses the fault took away
	agents map[string]bool // Nodes without an agent at work
	blind  bool            // the API server tells nothing: nothing may be removed from any pool
}

func (e *excuses) set(change func(*excuses)) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	change(e)
}

func (e *excuses) of(node string) (tables, agent bool) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.tables[node], e.agents[node]
}

func (e *excuses) isBlind() bool {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.blind
}

// checkProgrammed holds an annotation that a watch just showed to I1: each of its node ports leads to the Pod already.
func (s *site) checkProgrammed(p *corev1.Pod, mappings []npl.Mapping) {
	if tables, agent := s.excuses.of(p.Spec.NodeName); tables || agent {
		return
	}
	programmed, err := s.rules.of(p.Spec.NodeName)
	if err != nil {
		return // the namespace of the Node is going
	}
	s.watch.count("I1")
	for _, missing := range unprogrammed(p, mappings, programmed) {
		if s.stillPublished(p) {
			s.watch.violate("I1: Pod %s publishes what is not programmed: %s", p.Name, missing)
		}
	}
}

// unprogrammed returns the mappings of a Pod that have no rule leading to it.
func unprogrammed(p *corev1.Pod, mappings []npl.Mapping, programmed map[nodePort]netip.AddrPort) (missing []string) {
	for _, m := range mappings {
		at := nodePort{p.Spec.NodeName, m.Protocol, m.Family, m.NodePort}
		target, has := programmed[at]
		if has && target.Port() == m.PodPort && slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == target.Addr().String() }) {
			continue
		}
		missing = append(missing, fmt.Sprintf("%v leads to %v, not to port %d of %s", at, target, m.PodPort, p.Status.PodIP))
	}
	return missing
}

// stillPublished asks whether a Pod is there, not on its way out, and as it was, after something was found missing. Where nobody answers, it is not known.
func (s *site) stillPublished(p *corev1.Pod) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	now, err := s.Lab.Client().CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	if err != nil {
		return false
	}
	tables, agent := s.excuses.of(p.Spec.NodeName)
	return !tables && !agent && now.UID == p.UID && now.Annotations[npl.Annotation] == p.Annotations[npl.Annotation] &&
		slices.Equal(now.Status.PodIPs, p.Status.PodIPs) && now.Status.Phase == corev1.PodRunning
}

// sampleEvery is how often everything is looked at, and every how-manieth time the simulators are, which take longer.
const (
	sampleEvery = 300 * time.Millisecond
	remoteEvery = 4
)

// startSampler looks at pools and kernels again and again until the run ends.
func (s *site) startSampler(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	stopWatch := s.watch.stop
	s.watch.stop = func() { stop(); <-ended; stopWatch() }
	go func() {
		defer close(ended)
		var full map[string]bool
		for turn := 0; ; turn++ {
			select {
			case <-running.Done():
				return
			case <-time.After(sampleEvery):
			}
			full = s.sample(running, turn%remoteEvery == 0, full)
		}
	}()
	return nil
}

// sample looks once. It returns the pools that had members while the API server told nothing, for the next time.
func (s *site) sample(ctx context.Context, remote bool, full map[string]bool) map[string]bool {
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	read := s.haproxyMembers
	if remote {
		read = s.pools
	}
	before, err := read(asking)
	if err != nil {
		return full // it is away: that shows in requests
	}
	programmed := map[nodePort]netip.AddrPort{}
	for _, node := range s.Lab.Nodes() {
		some, err := s.rules.of(node)
		if err != nil {
			return full
		}
		maps.Copy(programmed, some)
	}
	at := time.Now()
	after, err := read(asking)
	if err != nil {
		return full
	}
	s.checkReuse(at, before, after, programmed)
	s.checkPublished(programmed)
	return s.checkEmptied(after, remote, full)
}

// checkReuse holds members that were listed before and after the kernels were read to I3: a node port that still leads somewhere leads to the
// Pod that the load balancer lists it for.
func (s *site) checkReuse(at time.Time, before, after []member, programmed map[nodePort]netip.AddrPort) {
	for _, m := range after {
		if !slices.ContainsFunc(before, func(b member) bool { return b.at == m.at && b.uid == m.uid && b.service == m.service }) {
			continue
		}
		node := nodeOf(m.at.Addr())
		if _, agent := s.excuses.of(node); agent {
			continue
		}
		s.watch.count("I3")
		target, has := programmed[nodePort{node, m.protocol, npl.FamilyOf(m.at.Addr()), m.at.Port()}]
		if !has {
			continue
		}
		if had, others := s.watch.had(m.uid, target.Addr(), at); !had && len(others) > 0 {
			s.watch.violate("I3: the load balancer lists %v, and the port leads to Pod %s", m, strings.Join(others, ", "))
		}
	}
}

// checkPublished holds all annotations to I1 at a moment of no event.
func (s *site) checkPublished(programmed map[nodePort]netip.AddrPort) {
	for _, p := range s.watch.list() {
		tables, agent := s.excuses.of(p.Spec.NodeName)
		mappings, err := npl.Decode(p.Annotations[npl.Annotation])
		if tables || agent || err != nil || p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning || s.watch.isForged(p) {
			continue
		}
		s.watch.count("I1")
		// The watch may be behind: what it misses is looked at once more, with the kernel of now.
		if len(unprogrammed(p, mappings, programmed)) == 0 {
			continue
		}
		again, err := s.rules.of(p.Spec.NodeName)
		if err != nil {
			continue
		}
		for _, missing := range unprogrammed(p, mappings, again) {
			if s.stillPublished(p) {
				s.watch.violate("I1: Pod %s publishes what is not programmed: %s", p.Name, missing)
			}
		}
	}
}

func (w *watch) isForged(p *corev1.Pod) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	text, is := w.forged[string(p.UID)]
	return is && text == p.Annotations[npl.Annotation]
}

// checkEmptied holds pools to I6: what had members when the API server fell silent has some until it speaks again.
func (s *site) checkEmptied(now []member, remote bool, full map[string]bool) map[string]bool {
	if !s.excuses.isBlind() {
		return nil
	}
	has := map[string]bool{}
	for _, m := range now {
		if m.enabled {
			has[m.provider+" "+m.service] = true
		}
	}
	for pool := range full {
		provider, _, _ := strings.Cut(pool, " ")
		if !strings.HasPrefix(provider, viaHAProxy) && !remote {
			continue // not looked at this time
		}
		if s.watch.count("I6"); !has[pool] {
			s.watch.violate("I6: the pool %s was emptied while the API server told nothing", pool)
		}
	}
	maps.Copy(has, full)
	return has
}

// nodeOf is the Node with an address.
func nodeOf(address netip.Addr) string {
	for n := 1; n <= 9; n++ {
		if name := fmt.Sprintf("node-%d", n); lab.NodeAddress(name) == address || lab.NodeAddress6(name) == address {
			return name
		}
	}
	return ""
}
