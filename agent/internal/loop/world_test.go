package loop

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/loop/kerneltest"
	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/internal/ports"
	"github.com/nplbridge/nplbridge/agent/internal/publish"
	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/agent/watermark"
)

// fataler is what testing.T and rapid.T have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// world is a Node with its API server and kernel, which outlive the loop. Everything that is written goes through it, and it holds each
// write against the invariants: I1 (published only after programmed, rule removed only after withdrawn) and I2 (never
// another owner before the cool-down has passed).
type world struct {
	t        fataler
	clock    *testclock.FakeClock
	kernel   *kerneltest.Kernel
	settings Settings
	loop     *Loop
	metrics  *Metrics

	pods     map[string]*model.Pod
	services map[string]model.Service
	node     model.Node

	version   int                  // of Pods
	seen      map[string]model.Pod // by UID, as they were at version
	since     map[string]string    // the version at which each annotation became what it is
	deletions map[string]string    // that the process has not been told of
	arrivals  map[string]time.Time

	confirmed bool // portReuse
	balancers map[string]*balancer
	marksErr  error

	desired                     map[string]publish.Desired // what the loop wants published and the API does not have yet
	apiDown                     bool
	patches                     int
	refused, changed, withdrawn []model.Refusal
	log                         []string // writes in the order in which they happened

	picky   map[dataplane.Key]bool // ports that the kernel refuses to free
	crashIn int                    // operations until the process dies; 0 = it lives
	freed   map[dataplane.Key]freed
	owners  map[dataplane.Key]string // Pod UID by programmed port
	targets map[dataplane.Key]netip.AddrPort
	lost    map[dataplane.Key]bool // rules somebody else removed
	// inherited are ports that were programmed before the process started.
	inherited map[dataplane.Key]bool
	// advertised are ports that have been published since they were programmed for their owner.
	advertised map[dataplane.Key]bool
	nextIP     uint32
}

// balancer is a load balancer and the lbsync that writes it.
type balancer struct {
	mark watermark.Watermark
	// lists are the UIDs of the Pods that it believes to be behind a node port.
	lists map[model.Key]map[string]bool
}

type freed struct {
	owner string
	at    time.Time
}

// picky is a kernel that refuses every change that frees one of some ports, whatever else is in it.
type picky struct {
	*kerneltest.Kernel
	w *world
}

func (p picky) Apply(c dataplane.Change) error {
	for k := range p.w.picky {
		if _, cools := c.Cool[k]; cools || slices.Contains(c.Delete, k) {
			return fmt.Errorf("%s: %w", k, errRefused)
		}
	}
	return p.Kernel.Apply(c)
}

// crashed is what the process dies of.
type crashed struct{}

func newWorld(t fataler) *world {
	w := &world{
		t:     t,
		clock: testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
		settings: Settings{
			Range: ports.Range{First: 61000, Last: 61005}, IPFamilies: []npl.Family{npl.IPv4, npl.IPv6}, Addresses: model.AddressPolicy{Types: []string{"InternalIP"}},
			CoolDown: 5 * time.Minute, RepairInterval: 30 * time.Second, WithdrawGrace: 30 * time.Second,
		},
		pods: map[string]*model.Pod{}, services: map[string]model.Service{},
		node:    model.Node{Name: "node-1", Addresses: []model.NodeAddress{{Type: "InternalIP", IP: netip.MustParseAddr("192.0.2.1")}}},
		version: 1, seen: map[string]model.Pod{}, since: map[string]string{}, deletions: map[string]string{}, arrivals: map[string]time.Time{}, balancers: map[string]*balancer{},
		desired: map[string]publish.Desired{}, freed: map[dataplane.Key]freed{}, owners: map[dataplane.Key]string{}, targets: map[dataplane.Key]netip.AddrPort{}, lost: map[dataplane.Key]bool{}, advertised: map[dataplane.Key]bool{},
	}
	w.kernel = kerneltest.New(w.clock)
	w.kernel.Before = func(op string) error { w.step(op); return nil }
	w.kernel.Committed = w.committed
	w.start()
	return w
}

