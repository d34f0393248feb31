// Package simproxy carries traffic along the pools of a simulated load balancer: it listens on the VIPs, connects to the servers that are enabled and up,
// and tells the load balancer how they are. So a wrong server shows as failed requests.
//
// It serves TCP and UDP; a connection is carried as it is.
package simproxy

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"
)

// Source is the load balancer: what tells the proxy what to do, and is told how servers are.
type Source interface {
	// Traffic returns what is to be served, and a channel that is closed at the next change of it.
	Traffic() (listeners []Listener, changed <-chan struct{})
	// SetHealth tells what a server's monitor found; why is set when it is not up.
	SetHealth(pool, server string, up bool, why string)
	// SetConnections tells how many connections a server has.
	SetConnections(pool, server string, n int)
}

// Listener is a port of a VIP.
type Listener struct {
	Address  netip.AddrPort
	Protocol string // TCP, UDP or what is not served
	Name     string // of the virtual server
	Pool     *Pool  // nil: connections are closed
}

// Pool is where traffic goes.
type Pool struct {
	ID        string
	Algorithm Algorithm
	Servers   []Server
	// GracefulDisable is how long a connection may stay on a server that was disabled; below 0: for ever.
	GracefulDisable time.Duration
}

// Server is one server of a pool. Two of one address are one.
type Server struct {
	ID      string // of SetHealth and SetConnections
	Address netip.AddrPort
	Enabled bool
	Ratio   int      // of round robin and least connections; 1 or more
	Monitor *Monitor // nil: the server is up
}

// Monitor is a TCP connect: so many in a row decide.
type Monitor struct {
	Interval, Timeout time.Duration
	Rise, Fall        int
	Port              uint16 // 0: the server's own
}

// Algorithm is how a pool chooses a server.
type Algorithm int

// The algorithms.
const (
	LeastConnections Algorithm = iota
	RoundRobin
	SourceHash
)

// Options are what a Source does not say.
type Options struct {
	// Report is told of a VIP's port that cannot be listened on, once for each reason, and of the rest that does not end the data plane. Nil drops it.
	Report func(error)
	// Interval replaces the interval and the timeout of every monitor; 0 keeps them.
	Interval time.Duration
	// Retry is how often a port that could not be listened on is tried again; 0 is a second.
	Retry time.Duration
	// UDPIdle is how long a UDP flow without datagrams is remembered; 0 is 10s.
	UDPIdle time.Duration
}

// portKey is a port of a VIP.
type portKey struct {
	address  string
	protocol string
}

// port is a listener of either protocol.
type port interface {
	lead(to *pool) // nil: to nowhere
	close()
}

type proxy struct {
	source  Source
	options Options
	pools   map[string]*pool
	ports   map[portKey]port
	refused map[portKey]string // why a port cannot be listened on
	running sync.WaitGroup
}

// Run carries traffic until ctx ends, then closes every connection.
func Run(ctx context.Context, source Source, o Options) {
	if o.Report == nil {
		o.Report = func(error) {}
	}
	if o.Retry <= 0 {
		o.Retry = time.Second
	}
	if o.UDPIdle <= 0 {
		o.UDPIdle = 10 * time.Second
	}
	d := &proxy{source: source, options: o, pools: map[string]*pool{}, ports: map[portKey]port{}, refused: map[portKey]string{}}
	defer d.running.Wait()
	retry := time.NewTicker(o.Retry)
	defer retry.Stop()
	for {
		listeners, changed := source.Traffic()
		d.follow(ctx, listeners)
		again := retry.C
		if len(d.refused) == 0 {
			again = nil
		}
		select {
		case <-ctx.Done():
			d.follow(ctx, nil)
			return
		case <-changed:
		case <-again:
		}
	}
}

// follow makes pools and ports what the source wants.
func (d *proxy) follow(ctx context.Context, listeners []Listener) {
	wanted := map[portKey]Listener{}
	pools := map[string]bool{}
	for _, l := range listeners {
		if l.Protocol == "TCP" || l.Protocol == "UDP" {
			wanted[portKey{l.Address.String(), l.Protocol}] = l
		}
		if l.Pool == nil || pools[l.Pool.ID] {
			continue
		}
		pools[l.Pool.ID] = true
		if d.pools[l.Pool.ID] == nil {
			d.pools[l.Pool.ID] = newPool(d)
		}
		d.pools[l.Pool.ID].follow(*l.Pool)
	}
	for key, p := range maps.Clone(d.ports) {
		if _, ok := wanted[key]; !ok {
			p.close()
			delete(d.ports, key)
		}
	}
	for key := range d.refused {
		if _, ok := wanted[key]; !ok {
			delete(d.refused, key)
		}
	}
	for key, l := range wanted {
		d.serve(ctx, key, l)
	}
	for id, p := range d.pools {
		if !pools[id] {
			p.follow(Pool{ID: id})
			delete(d.pools, id)
		}
	}
}

// serve listens on a port that is not listened on yet, and leads it to its pool.
func (d *proxy) serve(ctx context.Context, key portKey, l Listener) {
	p := d.ports[key]
	if p == nil {
		var err error
		if l.Protocol == "UDP" {
			p, err = d.listenUDP(ctx, l.Address)
		} else {
			p, err = d.listenTCP(ctx, l.Address)
		}
		if err != nil {
			if d.refused[key] != err.Error() {
				d.options.Report(fmt.Errorf("%s: %w", l.Name, err))
			}
			d.refused[key] = err.Error()
			return
		}
		delete(d.refused, key)
		d.ports[key] = p
	}
	if l.Pool == nil {
		p.lead(nil)
		return
	}
	p.lead(d.pools[l.Pool.ID])
}
