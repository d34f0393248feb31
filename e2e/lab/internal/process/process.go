// Package process starts the lab's programs, each in its network namespace and process group with its output in a
// file, and keeps the long-lived ones running.
package process

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Starter starts a prepared command somewhere, e.g. in a network namespace.
type Starter interface {
	Start(cmd *exec.Cmd) error
}

// Spec is what to run.
type Spec struct {
	Name string // for messages
	Argv []string
	Env  []string // in place of this process's environment; nil keeps it
	Dir  string
	Log  string  // file that output is appended to
	In   Starter // nil: where this process is
}

// Process is a program that was started.
type Process struct {
	spec Spec
	cmd  *exec.Cmd
	done chan struct{}
	err  error // why it ended; valid after done
}

// Start runs a program in a process group of its own.
func Start(spec Spec) (*Process, error) {
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", spec.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(spec.Argv[0], spec.Argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = spec.Env, spec.Dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	start := cmd.Start
	if spec.In != nil {
		start = func() error { return spec.In.Start(cmd) }
	}
	if err := start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	p := &Process{spec: spec, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is the process ID, as seen inside the lab.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err tells why the program ended, with the end of its output; call it after Done.
func (p *Process) Err() error {
	reason := "exit status 0"
	if p.err != nil {
		reason = p.err.Error()
	}
	return fmt.Errorf("%s ended: %s\n%s", p.spec.Name, reason, Tail(p.spec.Log, 15))
}

// Kill ends the whole process group at once and waits for its first process.
func (p *Process) Kill() { p.signalAndWait(syscall.SIGKILL, 0) }

// Stop asks the program to end and kills its process group when it has not after grace.
func (p *Process) Stop(grace time.Duration) { p.signalAndWait(syscall.SIGTERM, grace) }

func (p *Process) signalAndWait(first syscall.Signal, grace time.Duration) {
	// Until it is waited for, the process keeps its ID, so that the signal cannot meet another group.
	select {
	case <-p.done:
		return
	default:
	}
	if first == syscall.SIGTERM {
		_ = p.cmd.Process.Signal(first)
		select {
		case <-p.done:
		case <-time.After(grace):
		}
	}
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	<-p.done
}

// Tail is the last lines of a file, each indented; empty when there are none.
func Tail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	var last []string
	scanner := bufio.NewScanner(bytes.NewReader(content))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		last = append(last, "    "+scanner.Text())
		last = last[max(0, len(last)-lines):]
	}
	return strings.Join(last, "\n")
}
