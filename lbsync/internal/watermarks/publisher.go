// Package watermarks publishes what one load balancer has acknowledged, so that npl-agents know which node ports no load balancer can list
// any more. What is promised is in agent/watermark.
package watermarks

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
)

const (
	// settle is how long news wait for more: a removal is usually acknowledged a moment after it became necessary.
	settle = 500 * time.Millisecond
	// interval is the least time between two writes of news.
	interval = 5 * time.Second
	// refresh is the least time between two writes that say no more than how far was seen.
	refresh = 20 * time.Second
	// rate is how many watermarks a second all instances write together, where they are so many that the paces above would make it more:
	// every npl-agent receives every one of them. A later watermark only delays the reuse of a node port.
	rate = 5
	// callTimeout bounds one call to the API server.
	callTimeout = 10 * time.Second
	// MaxSize is the longest watermark that is written, in bytes: a ConfigMap takes 1 MiB. As long as a longer one would be needed, nothing
	// new is confirmed.
	MaxSize = 900 << 10
)

// Source is the loop whose load balancer the watermark is about.
type Source interface {
	Holdings() (h loop.Holdings, ok bool)
	Wake()
}

// Config says what is published where.
type Config struct {
	Client    kubernetes.Interface
	Namespace string
	Name      string // of the ConfigMap, see Name
	Instance  string // "namespace/name" of the installation
	Provider  string // name of the provider instance
	// Identity tells the process beside a local load balancer from its like; empty for a remote one, which has one writer at a time.
	Identity string
	// Instances returns how many processes like this one there may be, each with a watermark; nil where they are few.
	Instances func() int
	Owner     *metav1.OwnerReference              // with whom the ConfigMap goes; nil if with nobody
	Fence     func() (until time.Time, err error) // as in loop.Links; nil is always open
	Metrics   *Metrics
	Clock     clock.WithTicker
	Log       *zap.Logger
}

// Publisher publishes one watermark. It is run once.
type Publisher struct {
	Config
	changed chan struct{}

	// Owned by Run's goroutine.
	object  *corev1.ConfigMap // as of the last answer; nil where there is none
	left    uint64            // loop.Holdings.Left of the last write
	wrote   time.Time
	newsAt  time.Time // since when something is to be told; zero when nothing is
	aheadAt time.Time // since when more was seen than is published; zero when it is not
	retryAt time.Time
	pace    *backoff.ExponentialBackOff
	failure string // the last one that was logged

	mu    sync.Mutex
	last  watermark.Watermark
	known bool
}

// New returns a Publisher.
func New(cfg Config) *Publisher {
	p := &Publisher{Config: cfg, changed: make(chan struct{}, 1), pace: backoff.NewExponentialBackOff()}
	p.pace.InitialInterval, p.pace.MaxInterval, p.pace.Multiplier = 250*time.Millisecond, 30*time.Second, 2
	p.pace.Reset()
	if p.Fence == nil {
		p.Fence = func() (time.Time, error) { return time.Time{}, nil }
	}
	return p
}

// Last implements loop.Marks.
func (p *Publisher) Last() (last watermark.Watermark, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last, p.known
}

// Changed implements loop.Marks.
func (p *Publisher) Changed() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Run publishes until ctx ends. The ConfigMap stays: what it says remains true.
func (p *Publisher) Run(ctx context.Context, source Source) {
	defer p.Metrics.news(time.Time{})
	for ctx.Err() == nil {
		next := p.step(ctx, source)
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = p.Clock.After(max(next.Sub(p.Clock.Now()), 0))
		}
		select {
		case <-ctx.Done():
		case <-p.changed:
		case <-timer:
		}
	}
}

// step does what is due and returns when the next step is; zero if only news make one.
func (p *Publisher) step(ctx context.Context, source Source) (next time.Time) {
	now := p.Clock.Now()
	if now.Before(p.retryAt) {
		return p.retryAt
	}
	last, known := p.Last()
	if !known {
		if err := p.load(ctx); err != nil {
			return p.failed(ctx, "read", err)
		}
		p.succeeded()
		source.Wake()
		last, _ = p.Last()
	}
	h, ok := source.Holdings()
	if !ok {
		return time.Time{}
	}
	due := p.due(h, last, now)
	p.Metrics.news(time.Time{})
	if !p.newsAt.IsZero() {
		p.Metrics.news(due)
	}
	if due.IsZero() || now.Before(due) {
		return due
	}
	mark := watermark.Watermark{Instance: p.Instance, LoadBalancer: LoadBalancer(p.Provider, p.Identity), Seen: h.Seen, At: now, Held: h.Held}
	err := p.write(ctx, mark)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
		// Somebody else wrote or deleted it. What it says now is what counts.
		p.mu.Lock()
		p.known = false
		p.mu.Unlock()
		p.retryAt = now.Add(settle)
		return p.retryAt
	case err != nil:
		return p.failed(ctx, "write", err)
	}
	p.succeeded()
	p.left, p.wrote, p.newsAt = h.Left, now, time.Time{}
	p.Metrics.wrote(now, len(h.Held))
	if last.Seen == "" {
		source.Wake() // it waits for this
	}
	return p.due(h, mark, now)
}

