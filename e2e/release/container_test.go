package release

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/sys/capability"
	"golang.org/x/sys/unix"
)

// containerVariable makes this program become a container: it holds a JSON container.
const containerVariable = "NPLBRIDGE_RELEASE_CONTAINER"

// container is an image that runs with what its configuration and a Pod's security context say.
type container struct {
	Root         string
	UID          int
	Capabilities []capability.Cap
	Argv         []string
}

// run runs the container in namespaces of its own, on a read-only root, and returns what it printed.
func (c container) run(t *testing.T) (string, error) {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	self := exec.CommandContext(t.Context(), "/proc/self/exe")
	self.Env = []string{containerVariable + "=" + string(text)}
	self.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	if os.Geteuid() != 0 {
		self.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		self.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: c.UID, HostID: os.Geteuid(), Size: 1}}
		self.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: c.UID, HostID: os.Getegid(), Size: 1}}
	}
	out, err := self.CombinedOutput()
	return string(out), err
}

// becomeContainer never returns.
func becomeContainer() {
	var c container
	err := json.Unmarshal([]byte(os.Getenv(containerVariable)), &c)
	if err == nil {
		err = c.enter()
	}
	if err == nil {
		err = unix.Exec(c.Argv[0], c.Argv, nil)
	}
	fmt.Fprintln(os.Stderr, "becoming a container:", err)
	os.Exit(125)
}

func (c container) enter() error {
	runtime.LockOSThread()
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"keep mounts to ourselves", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mount the root", func() error { return unix.Mount(c.Root, c.Root, "", unix.MS_BIND, "") }},
		{"make it read-only", func() error {
			return unix.MountSetattr(unix.AT_FDCWD, c.Root, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		}},
		{"mount /proc", func() error { return unix.Mount("proc", filepath.Join(c.Root, "proc"), "proc", 0, "") }},
		{"enter it", func() error { return unix.Chroot(c.Root) }},
		{"go to /", func() error { return unix.Chdir("/") }},
		{"limit capabilities", func() error { return c.limit(capability.BOUNDING) }},
		{"change user", func() error { return syscall.Setgid(c.UID) }},
		{"change user", func() error { return syscall.Setuid(c.UID) }},
		{"limit capabilities", func() error { return c.limit(capability.CAPS) }},
		{"gain no privileges", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

func (c container) limit(which capability.CapType) error {
	caps, err := capability.NewPid2(0)
	if err != nil {
		return err
	}
	caps.Set(which, c.Capabilities...)
	return caps.Apply(which)
}

// inContainer prepares a program of the image for this machine.
func inContainer(t *testing.T, name string, uid int, caps ...capability.Cap) func(...string) (string, error) {
	t.Helper()
	i, ok := open(t, name)["linux/"+runtime.GOARCH]
	if !ok {
		t.Fatalf("there is no image of %s for this machine, linux/%s", name, runtime.GOARCH)
	}
	const nobody = "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n" +
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n"
	if err := os.MkdirAll(filepath.Join(i.dir, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(i.dir, "kubeconfig"), []byte(nobody), 0o644); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) (string, error) {
		return container{i.dir, uid, caps, append([]string{"/" + name}, args...)}.run(t)
	}
}

// answers holds what every program says without a cluster.
func answers(t *testing.T, name string, run func(...string) (string, error)) {
	t.Helper()
	if out, err := run("--help"); err != nil || !strings.Contains(out, "Usage:\n  "+name+" [command]") {
		t.Errorf("--help: %v\n%s", err, out)
	}
	out, err := run("version")
	if err != nil || !strings.HasPrefix(out, name+" "+version+" (") || !strings.Contains(out, "linux/"+runtime.GOARCH) {
		t.Errorf("version: %v\n%s", err, out)
	}
}

func TestInContainer(t *testing.T) {
	t.Run("lbsync", func(t *testing.T) {
		run := inContainer(t, "lbsync", 65532)
		answers(t, "lbsync", run)
		// The authorities are where Go looks for them: the certificate of a server is checked, not taken unseen.
		if out, err := run("config", "validate"); err != nil || !strings.Contains(out, "the settings are good") {
			t.Errorf("config validate: %v\n%s", err, out)
		}
	})
	t.Run("npl-agent", func(t *testing.T) {
		answers(t, "npl-agent", inContainer(t, "npl-agent", 0, capability.CAP_NET_ADMIN))
	})
}

// NET_ADMIN is what npl-agent needs of its Node's kernel, and nothing else: with it nftables answers, without it does not.
func TestAgentNeedsNetAdmin(t *testing.T) {
	kernel := func(caps ...capability.Cap) (severities []string) {
		t.Helper()
		out, _ := inContainer(t, "npl-agent", 0, caps...)("check", "--node-name=node-1", "--kubeconfig=/kubeconfig", "-o", "json") // no API server answers
		var document struct {
			Findings []struct{ Check, Severity, Found string }
		}
		if err := json.Unmarshal([]byte(out), &document); err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		for _, f := range document.Findings {
			if f.Check == "Kernel" && !slices.Contains(severities, f.Severity) {
				severities = append(severities, f.Severity)
				t.Logf("%q: %s", caps, f.Found)
			}
		}
		return severities
	}
	if got := kernel(capability.CAP_NET_ADMIN); !slices.Equal(got, []string{"ok"}) {
		t.Errorf("with NET_ADMIN alone the kernel is found %q", got)
	}
	if got := kernel(); !slices.Equal(got, []string{"error"}) {
		t.Errorf("without any capability the kernel is found %q", got)
	}
}
