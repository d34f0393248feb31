package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/chaos/ledger"
)

// watch follows the Services and Pods of the run, tells the ledgers, and knows what clients have to know.
type watch struct {
	site *site
	stop context.CancelFunc

	mutex      sync.Mutex
	pods       map[string]*corev1.Pod // by UID
	services   map[string]*corev1.Service
	owners     map[netip.Addr][]tenancy // of Pod addresses
	forged     map[string]string        // annotations that the run itself wrote, by UID
	nodePorts  *ledger.NodePorts
	violations []string
	checked    map[string]int // how often each invariant was looked at
}

// tenancy is the time for which a Pod had an address; it goes on while until is zero.
type tenancy struct {
	uid         string
	from, until time.Time
}

func (s *site) startWatch(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &watch{
		site: s, stop: stop, pods: map[string]*corev1.Pod{}, services: map[string]*corev1.Service{}, owners: map[netip.Addr][]tenancy{},
		forged: map[string]string{}, nodePorts: ledger.NewNodePorts(coolDown - apart), checked: map[string]int{},
	}
	s.watch = w
	factory := informers.NewSharedInformerFactoryWithOptions(s.Lab.Client(), 0, informers.WithNamespace(namespace))
	pods, services := factory.Core().V1().Pods().Informer(), factory.Core().V1().Services().Informer()
	_, err := pods.AddEventHandler(handler(w.pod, w.podGone))
	if err == nil {
		_, err = services.AddEventHandler(handler(w.service, w.serviceGone))
	}
	if err != nil {
		stop()
		return fmt.Errorf("watch: %w", err)
	}
	factory.Start(running.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced, services.HasSynced) {
		stop()
		return fmt.Errorf("watch: %w", ctx.Err())
	}
	return nil
}

// handler turns an informer's events into two: what there is now, and what is gone.
func handler[T any](is, gone func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { is(o.(T)) },
		UpdateFunc: func(_, o any) { is(o.(T)) },
		DeleteFunc: func(o any) {
			if last, missed := o.(cache.DeletedFinalStateUnknown); missed {
				o = last.Obj
			}
			if object, ok := o.(T); ok {
				gone(object)
			}
		},
	}
}

func (w *watch) pod(p *corev1.Pod) {
	now, uid := time.Now(), string(p.UID)
	w.site.selection.Pod(now, uid, p.Name, p.Labels)
	w.mutex.Lock()
	before := w.pods[uid]
	w.pods[uid] = p
	w.tenant(now, uid, p)
	annotation := p.Annotations[npl.Annotation]
	news := before == nil && annotation != "" || before != nil && before.Annotations[npl.Annotation] != annotation
	var mappings []npl.Mapping
	if news && (w.forged[uid] == "" || w.forged[uid] != annotation) {
		var err error
		if mappings, err = npl.Decode(annotation); annotation != "" && err != nil {
			w.violations = append(w.violations, fmt.Sprintf("the annotation of Pod %s cannot be read: %v", p.Name, err))
		}
		w.violations = append(w.violations, w.nodePorts.Published(now, uid, p.Name, mappings)...)
	}
	w.mutex.Unlock()
	if len(mappings) > 0 {
		w.site.checkProgrammed(p, mappings) // at once: what is published is already programmed
	}
	w.openGate(p)
}

func (w *watch) podGone(p *corev1.Pod) {
	now, uid := time.Now(), string(p.UID)
	w.site.selection.Gone(now, uid)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.pods, uid)
	w.nodePorts.Gone(now, uid)
	w.tenant(now, uid, nil)
}

// tenant notes whose the addresses are. A Pod that has ended has none: its network is gone.
func (w *watch) tenant(now time.Time, uid string, p *corev1.Pod) {
	has := map[netip.Addr]bool{}
	if p != nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && !p.Spec.HostNetwork {
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				has[a] = true
			}
		}
	}
	for address, tenancies := range w.owners {
		for i := range tenancies {
			if t := &tenancies[i]; t.uid == uid && t.until.IsZero() && !has[address] {
				t.until = now
			}
		}
	}
	for address := range has {
		if !slices.ContainsFunc(w.owners[address], func(t tenancy) bool { return t.uid == uid && t.until.IsZero() }) {
			w.owners[address] = append(w.owners[address], tenancy{uid: uid, from: now})
		}
	}
}

