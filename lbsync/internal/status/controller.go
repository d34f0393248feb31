package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/providers"
)

// Services are the Services as the API server sent them; inventory.Watch is one.
type Services interface {
	Service(model.ServiceKey) *corev1.Service
	Services() []*corev1.Service
}

// Controller writes Services for one term as leader. One Controller is run once.
type Controller struct {
	Selection inventory.Selection
	Instance  string
	Client    kubernetes.Interface
	Services  Services
	Report    func(model.ServiceKey) (loop.Report, bool)
	Trouble   func() error // why the load balancer could not be read, or nil
	Recorder  events.EventRecorder
	Clock     clock.WithTicker
	Log       *zap.Logger

	queue workqueue.TypedRateLimitingInterface[model.ServiceKey]

	mu      sync.Mutex
	vips    *vip.Allocator
	waiting map[model.ServiceKey]bool // for an address
	told    map[model.ServiceKey]map[model.Refusal]bool
	yielded map[model.ServiceKey]string // to whom; told once
}

// workers write that many Services at once, so that one slow answer does not hold up the others.
const workers = 4

// Init prepares the Controller; Enqueue may be called after it.
func (c *Controller) Init() {
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[model.ServiceKey](20*time.Millisecond, 30*time.Second),
		workqueue.TypedRateLimitingQueueConfig[model.ServiceKey]{Clock: c.Clock})
	c.vips = vip.New(c.Selection.Pools)
	c.waiting = map[model.ServiceKey]bool{}
	c.told = map[model.ServiceKey]map[model.Refusal]bool{}
	c.yielded = map[model.ServiceKey]string{}
}

// Enqueue has the Service looked at soon. It does not block.
func (c *Controller) Enqueue(key model.ServiceKey) { c.queue.Add(key) }

