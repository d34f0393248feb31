package container

import (
	"os/exec"
	"syscall"
)

// Process is a running container.
type Process struct {
	cmd  *exec.Cmd
	own  bool // it is process 1 of its PID namespace
	done chan struct{}
	exit Exit
}

// Exit is how a container ended.
type Exit struct {
	// Code is the exit status; 128 plus the signal when a signal ended it.
	Code int
	// Signal is the signal that ended it; 0 for none.
	Signal int
}

func watch(cmd *exec.Cmd, own bool) *Process {
	p := &Process{cmd: cmd, own: own, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		cmd.Wait() //nolint:errcheck // the state below says it all
		p.exit = exitOf(cmd.ProcessState.Sys().(syscall.WaitStatus))
		if !own { // what it leaves behind in the shared namespace
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // usually nothing
		}
	}()
	return p
}

func exitOf(status syscall.WaitStatus) Exit {
	if status.Signaled() {
		return Exit{Code: 128 + int(status.Signal()), Signal: int(status.Signal())}
	}
	return Exit{Code: status.ExitStatus()}
}

// PID is the process id as this process sees it.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the container has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is how it ended; only valid once Done is closed.
func (p *Process) Exit() Exit { return p.exit }

// Signal sends a signal to the container's first process; to one that has ended it does nothing. As for any process 1,
// a signal other than SIGKILL is lost when the program has no handler for it.
func (p *Process) Signal(s syscall.Signal) {
	p.cmd.Process.Signal(s) //nolint:errcheck // it has ended
}

// Kill ends the container and everything in its PID namespace at once.
func (p *Process) Kill() { p.Signal(syscall.SIGKILL) }