// start starts a process; the one before it is dead.
func (w *world) start() {
	w.kernel.Restart()
	w.desired, w.crashIn = map[string]publish.Desired{}, 0
	w.inherited = map[dataplane.Key]bool{}
	for k := range w.kernel.Rules() {
		w.inherited[k] = true
	}
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		w.t.Fatalf("%v", err)
	}
	var marks Watermarks
	if w.confirmed {
		marks = w
	}
	w.loop = New(w, picky{w.kernel, w}, w, marks, w, w.clock, zap.NewNop(), metrics, w.settings)
	w.metrics = metrics
}

// step is one write of the process: it may die there.
func (w *world) step(string) {
	if w.crashIn > 0 {
		if w.crashIn--; w.crashIn == 0 {
			panic(crashed{})
		}
	}
}

// survives runs a part of the process's life, and returns false if it died in it.
func (w *world) survives(f func()) (lived bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crashed); !ok {
				panic(r)
			}
			lived = false
		}
	}()
	f()
	return true
}

// sync makes one pass.
func (w *world) sync() (lived bool, next time.Time, err error) {
	lived = w.survives(func() { next, err = w.loop.Sync() })
	return lived, next, err
}

func (w *world) mustSync() time.Time {
	w.t.Helper()
	lived, next, err := w.sync()
	if !lived || err != nil {
		w.t.Fatalf("pass: lived %v, error %v", lived, err)
	}
	return next
}

// settle lets the API take what is wanted until nothing changes any more.
func (w *world) settle() {
	w.t.Helper()
	for range 10 {
		w.mustSync()
		if len(w.desired) == 0 {
			return
		}
		w.deliver()
	}
	w.t.Fatalf("annotations never settle: %v", w.desired)
}

// after lets time pass and settles.
func (w *world) after(d time.Duration) {
	w.t.Helper()
	w.clock.Step(d)
	w.settle()
}

// Inventory.

func (w *world) Node() model.Node { return w.node }

func (w *world) Pods() []model.Pod {
	w.happen()
	var out []model.Pod
	for _, p := range w.pods {
		out = append(out, *p)
	}
	return out
}

// happen gives a version to each thing that tests have done to Pods since it was last called.
func (w *world) happen() {
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		now, before := w.pods[uid], w.seen[uid]
		if before.UID != "" && reflect.DeepEqual(before, *now) {
			continue
		}
		w.version++
		now.ResourceVersion = strconv.Itoa(w.version)
		if before.UID == "" || before.Annotation != now.Annotation || before.Annotated != now.Annotated {
			w.since[uid] = now.ResourceVersion
		}
		kept := *now
		kept.IPs, kept.Ports, kept.Labels = slices.Clone(now.IPs), slices.Clone(now.Ports), maps.Clone(now.Labels)
		w.seen[uid] = kept
		if _, known := w.arrivals[uid]; !known {
			w.arrivals[uid] = w.clock.Now()
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(w.seen)) {
		if w.pods[uid] == nil {
			w.version++
			w.deletions[uid] = strconv.Itoa(w.version)
			delete(w.seen, uid)
		}
	}
}

func (w *world) Version() string {
	w.happen()
	return strconv.Itoa(w.version)
}

func (w *world) Deletions() map[string]string {
	w.happen()
	out := w.deletions
	w.deletions = map[string]string{}
	return out
}

func (w *world) Arrivals() map[string]time.Time {
	w.happen()
	out := w.arrivals
	w.arrivals = map[string]time.Time{}
	return out
}

// Watermarks.

func (w *world) Marks() ([]watermark.Watermark, error) {
	var out []watermark.Watermark
	for _, name := range slices.Sorted(maps.Keys(w.balancers)) {
		out = append(out, w.balancers[name].mark)
	}
	return out, w.marksErr
}

// balance lets a load balancer take up what the annotations say now; the first time it also appears. Node ports are added at once;
// those that no annotation lists any more are removed only with removals, and otherwise not even acknowledged.
func (w *world) balance(name string, removals bool) {
	w.happen()
	b := w.balancers[name]
	if b == nil {
		b = &balancer{mark: watermark.Watermark{Instance: "lb/" + name, LoadBalancer: "haproxy"}, lists: map[model.Key]map[string]bool{}}
		w.balancers[name], removals = b, true
	}
	if removals {
		clear(b.lists)
		b.mark.Seen = w.Version()
	}
	for uid, pod := range w.pods {
		for _, m := range w.listed(pod) {
			k := model.Key{Protocol: m.Protocol, Family: m.Family, NodePort: m.NodePort}
			if b.lists[k] == nil {
				b.lists[k] = map[string]bool{}
			}
			b.lists[k][uid] = true
		}
	}
}

