package nodecheck

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// TestMain gives the tests the rights they need over network namespaces of their own: as an ordinary user it runs the test binary again
// in a new user namespace.
func TestMain(m *testing.M) {
	if os.Geteuid() == 0 {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
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

// host is a network namespace that stands for a Node.
type host struct {
	t      testing.TB
	handle netns.NsHandle
}

func newHost(t testing.TB) *host {
	t.Helper()
	h := &host{t: t}
	inThread(func() {
		var err error
		if h.handle, err = netns.New(); err != nil {
			t.Errorf("create a network namespace: %v", err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { _ = h.handle.Close() })
	for name, value := range map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1", "net/ipv6/conf/all/accept_dad": "0", "net/ipv6/conf/default/accept_dad": "0",
		"net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/default/rp_filter": "0", "net/ipv4/ip_local_port_range": "32768 60999",
		"net/ipv4/ip_local_reserved_ports": "",
	} {
		h.sysctl(name, value)
	}
	h.run(`ip link set lo up
		ip link add eth0 type veth peer name far0
		ip addr add 192.0.2.1/24 dev eth0
		ip -6 addr add 2001:db8::1/64 dev eth0 nodad
		ip link set eth0 up
		ip link set far0 up
		ip route add default via 192.0.2.254
		ip -6 route add default via 2001:db8::fe`)
	return h
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

func (h *host) do(f func()) {
	h.t.Helper()
	inThread(func() {
		if err := netns.Set(h.handle); err != nil {
			h.t.Errorf("enter the network namespace: %v", err)
			return
		}
		f()
	})
}

func (h *host) sysctl(name, value string) {
	h.t.Helper()
	h.do(func() {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil && !errors.Is(err, unix.ENOENT) {
			h.t.Errorf("set %s: %v", name, err)
		}
	})
}

// run executes commands, one per line, words separated by blanks.
func (h *host) run(lines string) {
	h.t.Helper()
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		h.do(func() {
			cmd := exec.Command(words[0], words[1:]...)
			// The tool's own lock file belongs to the machine's administrator.
			cmd.Env = append(os.Environ(), "XTABLES_LOCKFILE="+filepath.Join(h.t.TempDir(), "lock"))
			if out, err := cmd.CombinedOutput(); err != nil {
				h.t.Errorf("%s: %v: %s", line, err, out)
			}
		})
	}
	if h.t.Failed() {
		h.t.FailNow()
	}
}

func (h *host) nft(script string) {
	h.t.Helper()
	h.do(func() {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			h.t.Errorf("nft: %v: %s: %s", err, script, out)
		}
	})
}

func (h *host) collect(s Subject) Facts {
	h.t.Helper()
	var f Facts
	h.do(func() { f = Collect(s) })
	if len(f.Unread) > 0 {
		h.t.Errorf("unread: %v", f.Unread)
	}
	return f
}

// output runs one command and returns what it prints.
func (h *host) output(line string) string {
	h.t.Helper()
	var out []byte
	h.do(func() {
		words := strings.Fields(line)
		var err error
		if out, err = exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			h.t.Errorf("%s: %v: %s", line, err, out)
		}
	})
	return string(out)
}

// loadProgram loads "return 0" as a tc classifier and returns its file descriptor.
func loadProgram() (int, error) {
	code := []byte{0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0} // r0 = 0; exit
	license := []byte("MIT\x00")
	load := struct {
		kind, count   uint32
		code, license uint64
		rest          [12]uint64
	}{kind: unix.BPF_PROG_TYPE_SCHED_CLS, count: uint32(len(code) / 8), code: uint64(uintptr(unsafe.Pointer(&code[0]))), license: uint64(uintptr(unsafe.Pointer(&license[0])))}
	fd, _, number := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&load)), unsafe.Sizeof(load))
	runtime.KeepAlive(code)
	runtime.KeepAlive(license)
	if number != 0 {
		return 0, number
	}
	return int(fd), nil
}
