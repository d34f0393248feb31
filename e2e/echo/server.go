package echo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// Config says who the server is and where it listens.
type Config struct {
	Identity Identity
	// HTTP, TCP and UDP are listen addresses such as ":8080"; an empty one switches that protocol off.
	HTTP, TCP, UDP string
	// Linger is how long the server goes on serving old and new connections after it was told to stop; 0 or more.
	Linger time.Duration
	// ShutdownTimeout bounds what follows the linger, finishing what was begun; 0 means 10s.
	ShutdownTimeout time.Duration
}

// Server is bound to its ports from Listen on and answers from Serve on.
type Server struct {
	cfg      Config
	draining atomic.Bool
	parts    []part
	addrs    map[string]net.Addr
	after    func(time.Duration) <-chan time.Time
}

// part is one protocol's half of the server.
type part interface {
	serve() error                       // until shut down; nil then
	shutdown(ctx context.Context) error // finishes what was begun, refuses the rest
}

// Listen binds every configured port, so that a port in use is an error before anything is served.
func Listen(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Linger < 0 {
		return nil, fmt.Errorf("linger %s: must be 0 or more", cfg.Linger)
	}
	if cfg.ShutdownTimeout == 0 {
		cfg.ShutdownTimeout = 10 * time.Second
	}
	s := &Server{cfg: cfg, addrs: map[string]net.Addr{}, after: time.After}
	binders := []struct {
		protocol, address string
		bind              func(context.Context, string) (part, net.Addr, error)
	}{
		{"http", cfg.HTTP, s.listenHTTP},
		{"tcp", cfg.TCP, s.listenTCP},
		{"udp", cfg.UDP, s.listenUDP},
	}
	for _, b := range binders {
		if b.address == "" {
			continue
		}
		p, addr, err := b.bind(ctx, b.address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen on --%s %s: %w", b.protocol, b.address, err), s.stop())
		}
		s.parts, s.addrs[b.protocol] = append(s.parts, p), addr
	}
	if len(s.parts) == 0 {
		return nil, errors.New("nothing to serve: --http, --tcp and --udp are all empty; give at least one address, such as --http :8080")
	}
	return s, nil
}

// Addr is the bound address of "http", "tcp" or "udp"; nil when that protocol is off.
func (s *Server) Addr(protocol string) net.Addr { return s.addrs[protocol] }

// Serve answers until ctx ends, lingers, then finishes what was begun. It returns nil after a clean shutdown.
func (s *Server) Serve(ctx context.Context) error {
	failed := make(chan error, len(s.parts))
	for _, p := range s.parts {
		go func() { failed <- p.serve() }()
	}
	select {
	case err := <-failed:
		return errors.Join(err, s.stop())
	case <-ctx.Done():
	}
	s.draining.Store(true)
	select {
	case err := <-failed:
		return errors.Join(err, s.stop())
	case <-s.after(s.cfg.Linger):
	}
	err := s.stop()
	for range s.parts {
		err = errors.Join(err, <-failed)
	}
	return err
}

func (s *Server) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.ShutdownTimeout)
	defer cancel()
	var all error
	for _, p := range s.parts {
		all = errors.Join(all, p.shutdown(ctx))
	}
	return all
}
