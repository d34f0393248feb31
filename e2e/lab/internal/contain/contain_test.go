package contain

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"
)

// roleVariable makes this test program run one of the roles contained instead of the tests.
const roleVariable = "NPLBRIDGE_TEST_ROLE"

func TestMain(m *testing.M) {
	Init()
	if role := os.Getenv(roleVariable); role != "" {
		Run([]string{"NPLBRIDGE_TEST_PASSED=on"}, os.Stderr, roles[role])
	}
	os.Exit(m.Run())
}

var roles = map[string]func() int{
	"exit": func() int { return 7 },
	"look": func() int {
		stat, _ := os.ReadFile("/proc/self/stat")
		entries, _ := os.ReadDir("/run")
		interfaces, _ := net.Interfaces()
		fmt.Println(os.Getuid(), strings.Fields(string(stat))[0], len(entries), len(interfaces), os.Getenv("NPLBRIDGE_TEST_PASSED"), os.Getenv(stageVariable) == "", len(os.Args))
		return 0
	},
	// stay leaves processes, an orphan among them, a mount and a file, and waits for the signal to end.
	"stay": func() int {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
		command := exec.Command("sh", "-c", "setsid sleep 1000 & sleep 1000 & echo started")
		command.Stderr = os.Stderr
		out, err := command.StdoutPipe()
		if err == nil {
			err = command.Start()
		}
		if err == nil {
			_, err = bufio.NewReader(out).ReadString('\n')
		}
		if err := errors.Join(err, os.Mkdir("/run/x", 0o755), unix.Mount("tmpfs", "/run/x", "tmpfs", 0, ""), os.WriteFile("/run/x/file", nil, 0o644)); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("ready")
		fmt.Println("signal", <-signals)
		return 5
	},
	"orphan": func() int {
		// The child of the shell is orphaned, ends, and must not stay a zombie.
		if err := exec.Command("sh", "-c", "sh -c 'exit 0' & exec true").Run(); err != nil {
			fmt.Println(err)
			return 1
		}
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if zombies, _ := exec.Command("sh", "-c", "grep -l '^State:.Z' /proc/[0-9]*/status").Output(); len(zombies) == 0 {
				return 0
			}
		}
		return 1
	},
	"host": func() int {
		host, err := OpenHost()
		if err != nil {
			fmt.Println(err)
			return 1
		}
		defer host.Close()
		listener, err := host.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Println(err)
			return 1
		}
		path, err := host.Publish("document", []byte("for the host"))
		if err != nil {
			fmt.Println(err)
			return 1
		}
		_, inUse := host.Listen("tcp", listener.Addr().String())
		_, unknown := host.Listen("tcp", "192.0.2.1:0")
		_, tooBig := host.Publish("big", make([]byte, maxMessage))
		fmt.Println(listener.Addr(), path, errors.Is(inUse, unix.EADDRINUSE), unknown != nil && !errors.Is(unknown, unix.EADDRINUSE), tooBig != nil, host.PID, host.UID, host.Root)
		conn, err := listener.Accept()
		if err != nil {
			fmt.Println(err)
			return 1
		}
		defer conn.Close()
		_, _ = io.Copy(conn, conn)
		return 0
	},
}

// eachUser runs a test as the present user and, where that is root, as one without any rights.
func eachUser(t *testing.T, test func(t *testing.T, start func(role string) *exec.Cmd)) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := func(argv ...string) func(role string) *exec.Cmd {
		return func(role string) *exec.Cmd {
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			cmd.Env = append(os.Environ(), roleVariable+"="+role)
			cmd.Stderr = os.Stderr
			return cmd
		}
	}
	t.Run("present user", func(t *testing.T) { test(t, command(self)) })
	if os.Getuid() != 0 {
		return
	}
	t.Run("without rights", func(t *testing.T) {
		// go test builds in a directory that is closed to others.
		open, err := os.MkdirTemp("", "contain-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(open) })
		program, err := os.ReadFile(self)
		copied := filepath.Join(open, "program")
		if err := errors.Join(err, os.Chmod(open, 0o755), os.WriteFile(copied, program, 0o755)); err != nil {
			t.Fatal(err)
		}
		test(t, command("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", copied))
	})
}

