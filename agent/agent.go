// Package agent gives each port of each Service-backend Pod a port of the Pod's own Node, and publishes it in the Pod's
// annotation. It is everything npl-agent does, without its command line.
package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/agent/internal/inventory"
	"github.com/nplbridge/nplbridge/agent/internal/loop"
	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/internal/nodecheck"
	"github.com/nplbridge/nplbridge/agent/internal/ports"
	"github.com/nplbridge/nplbridge/agent/internal/publish"
	"github.com/nplbridge/nplbridge/agent/internal/watermarks"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// apiPatience is how long Run waits for the API server's first answer before it gives up.
const apiPatience = time.Minute

// marksPatience is how long the first pass waits for the watermarks. It goes without them if they cannot be read: Pods must be served.
const marksPatience = 5 * time.Second

// Check is one named condition of readiness; its function returns nil when it holds, and else why not.
type Check struct {
	Name  string
	Check func() error
}

// Agent serves one Node.
type Agent struct {
	cfg       Config
	client    kubernetes.Interface
	log       *zap.Logger
	open      opener
	inventory *inventory.Inventory
	publisher *publish.Publisher
	marks     *watermarks.Watermarks // nil unless portReuse is confirmed
	metrics   *loop.Metrics
	collect   func(nodecheck.Subject) nodecheck.Facts // nil leaves the Node untested
	examiner  *examiner
	loop      atomic.Pointer[loop.Loop] // nil until the kernel is open
}

// New returns an agent that has not started. It touches neither the API server nor the kernel. The client should allow at least
// 1000 requests a second: the agent has a limit of its own for what it writes.
func New(cfg Config, client kubernetes.Interface, log *zap.Logger, reg prometheus.Registerer) (*Agent, error) {
	a, err := newAgent(cfg, client, log, reg, openKernel)
	if err != nil {
		return nil, err
	}
	a.collect = nodecheck.Collect
	return a, nil
}

func newAgent(cfg Config, client kubernetes.Interface, log *zap.Logger, reg prometheus.Registerer, open opener) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, client: client, log: log, open: open}
	var err error
	if a.metrics, err = loop.NewMetrics(reg); err != nil {
		return nil, err
	}
	if a.examiner, err = newExaminer(cfg.NodeName, a.facts, clock.RealClock{}, log, reg); err != nil {
		return nil, err
	}
	a.inventory = inventory.New(client, cfg.NodeName, a.trigger, a.triggerLater)
	if cfg.PortReuse == ReuseConfirmed {
		if a.marks, err = watermarks.New(client, cfg.WatermarkNamespace, a.trigger, log); err != nil {
			return nil, err
		}
	}
	a.publisher = publish.New(client, log, func(o publish.Outcome) {
		a.metrics.Patched(o)
		a.triggerLater()
	})
	return a, nil
}

func (a *Agent) trigger() {
	if l := a.loop.Load(); l != nil {
		l.Trigger()
	}
}

func (a *Agent) triggerLater() {
	if l := a.loop.Load(); l != nil {
		l.TriggerLater()
	}
}

// Run serves the Node until ctx ends, and then returns nil; rules and annotations stay, so that traffic goes on. It returns an
// error when the API server does not answer for a minute at the start, when the kernel lacks something, or when Antrea's agent serves
// the Node.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k, err := openFor(ctx, a.cfg, a.client, a.log, a.open)
	if ctx.Err() != nil {
		if err == nil {
			_ = k.Close() // nothing was done with it
		}
		return nil //nolint:nilerr // it was ended before it began
	}
	if err != nil {
		return err
	}
	broadcaster := events.NewBroadcaster(sink{&events.EventSinkImpl{Interface: a.client.EventsV1()}})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return errors.Join(fmt.Errorf("starting the Event recorder: %w", err), k.Close())
	}
	recorder := broadcaster.NewRecorder(scheme.Scheme, "npl-agent")
	a.examiner.recorder = recorder
	reporter := &reporter{recorder: recorder, serviceUID: a.inventory.ServiceUID, log: a.log}
	var marks loop.Watermarks
	if a.marks != nil {
		marks = a.marks // not a nil pointer inside an interface
	}
	l := loop.New(a.inventory, k, a.publisher, marks, reporter, clock.RealClock{}, a.log, a.metrics, loop.Settings{
		Range:          ports.Range(a.cfg.PortRange),
		JointPorts:     a.cfg.SameNodePortPerProtocol,
		IPFamilies:     families(a.cfg.IPFamilies),
		Addresses:      model.AddressPolicy{Types: a.cfg.NodeAddressTypes, CIDRs: a.cfg.NodeAddressCIDRs},
		CoolDown:       a.cfg.CoolDown,
		RepairInterval: a.cfg.RepairInterval,
		WithdrawGrace:  a.cfg.WithdrawGrace,
		Cursor:         uint16(rand.N(ports.Range(a.cfg.PortRange).Size())),
	})
	a.loop.Store(l)

	var refused error
	var wg sync.WaitGroup
	wg.Go(func() { a.inventory.Run(ctx) })
	wg.Go(func() { a.publisher.Run(ctx) })
	if a.marks != nil {
		wg.Go(func() { a.marks.Run(ctx) })
	}
	wg.Go(func() {
		if !a.inventory.WaitForSync(ctx) {
			return
		}
		if a.collect != nil {
			if refused = a.beside(ctx, k); refused != nil {
				cancel()
				return
			}
			wg.Go(func() { a.examiner.run(ctx) })
		}
		a.awaitMarks(ctx)
		wg.Go(func() {
			for range k.Watch(ctx) {
				l.Repair()
			}
		})
		l.Run(ctx)
	})
	wg.Wait()
	if err := k.Close(); err != nil {
		a.log.Warn("closing the dataplane", zap.Error(err))
	}
	return refused
}

// awaitMarks gives the watermarks some time to arrive, because a first pass without them makes every port of a new Node wait.
func (a *Agent) awaitMarks(ctx context.Context) {
	if a.marks == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, marksPatience)
	defer cancel()
	a.marks.WaitForSync(ctx)
}

func families(names []string) []npl.Family {
	var out []npl.Family
	for _, n := range names {
		out = append(out, npl.Family(n))
	}
	return out
}

// clusterUID returns the UID of Namespace kube-system, which names the cluster.
func clusterUID(ctx context.Context, client kubernetes.Interface) (string, error) {
	uid, err := backoff.Retry(ctx, func() (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return string(ns.UID), nil
	}, backoff.WithMaxElapsedTime(apiPatience))
	if err != nil {
		return "", fmt.Errorf("reading Namespace kube-system, whose UID marks what is ours: %w: check that the API server can be reached and that the agent may get this Namespace", err)
	}
	return uid, nil
}

// Checks returns what readiness consists of: "caches" (the API server has been read), "first-sync" (everything wanted was served
// once), "dataplane" (the kernel took the last change).
func (a *Agent) Checks() []Check {
	withLoop := func(check func(*loop.Loop) error) func() error {
		return func() error {
			l := a.loop.Load()
			if l == nil {
				return errors.New("the dataplane is not open yet")
			}
			return check(l)
		}
	}
	return []Check{
		{"caches", a.inventory.Synced},
		{"first-sync", withLoop((*loop.Loop).FirstSync)},
		{"dataplane", withLoop((*loop.Loop).Kernel)},
	}
}
