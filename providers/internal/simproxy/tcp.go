package simproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// connectTimeout is how long a server may take to accept a connection.
const connectTimeout = 5 * time.Second

type tcpPort struct {
	listener net.Listener
	to       atomic.Pointer[pool]
	ctx      context.Context // of its connections
	cancel   context.CancelFunc
}

func (d *proxy) listenTCP(ctx context.Context, address netip.AddrPort) (port, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address.String())
	if err != nil {
		return nil, fmt.Errorf("listen on VIP %s/TCP: %w", address, err)
	}
	p := &tcpPort{listener: l}
	p.ctx, p.cancel = context.WithCancel(ctx)
	d.running.Go(func() {
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				d.options.Report(fmt.Errorf("accept on VIP %s/TCP: %w", address, err))
				if !pause(p.ctx, 100*time.Millisecond) {
					return
				}
				continue
			}
			d.running.Go(func() { p.carry(c.(*net.TCPConn)) })
		}
	})
	return p, nil
}

func (p *tcpPort) lead(to *pool) { p.to.Store(to) }

func (p *tcpPort) close() {
	p.cancel()
	p.listener.Close() //nolint:errcheck // nobody uses it any more
}

// carry connects a client with a server. A client that no server is there for is reset.
func (p *tcpPort) carry(client *net.TCPConn) {
	defer client.Close()
	client.SetLinger(0) //nolint:errcheck // only the way it ends
	to := p.to.Load()
	if to == nil {
		return
	}
	peer, _ := netip.ParseAddrPort(client.RemoteAddr().String())
	address, gone, done := to.choose(peer.Addr())
	if done == nil {
		return
	}
	defer done()
	dialer := net.Dialer{Timeout: connectTimeout}
	c, err := dialer.DialContext(p.ctx, "tcp", address.String())
	if err != nil {
		return
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	for _, ctx := range []context.Context{p.ctx, gone} {
		stop := context.AfterFunc(ctx, func() {
			client.Close() //nolint:errcheck // that ends the copying
			server.Close() //nolint:errcheck // as above
		})
		defer stop()
	}
	var both sync.WaitGroup
	both.Go(func() { pipe(server, client) })
	both.Go(func() { pipe(client, server) })
	both.Wait()
	if gone.Err() == nil && p.ctx.Err() == nil {
		client.SetLinger(-1) //nolint:errcheck // both sides have said goodbye
	}
}

// pipe copies until one side has no more to say, and passes that on.
func pipe(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()   //nolint:errcheck // the other direction ends, too
		from.Close() //nolint:errcheck // as above
		return
	}
	to.CloseWrite() //nolint:errcheck // the other side may be gone
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
