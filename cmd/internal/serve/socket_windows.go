package serve

import "golang.org/x/sys/windows"

// What a socket says on Windows: not the numbers of package syscall, which it never returns.
const (
	errInUse   = windows.WSAEADDRINUSE
	errRefused = windows.WSAECONNREFUSED
)

// restrict does nothing: a socket of a service's account may be written, and so connected to, by that account and administrators only,
// as its directory's access list is inherited.
func restrict(string) error { return nil }
