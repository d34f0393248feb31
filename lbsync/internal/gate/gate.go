// Package gate opens the readiness gate nplbridge.io/in-pool of Pods, used by the Lease holder only: a Pod with it counts as ready when
// the load balancers have it, so that a rolling update takes no old Pod away before the new one is reached. It is never closed again.
package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/status"
)

// Pods are the Pods whose gate is not True yet; inventory.Index is one.
type Pods interface {
	GatedPods() []inventory.PodKey
	GatedPod(inventory.PodKey) (inventory.GatedPod, bool)
	Believable() bool
}

// Services are those that the API server has; inventory.Watch is one.
type Services interface {
	Service(model.ServiceKey) *corev1.Service
	ServicesIn(namespace string) []*corev1.Service
}

// Controller opens gates for one term as leader. One Controller is run once.
type Controller struct {
	Selection inventory.Selection
	Balancers []status.Balancer
	Pods      Pods
	Services  Services
	Client    kubernetes.Interface
	Fence     status.Fence // of every write
	// Timeout opens the gate of a Pod that was ready but for it so long; 0 never does. It may be another one at each call.
	Timeout  func() time.Duration
	Recorder events.EventRecorder
	Metrics  *Metrics
	Clock    clock.WithTicker
	Log      *zap.Logger

	queue workqueue.TypedRateLimitingInterface[inventory.PodKey]

	mu      sync.Mutex
	waiting map[model.ServiceKey]map[inventory.PodKey]bool // who waits for the pools of a Service
	of      map[inventory.PodKey][]model.ServiceKey
}

// workers patch that many Pods at once.
const workers = 4

// poll is the longest pause before a Pod that waits is looked at again, though nothing was heard of its pools.
const poll = 10 * time.Second

// Init prepares the Controller; OnPod and OnMembers may be called after it.
func (c *Controller) Init() {
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[inventory.PodKey](20*time.Millisecond, 30*time.Second),
		workqueue.TypedRateLimitingQueueConfig[inventory.PodKey]{Clock: c.Clock})
	c.waiting, c.of = map[model.ServiceKey]map[inventory.PodKey]bool{}, map[inventory.PodKey][]model.ServiceKey{}
}

// OnPod has the Pod looked at soon. It does not block.
func (c *Controller) OnPod(key inventory.PodKey) { c.queue.Add(key) }

// OnMembers has the Pods looked at soon that wait for the pools of a Service. It does not block.
func (c *Controller) OnMembers(key model.ServiceKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for pod := range c.waiting[key] {
		c.queue.Add(pod)
	}
}