// retire removes a load balancer with all it lists.
func (w *world) retire(name string) { delete(w.balancers, name) }

func (w *world) Services() []model.Service { return slices.Collect(maps.Values(w.services)) }

// Publisher. Patches wait in desired until deliver.

func (w *world) Set(all []publish.Desired) {
	w.desired = map[string]publish.Desired{}
	for _, d := range all {
		pod, ok := w.pods[d.Pod.UID]
		if !ok || d.Leave {
			continue
		}
		have, err := npl.Decode(pod.Annotation)
		same := pod.Annotated && err == nil && npl.Equal(have, d.Mappings)
		if len(d.Mappings) == 0 {
			same = !pod.Annotated
		}
		if !same {
			w.desired[d.Pod.UID] = d
		}
	}
}

func (w *world) Published(pod model.Pod) ([]npl.Mapping, error) {
	p, ok := w.pods[pod.UID]
	if !ok || !p.Annotated {
		return nil, nil
	}
	return npl.Decode(p.Annotation)
}

func (w *world) Since(pod model.Pod) string {
	w.happen()
	return w.since[pod.UID]
}

func (w *world) Failure(string) error {
	if w.apiDown {
		return errors.New("the API server is down")
	}
	return nil
}

// deliver makes the API server take every patch.
func (w *world) deliver() {
	w.t.Helper()
	for _, uid := range slices.Sorted(maps.Keys(w.desired)) {
		w.deliverOne(uid)
	}
}

func (w *world) deliverOne(uid string) {
	w.t.Helper()
	d := w.desired[uid]
	delete(w.desired, uid)
	pod, ok := w.pods[uid]
	if !ok {
		return
	}
	for _, m := range d.Mappings {
		k := dataplane.Key{Protocol: m.Protocol, Family: m.Family, NodePort: m.NodePort}
		if slices.ContainsFunc(pod.Ports, func(p model.ContainerPort) bool { return p.HostPort == m.NodePort }) {
			continue
		}
		if w.owners[k] != uid && !w.lost[k] {
			w.t.Fatalf("I1: Pod %s is published at %s, but the kernel leads to %v of Pod %q", pod, k, w.kernel.Rules()[k], w.owners[k])
		}
		w.advertised[k] = true
	}
	w.step("patch")
	defer w.step("patched")
	w.patches++
	pod.Annotated, pod.Annotation = len(d.Mappings) > 0, npl.Encode(d.Mappings)
	if !pod.Annotated {
		pod.Annotation = ""
	}
	w.logf("publish %s %v", pod.Name, d.Mappings)
}

// flush loses the tables.
func (w *world) flush() {
	w.kernel.Flush()
	for k, owner := range w.owners {
		if w.advertised[k] {
			w.freed[k] = freed{owner, w.clock.Now()}
		}
		w.lost[k] = true
	}
	clear(w.owners)
}

// Reporter.

func (w *world) Refused(r model.Refusal)   { w.refused = append(w.refused, r) }
func (w *world) Changed(r model.Refusal)   { w.changed = append(w.changed, r) }
func (w *world) Withdrawn(r model.Refusal) { w.withdrawn = append(w.withdrawn, r) }

// Kernel.

