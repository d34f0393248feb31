package simproxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

type udpPort struct {
	proxy  *proxy
	conn   *net.UDPConn
	to     atomic.Pointer[pool]
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	flows map[netip.AddrPort]*net.UDPConn // by client
}

func (d *proxy) listenUDP(ctx context.Context, address netip.AddrPort) (port, error) {
	var lc net.ListenConfig
	c, err := lc.ListenPacket(ctx, "udp", address.String())
	if err != nil {
		return nil, fmt.Errorf("listen on VIP %s/UDP: %w", address, err)
	}
	p := &udpPort{proxy: d, conn: c.(*net.UDPConn), flows: map[netip.AddrPort]*net.UDPConn{}}
	p.ctx, p.cancel = context.WithCancel(ctx)
	d.running.Go(p.serve)
	return p, nil
}

func (p *udpPort) lead(to *pool) { p.to.Store(to) }

func (p *udpPort) close() {
	p.cancel()
	p.conn.Close() //nolint:errcheck // nobody uses it any more
}

func (p *udpPort) serve() {
	buffer := make([]byte, 64<<10)
	for {
		n, client, err := p.conn.ReadFromUDPAddrPort(buffer)
		if p.ctx.Err() != nil {
			return
		}
		if err != nil {
			continue // what a datagram before could not reach
		}
		if server := p.flow(client); server != nil {
			server.Write(buffer[:n]) //nolint:errcheck // a lost datagram is a lost datagram
		}
	}
}

// flow returns the connection to the server of a client's flow, a new one for a new flow; nil if there is no server.
func (p *udpPort) flow(client netip.AddrPort) *net.UDPConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.flows[client]; c != nil {
		return c
	}
	to := p.to.Load()
	if to == nil {
		return nil
	}
	address, gone, done := to.choose(client.Addr())
	if done == nil {
		return nil
	}
	server, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(address))
	if err != nil {
		done()
		return nil
	}
	p.flows[client] = server
	p.proxy.running.Go(func() {
		defer done()
		p.answers(gone, client, server)
	})
	return server
}

// answers carries a server's datagrams back until the flow is idle or the server is gone.
func (p *udpPort) answers(gone context.Context, client netip.AddrPort, server *net.UDPConn) {
	for _, ctx := range []context.Context{p.ctx, gone} {
		stop := context.AfterFunc(ctx, func() { server.Close() }) //nolint:errcheck // that ends the reading
		defer stop()
	}
	defer func() {
		server.Close() //nolint:errcheck // closed twice at worst
		p.mu.Lock()
		delete(p.flows, client)
		p.mu.Unlock()
	}()
	buffer := make([]byte, 64<<10)
	for {
		server.SetReadDeadline(time.Now().Add(p.proxy.options.UDPIdle)) //nolint:errcheck // a closed one ends below
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		p.conn.WriteToUDPAddrPort(buffer[:n], client) //nolint:errcheck // the client may be gone
	}
}
