package rest

import (
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A connection whose other end is gone does not last as long as an answer may take.
func TestConnectionFindsOutThatItIsDead(t *testing.T) {
	c, s := start(t, Config{}, func(http.ResponseWriter, *http.Request) {})
	conn, err := c.trust.dialer.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]struct{ level, option, want int }{
		"TCP_USER_TIMEOUT, ms": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter / time.Millisecond)},
		"SO_KEEPALIVE":         {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		"TCP_KEEPIDLE, s":      {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(probeEvery / time.Second)},
	} {
		if err := raw.Control(func(fd uintptr) {
			if got, err := unix.GetsockoptInt(int(fd), o.level, o.option); err != nil || got != o.want {
				t.Errorf("%s: %d, %v, want %d", name, got, err, o.want)
			}
		}); err != nil {
			t.Error(err)
		}
	}
}
