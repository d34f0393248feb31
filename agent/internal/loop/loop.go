// Package loop turns everything that changed into one pass over the whole Node: model, ports, sockets, one kernel transaction,
// annotations. Passes never overlap.
//
// The order is the point. A mapping is published only after the kernel has it; it is withdrawn from the annotation first, and its
// rule goes when that is confirmed and the grace has passed. Only a Pod that is gone loses its rule at once.
package loop

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/internal/ports"
	"github.com/nplbridge/nplbridge/agent/internal/publish"
	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/agent/watermark"
)

// Inventory is what exists, from synced caches.
type Inventory interface {
	Node() model.Node
	Pods() []model.Pod
	Services() []model.Service // the enabled ones
	// Arrivals are the times at which Pods came or changed since the last call, Deletions the resourceVersions at which others
	// were deleted, by UID. Version is the resourceVersion of Pods that everything returned before is at most as new as.
	Arrivals() map[string]time.Time
	Deletions() map[string]string
	Version() string
}

// Watermarks are what load balancers say that they have removed; an error means that it is not known who says anything.
type Watermarks interface {
	Marks() ([]watermark.Watermark, error)
}

// Dataplane is the kernel. See package dataplane for what each method promises.
type Dataplane interface {
	Families() []npl.Family
	Load() (dataplane.Snapshot, error)
	Apply(dataplane.Change) error
	Repair(want map[dataplane.Key]netip.AddrPort) (repaired int, err error)
	Reserve(dataplane.Key) error
	Release(dataplane.Key)
}

// Publisher writes annotations. See package publish for what each method promises.
type Publisher interface {
	Set([]publish.Desired)
	Published(model.Pod) ([]npl.Mapping, error)
	Since(model.Pod) (resourceVersion string)
	Failure(uid string) error
}

// Reporter tells people. A refusal is one while Reason, PodUID and Service stay; its message joins all there are about that.
type Reporter interface {
	Refused(model.Refusal)   // it begins
	Changed(model.Refusal)   // it lasts, with another message; at most once a minute
	Withdrawn(model.Refusal) // it no longer applies
}

// Settings are what the administrator chose; agent.Config says what each means.
type Settings struct {
	Range          ports.Range
	JointPorts     bool // agent.Config.SameNodePortPerProtocol
	IPFamilies     []npl.Family
	Addresses      model.AddressPolicy
	CoolDown       time.Duration
	RepairInterval time.Duration
	WithdrawGrace  time.Duration
	// Cursor is where in Range the first port is taken; random in production.
	Cursor uint16
}

const (
	// After a pass there is a pause of gapFactor times as long, within these bounds: a burst of changes becomes few passes and none waits
	// long. A pass over 100 Pods takes less than a millisecond, one over 1000 some.
	gapFactor  = 4
	minGap     = time.Millisecond
	maxGap     = 10 * time.Millisecond
	laterGap   = 100 * time.Millisecond
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Loop is the agent's heart. Only its own goroutine touches its state; what others may read is in Document.
type Loop struct {
	inventory  Inventory
	kernel     Dataplane
	publisher  Publisher
	watermarks Watermarks // nil: time alone frees a port
	reporter   Reporter
	clock      clock.WithTicker
	log        *zap.Logger
	metrics    *Metrics
	settings   Settings

	trigger   chan struct{}
	later     chan struct{}
	repairNow atomic.Bool

	alloc    *ports.Allocator
	entries  map[model.Key]*entry
	adopted  bool
	reread   bool                    // what the kernel holds is not certain
	fresh    bool                    // when we last looked, the kernel had no tables of ours
	recool   map[model.Key]time.Time // cooling ports that the kernel does not know of
	repaired time.Time               // when the kernel was last compared
	told     map[subject]told
	arrived  map[string]time.Time // since when a Pod needs what is not published yet, by UID
	// withdrawals is what confirms that a port is free.
	withdrawals withdrawals

	mu        sync.Mutex
	document  Document
	completed bool  // one pass has succeeded
	kernelErr error // of the last pass
}

// New returns a loop that has not started. Without marks, time alone frees a port.
func New(inv Inventory, kernel Dataplane, pub Publisher, marks Watermarks, rep Reporter, clk clock.WithTicker, log *zap.Logger, m *Metrics, s Settings) *Loop {
	m.RangeSize.Set(float64(s.Range.Size()))
	return &Loop{
		inventory: inv, kernel: kernel, publisher: pub, watermarks: marks, reporter: rep, clock: clk, log: log, metrics: m, settings: s,
		trigger:     make(chan struct{}, 1),
		later:       make(chan struct{}, 1),
		alloc:       ports.New(s.Range, s.Cursor, s.JointPorts),
		entries:     map[model.Key]*entry{},
		recool:      map[model.Key]time.Time{},
		told:        map[subject]told{},
		arrived:     map[string]time.Time{},
		withdrawals: newWithdrawals(),
	}
}

// Trigger asks for a pass soon. Several calls before it begins make one pass.
func (l *Loop) Trigger() { raise(l.trigger) }

// TriggerLater asks for a pass within a tenth of a second, for news that nobody waits for: that a patch has been answered. With many Pods
// there are many of these, and each pass looks at all Pods.
func (l *Loop) TriggerLater() { raise(l.later) }

func raise(flag chan struct{}) {
	select {
	case flag <- struct{}{}:
	default:
	}
}

// Repair asks for a pass soon that also compares the kernel with what it should hold.
func (l *Loop) Repair() {
	l.repairNow.Store(true)
	l.Trigger()
}

// Run makes passes until ctx ends: after Trigger and TriggerLater, when a deadline is reached, every RepairInterval, and after a failure with
// growing pauses. The caches must have synced before.
func (l *Loop) Run(ctx context.Context) {
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval, retry.Multiplier = firstRetry, lastRetry, 2
	next := l.clock.Now()
	timer := l.clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.later:
			next = earlier(next, l.clock.Now().Add(laterGap))
			timer.Reset(max(0, next.Sub(l.clock.Now())))
			continue
		case <-l.trigger:
		case <-timer.C():
		}
		began := l.clock.Now()
		var err error
		next, err = l.Sync()
		if err == nil {
			retry.Reset()
		} else {
			next = l.clock.Now().Add(retry.NextBackOff()) // deadlines that a failing pass does not meet must not hurry it
			l.log.Error("pass failed; trying again", zap.Time("at", next), zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-l.clock.After(min(maxGap, max(minGap, gapFactor*l.clock.Since(began)))):
		}
		timer.Reset(max(0, next.Sub(l.clock.Now())))
	}
}

// earlier returns the earlier of two times; the zero time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
