// Package bigip is the provider for F5 BIG-IP, by iControl REST and without AS3. Each Service port is one pool and one virtual server per address;
// docs/reference/bigip.md tells what it makes and why, docs/how-to/bigip.md how to set it up.
package bigip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/providers"
)

// Provider drives one device, one pair, or several independent devices. It implements providers.Provider and providers.Notifier.
type Provider struct {
	cfg     Config
	log     *zap.Logger
	groups  []*group
	changed chan struct{}
	silence time.Duration // see maxSilence

	mu   sync.Mutex
	last []memory // of each group
}

// memory is what is known of a group while it is out of reach.
type memory struct {
	read bool               // it was reached at least once
	seen providers.Observed // by the last Observe that reached it
	took time.Duration      // that one, for this group
	done overlay            // since then
	down error              // why the last Observe did not reach it, or nil
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Notifier = (*Provider)(nil)
)

// Option changes what a test needs to change.
type Option func(*settings)

type settings struct {
	clock   clock.Clock
	observe func(method, endpoint string, status int, took time.Duration)
}

// WithClock replaces the clock by which logins, attempts, saving and synchronising are spaced.
func WithClock(c clock.Clock) Option { return func(s *settings) { s.clock = c } }

// WithObserver is told about each request: the method, the kind of object, the status (0 is no answer) and how long it took.
func WithObserver(observe func(method, endpoint string, status int, took time.Duration)) Option {
	return func(s *settings) { s.observe = observe }
}

// New checks cfg. It opens no connection. Errors are Misconfigured.
func New(cfg Config, owner providers.Owner, log *zap.Logger, options ...Option) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fail(providers.Misconfigured, "configuration", err)
	}
	if owner.ClusterUID == "" || owner.Instance == "" {
		return nil, fail(providers.Misconfigured, "owner", fmt.Errorf("cluster UID %q and instance %q must not be empty", owner.ClusterUID, owner.Instance))
	}
	s := settings{clock: clock.RealClock{}}
	for _, o := range options {
		o(&s)
	}
	p := &Provider{cfg: cfg, log: log.Named("bigip"), changed: make(chan struct{}, 1), silence: maxSilence}
	for _, url := range cfg.URLs {
		d, err := newDevice(cfg, url, owner, p.log, s)
		if err != nil {
			return nil, fail(providers.Misconfigured, "configuration", err)
		}
		if cfg.Mode == Pair && len(p.groups) == 1 {
			p.groups[0].devices = append(p.groups[0].devices, d)
		} else {
			p.groups = append(p.groups, &group{devices: []*device{d}, changed: p.signal})
		}
	}
	p.last = make([]memory, len(p.groups))
	return p, nil
}

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() providers.Capabilities {
	return providers.Capabilities{
		Name: "bigip", Protocols: []providers.Protocol{providers.TCP, providers.UDP, providers.SCTP}, Concurrency: 4,
		Late:        p.cfg.RequestTimeout, // assumed: a request is carried out while it could be answered, or never
		Algorithms:  []providers.Algorithm{providers.LeastConnections},
		Persistence: []providers.PersistenceKind{providers.SourceAddress},
		Monitors: []providers.MonitorType{
			providers.MonitorNone, providers.MonitorTCP, providers.MonitorHTTP, providers.MonitorHTTPS, providers.MonitorUDP, providers.MonitorExisting,
		},
		Features: []providers.Feature{
			providers.Weights, providers.SlowStart, providers.MemberConnections, providers.SourceRanges, providers.SharedVIPs, providers.AttachedPools,
			providers.MemberHealth,
		},
		Options: options(),
	}
}

// Changed implements providers.Notifier: it receives when another device has become the active one.
func (p *Provider) Changed() <-chan struct{} { return p.changed }

func (p *Provider) signal() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Observe implements providers.Provider. Of several independent devices one may be out of reach once it has been read: then what was read last counts for it, and
// every Apply says that it could not be written.
func (p *Provider) Observe(ctx context.Context, scope providers.Scope) (providers.Observed, error) {
	if len(p.groups) == 1 {
		return p.groups[0].observe(ctx, scope)
	}
	now, errs := p.read(ctx, scope)
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]providers.Observed, len(p.groups))
	var failed error
	reached := 0
	for n := range p.groups {
		m := &p.last[n]
		if m.down = errs[n]; m.down == nil {
			*m = now[n]
			reached++
		} else if p.log.Warn("a device is out of reach; the others go on", zap.String("device", p.groups[n].devices[0].url), zap.Error(m.down)); !m.read {
			failed = cmp.Or(failed, m.down)
		}
		all[n] = m.done.over(m.seen)
	}
	if reached == 0 {
		failed = errs[0]
	}
	if failed != nil {
		return providers.Observed{}, failed
	}
	return merge(all), nil
}

// Apply implements providers.Provider. Several independent devices are written side by side, and a key is acknowledged when all of them have it.
func (p *Provider) Apply(ctx context.Context, changes providers.Changes) providers.Results {
	caps := p.Capabilities()
	results := make([]providers.Results, len(p.groups))
	p.each(func(n int, g *group) {
		p.mu.Lock()
		down := p.last[n].down
		p.mu.Unlock()
		if down != nil { // the next Observe finds out whether it is back
			results[n] = all(changes, down)
			return
		}
		results[n] = g.apply(ctx, caps, changes)
		if len(p.groups) > 1 { // one may have it, and another not
			for key, err := range all(changes, fail(providers.Unavailable, p.groups[n].devices[0].url, errors.New("there was no time left"))) {
				if _, attempted := results[n][key]; !attempted {
					results[n][key] = err
				}
			}
		}
	})
	if len(results) == 1 {
		return results[0]
	}
	out := providers.Results{}
	for _, w := range split(changes) {
		var errs []error
		for n := range results {
			errs = append(errs, results[n][w.key])
		}
		out[w.key] = worst(errs)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range results {
		p.last[n].done.note(changes, results[n])
	}
	return out
}

// worst is the error of a key on several devices: the first, with the others' texts.
func worst(errs []error) error {
	first := firstOf(errs)
	if first == nil || errors.Join(errs...).Error() == first.Error() {
		return first
	}
	return &providers.Error{Kind: providers.KindOf(first), What: "bigip", Err: errors.Join(errs...), RetryAfter: providers.RetryAfter(first)}
}

// each calls f for every group at the same time.
func (p *Provider) each(f func(int, *group)) {
	var all sync.WaitGroup
	for n, g := range p.groups {
		all.Go(func() { f(n, g) })
	}
	all.Wait()
}

// Close saves what is not saved yet, gives tokens back and closes connections.
func (p *Provider) Close() error {
	p.each(func(_ int, g *group) { g.close() })
	return nil
}