// Run works until ctx ends, and returns when nothing is being written any more. The Services must hold the whole first
// answer of the API server, because every address that is given already is loaded before any is given anew.
func (c *Controller) Run(ctx context.Context) {
	services := c.Services.Services()
	slices.SortFunc(services, func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	for _, s := range services {
		c.load(s)
	}
	for _, s := range services {
		c.Enqueue(keyOf(s))
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
}

// load records the addresses that a Service has: what was assigned or, should that annotation be lost, what is published.
func (c *Controller) load(s *corev1.Service) {
	if !c.Selection.Ours(s) && !c.mine(s) {
		return
	}
	assigned, err := annotations.ParseAssigned(s.Annotations[annotations.AssignedIPs], c.Selection.Instances[0])
	addrs := slices.Concat(slices.Collect(maps.Values(assigned))...)
	if err != nil || len(addrs) == 0 {
		for _, i := range s.Status.LoadBalancer.Ingress {
			if ip, err := netip.ParseAddr(i.IP); err == nil {
				addrs = append(addrs, ip)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vips.Load(vip.Holder{Instance: c.Selection.Instances[0], Service: keyOf(s).String()}, addrs)
}

func (c *Controller) next(ctx context.Context) bool {
	key, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(key)
	if ctx.Err() != nil {
		return true
	}
	again, err := c.sync(ctx, key)
	switch {
	case err == nil:
		c.queue.Forget(key)
	case apierrors.IsConflict(err):
		c.queue.AddRateLimited(key) // our copy is old; the next one is on its way
	default:
		c.Log.Warn("cannot write the Service", zap.String("service", key.String()), zap.Error(err))
		c.queue.AddRateLimited(key)
	}
	if again > 0 {
		c.queue.AddAfter(key, again)
	}
	return true
}

// sync brings one Service to what it must be.
func (c *Controller) sync(ctx context.Context, key model.ServiceKey) (again time.Duration, err error) {
	s := c.Services.Service(key)
	switch {
	case s == nil:
		c.forget(key)
		return 0, nil
	case c.Selection.Ours(s) && s.DeletionTimestamp == nil:
		return c.serve(ctx, key, s)
	case c.mine(s):
		return c.retire(ctx, key, s)
	default:
		c.forget(key)
		return 0, nil
	}
}

// mine reports whether the Service carries our name, our finalizer without anybody's, or conditions that nobody else
// will remove.
func (c *Controller) mine(s *corev1.Service) bool {
	return s.Annotations[annotations.ManagedBy] == c.Selection.Manager || c.Selection.Admitted(s) || abandoned(s)
}

// abandoned reports whether a manifest of another type took the place of a Service that some lbsync served: it drops the
// metadata and leaves the conditions. With a type that no lbsync serves, it does not matter whose they were; whose a
// finalizer is does.
func abandoned(s *corev1.Service) bool {
	return s.Spec.Type != corev1.ServiceTypeLoadBalancer && s.Annotations[annotations.ManagedBy] == "" &&
		!slices.Contains(s.Finalizers, annotations.Finalizer) &&
		(meta.FindStatusCondition(s.Status.Conditions, Accepted) != nil || meta.FindStatusCondition(s.Status.Conditions, Programmed) != nil)
}

func (c *Controller) serve(ctx context.Context, key model.ServiceKey, s *corev1.Service) (time.Duration, error) {
	if other := s.Annotations[annotations.ManagedBy]; other != "" && other != c.Selection.Manager {
		c.yield(s, key, other)
		return 0, nil
	}
	vips, refused := c.assign(key, s)
	s, err := c.patch(ctx, s, claim(s, c.Selection, c.Instance, vips), "")
	if err != nil {
		return 0, err
	}
	report, _ := c.Report(key)
	trouble := c.Trouble()
	if len(vips) > 0 && refused == nil && !report.Wanted && trouble == nil {
		return 0, nil // the loop is about to see it; its report brings us back
	}
	again, err := c.say(ctx, s, facts{refused: refused, vips: vips, report: report, trouble: trouble})
	c.tell(s, key, report.Refusals)
	return again, err
}

// assign gives the Service its addresses. On a refusal it keeps those that it has.
func (c *Controller) assign(key model.ServiceKey, s *corev1.Service) ([]netip.Addr, *refusal) {
	ask, refused := request(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, key)
	if refused != nil {
		return c.vips.Of(c.Selection.Instances[0], key.String()), refused
	}
	before := c.vips.Of(c.Selection.Instances[0], key.String())
	ask.Instance, ask.Service, ask.Namespace = c.Selection.Instances[0], key.String(), key.Namespace
	vips, err := c.vips.Assign(ask)
	if slices.ContainsFunc(before, func(a netip.Addr) bool { return !slices.Contains(vips, a) }) {
		c.wake()
	}
	if no, ok := errors.AsType[*vip.Error](err); ok {
		c.waiting[key] = true
		return vips, &refusal{string(no.Reason), no.Message}
	}
	return vips, nil
}

// retire lets go of a Service that is being deleted or no longer ours, when nothing of it is left on the load balancer.
func (c *Controller) retire(ctx context.Context, key model.ServiceKey, s *corev1.Service) (time.Duration, error) {
	if report, reported := c.Report(key); !reported || report.Wanted || !report.Gone {
		if abandoned(s) {
			return 0, nil // two lbsyncs that both thought it theirs would overwrite each other's words for ever
		}
		return c.lament(ctx, s, report)
	}
	if s.DeletionTimestamp == nil {
		var err error
		if s, err = c.patch(ctx, s, silence(s, c.held(key)), "status"); err != nil {
			return 0, err
		}
	}
	if _, err := c.patch(ctx, s, letGo(s, c.Instance), ""); err != nil {
		return 0, err
	}
	c.release(key)
	return 0, nil
}

// lament says why a Service cannot be let go of, if there is more to it than that it is about to be.
func (c *Controller) lament(ctx context.Context, s *corev1.Service, report loop.Report) (time.Duration, error) {
	problem, since := c.Trouble(), time.Time{}
	kind := providers.KindOf(problem)
	if at := slices.IndexFunc(report.Ports, func(p loop.PortReport) bool { return p.Problem != "" }); at >= 0 {
		p := report.Ports[at]
		problem, kind, since = fmt.Errorf("%d/%s: %s", p.Key.Port, p.Key.Protocol, p.Problem), p.Kind, p.Since
	}
	if problem == nil {
		return 0, nil
	}
	if wait := grace - c.Clock.Since(since); wait > 0 && passing(report) {
		return wait, nil
	}
	out := s.DeepCopy()
	setCondition(out, metav1.Condition{
		Type: Programmed, Status: metav1.ConditionFalse, Reason: reasonProviderPrefix + string(kind),
		Message: "waiting to remove it from the load balancer: " + problem.Error(),
	}, c.Clock.Now())
	patched, err := c.patch(ctx, s, out, "status")
	if err == nil {
		c.announce(patched, s, out)
	}
	return 0, err
}

// forget releases a Service that there is nothing to write on, when nothing of it is left on the load balancer. A report
// that changes brings us back.
func (c *Controller) forget(key model.ServiceKey) {
	if report, reported := c.Report(key); !reported || report.Gone {
		c.release(key)
	}
}

// held returns the addresses that the Service has.
func (c *Controller) held(key model.ServiceKey) []netip.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.vips.Of(c.Selection.Instances[0], key.String())
}

// release frees the Service's addresses and wakes those who wait for one.
func (c *Controller) release(key model.ServiceKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.told, key)
	delete(c.waiting, key)
	delete(c.yielded, key)
	if c.vips.Release(c.Selection.Instances[0], key.String()) {
		c.wake()
	}
}

// wake has everybody who waits for an address ask again.
func (c *Controller) wake() {
	for waiting := range c.waiting {
		c.queue.Add(waiting)
	}
}

// say writes the status.
func (c *Controller) say(ctx context.Context, s *corev1.Service, f facts) (time.Duration, error) {
	f.now = c.Clock.Now()
	out, again := speak(s, f)
	patched, err := c.patch(ctx, s, out, "status")
	if err != nil {
		return 0, err
	}
	c.announce(patched, s, out)
	return again, nil
}

// patch writes the difference between two versions of a Service, if there is one, on condition that the API server still
// has the first. It returns the Service as it is then.
func (c *Controller) patch(ctx context.Context, from, to *corev1.Service, subresource string) (*corev1.Service, error) {
	base := from.DeepCopy()
	old, err := json.Marshal(base)
	if err != nil {
		return nil, fmt.Errorf("encode Service %s: %w", keyOf(from), err)
	}
	same, err := json.Marshal(to)
	if err != nil {
		return nil, fmt.Errorf("encode Service %s: %w", keyOf(from), err)
	}
	if string(old) == string(same) {
		return from, nil
	}
	base.ResourceVersion, base.UID = "", "" // so that the patch holds both, and fails on another version or object
	if old, err = json.Marshal(base); err != nil {
		return nil, fmt.Errorf("encode Service %s: %w", keyOf(from), err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(old, same, corev1.Service{})
	if err != nil {
		return nil, fmt.Errorf("compute the patch of Service %s: %w", keyOf(from), err)
	}
	var subresources []string
	if subresource != "" {
		subresources = []string{subresource}
	}
	out, err := c.Client.CoreV1().Services(from.Namespace).Patch(ctx, from.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: "nplbridge"}, subresources...)
	if apierrors.IsNotFound(err) {
		return to, nil // gone meanwhile, and so is whatever we had to say
	}
	if err != nil {
		return nil, fmt.Errorf("patch Service %s: %w", keyOf(from), err)
	}
	return out, nil
}

func keyOf(s *corev1.Service) model.ServiceKey {
	return model.ServiceKey{Namespace: s.Namespace, Name: s.Name}
}
