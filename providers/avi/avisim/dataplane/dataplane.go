// Package dataplane carries traffic along the pools of a simulated Controller, as Service Engines would: it listens on the VIPs, connects to the servers that
// are enabled and up, and tells the Controller how they are. So a wrong server shows as failed requests.
//
// It serves TCP and UDP; a connection is carried as it is, whatever the application profile says.
package dataplane

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nplbridge/nplbridge/providers/avi/avisim"
)

// Controller is what tells the data plane what to do, and is told how servers are; an *avisim.Server.
type Controller interface {
	Traffic() (listeners []avisim.Listener, changed <-chan struct{})
	SetHealth(poolUUID, server string, h avisim.Health)
}

// Options are what a Controller does not say.
type Options struct {
	// Report is told of a VIP's port that cannot be listened on, once for each reason, and of the rest that does not end the data plane. Nil drops it.
	Report func(error)
	// Interval replaces the interval and the timeout of every health monitor; 0 keeps them.
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

type dataplane struct {
	controller Controller
	options    Options
	pools      map[string]*pool
	ports      map[portKey]port
	refused    map[portKey]string // why a port cannot be listened on
	running    sync.WaitGroup
}

// Run carries traffic until ctx ends, then closes every connection.
func Run(ctx context.Context, c Controller, o Options) {
	if o.Report == nil {
		o.Report = func(error) {}
	}
	if o.Retry <= 0 {
		o.Retry = time.Second
	}
	if o.UDPIdle <= 0 {
		o.UDPIdle = 10 * time.Second
	}
	d := &dataplane{controller: c, options: o, pools: map[string]*pool{}, ports: map[portKey]port{}, refused: map[portKey]string{}}
	defer d.running.Wait()
	retry := time.NewTicker(o.Retry)
	defer retry.Stop()
	for {
		listeners, changed := c.Traffic()
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

// follow makes pools and ports what the Controller wants.
func (d *dataplane) follow(ctx context.Context, listeners []avisim.Listener) {
	wanted := map[portKey]avisim.Listener{}
	pools := map[string]bool{}
	for _, l := range listeners {
		if l.Protocol == "TCP" || l.Protocol == "UDP" {
			wanted[portKey{l.Address.String(), l.Protocol}] = l
		}
		if l.Pool == nil || pools[l.Pool.UUID] {
			continue
		}
		pools[l.Pool.UUID] = true
		if d.pools[l.Pool.UUID] == nil {
			d.pools[l.Pool.UUID] = newPool(d)
		}
		d.pools[l.Pool.UUID].follow(*l.Pool)
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
	for uuid, p := range d.pools {
		if !pools[uuid] {
			p.follow(avisim.Pool{UUID: uuid})
			delete(d.pools, uuid)
		}
	}
}

// serve listens on a port that is not listened on yet, and leads it to its pool.
func (d *dataplane) serve(ctx context.Context, key portKey, l avisim.Listener) {
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
				d.options.Report(fmt.Errorf("virtual service %s: %w", l.VirtualService, err))
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
	p.lead(d.pools[l.Pool.UUID])
}