func TestExitStatus(t *testing.T) {
	eachUser(t, func(t *testing.T, start func(string) *exec.Cmd) {
		var exit *exec.ExitError
		if err := start("exit").Run(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Errorf("the function returned 7, the launcher ends with %v", err)
		}
	})
}

func TestFreshNamespaces(t *testing.T) {
	eachUser(t, func(t *testing.T, start func(string) *exec.Cmd) {
		out, err := start("look").Output()
		// User 0, a PID of the new namespace, an empty /run, only the loopback, the environment, no stage left, no arguments.
		fields := strings.Fields(string(out))
		if err != nil || len(fields) != 7 {
			t.Fatalf("%q, %v", out, err)
		}
		if pid, _ := strconv.Atoi(fields[1]); fields[0] != "0" || pid < 2 || pid > 50 {
			t.Errorf("user %s, PID %s, want user 0 and a small PID above 1", fields[0], fields[1])
		}
		if rest := strings.Join(fields[2:], " "); rest != "0 1 on true 1" {
			t.Errorf("/run entries, interfaces, environment, stage gone, arguments = %s, want 0 1 on true 1", rest)
		}
	})
}

func TestOrphansAreReaped(t *testing.T) {
	eachUser(t, func(t *testing.T, start func(string) *exec.Cmd) {
		if out, err := start("orphan").Output(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
}

// Whatever ends the launcher, nothing of the inside is left on the machine.
func TestNothingIsLeft(t *testing.T) {
	for _, test := range []struct {
		signal   syscall.Signal
		want     string // printed after "ready"
		wantExit int
	}{
		{syscall.SIGINT, "signal interrupt\n", 5},
		{syscall.SIGTERM, "signal terminated\n", 5},
		{syscall.SIGHUP, "signal terminated\n", 5},
		{syscall.SIGKILL, "", -1},
	} {
		t.Run(test.signal.String(), func(t *testing.T) {
			eachUser(t, func(t *testing.T, start func(string) *exec.Cmd) {
				mounts := read(t, "/proc/self/mountinfo")
				cmd := start("stay")
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				reader := bufio.NewReader(out)
				if line, err := reader.ReadString('\n'); line != "ready\n" {
					t.Fatalf("%q, %v", line, err)
				}
				inside := membersOf(t, cmd.Process.Pid)
				t.Cleanup(func() { // of a test that failed
					for pid := range inside {
						if isMember(pid, inside[pid]) {
							_ = syscall.Kill(pid, syscall.SIGKILL)
						}
					}
				})
				if len(inside) < 4 {
					t.Fatalf("found only %v inside, want PID 1, the function and two sleeps", inside)
				}
				if err := cmd.Process.Signal(test.signal); err != nil {
					t.Fatal(err)
				}
				// What is left inside would hold the pipe open.
				if err := out.(*os.File).SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
					t.Fatal(err)
				}
				rest, err := io.ReadAll(reader)
				if err != nil || string(rest) != test.want {
					t.Errorf("after %v the inside printed %q, %v, want %q", test.signal, rest, err, test.want)
				}
				_ = cmd.Wait() // judged by the status
				if code := cmd.ProcessState.ExitCode(); code != test.wantExit {
					t.Errorf("exit status %d, want %d", code, test.wantExit)
				}
				eventually(t, func() error {
					for pid, namespace := range inside {
						if isMember(pid, namespace) {
							return fmt.Errorf("process %d is still there", pid)
						}
					}
					return nil
				})
				if now := read(t, "/proc/self/mountinfo"); now != mounts {
					t.Errorf("mounts of the host changed:\n%s\nwere\n%s", now, mounts)
				}
				if _, err := os.Stat("/run/x"); !os.IsNotExist(err) {
					t.Errorf("/run/x is on the host: %v", err)
				}
			})
		})
	}
}

// A signal that comes as soon as PID 1 exists, but cannot handle it yet, is not lost.
func TestEarlySignal(t *testing.T) {
	eachUser(t, func(t *testing.T, start func(string) *exec.Cmd) {
		for range 5 {
			cmd := start("stay")
			cmd.WaitDelay = 20 * time.Second
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() error {
				if len(childrenOf(t, cmd.Process.Pid)) == 0 {
					return errors.New("no PID 1 yet")
				}
				return nil
			})
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended: // by the function or, before that handles signals, by the signal
			case <-time.After(20 * time.Second):
				_ = cmd.Process.Kill()
				t.Fatal("the launcher runs on after an early interrupt")
			}
		}
	})
}

