package contain

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// runInit is PID 1: mounts, sets up the loopback, starts the process that runs the function, forwards signals to it, reaps whatever is
// orphaned, and returns its exit status. When PID 1 exits the kernel kills all that is left inside.
func runInit() int {
	if err := errors.Join(mounts(), loopback()); err != nil {
		fmt.Fprintln(os.Stderr, explain(os.DirFS("/proc/sys"), inUserNamespace(), err))
		return exitFailure
	}
	signals := listen()
	host, err := OpenHost()
	if err == nil {
		err = errors.Join(host.forward(), host.Close())
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "reach the launcher: %v\n", err)
		return exitFailure
	}
	pid, err := syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
		Env:   set(os.Environ(), stageVariable+"="+stageInside),
		Files: []uintptr{0, 1, 2, hostFD},
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "start the contained process: %v\n", err)
		return exitFailure
	}
	unix.Close(hostFD)
	inside, err := os.FindProcess(pid)
	if err != nil {
		fmt.Fprintf(os.Stderr, "find the contained process: %v\n", err)
		return exitFailure
	}
	go forward(signals, inside)
	for {
		var status syscall.WaitStatus
		switch reaped, err := syscall.Wait4(-1, &status, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			fmt.Fprintf(os.Stderr, "wait for the contained process: %v\n", err)
			return exitFailure
		case reaped == pid && (status.Exited() || status.Signaled()):
			return exitStatus(status)
		}
	}
}

// mounts makes the mount namespace ours: nothing propagates to or from the host, /proc shows the new PID namespace, and
// /run is a private tmpfs for all files, sockets and named network namespaces.
func mounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount a tmpfs on /run: %w", err)
	}
	return nil
}

// loopback makes 127.0.0.1 and ::1 work, as they do on every machine.
func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set the loopback interface up: %w", err)
	}
	return nil
}

// inUserNamespace tells whether user IDs are mapped, i.e. this is not the machine's first user namespace.
func inUserNamespace() bool {
	content, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(content)), " ") != "0 0 4294967295"
}
