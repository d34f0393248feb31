package rest

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// giveUpOnDead is net.Dialer.Control.
func giveUpOnDead(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadAfter/time.Millisecond))
	})
	if err != nil {
		return err
	}
	return failed
}
