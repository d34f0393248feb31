package contain

import (
	"os"
	"os/signal"
	"syscall"
)

// forwarded are the signals that a user or a service manager ends a program with.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

func listen() <-chan os.Signal {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	return signals
}

// forward passes signals on. A closed terminal (SIGHUP) becomes SIGTERM, so that the inside shuts down in order. Errors
// mean that the process has ended, which its parent notices by itself.
func forward(signals <-chan os.Signal, to *os.Process) {
	for received := range signals {
		if received == syscall.SIGHUP {
			received = syscall.SIGTERM
		}
		_ = to.Signal(received)
	}
}
