package simproxy

import (
	"cmp"
	"context"
	"hash/fnv"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"
)

// pool chooses servers.
type pool struct {
	proxy *proxy

	mu      sync.Mutex
	cfg     Pool
	servers map[netip.AddrPort]*server
	order   []*server // as the source lists them
}

// server is one of a pool. Its pool's lock guards it.
type server struct {
	Server
	up          bool // and enabled
	connections int
	credit      int // of the weighted round robin

	gone       context.Context // ended when the server's connections are to be closed
	end        context.CancelFunc
	graceful   *time.Timer // ends them when the server was disabled
	monitoring context.CancelFunc
}

func newPool(d *proxy) *pool { return &pool{proxy: d, servers: map[netip.AddrPort]*server{}} }

// follow makes the pool what cfg says. The connections of a server that is not listed any more are closed at once, those of one that
// was disabled when the time for that is over.
func (p *pool) follow(cfg Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg = cfg
	p.order = p.order[:0:0]
	listed := map[netip.AddrPort]bool{}
	for _, s := range cfg.Servers {
		if listed[s.Address] {
			continue
		}
		listed[s.Address] = true
		have := p.servers[s.Address]
		if have == nil {
			have = &server{Server: s}
			have.gone, have.end = context.WithCancel(context.Background())
			p.servers[s.Address] = have
			p.watch(have)
		} else {
			p.update(have, s)
		}
		p.order = append(p.order, have)
	}
	for address, s := range p.servers {
		if !listed[address] {
			s.monitoring()
			s.end()
			delete(p.servers, address)
		}
	}
}

func (p *pool) update(have *server, now Server) {
	disabled, enabled := have.Enabled && !now.Enabled, !have.Enabled && now.Enabled
	otherMonitor := !reflect.DeepEqual(have.Monitor, now.Monitor)
	have.Server = now
	if enabled || disabled || otherMonitor {
		have.monitoring()
		p.watch(have)
	}
	switch {
	case enabled && have.graceful != nil:
		have.graceful.Stop()
	case disabled && p.cfg.GracefulDisable == 0:
		p.endConnections(have)
	case disabled && p.cfg.GracefulDisable > 0:
		have.graceful = time.AfterFunc(p.cfg.GracefulDisable, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if !have.Enabled {
				p.endConnections(have)
			}
		})
	}
}

// endConnections closes the connections of a server, and lets it have new ones if it is enabled again.
func (p *pool) endConnections(s *server) {
	s.end()
	s.gone, s.end = context.WithCancel(context.Background())
}

// choose returns the server for a new connection, counted already; nil if none is enabled and up. Who asked must call done.
func (p *pool) choose(client netip.Addr) (address netip.AddrPort, gone context.Context, done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ready := slices.DeleteFunc(slices.Clone(p.order), func(s *server) bool { return !s.up })
	if len(ready) == 0 {
		return netip.AddrPort{}, nil, nil
	}
	var chosen *server
	switch p.cfg.Algorithm {
	case RoundRobin:
		chosen = roundRobin(ready)
	case SourceHash:
		chosen = slices.MaxFunc(ready, func(a, b *server) int { return cmp.Compare(score(client, a), score(client, b)) })
	default:
		chosen = leastConnections(ready)
	}
	p.count(chosen, 1)
	return chosen.Address, chosen.gone, sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.count(chosen, -1)
	})
}

// count adds to the connections of a server. The caller holds the lock.
func (p *pool) count(s *server, n int) {
	s.connections += n
	if p.servers[s.Address] == s { // and was not taken out meanwhile
		p.proxy.source.SetConnections(p.cfg.ID, s.ID, s.connections)
	}
}

// roundRobin gives each server its ratio of turns, spread evenly.
func roundRobin(ready []*server) *server {
	total := 0
	for _, s := range ready {
		s.credit += s.Ratio
		total += s.Ratio
	}
	best := slices.MaxFunc(ready, func(a, b *server) int { return cmp.Compare(a.credit, b.credit) })
	best.credit -= total
	return best
}

// leastConnections returns the server with the fewest connections for its ratio; equals take turns.
func leastConnections(ready []*server) *server {
	least := slices.MinFunc(ready, compareLoad)
	return roundRobin(slices.DeleteFunc(ready, func(s *server) bool { return compareLoad(s, least) != 0 }))
}

func compareLoad(a, b *server) int {
	return cmp.Compare(a.connections*b.Ratio, b.connections*a.Ratio)
}

// score is the same for a client and a server whatever the other servers are.
func score(client netip.Addr, s *server) uint64 {
	h := fnv.New64a()
	h.Write([]byte(client.Unmap().String() + "|" + s.Address.String())) //nolint:errcheck // a hash takes everything
	return h.Sum64()
}
