package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// marker is the environment variable that tells a copy of this binary what it is to become.
const marker = "NPLBRIDGE_LAB_CONTAINER"

// What the copy becomes.
const (
	modeRun   = "run"   // the container's program
	modeExec  = "exec"  // a further program inside a running container
	modePause = "pause" // process 1 of a PID namespace that several containers share
)

// The descriptors the copy is born with, after stdin, stdout and stderr.
const (
	fdSpec   = 3 + iota // read: the request as JSON
	fdReport            // write: why it failed; closed without a word by a successful exec
	fdNet               // the network namespace (run, exec)
	fdMount             // the container's other namespaces (exec)
	fdUTS
	fdIPC
)

// failed is the exit status of a copy that could not become its program; runtimes use the same one.
const failed = 128

// MaybeRun becomes a container when this process was started as one, and then never returns. Every program that starts
// containers must call it first thing in main, before it starts goroutines or reads its arguments.
func MaybeRun() {
	mode := os.Getenv(marker)
	if mode == "" {
		return
	}
	runtime.LockOSThread() // the thread that changes is the one that becomes the program
	report := os.NewFile(fdReport, "report")
	if err := become(mode); err != nil {
		fmt.Fprint(report, err)
	}
	os.Exit(failed)
}

func become(mode string) error {
	if mode == modePause {
		return pause()
	}
	for fd := fdSpec; fd <= fdIPC; fd++ {
		unix.CloseOnExec(fd)
	}
	request, err := io.ReadAll(os.NewFile(fdSpec, "spec"))
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	var spec Spec
	if err := json.Unmarshal(request, &spec); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if err := unix.Setns(fdNet, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	switch mode {
	case modeRun:
		err = errors.Join(unix.Sethostname([]byte(spec.Hostname)), makeRoot(&spec))
	case modeExec:
		err = join()
	default:
		err = fmt.Errorf("%s=%q: unknown", marker, mode)
	}
	if err != nil {
		return err
	}
	return spec.exec()
}

// join enters a running container. A mount namespace can only be entered by a thread with a root and working directory
// of its own, hence the unshare.
func join() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the working directory: %w", err)
	}
	for _, ns := range []struct{ fd, kind int }{
		{fdUTS, unix.CLONE_NEWUTS}, {fdIPC, unix.CLONE_NEWIPC}, {fdMount, unix.CLONE_NEWNS},
	} {
		if err := unix.Setns(ns.fd, ns.kind); err != nil {
			return fmt.Errorf("enter the container: %w", err)
		}
	}
	return nil
}

// exec becomes the program.
func (s *Spec) exec() error {
	if err := os.Chdir(s.workDir()); err != nil {
		return err
	}
	unix.Umask(0o022)
	if err := s.User.become(); err != nil {
		return err
	}
	os.Clearenv()
	for _, e := range s.Env {
		name, value, _ := strings.Cut(e, "=")
		os.Setenv(name, value) //nolint:errcheck // only PATH matters, for the next line
	}
	path, err := exec.LookPath(s.Args[0])
	if err != nil {
		return err
	}
	return &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, s.Args, s.Env)}
}

// pause never ends: it reaps the orphans that process 1 of a PID namespace is given.
func pause() error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	if err := unix.Close(fdReport); err != nil { // tells the parent that the namespace is there
		return err
	}
	for range children {
		for pid := 1; pid > 0; {
			pid, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil)
		}
	}
	return nil
}
