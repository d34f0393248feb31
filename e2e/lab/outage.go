package lab

import (
	"context"
	"fmt"
	"syscall"
)

// CrashControlPlane kills a component of the control plane with SIGKILL: "etcd", "kube-apiserver", "kube-controller-manager" or
// "kube-scheduler". It stays away until RecoverControlPlane.
func (l *Lab) CrashControlPlane(component string) error {
	if err := l.controlPlane.Crash(component); err != nil {
		return fmt.Errorf("crash the control plane: %w", err)
	}
	return nil
}

// SignalControlPlane sends a signal to a component of the control plane: SIGSTOP makes it hang, SIGCONT lets it go on.
func (l *Lab) SignalControlPlane(component string, signal syscall.Signal) error {
	if err := l.controlPlane.Signal(component, signal); err != nil {
		return fmt.Errorf("signal the control plane: %w", err)
	}
	return nil
}

// RecoverControlPlane starts what has ended of the control plane, with the data it had, and returns when the API server is ready.
func (l *Lab) RecoverControlPlane(ctx context.Context) error {
	if err := l.controlPlane.Recover(ctx); err != nil {
		return fmt.Errorf("recover the control plane: %w", err)
	}
	return nil
}

// Built are the programs that Contain has built, for labs in which some of them are to be others.
func Built() (Programs, error) { return builtPrograms() }
