//go:build !windows

package serve

import (
	"os"
	"syscall"
)

const (
	errInUse   = syscall.EADDRINUSE
	errRefused = syscall.ECONNREFUSED
)

// restrict leaves the socket at path to its owner and group.
func restrict(path string) error { return os.Chmod(path, 0o660) }
