// Package contain runs a function of this program inside fresh mount, network and PID namespaces (and a user namespace
// where the caller lacks the rights for the others), so that whatever it creates ends with it: network interfaces,
// mounts, files and processes, whether it returns, is interrupted, or the launcher is killed.
//
// Three processes are involved, all of the same executable and arguments. The launcher stays on the host: it starts the
// second, serves the few host resources that the function may ask for (see Host), forwards signals, and exits with the
// same status. The second is PID 1 inside: it mounts /proc and a private /run, reaps orphans, and when it ends the
// kernel ends everything inside. The third runs the function.
package contain

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// stageVariable tells a re-executed process which of the three it is.
	stageVariable = "NPLBRIDGE_CONTAIN"
	stageInit     = "init"
	stageInside   = "inside"
	// hostVariable holds the descriptor of the socket to the launcher.
	hostVariable = "NPLBRIDGE_HOST"
	hostFD       = 3
)

// exitFailure is the status of a launcher or PID 1 that could not do its part.
const exitFailure = 1

// Init becomes PID 1 of a containment when this process was started as such, and then never returns; otherwise it does
// nothing. Call it first in main.
func Init() {
	if os.Getenv(stageVariable) == stageInit {
		os.Exit(runInit())
	}
}

// Inside tells whether this process is the one to run the contained function.
func Inside() bool { return os.Getenv(stageVariable) == stageInside }

// Run runs the function contained and exits with the status it returns; Run itself never returns. On the way it passes
// through this program's main function again, with the same arguments, which must come to the same call. Extra
// environment ("NAME=value") is given to that process.
func Run(environment []string, messages io.Writer, function func() int) {
	Init()
	if Inside() {
		os.Unsetenv(stageVariable)
		unix.CloseOnExec(hostFD)
		os.Exit(function())
	}
	code, err := launch(environment)
	if err != nil {
		fmt.Fprintln(messages, err)
	}
	os.Exit(code)
}

// launch starts PID 1 and accompanies it to its end.
func launch(environment []string) (code int, err error) {
	// The kernel kills the child when the thread that started it ends, so this thread must live as long as the process.
	runtime.LockOSThread()
	ours, theirs, err := socketPair()
	if err != nil {
		return exitFailure, err
	}
	defer ours.Close()
	needUser, err := needUserNamespace()
	if err != nil {
		return exitFailure, err
	}
	attributes := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true, // Ctrl-C reaches only the launcher, which lets the inside shut down in order
	}
	if needUser {
		attributes.Cloneflags |= unix.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	signals := listen()
	process, err := os.StartProcess("/proc/self/exe", os.Args, &os.ProcAttr{
		Env: set(os.Environ(), append(environment,
			stageVariable+"="+stageInit, fmt.Sprintf("%s=%d", hostVariable, hostFD))...),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, theirs},
		Sys:   attributes,
	})
	if err != nil {
		return exitFailure, explain(os.DirFS("/proc/sys"), needUser, err)
	}
	theirs.Close()
	go serveHost(ours, process.Pid, sync.OnceFunc(func() { go forward(signals, process) }))
	state, err := process.Wait()
	if err != nil {
		return exitFailure, fmt.Errorf("wait for PID 1 of the containment: %w", err)
	}
	return exitStatus(state.Sys().(syscall.WaitStatus)), nil
}

// set puts entries "NAME=value" into an environment in place of those it has of the same names.
func set(environment []string, entries ...string) []string {
	names := map[string]bool{}
	for _, entry := range entries {
		name, _, _ := strings.Cut(entry, "=")
		names[name] = true
	}
	rest := slices.DeleteFunc(environment, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return names[name]
	})
	return append(rest, entries...)
}

// exitStatus is what a shell would report.
func exitStatus(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// socketPair connects launcher and inside; messages keep their boundaries.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket between launcher and inside: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "host-launcher"), os.NewFile(uintptr(fds[1]), "host-inside"), nil
}

// ErrNotContained is returned where something needs containment and the process has none.
var ErrNotContained = errors.New("this process is not contained")