// due returns when h is worth writing after last; zero if it is not.
func (p *Publisher) due(h loop.Holdings, last watermark.Watermark, now time.Time) time.Time {
	if last.Seen == "" {
		if p.newsAt.IsZero() {
			p.newsAt = now
		}
		return p.newsAt
	}
	order, comparable := watermark.CompareVersions(h.Seen, last.Seen)
	if !comparable || order < 0 {
		return time.Time{} // it never goes back
	}
	if h.Left != p.left || !slices.Equal(h.Held, last.Held) {
		if p.newsAt.IsZero() {
			p.newsAt = now
		}
		due := latest(p.newsAt.Add(settle+p.turn(interval)), p.wrote.Add(p.pacing(interval)))
		if ahead := p.aheadDue(); !p.aheadAt.IsZero() && ahead.Before(due) {
			return ahead // news put nothing off
		}
		return due
	}
	p.newsAt = time.Time{}
	if order == 0 {
		p.aheadAt = time.Time{}
		return time.Time{}
	}
	// Whoever waits for a port may be nobody's here: a Pod behind another load balancer, or behind none.
	if p.aheadAt.IsZero() {
		p.aheadAt = now
	}
	return p.aheadDue()
}

// aheadDue returns when it is due to tell how far was seen, with news or without.
func (p *Publisher) aheadDue() time.Time {
	return latest(p.aheadAt.Add(p.turn(refresh)), p.wrote.Add(p.pacing(refresh)))
}

// pacing returns the least time between two writes of the kind whose least time is so much where instances are few.
func (p *Publisher) pacing(least time.Duration) time.Duration {
	if p.Instances == nil {
		return least
	}
	return max(least, time.Duration(p.Instances())*time.Second/rate)
}

// turn returns how long this instance waits after what may be news to all of them at once: each has a turn of its own within the pacing,
// and none waits where the least time alone keeps to the rate.
func (p *Publisher) turn(least time.Duration) time.Duration {
	pacing := p.pacing(least)
	if pacing <= least {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(p.Name)) // a hash takes everything
	return time.Duration(float64(pacing) * float64(h.Sum32()) / (1 << 32))
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// load reads what is published. What cannot be understood confirms nothing, so it counts as none.
func (p *Publisher) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	object, err := p.Client.CoreV1().ConfigMaps(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	var last watermark.Watermark
	if err == nil {
		p.object = object
		if last, err = watermark.Decode(object.Data[watermark.DataKey]); err != nil {
			p.Log.Warn("the last watermark cannot be read and is written anew", zap.String("configMap", p.Namespace+"/"+p.Name), zap.Error(err))
			last = watermark.Watermark{}
		}
	} else {
		p.object = nil
	}
	p.enter(last)
	return nil
}

func (p *Publisher) enter(last watermark.Watermark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.known = last, true
}

// write creates the ConfigMap or updates what was read or written last; if somebody else has written it since, that is a conflict.
func (p *Publisher) write(ctx context.Context, mark watermark.Watermark) error {
	text := watermark.Encode(mark)
	if len(text) > MaxSize {
		return fmt.Errorf("%d held node ports make %d bytes, the most is %d: nothing new is confirmed until the load balancer lets go of some",
			len(mark.Held), len(text), MaxSize)
	}
	until, err := p.Fence()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if !until.IsZero() {
		var fenced context.CancelFunc
		ctx, fenced = context.WithDeadline(ctx, until)
		defer fenced()
	}
	objects := p.Client.CoreV1().ConfigMaps(p.Namespace)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
	if p.object != nil {
		object = p.object.DeepCopy()
	}
	object.Labels = with(object.Labels, watermark.Label, watermark.LabelValue)
	object.Labels = with(object.Labels, managedBy, manager)
	object.Annotations = with(object.Annotations, IdentityAnnotation, p.Identity)
	object.Data = map[string]string{watermark.DataKey: text}
	if p.Owner != nil {
		object.OwnerReferences = []metav1.OwnerReference{*p.Owner}
	}
	if p.object == nil {
		object, err = objects.Create(ctx, object, metav1.CreateOptions{})
	} else {
		object, err = objects.Update(ctx, object, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	p.object = object
	p.enter(mark)
	return nil
}

func with(m map[string]string, key, value string) map[string]string {
	out := maps.Clone(m)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	if value == "" {
		delete(out, key)
	}
	return out
}

// failed notes an error, tells a new one, and returns when it is tried again.
func (p *Publisher) failed(ctx context.Context, what string, err error) time.Time {
	p.retryAt = p.Clock.Now().Add(p.pace.NextBackOff())
	if ctx.Err() != nil {
		return p.retryAt
	}
	p.Metrics.failed()
	if err.Error() != p.failure {
		p.failure = err.Error()
		p.Log.Warn("cannot "+what+" the watermark; npl-agents give no freed node port away meanwhile",
			zap.String("configMap", p.Namespace+"/"+p.Name), zap.Error(err))
	}
	return p.retryAt
}

func (p *Publisher) succeeded() {
	p.retryAt, p.failure = time.Time{}, ""
	p.pace.Reset()
}
