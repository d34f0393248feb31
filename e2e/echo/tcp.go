package echo

import (
	"bufio"
	"context"
	"net"
	"sync"
	"time"
)

// tcpPart answers every line it receives with the reply line, for as long as the client keeps the connection.
type tcpPart struct {
	listener net.Listener
	identity Identity
	handlers sync.WaitGroup

	mu    sync.Mutex
	conns map[*net.TCPConn]struct{}
	done  bool
}

func (s *Server) listenTCP(ctx context.Context, address string) (part, net.Addr, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	return &tcpPart{listener: l, identity: s.cfg.Identity, conns: map[*net.TCPConn]struct{}{}}, l.Addr(), nil
}

func (p *tcpPart) serve() error {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return closed(err)
		}
		if conn := c.(*net.TCPConn); p.add(conn) {
			go p.handle(conn)
		} else {
			conn.Close() //nolint:errcheck // accepted while shutting down
		}
	}
}

func (p *tcpPart) add(conn *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return false
	}
	p.conns[conn] = struct{}{}
	p.handlers.Add(1)
	return true
}

func (p *tcpPart) handle(conn *net.TCPConn) {
	defer func() {
		conn.Close() //nolint:errcheck // the client may be gone
		p.mu.Lock()
		delete(p.conns, conn)
		p.mu.Unlock()
		p.handlers.Done()
	}()
	peer, local := conn.RemoteAddr().(*net.TCPAddr).AddrPort(), conn.LocalAddr().(*net.TCPAddr).AddrPort()
	line := p.identity.reply("tcp", peer, local).Line()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if _, err := conn.Write(line); err != nil {
			return
		}
	}
}

// shutdown lets a handler answer the lines it has read and stops it from waiting for more.
func (p *tcpPart) shutdown(ctx context.Context) error {
	err := closed(p.listener.Close())
	p.mu.Lock()
	p.done = true
	for conn := range p.conns {
		conn.SetReadDeadline(time.Now()) //nolint:errcheck // a closed connection needs no deadline
	}
	p.mu.Unlock()
	finished := make(chan struct{})
	go func() { p.handlers.Wait(); close(finished) }()
	select {
	case <-finished:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
