package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// components are the names of what runs, in the order in which they need each other, with their arguments.
func (c *ControlPlane) components() []component {
	return []component{
		{"etcd", c.etcdArgs()},
		{"kube-apiserver", c.apiServerArgs()},
		{"kube-controller-manager", c.controllerManagerArgs()},
		{"kube-scheduler", c.schedulerArgs()},
	}
}

type component struct {
	name string
	args []string
}

// Crash kills a component with SIGKILL, for as long as Recover is not called.
func (c *ControlPlane) Crash(name string) error {
	i, err := c.index(name)
	if err == nil {
		c.processes[i].Kill()
	}
	return err
}

// Signal sends a signal to a component, such as SIGSTOP.
func (c *ControlPlane) Signal(name string, signal syscall.Signal) error {
	i, err := c.index(name)
	if err != nil {
		return err
	}
	if err := syscall.Kill(c.processes[i].PID(), signal); err != nil {
		return fmt.Errorf("signal %s: %w", name, err)
	}
	return nil
}

// Recover starts every component that has ended, with the data that is there, and returns when the API server is ready.
func (c *ControlPlane) Recover(ctx context.Context) error {
	for i, part := range c.components() {
		select {
		case <-c.processes[i].Done():
		default:
			continue
		}
		if err := c.start(part.name, part.args); err != nil {
			return err
		}
		last := len(c.processes) - 1
		c.processes[i] = c.processes[last]
		c.processes = c.processes[:last]
	}
	return c.waitReady(ctx, "/readyz")
}

// index of a component among the processes: they were started in this order.
func (c *ControlPlane) index(name string) (int, error) {
	var known []string
	for _, part := range c.components() {
		known = append(known, part.name)
	}
	i := slices.Index(known, name)
	if i < 0 {
		return i, fmt.Errorf("no component %q: use one of %s", name, strings.Join(known, ", "))
	}
	if i >= len(c.processes) {
		return i, errors.New("the control plane is not up")
	}
	return i, nil
}
