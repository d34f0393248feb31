package rest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// errOver is why nothing is sent: the caller's deadline has passed.
var errOver = fmt.Errorf("the time to send is over: %w", context.DeadlineExceeded)

// over compares by both of the computer's clocks: one stands still while a virtual machine is suspended, the other can be set.
func over(deadline time.Time) bool {
	now := time.Now()
	return !now.Before(deadline) || !now.Round(0).Before(deadline.Round(0))
}

// fencedConn sends nothing after a deadline. A process that was frozen finds out about its timers at some time after it goes on, and may
// have written by then; this looks at the clock right before each write.
type fencedConn struct {
	net.Conn
	until atomic.Pointer[time.Time] // nil is for ever
}

func (c *fencedConn) Write(b []byte) (int, error) {
	if until := c.until.Load(); until != nil && over(*until) {
		return 0, errOver
	}
	return c.Conn.Write(b)
}

// writeUntil sets the deadline of a connection that trust.dial opened; the zero time is none. It carries one request at a time.
func writeUntil(conn net.Conn, deadline time.Time) {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return
	}
	fenced, ok := secure.NetConn().(*fencedConn)
	switch {
	case !ok:
	case deadline.IsZero():
		fenced.until.Store(nil)
	default:
		fenced.until.Store(&deadline)
	}
}
