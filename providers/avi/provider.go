// Package avi is the provider for an Avi (NSX Advanced Load Balancer) Controller, 22.1.3 or later. Each Service is one L4 virtual service with
// a pool per port; docs/reference/avi.md tells what it makes and why, docs/how-to/avi.md how to set it up.
package avi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/internal/client"
	"github.com/nplbridge/nplbridge/providers/internal/locks"
	"github.com/nplbridge/nplbridge/providers/internal/rest"
)

// maxMembers is the most servers a pool has (swagger, Pool.servers).
const maxMembers = 5000

// Provider drives one tenant and cloud of a Controller. It implements providers.Provider and providers.Allocator.
type Provider struct {
	cfg    Config
	owner  providers.Owner
	names  names
	log    *zap.Logger
	client *client.Client

	reading chan struct{} // holds one element while the inventory is read
	known   atomic.Pointer[inventory]
	facts   atomic.Pointer[facts]
	keyed   locks.Named
	// noUpsert is set once the Controller refused PATCH add for servers that a pool has.
	noUpsert atomic.Bool

	mu        sync.Mutex
	attached  map[providers.Key]client.Object // pools of others as they were seen last
	strangers map[string]*client.ForeignError // objects that stand where ours would
	orphans   []orphan                        // ours, found without what needs them
}

var (
	_ providers.Provider  = (*Provider)(nil)
	_ providers.Allocator = (*Provider)(nil)
)

// Option changes what a test needs to change.
type Option func(*settings)

type settings struct {
	clock   clock.Clock
	observe func(method, endpoint string, status int, took time.Duration)
}

// WithClock replaces the clock by which logins and attempts are spaced.
func WithClock(c clock.Clock) Option { return func(s *settings) { s.clock = c } }

// WithObserver is told about each request: the method, the type of object, the status (0 is no answer) and how long it took.
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
	var s settings
	for _, o := range options {
		o(&s)
	}
	c, err := client.New(client.Config{
		REST: rest.Config{
			BaseURL: cfg.URL, CAFile: cfg.CAFile, ServerName: cfg.ServerName, Insecure: cfg.Insecure, Timeout: cfg.RequestTimeout,
			MaxInFlight: cfg.MaxInFlight, Rate: float64(cfg.Rate), Burst: cfg.MaxInFlight, UserAgent: "nplbridge", Observe: s.observe,
		},
		Username: cfg.Username, PasswordFile: cfg.PasswordFile, TokenFile: cfg.TokenFile, Tenant: cfg.Tenant, Version: cfg.APIVersion, Clock: s.clock,
	})
	if err != nil {
		return nil, fail(providers.Misconfigured, "configuration", err)
	}
	return &Provider{
		keyed: locks.Named{Owner: "avi"},
		cfg:   cfg, owner: owner, names: names{cfg.Prefix, owner}, log: log.Named("avi"), client: c,
		reading: make(chan struct{}, 1), attached: map[providers.Key]client.Object{}, strangers: map[string]*client.ForeignError{},
	}, nil
}

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() providers.Capabilities {
	return providers.Capabilities{
		Name: "avi", Protocols: []providers.Protocol{providers.TCP, providers.UDP}, MaxMembers: maxMembers, Concurrency: 8,
		Late:        p.cfg.RequestTimeout, // assumed: a request is carried out while it could be answered, or never
		Algorithms:  []providers.Algorithm{providers.LeastConnections, providers.SourceHash},
		Persistence: []providers.PersistenceKind{providers.SourceAddress},
		Monitors: []providers.MonitorType{
			providers.MonitorNone, providers.MonitorTCP, providers.MonitorHTTP, providers.MonitorUDP, providers.MonitorExisting,
		},
		Features: []providers.Feature{
			providers.Weights, providers.SlowStart, providers.SharedVIPs, providers.AttachedPools, providers.MemberHealth,
		},
		Options: []providers.Option{optionNetworkProfile()},
	}
}

// Close ends the session and closes connections.
func (p *Provider) Close() error {
	p.client.Close()
	return nil
}

// inventory returns what is known of the Controller, reading it when nothing is.
func (p *Provider) inventory(ctx context.Context) (*inventory, error) {
	if inv := p.known.Load(); inv != nil {
		return inv, nil
	}
	select {
	case p.reading <- struct{}{}:
		defer func() { <-p.reading }()
	case <-ctx.Done():
		return nil, fail(providers.Unavailable, "read what is there", context.Cause(ctx))
	}
	if inv := p.known.Load(); inv != nil {
		return inv, nil
	}
	inv, _, err := p.load(ctx)
	if err != nil {
		return nil, p.classify("read what is there", err)
	}
	p.known.Store(inv)
	return inv, nil
}

// classify gives an error of the client its kind and says what was attempted.
func (p *Provider) classify(what string, err error) error {
	var foreign *client.ForeignError
	var reserved *client.ReservedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &foreign):
		p.mu.Lock()
		p.strangers[foreign.Type+" "+foreign.Name] = foreign
		p.mu.Unlock()
		return fail(providers.Conflict, what, err)
	case errors.As(err, &reserved):
		return &providers.Error{Kind: providers.Throttled, What: "avi: " + what, Err: err, RetryAfter: 2 * time.Second}
	}
	kind, wait := providers.KindOf(err), providers.RetryAfter(err)
	if e, ok := errors.AsType[*providers.Error](err); ok && e.What == "avi" {
		err = e.Err // the outer one says all of it
	}
	return &providers.Error{Kind: kind, What: "avi: " + what, Err: err, RetryAfter: wait}
}

func fail(kind providers.Kind, what string, err error) error {
	return &providers.Error{Kind: kind, What: "avi: " + what, Err: err}
}
