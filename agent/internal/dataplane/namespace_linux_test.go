package dataplane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// insideVariable tells a copy of the test binary that it runs in a user namespace made for it.
const insideVariable = "DATAPLANE_TEST_INSIDE"

// TestMain gives the tests the rights they need over network namespaces of their own: as an ordinary user it runs the test
// binary again in a new user namespace.
func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
	}
	if os.Geteuid() == 0 {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	runtime.LockOSThread() // Pdeathsig follows the thread
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err == nil:
		os.Exit(0)
	case os.Getenv("CI") != "":
		fmt.Println("FAIL: the tests need root or user namespaces:", err)
		os.Exit(1)
	}
	fmt.Println("SKIP: the tests need root or user namespaces:", err)
}

// namespace is a network namespace of a test.
type namespace struct {
	t      testing.TB
	name   string
	handle netns.NsHandle
}

func newNamespace(t testing.TB, name string) *namespace {
	t.Helper()
	ns := &namespace{t: t, name: name}
	inThread(func() {
		var err error
		if ns.handle, err = netns.New(); err != nil {
			t.Errorf("create network namespace %s: %v", name, err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { _ = ns.handle.Close() })
	ns.sysctl("net/ipv4/ip_forward", "1")
	ns.sysctl("net/ipv6/conf/all/forwarding", "1")
	for _, which := range []string{"all", "default"} {
		ns.sysctl("net/ipv6/conf/"+which+"/accept_dad", "0")
		ns.sysctl("net/ipv4/conf/"+which+"/rp_filter", "0")
	}
	ns.run("ip link set lo up")
	return ns
}

// inThread runs f on a thread of its own, which ends with it.
func inThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread is lost with its namespace
		f()
	}()
	<-done
}

// do runs f inside. f must not call t.FailNow.
func (ns *namespace) do(f func()) {
	ns.t.Helper()
	inThread(func() {
		if err := netns.Set(ns.handle); err != nil {
			ns.t.Errorf("enter network namespace %s: %v", ns.name, err)
			return
		}
		f()
	})
}

// in runs f inside and returns what it returns.
func in[T any](ns *namespace, f func() (T, error)) (out T, err error) {
	ns.do(func() { out, err = f() })
	return out, err
}

func (ns *namespace) sysctl(name, value string) {
	ns.t.Helper()
	ns.do(func() {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil && !errors.Is(err, unix.ENOENT) {
			ns.t.Errorf("%s: set %s: %v", ns.name, name, err)
		}
	})
}

// run executes commands, one per line, words separated by blanks; it returns their output.
func (ns *namespace) run(lines string) string {
	ns.t.Helper()
	out, err := ns.try(lines)
	if err != nil {
		ns.t.Fatal(err)
	}
	return out
}

func (ns *namespace) try(lines string) (string, error) {
	var all strings.Builder
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		out, err := in(ns, exec.Command(words[0], words[1:]...).CombinedOutput)
		all.Write(out)
		if err != nil {
			return all.String(), fmt.Errorf("%s: %s: %w: %s", ns.name, line, err, out)
		}
	}
	return all.String(), nil
}

// nft runs a script of the nft tool.
func (ns *namespace) nft(script string) {
	ns.t.Helper()
	if err := ns.tryNFT(script); err != nil {
		ns.t.Fatal(err)
	}
}

func (ns *namespace) tryNFT(script string) error {
	out, err := in(ns, func() ([]byte, error) {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(script)
		return cmd.CombinedOutput()
	})
	if err != nil {
		return fmt.Errorf("%s: nft: %w: %s: %s", ns.name, err, script, out)
	}
	return nil
}

func (ns *namespace) ruleset() string { return ns.run("nft list ruleset") }

// commandOutput returns a function that runs a program.
func commandOutput(name string, arguments ...string) func() ([]byte, error) {
	return func() ([]byte, error) { return exec.Command(name, arguments...).CombinedOutput() }
}
