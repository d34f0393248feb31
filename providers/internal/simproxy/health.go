package simproxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// watch begins to look after a server. Without a monitor it is up; the first check decides at once, later ones by
// the monitor's counts. The caller holds the lock.
func (p *pool) watch(s *server) {
	ctx, stop := context.WithCancel(context.Background())
	s.monitoring = stop
	if !s.Enabled {
		s.up = false
		return
	}
	if s.Monitor == nil {
		p.judge(ctx, s, true, nil)
		return
	}
	m := *s.Monitor
	if d := p.proxy.options.Interval; d > 0 {
		m.Interval, m.Timeout = d, d
	}
	target := s.Address
	if m.Port != 0 {
		target = netip.AddrPortFrom(target.Addr(), m.Port)
	}
	p.proxy.running.Go(func() { p.monitor(ctx, s, m, target) })
}

func (p *pool) monitor(ctx context.Context, s *server, m Monitor, target netip.AddrPort) {
	ticks := time.NewTicker(m.Interval)
	defer ticks.Stop()
	for first, good, bad := true, 0, 0; ; first = false {
		err := connect(ctx, target, m.Timeout)
		if err == nil {
			good, bad = good+1, 0
		} else {
			good, bad = 0, bad+1
		}
		if first || good >= m.Rise || bad >= m.Fall {
			p.mu.Lock()
			p.judge(ctx, s, err == nil, err)
			p.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

// judge says that a server is up or why it is not, unless ctx ended meanwhile. The caller holds the lock.
func (p *pool) judge(ctx context.Context, s *server, up bool, why error) {
	if ctx.Err() != nil {
		return
	}
	s.up = up
	reason := ""
	if !up {
		reason = fmt.Sprintf("Health monitor failed: %s", why)
	}
	p.proxy.source.SetHealth(p.cfg.ID, s.ID, up, reason)
}

func connect(ctx context.Context, target netip.AddrPort, timeout time.Duration) error {
	dialer := net.Dialer{Timeout: timeout}
	c, err := dialer.DialContext(ctx, "tcp", target.String())
	if err != nil {
		return err
	}
	return c.Close()
}
