package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

// mainVariable makes this test program be the command lab.
const mainVariable = "NPLBRIDGE_TEST_LAB"

// All tests run contained, so that their labs have a machine to themselves and what they leave on it shows.
func TestMain(m *testing.M) {
	lab.Init()
	if os.Getenv(mainVariable) != "" {
		main()
		return
	}
	lab.Contain(m.Run)
}

// user runs the command lab as somebody.
type user struct {
	name string
	argv []string // in front of the arguments
}

// users are the present one and, where that is the machine's root, one without any rights.
func users(t *testing.T) []user {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	programs, err := lab.Build(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	// Neither go test's directory nor root's cache is open to others.
	open, err := os.MkdirTemp("", "lab-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(open) })
	content, err := os.ReadFile(self)
	copied := filepath.Join(open, "lab")
	if err := errors.Join(err, os.Chmod(open, 0o755), os.WriteFile(copied, content, 0o755), programs.Export(open)); err != nil {
		t.Fatal(err)
	}
	present := []string{"env", "HOME=/nonexistent", "NPLBRIDGE_PROGRAMS=" + open, mainVariable + "=1", copied}
	all := []user{{"present", present}}
	if ids, err := os.ReadFile("/proc/self/uid_map"); err != nil || !strings.Contains(string(ids), "4294967295") {
		t.Logf("not as a user without rights: this one can become no other (%s, %v)", bytes.TrimSpace(ids), err)
		return all
	}
	return append(all, user{"without rights", append([]string{
		"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}, present...)})
}

func (u user) command(t *testing.T, args ...string) *exec.Cmd {
	argv := append(append([]string{}, u.argv...), args...)
	return exec.CommandContext(t.Context(), argv[0], argv[1:]...)
}

// run returns standard output, standard error and the exit status.
func (u user) run(t *testing.T, args ...string) (string, string, int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := u.command(t, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("lab %v: %v", args, err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// running is a lab that was started with "lab up".
type running struct {
	cmd    *exec.Cmd
	output *bytes.Buffer
}

func (u user) up(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{cmd: u.command(t, append([]string{"up"}, args...)...), output: &bytes.Buffer{}}
	progress, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan error, 1)
	go func() {
		chunk := make([]byte, 4096)
		var all bytes.Buffer
		for {
			n, err := progress.Read(chunk)
			all.Write(chunk[:n])
			if bytes.Contains(all.Bytes(), []byte("nothing stays behind")) {
				ready <- nil
				return
			}
			if err != nil {
				ready <- fmt.Errorf("lab up %v: %w\n%s", args, err, &all)
				return
			}
		}
	}()
	select {
	case err := <-ready:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("lab up %v is not ready after two minutes", args)
	}
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // of a test that failed
		_ = r.cmd.Wait()
	})
	return r
}

// end sends a signal and returns the exit status.
func (r *running) end(t *testing.T, signal syscall.Signal) int {
	t.Helper()
	if err := r.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	_ = r.cmd.Wait() // judged by the status
	return r.cmd.ProcessState.ExitCode()
}

// Two labs of each user side by side: each is found by its name, used, and ended without the other noticing.
func TestSideBySide(t *testing.T) {
	for _, u := range users(t) {
		t.Run(u.name, func(t *testing.T) {
			before := host(t)
			if _, message, code := u.run(t, "kubectl", "--name", "test-a", "--", "get", "nodes"); code != 1 || !strings.Contains(message, "running") {
				t.Errorf("kubectl without a lab: status %d, %q", code, message)
			}
			a := u.up(t, "--name", "test-a", "--nodes", "1")
			b := u.up(t, "--name", "test-b", "--nodes", "2", "--pod-network", "bridged")
			if _, message, code := u.run(t, "up", "--name", "test-a"); code != 1 || !strings.Contains(message, `a lab named "test-a" is already running`) {
				t.Errorf("a second lab of one name: status %d, %q", code, message)
			}
			list, _, code := u.run(t, "list")
			if code != 0 || !strings.Contains(list, " test-a ") || !strings.Contains(list, " test-b ") {
				t.Errorf("lab list: status %d\n%s", code, list)
			}
			for name, nodes := range map[string]string{"test-a": "node/node-1\n", "test-b": "node/node-1\nnode/node-2\n"} {
				if got, message, code := u.run(t, "kubectl", "--name", name, "--", "get", "nodes", "-o", "name"); code != 0 || got != nodes {
					t.Errorf("Nodes of %s: status %d, %q %s, want %q", name, code, got, message, nodes)
				}
			}
			if _, message, code := u.run(t, "kubectl", "--", "get", "nodes"); code != 1 || !strings.Contains(message, "choose one with --name") {
				t.Errorf("kubectl without a name: status %d, %q", code, message)
			}
			if got, message, code := u.run(t, "exec", "--name", "test-b", "node-2", "--", "sh", "-c", "ip -o -4 address show eth0; exit 6"); code != 6 || !strings.Contains(got, "172.30.0.12/24") {
				t.Errorf("exec: status %d, %q %s", code, got, message)
			}
			if _, message, code := u.run(t, "exec", "--name", "test-a", "node-2", "--", "true"); code != 1 || !strings.Contains(message, `no place "node-2"`) {
				t.Errorf("exec nowhere: status %d, %q", code, message)
			}
			if got, message, code := u.run(t, "logs", "--name", "test-a", "kube-apiserver"); code != 0 || !strings.Contains(got, "Version: v1.36.3") {
				t.Errorf("logs: status %d, %.200q %s", code, got, message)
			}
			if code := a.end(t, syscall.SIGINT); code != 0 {
				t.Errorf("after Ctrl-C lab up exits %d, want 0", code)
			}
			if got, message, code := u.run(t, "kubectl", "--name", "test-b", "--", "get", "--raw", "/readyz"); code != 0 || got != "ok" {
				t.Errorf("the other lab after one has ended: status %d, %q %s", code, got, message)
			}
			b.end(t, syscall.SIGKILL)
			sameHost(t, before)
		})
	}
}

// However early a lab is ended, nothing is left.
func TestEndedWhileStarting(t *testing.T) {
	for _, u := range users(t) {
		for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
			for _, moment := range []time.Duration{0, 20 * time.Millisecond, 300 * time.Millisecond, time.Second} {
				t.Run(fmt.Sprintf("%s %s after %s", u.name, signal, moment), func(t *testing.T) {
					before := host(t)
					cmd := u.command(t, "up", "--name", "test-early")
					if err := cmd.Start(); err != nil {
						t.Fatal(err)
					}
					time.Sleep(moment) // the point of the test: any moment must do
					if err := cmd.Process.Signal(signal); err != nil {
						t.Fatal(err)
					}
					_ = cmd.Wait() // dead or ended
					sameHost(t, before)
				})
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, u := range users(t) {
		for _, test := range []struct {
			args []string
			code int
			want string
		}{
			{[]string{"up", "--nodes", "0x"}, 2, "--nodes"},
			{[]string{"up", "--nodes", "0"}, 2, "nodes 0: the lab has room for 1 to 9"},
			{[]string{"up", "--nodes", "10"}, 2, "nodes 10: the lab has room for 1 to 9"},
			{[]string{"up", "--pod-network", "vxlan"}, 2, `pod network "vxlan": use "routed", "bridged" or "overlay"`},
			{[]string{"up", "--bridge-netfilter"}, 2, `bridge netfilter needs a pod network with a bridge, "bridged"`},
			{[]string{"up", "--name", "a/b"}, 2, `name "a/b": use up to 32`},
			{[]string{"up", "--fast"}, 2, "--fast"},
			{[]string{"down"}, 2, `unknown command "down"`},
			{[]string{"exec", "node-1"}, 2, "name a place and a command"},
			{[]string{"logs", "--name", "nobody"}, 1, "running"},
		} {
			before := host(t)
			_, message, code := u.run(t, test.args...)
			if code != test.code || !strings.HasPrefix(message, "lab: ") || !strings.Contains(message, test.want) || strings.Count(message, "\n") != 1 {
				t.Errorf("%s: lab %v: status %d, message %q, want %d and one line containing %q", u.name, test.args, code, message, test.code, test.want)
			}
			sameHost(t, before)
		}
	}
}

// Where there are neither programs nor their sources, a bad option is told first.
func TestRefusalsOutsideOfTheRepository(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"up"}, 1, "not inside the nplbridge repository"},
		{[]string{"up", "--nodes", "0"}, 2, "nodes 0: "},
		{[]string{"up", "--name", "a/b"}, 2, `name "a/b": `},
	} {
		cmd := exec.CommandContext(t.Context(), "env", append([]string{"-i", "PATH=" + os.Getenv("PATH"), mainVariable + "=1", self}, test.args...)...)
		cmd.Dir = t.TempDir()
		var message bytes.Buffer
		cmd.Stderr = &message
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) {
			t.Fatalf("lab %v: %v", test.args, err)
		}
		if got := message.String(); exit.ExitCode() != test.code || !strings.HasPrefix(got, "lab: ") || !strings.Contains(got, test.want) {
			t.Errorf("lab %v: status %d, message %q, want %d and %q", test.args, exit.ExitCode(), got, test.code, test.want)
		}
	}
}

// state is what a lab could leave on a machine.
type state struct {
	mounts, links, netns, run, sockets, processes string
}

func host(t *testing.T) state {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	var sockets []string
	for line := range strings.Lines(string(table)) {
		if _, name, ok := strings.Cut(line, "@nplbridge"); ok {
			sockets = append(sockets, name)
		}
	}
	return state{
		mounts: string(mounts), links: names("/sys/class/net/*"), netns: names("/run/netns/*"), run: names("/run/*"),
		sockets: fmt.Sprint(sockets), processes: names("/proc/[0-9]*"),
	}
}

func names(pattern string) string {
	found, _ := filepath.Glob(pattern) // the patterns are constants
	return strings.Join(found, " ")
}

// sameHost checks that the machine is, or gets, as it was.
func sameHost(t *testing.T, before state) {
	t.Helper()
	var now state
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if now = host(t); now == before {
			return
		}
	}
	t.Errorf("the machine is %+v, was %+v", now, before)
}
