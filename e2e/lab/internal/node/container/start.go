package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start runs a container and returns once its program is running, or says why it cannot. Its output goes to out and
// errOut, which may be closed afterwards; its input is empty.
func Start(spec Spec, ns Namespaces, out, errOut *os.File) (*Process, error) {
	net, err := os.Open(ns.Net)
	if err != nil {
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	defer net.Close() //nolint:errcheck // opened for reading
	flags := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC)
	if ns.PID == "" {
		flags |= unix.CLONE_NEWPID
	}
	cmd := copyOfSelf(modeRun)
	cmd.Stdout, cmd.Stderr = out, errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Setsid: true}
	if err := launch(cmd, &spec, ns.PID, net); err != nil {
		return nil, err
	}
	return watch(cmd, ns.PID == ""), nil
}

// StartPause starts process 1 of a PID namespace that containers can share, by the path /proc/<pid>/ns/pid.
func StartPause() (*Process, error) {
	cmd := copyOfSelf(modePause)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Setsid: true}
	if err := launch(cmd, nil, ""); err != nil {
		return nil, err
	}
	return watch(cmd, true), nil
}

func copyOfSelf(mode string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"container-" + mode}
	cmd.Env = []string{marker + "=" + mode}
	return cmd
}

// launch starts the copy, tells it what to become and waits until it has become that.
func launch(cmd *exec.Cmd, spec *Spec, pidNS string, extra ...*os.File) error {
	request, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	specOut, specIn, err := os.Pipe()
	if err != nil {
		return err
	}
	defer specIn.Close() //nolint:errcheck // closed below when it matters
	reportOut, reportIn, err := os.Pipe()
	if err != nil {
		return errors.Join(err, specOut.Close())
	}
	defer reportOut.Close() //nolint:errcheck // opened for reading
	cmd.ExtraFiles = append([]*os.File{specOut, reportIn}, extra...)
	err = start(cmd, pidNS)
	specOut.Close()  //nolint:errcheck // the child has its own
	reportIn.Close() //nolint:errcheck // the child has its own
	if err != nil {
		return err
	}
	specIn.Write(request) //nolint:errcheck // a child that died says why in its report
	specIn.Close()        //nolint:errcheck // as above
	report, err := io.ReadAll(reportOut)
	if err == nil && len(report) > 0 {
		err = errors.New(string(report))
	}
	if err != nil {
		cmd.Process.Kill() //nolint:errcheck // it is about to exit by itself
		cmd.Wait()         //nolint:errcheck // its report is the reason
		return err
	}
	return nil
}

// start starts the copy, inside the PID namespace when one is given. Only children enter a PID namespace, so a thread
// of its own is sent there and brought back after.
func start(cmd *exec.Cmd, pidNS string) error {
	if pidNS == "" {
		return cmd.Start()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // not unlocked when the way back fails: the thread then ends with this goroutine
		home, err := os.Open("/proc/thread-self/ns/pid")
		if err != nil {
			done <- err
			return
		}
		defer home.Close() //nolint:errcheck // opened for reading
		there, err := os.Open(pidNS)
		if err != nil {
			done <- fmt.Errorf("open the PID namespace: %w", err)
			return
		}
		defer there.Close() //nolint:errcheck // opened for reading
		if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWPID); err != nil {
			done <- fmt.Errorf("enter the PID namespace: %w", err)
			return
		}
		err = cmd.Start()
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWPID) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}
