package applied

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// away is after how long of silence a process counts as away.
const away = 3 * Interval

// patience is after how long a process that publishes and names no problem is believed to have seen what we have seen: in a quiet cluster
// nothing may come to raise its resourceVersion to ours.
const patience = 2 * Interval

// late is how long after another a tick comes only where the process was frozen, or as good as: then nothing could be received.
const late = 3 * Interval / 2

// Group follows what all processes of an installation have applied, for the one that leads. It is run once.
type Group struct {
	Client              kubernetes.Interface
	Namespace, Instance string
	Identity            string                 // of this process, which is no other to itself
	Pod                 *metav1.OwnerReference // that it runs in; nil if in none
	Clock               clock.WithTicker
	Log                 *zap.Logger
	// Reached returns how far this process has seen, by provider.
	Reached func() map[string]string
	// Tell is called with the Services that Others may answer otherwise about than before.
	Tell func(model.ServiceKey)
	// Keys returns all Services.
	Keys func() []model.ServiceKey

	mu       sync.Mutex
	others   map[process]other // except this one
	own      map[process]other // this one, and whoever had its identity before it
	before   map[string]other  // of the process that had our identity before us, by provider
	listed   func() bool       // whether what there was at the beginning is in others
	samples  []sample          // of Reached, the oldest first
	ticked   time.Time         // when tick ran last
	thawed   time.Time         // until when silence was ours
	waiting  map[model.ServiceKey]bool
	wereAway string
}

// process is who publishes.
type process struct{ provider, identity string }

type sample struct {
	at      time.Time
	reached map[string]string
}

// Run follows until ctx ends.
func (g *Group) Run(ctx context.Context) {
	selector := labels.Set{Label: LabelValue}.String()
	factory := informers.NewSharedInformerFactoryWithOptions(g.Client, 0, informers.WithNamespace(g.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	err := informer.SetTransform(read)
	registration, also := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { g.set(o.(*publication)) },
		UpdateFunc: func(_, o any) { g.set(o.(*publication)) },
		DeleteFunc: func(o any) {
			if missed, is := o.(cache.DeletedFinalStateUnknown); is {
				o = missed.Obj
			}
			if p, is := o.(*publication); is {
				g.drop(p)
			}
		},
	})
	if err := errors.Join(err, also); err != nil {
		g.Log.Error("cannot follow what others have applied", zap.Error(err))
		return
	}
	g.mu.Lock()
	g.listed = registration.HasSynced
	g.mu.Unlock()
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	for ctx.Err() == nil {
		g.tick()
		select {
		case <-ctx.Done():
		case <-g.Clock.After(Interval):
		}
	}
}

func (g *Group) set(p *publication) {
	if p.err != nil {
		g.Log.Warn("cannot read what a process has applied", zap.String("configMap", p.Namespace+"/"+p.Name), zap.Error(p.err))
		return // it will be silent
	}
	g.change(p, func(o other) other { return o.with(p, g.Clock.Now()) })
}

func (g *Group) drop(p *publication) {
	if p.err == nil {
		g.change(p, func(o other) other { return o.without(p) })
	}
}

// change changes what is known of the process that has published p, and tells of what follows.
func (g *Group) change(p *publication, to func(other) other) {
	instance, identity, provider := p.by()
	if instance != g.Instance {
		return
	}
	key := process{provider, identity}
	g.mu.Lock()
	if identity == g.Identity {
		g.succeed(key, to(g.own[key]))
		g.mu.Unlock()
		return
	}
	if g.others == nil {
		g.others = map[process]other{}
	}
	g.share(p.content)
	before := g.others[key]
	after := to(before)
	g.others[key] = after
	if after.beat == nil && after.stored == nil {
		delete(g.others, key)
	}
	if p.content != nil && after.content == before.content {
		g.mu.Unlock()
		return // its heartbeat is still to come
	}
	told := g.takeWaiting()
	g.mu.Unlock()
	for _, key := range differ(&before, &after) {
		told[key] = true
	}
	if held, holds := before.holds(), after.holds(); !slices.Equal(held, holds) {
		for _, key := range g.Keys() {
			told[key] = true
		}
	}
	for service := range after.pending {
		if namespace, name, ok := strings.Cut(service, "/"); ok && !before.pending[service] {
			told[model.ServiceKey{Namespace: namespace, Name: name}] = true
		}
	}
	for key := range told {
		g.Tell(key)
	}
}

// share has a content use the lists of Services of others where they are the same. It is called under the lock.
func (g *Group) share(c *Content) {
	if c == nil {
		return
	}
	for _, o := range g.others {
		if o.stored != nil && o.stored.content != c && c.share(o.stored.content) {
			return
		}
	}
}

// takeWaiting returns whoever had to wait. Who still has to will ask again.
func (g *Group) takeWaiting() map[model.ServiceKey]bool {
	told := g.waiting
	g.waiting = nil
	if told == nil {
		told = map[model.ServiceKey]bool{}
	}
	return told
}

// thaw forgets what follows from the time alone if the process was frozen until a moment ago: that nothing was received from others does
// not mean that they are silent, and what is received now may have been on its way for as long. It is called under the lock.
func (g *Group) thaw(now time.Time) {
	if now.Sub(g.ticked) > late {
		g.thawed, g.samples = now, nil
	}
}

// away reports whether a process was silent for so long that it counts as away. It is called under the lock.
func (g *Group) away(o other, now time.Time) bool { return g.long(o.received, now) }

// long reports whether nothing has come since for so long that nothing is waited for any more. It is called under the lock.
func (g *Group) long(since, now time.Time) bool {
	return now.Sub(since) >= away && now.Sub(g.thawed) >= away
}

// tick notes how far this process has seen, and whether somebody went or came back.
func (g *Group) tick() {
	now := g.Clock.Now()
	reached := g.Reached()
	g.mu.Lock()
	g.thaw(now)
	g.ticked = now
	g.samples = append(g.samples, sample{now, reached})
	g.samples = slices.DeleteFunc(g.samples, func(s sample) bool { return now.Sub(s.at) > away })
	var silent []string
	for _, o := range g.others {
		if o.beat != nil && g.away(o, now) {
			silent = append(silent, o.Provider+"/"+o.Identity)
		}
	}
	slices.Sort(silent)
	names := strings.Join(silent, " ")
	all := names != g.wereAway
	g.wereAway = names
	told := g.takeWaiting()
	g.mu.Unlock()
	if all {
		for _, key := range g.Keys() {
			told[key] = true
		}
	}
	for key := range told {
		g.Tell(key)
	}
}

// Others returns which other processes beside load balancers of the provider do not have a Service as it follows from what was seen up
// to resourceVersion seen, and which are away, both sorted. Whoever is away is not waited for.
func (g *Group) Others(provider string, key model.ServiceKey, seen string) (pending, silent []string) {
	for _, p := range g.Peers(provider, key, seen) {
		switch {
		case p.Silent:
			silent = append(silent, p.Identity)
		case p.Pending:
			pending = append(pending, p.Identity)
		}
	}
	return pending, silent
}

// caughtUp reports whether a process has seen what this one had when it had reached seen.
func (g *Group) caughtUp(o other, seen string, now time.Time) bool {
	if o.content == nil {
		return false
	}
	if c, ok := watermark.CompareVersions(o.Seen, seen); ok && c >= 0 {
		return true
	}
	for _, s := range g.samples {
		if c, ok := watermark.CompareVersions(s.reached[o.Provider], seen); ok && c >= 0 {
			return now.Sub(s.at) >= patience && o.received.Sub(s.at) >= Interval
		}
	}
	return seen == ""
}