func TestHost(t *testing.T) {
	eachUser(t, func(t *testing.T, start func(string) *exec.Cmd) {
		cmd := start("host")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		fields := strings.Fields(line)
		if err != nil || len(fields) != 8 {
			t.Fatalf("%q, %v", line, err)
		}
		address, path := fields[0], fields[1]
		if got := strings.Join(fields[2:5], " "); got != "true true true" {
			t.Errorf("port in use, address not of the host, document too big refused = %s, want all true", got)
		}
		if want := strconv.Itoa(cmd.Process.Pid); fields[5] != want {
			t.Errorf("the inside takes %s for its launcher, want %s", fields[5], want)
		}
		if _, err := os.Stat(fields[7] + "/proc"); err != nil {
			t.Errorf("root of the inside: %v", err)
		}
		for range 2 { // each reader starts at the beginning
			if got := read(t, path); got != "for the host" {
				t.Errorf("published document is %q", got)
			}
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "there and back")
		if err := errors.Join(err, conn.(*net.TCPConn).CloseWrite()); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); err != nil || string(got) != "there and back" {
			t.Errorf("through the listener came %q, %v", got, err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s outlives the launcher: %v", path, err)
		}
	})
}

func TestOpenHostOutside(t *testing.T) {
	if _, err := OpenHost(); !errors.Is(err, ErrNotContained) {
		t.Errorf("OpenHost outside = %v, want ErrNotContained", err)
	}
}

func TestExplain(t *testing.T) {
	for _, test := range []struct {
		name     string
		sys      fstest.MapFS
		needUser bool
		err      error
		want     []string
	}{
		{"privileged", nil, false, unix.EPERM, []string{"although this user is privileged"}},
		{"Debian's switch", fstest.MapFS{"kernel/unprivileged_userns_clone": {Data: []byte("0\n")}}, true, unix.EPERM,
			[]string{"kernel.unprivileged_userns_clone is 0", "run as root", "sudo sysctl -w kernel.unprivileged_userns_clone=1"}},
		{"limit", fstest.MapFS{"user/max_user_namespaces": {Data: []byte("0\n")}}, true, unix.ENOSPC,
			[]string{"user.max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces=10000"}},
		{"Ubuntu's switch", fstest.MapFS{
			"kernel/unprivileged_userns_clone":             {Data: []byte("1\n")},
			"kernel/apparmor_restrict_unprivileged_userns": {Data: []byte("1\n")},
		}, true, unix.EACCES, []string{"kernel.apparmor_restrict_unprivileged_userns is 1", "=0`"}},
		{"limit reached", fstest.MapFS{"user/max_user_namespaces": {Data: []byte("5\n")}}, true, unix.ENOSPC, []string{"nesting limit"}},
		{"unknown reason", fstest.MapFS{}, true, unix.EPERM, []string{"run as root"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := explain(test.sys, test.needUser, test.err)
			if !errors.Is(err, test.err) {
				t.Errorf("%v does not wrap %v", err, test.err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not contain %q", err, want)
				}
			}
		})
	}
}

// membersOf finds all processes in the PID namespace that a launcher made, with the namespace's name.
func membersOf(t *testing.T, launcher int) map[int]string {
	t.Helper()
	inits := childrenOf(t, launcher)
	if len(inits) != 1 {
		t.Fatalf("the launcher has children %v, want PID 1 alone", inits)
	}
	namespace, err := os.Readlink("/proc/" + inits[0] + "/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	members := map[int]string{}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range all {
		if name, err := os.Readlink(dir + "/ns/pid"); err == nil && name == namespace {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				t.Fatal(err)
			}
			members[pid] = name
		}
	}
	return members
}

func isMember(pid int, namespace string) bool {
	now, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	return err == nil && now == namespace
}

// childrenOf lists the children of all threads of a process.
func childrenOf(t *testing.T, pid int) []string {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var children []string
	for _, list := range lists {
		content, err := os.ReadFile(list)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH) { // the thread has ended
			t.Fatal(err)
		}
		children = append(children, strings.Fields(string(content))...)
	}
	return children
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Error(err)
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSuffix(content, []byte("\n")))
}
