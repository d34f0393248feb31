package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// relayDialTimeout bounds how long a client on the host waits for the lab to answer.
const relayDialTimeout = 10 * time.Second

// Relay makes a TCP address of the lab reachable from the host: it returns an address on 127.0.0.1 whose connections
// are continued from a place (see Command) to the numeric address given. It ends with the lab.
func (l *Lab) Relay(where, address string) (hostAddress string, err error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return "", fmt.Errorf("relay to %s: not a numeric address: %w", address, err)
	}
	if _, err := l.place(context.Background(), where); err != nil {
		return "", fmt.Errorf("relay to %s: %w", address, err)
	}
	listener, err := l.host.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("relay to %s: %w", address, err)
	}
	r := &relay{listener: listener, open: map[net.Conn]bool{}, dial: func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), relayDialTimeout)
		defer cancel()
		return l.Dial(ctx, where, "tcp", address)
	}}
	go r.accept()
	l.onClose(r.close)
	return listener.Addr().String(), nil
}

type relay struct {
	listener net.Listener
	dial     func() (net.Conn, error)

	mutex  sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

func (r *relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		go r.serve(conn)
	}
}

// serve continues one connection. A side that stops sending is told on to the other; either may still answer.
func (r *relay) serve(outside net.Conn) {
	defer outside.Close()
	inside, err := r.dial()
	if err != nil {
		// A reset tells the client that nobody listens, rather than that the answer was empty.
		_ = outside.(*net.TCPConn).SetLinger(0)
		return
	}
	defer inside.Close()
	if !r.add(outside, inside) {
		return
	}
	defer r.remove(outside, inside)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{inside, outside}, {outside, inside}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

func (r *relay) add(conns ...net.Conn) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, conn := range conns {
		r.open[conn] = true
	}
	return !r.closed
}

func (r *relay) remove(conns ...net.Conn) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, conn := range conns {
		delete(r.open, conn)
	}
}

func (r *relay) close() error {
	r.mutex.Lock()
	r.closed = true
	for conn := range r.open {
		conn.Close()
	}
	r.mutex.Unlock()
	if err := r.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