func (w *world) committed(c dataplane.Change) {
	w.t.Helper()
	for _, k := range c.Delete {
		owner := w.owners[k]
		if pod, ok := w.pods[owner]; ok && (!pod.Terminated || w.lingers(k, pod)) {
			if _, addressed := pod.IP(k.Family); addressed {
				for _, m := range w.listed(pod) {
					if m.NodePort == k.NodePort && m.Protocol == k.Protocol && m.Family == k.Family {
						w.t.Fatalf("I1: the rule of %s is removed while Pod %s is still published there", k, pod)
					}
				}
			}
		}
		delete(w.owners, k)
		if !w.lost[k] {
			w.freed[k] = freed{owner, w.clock.Now()}
		}
		w.logf("remove %d", k.NodePort)
	}
	for _, k := range slices.SortedFunc(maps.Keys(c.Set), dataplane.Key.Compare) {
		target := c.Set[k]
		owner := w.ownerOf(target.Addr())
		if before, ok := w.freed[k]; ok && before.owner != owner && w.clock.Since(before.at) < w.settings.CoolDown {
			w.t.Fatalf("I2: %s goes from Pod %q to Pod %q after %s", k, before.owner, owner, w.clock.Since(before.at))
		}
		for name, b := range w.balancers {
			for uid := range b.lists[model.Key(k)] {
				if w.confirmed && uid != owner {
					w.t.Fatalf("I3: %s goes to Pod %q, and load balancer %s still lists it for Pod %q", k, owner, name, uid)
				}
			}
		}
		if before, ok := w.owners[k]; ok && before != owner {
			w.t.Fatalf("I2: %s is taken from Pod %q for Pod %q", k, before, owner)
		}
		if w.owners[k] != owner {
			delete(w.advertised, k)
		}
		w.owners[k], w.targets[k] = owner, target
		delete(w.lost, k)
		w.logf("program %d %s", k.NodePort, target)
	}
}

// lingers reports whether the rule of a terminated Pod has to stay as long as it is published: nobody takes the annotation off. A
// process that did not serve the Pod itself may remove the rule all the same.
func (w *world) lingers(k dataplane.Key, pod *model.Pod) bool {
	ip, _ := pod.IP(k.Family)
	return pod.Vanishing && w.targets[k].Addr() == ip && !w.inherited[k] && !slices.ContainsFunc(w.Pods(), func(p model.Pod) bool {
		return !p.Terminated && slices.ContainsFunc(p.Ports, func(c model.ContainerPort) bool { return c.HostPort == k.NodePort && c.Protocol == k.Protocol })
	}) && w.ownerOf(ip) == pod.UID
}

func (w *world) listed(pod *model.Pod) []npl.Mapping {
	if !pod.Annotated {
		return nil
	}
	ms, _ := npl.Decode(pod.Annotation)
	return ms
}

// ownerOf returns whose an address is: a live Pod's, or a vanishing one's that nobody has followed there.
func (w *world) ownerOf(a netip.Addr) (uid string) {
	for _, p := range w.pods {
		switch {
		case !slices.Contains(p.IPs, a):
		case !p.Terminated:
			return p.UID
		case p.Vanishing:
			uid = p.UID
		}
	}
	return uid
}

func (w *world) logf(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

// What tests do to the world.

func (w *world) addPod(name string, labels map[string]string) *model.Pod {
	p := &model.Pod{UID: "uid-" + name, Namespace: "default", Name: name, Created: w.clock.Now(), Labels: labels, IPs: []netip.Addr{w.newIP()}}
	w.pods[p.UID] = p
	return p
}

func (w *world) newIP() netip.Addr {
	w.nextIP++
	return netip.AddrFrom4([4]byte{10, byte(w.nextIP >> 16), byte(w.nextIP >> 8), byte(w.nextIP)})
}

func (w *world) addService(name string, selector map[string]string, targets ...uint16) {
	s := model.Service{Namespace: "default", Name: name, Type: "ClusterIP", Selector: selector, Families: []npl.Family{npl.IPv4}}
	for _, p := range targets {
		s.Ports = append(s.Ports, model.ServicePort{Protocol: npl.TCP, TargetPort: p})
	}
	w.services[name] = s
}

// nodePort returns where the annotation of a Pod says that its port is, or 0.
func (w *world) nodePort(p *model.Pod, podPort uint16) uint16 {
	for _, m := range w.listed(p) {
		if m.PodPort == podPort {
			return m.NodePort
		}
	}
	return 0
}

func (w *world) refusals(r model.Reason) (n int) {
	for _, f := range w.refused {
		if f.Reason == r {
			n++
		}
	}
	return n
}

func (w *world) wantLog(t *testing.T, want ...string) {
	t.Helper()
	if got := strings.Join(w.log, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("writes:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	w.log = nil
}

var web = map[string]string{"app": "web"}

func tcp4(port uint16) dataplane.Key {
	return dataplane.Key{Protocol: npl.TCP, Family: npl.IPv4, NodePort: port}
}
