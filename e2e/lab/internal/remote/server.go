// Package remote lets other processes of the same user on the host find running labs and use them, over one abstract
// unix socket per lab.
package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/contain"
)

// Info describes a running lab to other processes of the host.
type Info struct {
	Name         string
	PID          int    // of the launcher
	Kubeconfig   string // path on the host
	KubectlCache string // path on the host, of a directory that ends with the lab
	ControlPlane string // the multi-call control plane program
	LogDir       string // inside the lab
	Nodes        int
	PodNetwork   string
	Seconds      float64 // since it was started
}

// Runner prepares a command in a place of the lab.
type Runner func(ctx context.Context, where string, argv []string) *exec.Cmd

// request opens a connection; signal may follow an exec.
type request struct {
	Exec  bool // else: Info
	Where string
	Argv  []string
	Dir   string
	Term  string
}

type signalRequest struct{ Signal int }

type answer struct {
	Error string
	Code  int // exit status of an exec
	Info  Info
}

// Server answers the host.
type Server struct {
	Info func() Info
	Run  Runner
}

// Serve answers until the listener is closed.
func (s Server) Serve(listener *net.UnixListener) {
	for {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			// A client that is gone does not need the answer.
			_ = contain.Send(conn, s.answer(conn))
		}()
	}
}

func (s Server) answer(conn *net.UnixConn) answer {
	if err := sameUser(conn); err != nil {
		return answer{Error: err.Error()}
	}
	var asked request
	files, err := contain.Receive(conn, &asked)
	defer func() {
		for _, file := range files {
			file.Close()
		}
	}()
	switch {
	case err != nil:
		return answer{Error: fmt.Sprintf("unreadable request: %v", err)}
	case !asked.Exec:
		return answer{Info: s.Info()}
	case len(files) != 3:
		return answer{Error: "an exec brings standard input, output and error"}
	}
	code, err := s.exec(conn, asked, files)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Code: code}
}

// exec runs a command on the client's own descriptors. It ends when the client goes away.
func (s Server) exec(conn *net.UnixConn, asked request, files []*os.File) (int, error) {
	cmd := s.Run(context.Background(), asked.Where, asked.Argv)
	cmd.Dir = asked.Dir
	if asked.Term != "" {
		cmd.Env = append(cmd.Env, "TERM="+asked.Term)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() {
		for {
			var wanted signalRequest
			if _, err := contain.Receive(conn, &wanted); err != nil {
				wanted.Signal = int(syscall.SIGKILL)
			}
			// The group is gone once the command was waited for; then this has no effect.
			if syscall.Kill(-cmd.Process.Pid, syscall.Signal(wanted.Signal)) != nil || wanted.Signal == int(syscall.SIGKILL) {
				return
			}
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled():
		return 128 + int(exit.Sys().(syscall.WaitStatus).Signal()), nil
	case errors.As(err, &exit):
		return exit.ExitCode(), nil
	}
	return 0, err
}

// sameUser refuses clients of other users: abstract sockets have no permissions.
func sameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) { peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, peerErr); err != nil {
		return fmt.Errorf("who is asking: %w", err)
	}
	if int(peer.Uid) != os.Getuid() {
		return errors.New("this lab belongs to another user")
	}
	return nil
}
