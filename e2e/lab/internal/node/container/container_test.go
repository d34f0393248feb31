package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// base is a container that runs a shell command.
func base(t *testing.T, script string) Spec {
	t.Helper()
	return Spec{
		Hostname: "web-1",
		Args:     []string{"sh", "-c", script},
		Env:      []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		Rootfs:   t.TempDir(),
		User:     User{Capabilities: must(Capabilities(nil, nil, false))},
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var ownNet = Namespaces{Net: "/proc/self/ns/net"}

// begin runs the container with its output in a file that the returned function reads.
func begin(t *testing.T, spec Spec, ns Namespaces) (*Process, func() string) {
	t.Helper()
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p, err := Start(spec, ns, out, out)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { p.Kill(); <-p.Done() })
	return p, func() string {
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

func wait(t *testing.T, p *Process) Exit {
	t.Helper()
	select {
	case <-p.Done():
		return p.Exit()
	case <-time.After(time.Minute):
		t.Fatal("the container did not end")
		return Exit{}
	}
}

// run returns what the script printed.
func run(t *testing.T, spec Spec) string {
	t.Helper()
	p, output := begin(t, spec, ownNet)
	if exit := wait(t, p); exit.Code != 0 {
		t.Fatalf("exit %+v, output:\n%s", exit, output())
	}
	return output()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func TestInsideOfAContainer(t *testing.T) {
	volume := t.TempDir()
	if err := os.WriteFile(filepath.Join(volume, "key"), []byte("value"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		script string
		change func(*Spec)
		want   string
	}{
		"process 1 of its own":        {script: "echo $$; exec ls -d /proc/[0-9]*", want: "1\n/proc/1"},
		"host name":                   {script: "cat /proc/sys/kernel/hostname", want: "web-1"},
		"generated file":              {script: "cat /etc/hosts", change: func(s *Spec) { s.Files = map[string]string{"/etc/hosts": "x"} }, want: "x"},
		"only the system is visible":  {script: "ls /", want: "bin\ndev\netc\nhome\nlib\nlib64\nmnt\nopt\nproc\nroot\nrun\nsbin\nsrv\nsys\ntmp\nusr\nvar"},
		"root is writable":            {script: "echo hi > /var/lib/x && cat /var/lib/x", want: "hi"},
		"read-only root":              {script: "touch /tmp/x /var/lib/x /usr/x 2>&1 || true", change: func(s *Spec) { s.ReadOnlyRoot = true }, want: "touch: cannot touch '/tmp/x': Read-only file system\ntouch: cannot touch '/var/lib/x': Read-only file system\ntouch: cannot touch '/usr/x': Read-only file system"},
		"the machine is not writable": {script: "touch /usr/x 2>&1 || true", want: "touch: cannot touch '/usr/x': Read-only file system"},
		"sysctls are not writable":    {script: "(echo 65 > /proc/sys/net/ipv4/ip_default_ttl) 2>&1 || true", want: "sh: 1: cannot create /proc/sys/net/ipv4/ip_default_ttl: Read-only file system"},
		"sysctls of the privileged":   {script: "echo 65 > /proc/sys/net/ipv4/ip_default_ttl && cat /proc/sys/net/ipv4/ip_default_ttl", change: func(s *Spec) { s.Privileged, s.User.Capabilities = true, capabilityNames() }, want: "65"},
		"volume":                      {script: "echo new > /data/key && cat /data/key", change: mount(t.TempDir(), "/data", false), want: "new"},
		"read-only volume":            {script: "cat /data/key; touch /data/x 2>&1 || true", change: mount(volume, "/data", true), want: "valuetouch: cannot touch '/data/x': Read-only file system"},
		"one file of a volume":        {script: "cat /etc/app.conf", change: mount(volume+"/key", "/etc/app.conf", true), want: "value"},
		"mount hides a generated file": {script: "cat /etc/hosts", change: func(s *Spec) {
			s.Files = map[string]string{"/etc/hosts": "x"}
			mount(volume+"/key", "/etc/hosts", true)(s)
		}, want: "value"},
		"mount below a system directory":  {script: "cat /usr/local/etc/app/conf/key; ls -d /usr/local/bin", change: mount(volume, "/usr/local/etc/app/conf", true), want: "value/usr/local/bin"},
		"such a mount, root is read-only": {script: "touch /usr/local/etc/app/x 2>&1 || true", change: func(s *Spec) { mount(volume, "/usr/local/etc/app/conf", true)(s); s.ReadOnlyRoot = true }, want: "touch: cannot touch '/usr/local/etc/app/x': Read-only file system"},
		"mount through a link stays in":   {script: "ls /run/app", change: mount(volume, "/var/run/app", true), want: "key"},
		"working directory":               {script: "pwd", change: func(s *Spec) { s.Dir = "/srv/app" }, want: "/srv/app"},
		"environment":                     {script: "env | sort", change: func(s *Spec) { s.Env = append(s.Env, "A=b=c") }, want: "A=b=c\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\nPWD=/"},
		"input is empty":                  {script: "cat", want: ""},
		"devices":                         {script: "echo x > /dev/null; (echo y > /dev/stdout) | cat; head -c 1 /dev/zero | od -An -tx1; touch /dev/shm/x", want: "y\n 00"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := base(t, tc.script)
			if tc.change != nil {
				tc.change(&spec)
			}
			if got := strings.TrimSpace(run(t, spec)); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func mount(source, target string, readOnly bool) func(*Spec) {
	return func(s *Spec) { s.Mounts = append(s.Mounts, Mount{source, target, readOnly}) }
}

func TestRights(t *testing.T) {
	const show = `grep -E '^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs)' /proc/self/status | tr -s '\t ' ' '`
	netAdmin := "0000000000001000"
	none := "0000000000000000"
	want := func(uid, gid int, groups, permitted, bounding string, noNewPrivs int) string {
		return fmt.Sprintf("Uid: %[1]d %[1]d %[1]d %[1]d\nGid: %[2]d %[2]d %[2]d %[2]d\nGroups:%s\nCapInh: %s\nCapPrm: %s\nCapEff: %s\nCapBnd: %s\nCapAmb: %s\nNoNewPrivs: %d",
			uid, gid, groups, none, permitted, permitted, bounding, none, noNewPrivs)
	}
	_, exact := User{UID: 65532, GID: 65532}.Available()
	tests := map[string]struct {
		user User
		want string
	}{
		"root with one":     {User{Capabilities: []string{"NET_ADMIN"}}, want(0, 0, " ", netAdmin, netAdmin, 0)},
		"no new privileges": {User{Capabilities: []string{"NET_ADMIN"}, NoNewPrivs: true}, want(0, 0, " ", netAdmin, netAdmin, 1)},
		"root with none":    {User{}, want(0, 0, " ", none, none, 0)},
		"another user":      {User{UID: 65532, GID: 65532, Groups: []int{2000}, Capabilities: []string{"NET_ADMIN"}}, want(65532, 65532, " 2000 ", none, netAdmin, 0)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.user.UID != 0 && !exact { // one user is all there is: it runs as that one, without rights
				tc.user, _ = tc.user.Available()
				tc.want = want(0, 0, " ", none, none, 0)
			}
			spec := base(t, show)
			spec.User = tc.user
			got := strings.TrimSpace(run(t, spec))
			if !groupsAllowed() {
				got, tc.want = withoutGroups(got), withoutGroups(tc.want)
			}
			if strings.ReplaceAll(got, " \n", "\n") != strings.ReplaceAll(tc.want, " \n", "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func withoutGroups(status string) string {
	before, rest, _ := strings.Cut(status, "Groups:")
	_, after, _ := strings.Cut(rest, "\n")
	return before + after
}

func TestStartSaysWhyItFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Spec)
		want   string
	}{
		"no such program": {func(s *Spec) { s.Args = []string{"nosuch"} }, `"nosuch": executable file not found in $PATH`},
		"no such volume":  {mount("/nosuch", "/data", false), "mount on /data: stat /nosuch: no such file or directory"},
		"file on a directory": {mount("/etc/passwd", "/usr", false),
			"make the mount point /usr: a directory cannot be mounted on a file, nor a file on a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := base(t, "true")
			tc.change(&spec)
			p, err := Start(spec, ownNet, nil, nil)
			if err == nil {
				p.Kill()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %q, want %q in it", err, tc.want)
			}
		})
	}
}

func TestExitIsReported(t *testing.T) {
	p, _ := begin(t, base(t, "exit 3"), ownNet)
	if got := wait(t, p); got != (Exit{Code: 3}) {
		t.Errorf("got %+v, want code 3", got)
	}
	p, _ = begin(t, base(t, "exec sleep 1000"), ownNet)
	p.Kill()
	if got := wait(t, p); got != (Exit{Code: 137, Signal: 9}) {
		t.Errorf("got %+v, want killed", got)
	}
	p, output := begin(t, base(t, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"), ownNet)
	eventually(t, "the trap", func() bool { return output() == "up\n" })
	p.Signal(syscall.SIGTERM)
	if got := wait(t, p); got != (Exit{}) || output() != "up\nbye\n" {
		t.Errorf("got %+v and %q, want an orderly end", got, output())
	}
}

// alive tells whether some process runs "sleep <seconds>".
func alive(t *testing.T, seconds string) bool {
	t.Helper()
	cmdlines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range cmdlines {
		if line, err := os.ReadFile(path); err == nil && string(line) == "sleep\x00"+seconds+"\x00" {
			return true
		}
	}
	return false
}

func TestNothingOutlivesTheContainer(t *testing.T) {
	p, _ := begin(t, base(t, "setsid sleep 7301 & sleep 1000"), ownNet)
	eventually(t, "the background process", func() bool { return alive(t, "7301") })
	p.Kill()
	wait(t, p)
	eventually(t, "its end", func() bool { return !alive(t, "7301") })
}

func TestSharedPIDNamespace(t *testing.T) {
	pause, err := StartPause()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pause.Kill(); <-pause.Done() })
	shared := Namespaces{Net: ownNet.Net, PID: fmt.Sprintf("/proc/%d/ns/pid", pause.PID())}
	first, _ := begin(t, base(t, "exec sleep 7302"), shared)
	second, output := begin(t, base(t, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), shared)
	if got := wait(t, second); got.Code != 0 {
		t.Fatalf("got %+v: %s", got, output())
	}
	if got := output(); !strings.Contains(got, "sleep 7302") || !strings.Contains(got, "container-pause") {
		t.Errorf("the second container sees %q, want the first and the pause process", got)
	}
	pause.Kill()
	if got := wait(t, first); got.Signal != 9 {
		t.Errorf("got %+v, want all to end with process 1", got)
	}
}

func TestExecRunsInside(t *testing.T) {
	spec := base(t, "echo hi > /tmp/inside; sleep 1000")
	p, _ := begin(t, spec, ownNet)
	in := func(ctx context.Context, script string) (int, string, error) {
		spec.Args = []string{"sh", "-c", script}
		code, output, err := p.Exec(ctx, spec)
		return code, string(output), err
	}
	eventually(t, "the file", func() bool {
		code, _, err := in(t.Context(), "test -s /tmp/inside")
		return err == nil && code == 0
	})
	code, output, err := in(t.Context(), "cat /tmp/inside /proc/sys/kernel/hostname; cat /proc/1/cmdline | tr '\\0' ' '; exit 4")
	if err != nil || code != 4 || !strings.HasPrefix(output, "hi\nweb-1\nsh -c echo hi") {
		t.Errorf("got %d, %q, %v; want 4 and the container's file, host name and process 1", code, output, err)
	}
	if code, output, err := in(t.Context(), "yes"+" | head -c 1000000"); err != nil || code != 0 || len(output) != maxExecOutput {
		t.Errorf("much output: got %d, %d bytes, %v; want %d bytes", code, len(output), err, maxExecOutput)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, _, err := in(ctx, "sleep 7303"); done <- err }()
	eventually(t, "the command", func() bool { return alive(t, "7303") })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	eventually(t, "its end", func() bool { return !alive(t, "7303") })
	p.Kill()
	wait(t, p)
	if _, _, err := in(t.Context(), "true"); err == nil {
		t.Error("a command in a container that ended: no error")
	}
}

func TestMappedIDs(t *testing.T) {
	for _, tc := range []struct {
		table string
		id    int
		want  bool
	}{
		{"         0          0 4294967295\n", 65532, true},
		{"         0      65534          1\n", 0, true},
		{"         0      65534          1\n", 1, false},
		{"0 1000 1\n1 100000 65536\n", 65536, true},
		{"0 1000 1\n1 100000 65536\n", 65537, false},
		{"garbage\n", 0, false},
	} {
		if got := mappedIn(strings.NewReader(tc.table), tc.id); got != tc.want {
			t.Errorf("%d in %q: got %v, want %v", tc.id, tc.table, got, tc.want)
		}
	}
}

func TestCapabilities(t *testing.T) {
	all := capabilityNames()
	for name, tc := range map[string]struct {
		add, drop  []string
		privileged bool
		want       []string
	}{
		"default":         {want: defaultCapabilities},
		"add":             {add: []string{"NET_ADMIN"}, drop: []string{"all"}, want: []string{"NET_ADMIN"}},
		"drop one":        {drop: []string{"CAP_CHOWN"}, want: without(defaultCapabilities, "CHOWN")},
		"add after drop":  {add: []string{"CHOWN"}, drop: []string{"ALL"}, want: []string{"CHOWN"}},
		"add all":         {add: []string{"ALL"}, want: all},
		"privileged":      {drop: []string{"ALL"}, privileged: true, want: all},
		"nothing is left": {drop: []string{"ALL"}, want: nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Capabilities(tc.add, tc.drop, tc.privileged)
			if err != nil || strings.Join(got, " ") != strings.Join(tc.want, " ") {
				t.Errorf("got %v, %v; want %v", got, err, tc.want)
			}
		})
	}
	if _, err := Capabilities([]string{"NETADMIN"}, nil, false); err == nil || !strings.Contains(err.Error(), `"NETADMIN": no such capability`) {
		t.Errorf("unknown name: got %v", err)
	}
}

func without(names []string, name string) []string {
	var rest []string
	for _, n := range names {
		if n != name {
			rest = append(rest, n)
		}
	}
	return rest
}