// had reports whether a Pod had an address at some time around at, as far as events may be late.
func (w *watch) had(uid string, address netip.Addr, at time.Time) (had bool, others []string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, t := range w.owners[address] {
		if t.from.Add(-apart).After(at) || !t.until.IsZero() && t.until.Add(apart).Before(at) {
			continue
		}
		if t.uid == uid {
			return true, nil
		}
		others = append(others, t.uid)
	}
	return false, others
}

func (w *watch) service(svc *corev1.Service) {
	w.site.selection.Service(time.Now(), svc.Name, svc.Spec.Selector)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.services[svc.Name] = svc
}

func (w *watch) serviceGone(svc *corev1.Service) {
	w.site.selection.Service(time.Now(), svc.Name, nil)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.services, svc.Name)
}

// openGate makes a new Pod with the gate of the run ready, as whoever owns such a gate would.
func (w *watch) openGate(p *corev1.Pod) {
	if !slices.ContainsFunc(p.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool { return g.ConditionType == conditionChaos }) ||
		slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == conditionChaos }) {
		return
	}
	go func() {
		if err := w.site.setGate(context.Background(), p, true); err != nil {
			w.site.say("          the gate of Pod %s: %v", p.Name, err)
		}
	}()
}

// setGate writes the condition of the run's own readiness gate.
func (s *site) setGate(ctx context.Context, p *corev1.Pod, open bool) error {
	status := corev1.ConditionFalse
	if open {
		status = corev1.ConditionTrue
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{"conditions": []corev1.PodCondition{
		{Type: conditionChaos, Status: status, LastTransitionTime: metav1.Now()},
	}}})
	if err != nil {
		return err
	}
	_, err = s.Lab.Client().CoreV1().Pods(namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// forge tells the watch that the run itself writes this annotation, so that nobody else is blamed for it.
func (w *watch) forge(uid, annotation string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.forged[uid] = annotation
}

// violate notes that an invariant does not hold.
func (w *watch) violate(format string, args ...any) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if text := fmt.Sprintf(format, args...); !slices.Contains(w.violations, text) {
		w.violations = append(w.violations, text)
	}
}

// count notes that an invariant was looked at.
func (w *watch) count(invariant string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.checked[invariant]++
}

// take returns the violations since the last time.
func (w *watch) take() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	out := w.violations
	w.violations = nil
	return out
}

// list returns the Pods that exist, by name.
func (w *watch) list() []*corev1.Pod {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return slices.SortedFunc(maps.Values(w.pods), func(x, y *corev1.Pod) int { return slices.Compare([]string{x.Name}, []string{y.Name}) })
}

// address returns "VIP:port" of a port of a Service, or nothing while it has none.
func (w *watch) address(service, port string) string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	svc := w.services[service]
	if svc == nil || len(svc.Status.LoadBalancer.Ingress) == 0 {
		return ""
	}
	for _, p := range svc.Spec.Ports {
		if p.Name == port {
			return svc.Status.LoadBalancer.Ingress[0].IP + ":" + strconv.Itoa(int(p.Port))
		}
	}
	return ""
}

// published are the node ports that a ready Pod's annotation lists for a Pod port. The Pods of a Service that go are left out, as a client
// that watches them would.
func (w *watch) published(service string, protocol npl.Protocol, podPort uint16) map[string]netip.AddrPort {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	svc := w.services[service]
	if svc == nil {
		return nil
	}
	out := map[string]netip.AddrPort{}
	for uid, p := range w.pods {
		if p.DeletionTimestamp != nil || !selects(svc.Spec.Selector, p.Labels) || !ready(p) {
			continue
		}
		mappings, err := npl.Decode(p.Annotations[npl.Annotation])
		if err != nil {
			continue // somebody edited it
		}
		for _, m := range mappings {
			if m.Protocol == protocol && m.PodPort == podPort && m.Family == npl.IPv4 {
				out[uid] = netip.AddrPortFrom(m.NodeIP, m.NodePort)
			}
		}
	}
	return out
}

func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
