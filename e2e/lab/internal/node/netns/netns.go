// Package netns runs code, dials and listens inside another network namespace of this machine.
//
// A network namespace belongs to a thread, and a socket to the namespace it was created in. So the work is done on a
// thread of its own that is locked for as long as it is elsewhere, and the socket can then be used from anywhere.
package netns

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Do runs f on a thread that is in the network namespace at path, such as "/run/netns/node-1"; an empty path is the
// caller's own namespace. What f starts on other goroutines is not in that namespace.
func Do(path string, f func() error) error {
	if path == "" {
		return f()
	}
	done := make(chan error, 1)
	go func() { done <- on(path, f) }()
	return <-done
}

func on(path string, f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("remember the own network namespace: %w", err)
	}
	defer home.Close() //nolint:errcheck // opened for reading
	if err := enter(path); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = f()
	// A thread that cannot come back stays locked, so that it ends with this goroutine and serves no other.
	if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return err
}

func enter(path string) error {
	there, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer there.Close() //nolint:errcheck // opened for reading
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return nil
}

// Dial connects from inside the namespace at path. The address must be numeric: names are looked up on other threads.
func Dial(ctx context.Context, path, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := Do(path, func() (err error) {
		dialer := net.Dialer{FallbackDelay: -time.Second} // one address, one thread
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen binds a stream socket inside the namespace at path; connections may be accepted from anywhere.
func Listen(ctx context.Context, path, network, address string) (net.Listener, error) {
	var listener net.Listener
	err := Do(path, func() (err error) {
		var lc net.ListenConfig
		listener, err = lc.Listen(ctx, network, address)
		return err
	})
	return listener, err
}
