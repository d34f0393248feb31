package chaos

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

// relay stands between lbsync and one of its ends, on the load balancer's host.
type relay struct {
	listener net.Listener
	dial     func() (net.Conn, error)
	mode     atomic.Pointer[weather]

	mutex sync.Mutex
	conns map[net.Conn]bool
}

// weather is what a relay does to what passes.
type weather struct {
	delay  time.Duration // of each piece, in both directions
	stalls bool          // nothing passes, and nobody is told
	breaks bool          // every connection is reset
	flaky  float64       // share of the connections that are reset, by chance: whoever makes several in turn must not always meet the same one
}

func newRelay(ctx context.Context, l *lab.Lab, network, address, target string) (*relay, error) {
	r := &relay{conns: map[net.Conn]bool{}, dial: func() (net.Conn, error) {
		if network == "unix" {
			return new(net.Dialer).DialContext(ctx, network, target)
		}
		return l.Dial(ctx, "lb", network, target)
	}}
	r.mode.Store(&weather{})
	err := l.Do(ctx, "lb", func() (err error) {
		r.listener, err = new(net.ListenConfig).Listen(ctx, network, address)
		return err
	})
	if err != nil {
		return nil, err
	}
	go r.serve()
	return r, nil
}

func (r *relay) address() string { return r.listener.Addr().String() }

// set changes the weather. What breaks, breaks at once.
func (r *relay) set(w weather) {
	r.mode.Store(&w)
	if w.breaks {
		r.cut()
	}
}

func (r *relay) cut() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for conn := range r.conns {
		conn.Close() //nolint:errcheck // to cut it is the purpose
	}
}

func (r *relay) close() {
	r.listener.Close() //nolint:errcheck // the run is over
	r.cut()
}

func (r *relay) serve() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return
		}
		if w := r.mode.Load(); w.breaks || rand.Float64() < w.flaky {
			if tcp, is := conn.(*net.TCPConn); is {
				tcp.SetLinger(0) //nolint:errcheck // then it is an ordinary end
			}
			conn.Close() //nolint:errcheck // as above
			continue
		}
		go r.join(conn)
	}
}

func (r *relay) join(client net.Conn) {
	server, err := r.dial()
	if err != nil {
		client.Close() //nolint:errcheck // there is nobody behind
		return
	}
	r.mutex.Lock()
	r.conns[client], r.conns[server] = true, true
	r.mutex.Unlock()
	var both sync.WaitGroup
	both.Go(func() { r.pass(server, client) })
	both.Go(func() { r.pass(client, server) })
	both.Wait()
	r.mutex.Lock()
	delete(r.conns, client)
	delete(r.conns, server)
	r.mutex.Unlock()
	errors.Join(client.Close(), server.Close()) //nolint:errcheck // both have ended
}

// pass carries one direction until it ends.
func (r *relay) pass(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		for r.mode.Load().stalls {
			time.Sleep(20 * time.Millisecond)
		}
		if d := r.mode.Load().delay; d > 0 && n > 0 {
			time.Sleep(d)
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				break
			}
			if half, can := to.(interface{ CloseWrite() error }); can && half.CloseWrite() == nil {
				return
			}
			break
		}
	}
	to.Close()   //nolint:errcheck // the other direction must end, too
	from.Close() //nolint:errcheck // as above
}
