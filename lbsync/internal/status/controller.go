package status

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
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
	Instance  string     // of the installation
	Balancers []Balancer // in the order of the configuration
	Client    kubernetes.Interface
	Fence     Fence // of every write
	Services  Services
	// Claimants returns the Pods that rightfully have a node port by their annotations; nil knows of none.
	Claimants func(c model.Claim, exceptPodUID string) []string
	// Nodes returns the Nodes; nil knows of none.
	Nodes    func() []*model.Node
	Recorder events.EventRecorder // into a Sink
	Clock    clock.WithTicker
	Log      *zap.Logger

	queue   workqueue.TypedRateLimitingInterface[model.ServiceKey]
	vips    *addresses
	onNodes map[told]bool // of the goroutine that tells of Nodes

	mu    sync.Mutex
	told  map[model.ServiceKey]map[told]bool
	said  map[model.ServiceKey]map[string]string // the message of each reason
	since map[model.ServiceKey]time.Time         // of what may be over in a moment
}

// workers write that many Services at once, so that one slow answer does not hold up the others.
const workers = 4

// patience is the pause before a load balancer that refused to give an address is asked again, if nothing changes.
const patience = 5 * time.Minute

// takeBackPoll is the pause before we look again whether the node ports of Pods are still in use.
const takeBackPoll = 5 * time.Second

// nodePoll is the pause between two looks at the annotations of Nodes.
const nodePoll = 10 * time.Second

// Init prepares the Controller; Enqueue may be called after it.
func (c *Controller) Init() {
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[model.ServiceKey](20*time.Millisecond, 30*time.Second),
		workqueue.TypedRateLimitingQueueConfig[model.ServiceKey]{Clock: c.Clock})
	c.vips = newAddresses(c.Selection.Pools, c.queue.Add)
	c.told = map[model.ServiceKey]map[told]bool{}
	c.said = map[model.ServiceKey]map[string]string{}
	c.since = map[model.ServiceKey]time.Time{}
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
	c.loadAll(services)
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
	if c.Nodes != nil {
		running.Go(func() { c.watchNodes(ctx) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
}

// watchNodes looks at Nodes now and then: what is wrong there stays wrong for long.
func (c *Controller) watchNodes(ctx context.Context) {
	tick := c.Clock.NewTicker(nodePoll)
	defer tick.Stop()
	for {
		c.tellNodes()
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
	}
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
	case IsFenced(err):
		c.Log.Debug("the Service is left as it is", zap.String("service", key.String()), zap.Error(err))
		c.queue.AddRateLimited(key)
	default:
		c.Log.Warn("cannot bring the Service up to date", zap.String("service", key.String()), zap.Error(err))
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
	if s == nil {
		return c.forget(ctx, key, false)
	}
	r := c.Selection.Service(s)
	c.remark(s, r)
	switch {
	case r.Ours() && !r.Deleting:
		return c.serve(ctx, key, s, r)
	case c.mine(s):
		return c.retire(ctx, key, s, r)
	default:
		return c.forget(ctx, key, true)
	}
}

// mine reports whether the Service carries our name, our finalizer without anybody's, or conditions that nobody else
// will remove.
func (c *Controller) mine(s *corev1.Service) bool {
	return s.Annotations[annotations.ManagedBy] == c.Selection.Manager || c.Selection.Admitted(s) || stripped(s)
}

// forget frees what a Service had that there is nothing to write on, where nothing of it is left. A report that changes brings us back.
func (c *Controller) forget(ctx context.Context, key model.ServiceKey, there bool) (time.Duration, error) {
	left := false
	for _, b := range c.Balancers {
		if report, reported := b.Report(key); reported && !report.Gone {
			left = true
			continue
		}
		if err := c.vips.release(ctx, key, c.Balancers, b.Name); err != nil {
			return c.retryProvider(err)
		}
	}
	if left {
		return 0, nil
	}
	if err := c.vips.settle(ctx, key, c.Balancers); err != nil {
		return c.retryProvider(err)
	}
	c.vips.forget(key)
	c.rest(key, there)
	return 0, nil
}

// retryProvider paces what a load balancer's address management refused.
func (c *Controller) retryProvider(err error) (time.Duration, error) {
	if wait := providers.RetryAfter(err); wait > 0 {
		return wait, nil
	}
	if !passes(providers.KindOf(err)) {
		c.Log.Warn("the load balancer's address management refuses", zap.Error(err))
		return patience, nil
	}
	return 0, err
}

// waitingSince notes whether something that may be over in a moment is in the way of the Service, and returns since when.
func (c *Controller) waitingSince(key model.ServiceKey, waiting bool) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !waiting {
		delete(c.since, key)
		return time.Time{}
	}
	if c.since[key].IsZero() {
		c.since[key] = c.Clock.Now()
	}
	return c.since[key]
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

// sooner returns the shorter pause; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