// Run works until ctx ends, and returns when nothing is being written any more. The Pods must hold the whole first answer of the API
// server.
func (c *Controller) Run(ctx context.Context) {
	for _, key := range c.Pods.GatedPods() {
		c.OnPod(key)
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
	if status.IsFenced(err) {
		c.Log.Debug("the readiness gate of a Pod is left as it is", zap.String("pod", key.String()), zap.Error(err))
		c.queue.AddRateLimited(key)
		return true
	}
	if err != nil {
		c.Log.Warn("cannot open the readiness gate of a Pod", zap.String("pod", key.String()), zap.Error(err))
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	if again > 0 {
		c.queue.AddAfter(key, again)
	}
	return true
}

// sync opens the gate of a Pod if it is time, or returns when to look again.
func (c *Controller) sync(ctx context.Context, key inventory.PodKey) (again time.Duration, err error) {
	g, gated := c.Pods.GatedPod(key)
	if !gated || g.Pod.Terminating || g.Pod.Finished || !g.Pod.Ready { // an event brings us back
		c.waits(key, nil)
		return 0, nil
	}
	c.waits(key, g.Services) // before the reports are read, so that what changes after that is heard of
	reason, waitingFor := c.judge(g)
	text := "every load balancer that is to have the Pod has it"
	if reason == NotApplicable {
		text = "no Service puts the Pod on a load balancer"
	}
	if waitingFor != "" {
		left, limit := poll, c.Timeout()
		if limit > 0 && !g.Pod.ReadyChanged.IsZero() {
			left = g.Pod.ReadyChanged.Add(limit).Sub(c.Clock.Now())
		}
		if left > 0 {
			c.Log.Debug("the readiness gate of a Pod is closed", zap.String("pod", key.String()), zap.String("waitingFor", waitingFor))
			return min(poll, left), nil
		}
		reason, text = TimedOut, fmt.Sprintf("opened after %s; still waiting for %s", limit, waitingFor)
	}
	if err := c.open(ctx, g.Pod, reason, text); err != nil {
		return 0, err
	}
	c.waits(key, nil)
	return 0, nil
}

// waits notes for which Services' pools a Pod waits.
func (c *Controller) waits(key inventory.PodKey, services []model.ServiceKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.of[key] {
		if delete(c.waiting[s], key); len(c.waiting[s]) == 0 {
			delete(c.waiting, s)
		}
	}
	if c.of[key] = services; len(services) == 0 {
		delete(c.of, key)
	}
	for _, s := range services {
		if c.waiting[s] == nil {
			c.waiting[s] = map[inventory.PodKey]bool{}
		}
		c.waiting[s][key] = true
	}
}

// judge collects what is known of the Services that select the Pod, and judges.
func (c *Controller) judge(g inventory.GatedPod) (reason, waitingFor string) {
	if !c.Pods.Believable() {
		return "", "the API server's answers to be believable"
	}
	var claims []claim
	for _, key := range g.Services {
		if s := c.Services.Service(key); s != nil {
			claims = append(claims, c.claim(s))
		}
	}
	if reason, waitingFor = judge(g.Pod, claims); reason == NotApplicable {
		if other := c.elsewhere(g.Pod); other != "" {
			return "", other
		}
	}
	return reason, waitingFor
}

// claim looks at how a Service stands.
func (c *Controller) claim(s *corev1.Service) claim {
	r := c.Selection.Service(s)
	out := claim{service: r, unserved: status.Unserved(s)}
	for _, b := range c.Balancers {
		if !r.Wanted(b.Name) || slices.Contains(r.Abandoned, b.Name) {
			continue
		}
		at := place{name: b.Name}
		if at.report, at.reported = b.Report(r.ServiceKey); at.reported && b.Others != nil {
			at.pending, _ = b.Others(r.ServiceKey, at.report.Seen)
		}
		out.at = append(out.at, at)
	}
	return out
}

// elsewhere says which Service of another lbsync the Pod may be waiting for: that one opens the gate.
func (c *Controller) elsewhere(p *model.Pod) string {
	for _, s := range c.Services.ServicesIn(p.Namespace) {
		if len(s.Spec.Selector) == 0 || s.DeletionTimestamp != nil {
			continue
		}
		manager, class := s.Annotations[annotations.ManagedBy], s.Spec.LoadBalancerClass
		theirs := manager != "" && manager != c.Selection.Manager ||
			manager == "" && class != nil && strings.HasPrefix(*class, annotations.ClassPrefix) && !c.Selection.Ours(s)
		if theirs && selects(s, p) {
			return "another lbsync, to which the Service " + s.Namespace + "/" + s.Name + " is left"
		}
	}
	return ""
}

func selects(s *corev1.Service, p *model.Pod) bool {
	for key, value := range s.Spec.Selector {
		if has, ok := p.Labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// open writes the condition, on condition that the Pod is still the same one and the Fence is open.
func (c *Controller) open(ctx context.Context, p *model.Pod, reason, message string) error {
	type condition struct {
		Type               string      `json:"type"`
		Status             string      `json:"status"`
		Reason             string      `json:"reason"`
		Message            string      `json:"message"`
		LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID},
		"status":   map[string]any{"conditions": []condition{{annotations.Gate, "True", reason, message, metav1.NewTime(c.Clock.Now())}}},
	})
	if err != nil {
		return fmt.Errorf("encode the condition %s of Pod %s: %w", annotations.Gate, p.ID(), err)
	}
	ctx, cancel, err := c.Fence.Enter(ctx)
	if err != nil {
		return fmt.Errorf("open the readiness gate of Pod %s: %w", p.ID(), err)
	}
	defer cancel()
	// A JSON merge patch would replace all conditions.
	_, err = c.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: status.FieldManager}, "status")
	switch {
	case apierrors.IsNotFound(err) || replaced(err):
		return nil // there is nobody whose gate it is
	case err != nil:
		return fmt.Errorf("open the readiness gate of Pod %s: %w", p.ID(), err)
	}
	c.Metrics.opened.WithLabelValues(reason).Inc()
	if reason == TimedOut {
		c.Log.Warn("the readiness gate of a Pod was opened, though it is not in every pool", zap.String("pod", p.ID()), zap.String("why", message))
		c.Recorder.Eventf(status.Regarding("Pod", p.Namespace, p.Name, types.UID(p.UID), message), nil, corev1.EventTypeWarning, TimedOut, "OpenGate",
			"%s", message)
	}
	return nil
}

// replaced reports whether the API server says that the Pod of that name is another one now.
func replaced(err error) bool {
	return (apierrors.IsInvalid(err) || apierrors.IsConflict(err)) && strings.Contains(strings.ToLower(err.Error()), "uid")
}
