package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tool is a program of a nested module, kept in the cache under the fingerprint of that module.
type tool struct {
	name, module, pkg string
	what              string // for progress
	ldflags           string
}

var (
	controlPlane = tool{
		name: "controlplane", module: "e2e/controlplane", pkg: ".",
		what:    "the Kubernetes control plane, about 5 minutes the first time",
		ldflags: "-s -w " + strings.Join(kubernetesVersion(), " "),
	}
	helm = tool{
		name: "helm", module: ".ci/tools/helm", pkg: "helm.sh/helm/v4/cmd/helm",
		what:    "helm, about 2 minutes the first time",
		ldflags: "-s -w",
	}
)

// kubernetesVersion stamps what `kubectl version` and the /version endpoint answer; without it both say v0.0.0, and
// Helm refuses charts that ask for a Kubernetes version. Version and time are those of k8s.io/kubernetes in
// e2e/controlplane/go.mod.
func kubernetesVersion() []string {
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, set := range []string{
			"gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36", "gitTreeState=clean", "gitCommit=v1.36.3",
			"buildDate=2026-07-22T18:07:38Z",
		} {
			flags = append(flags, "-X "+pkg+"."+set)
		}
	}
	return flags
}

type builder struct {
	root, cache, goVersion string
	progress               io.Writer
}

// tool returns the path of the cached program, building it first where it is missing.
func (b builder) tool(ctx context.Context, t tool) (string, error) {
	source := filepath.Join(b.root, t.module)
	id, err := fingerprint(source, b.goVersion, t.ldflags)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.cache, t.name+"-"+id)
	program := filepath.Join(dir, t.name)
	if isExecutable(program) {
		b.used(dir)
		return program, nil
	}
	unlock, err := b.lock(ctx, t.name)
	if err != nil {
		return "", err
	}
	defer unlock()
	if isExecutable(program) { // built by the holder of the lock we waited for
		return program, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", b.unwritable(err)
	}
	temporary := filepath.Join(dir, "."+t.name)
	defer os.Remove(temporary)
	if err := b.goBuild(ctx, source, t.what, "-ldflags", t.ldflags, "-o", temporary, t.pkg); err != nil {
		return "", err
	}
	if err := os.Rename(temporary, program); err != nil {
		return "", fmt.Errorf("keep %s: %w", t.name, err)
	}
	b.prune(t.name, dir)
	return program, nil
}

// own builds nplbridge's programs and returns their directory. The directory belongs to this checkout: a lab that is
// up starts later Pods with the newest build.
func (b builder) own(ctx context.Context) (string, error) {
	checkout := sha256.Sum256([]byte(b.root))
	dir := filepath.Join(b.cache, "bin-"+hex.EncodeToString(checkout[:6]))
	if err := unix.Access(b.cache, unix.W_OK); err != nil && isExecutable(filepath.Join(dir, "bigipsim")) {
		fmt.Fprintf(b.progress, "%s cannot be written: using the programs built there earlier\n", b.cache)
		return dir, nil
	}
	unlock, err := b.lock(ctx, "bin")
	if err != nil {
		return "", err
	}
	defer unlock()
	// go build renames from GOTMPDIR: on the same file system a running program is replaced at once, never written to.
	temporary := filepath.Join(dir, ".tmp")
	if err := os.MkdirAll(temporary, 0o755); err != nil {
		return "", b.unwritable(err)
	}
	defer os.RemoveAll(temporary)
	b.prune("bin", dir)
	return dir, b.goBuild(ctx, b.root, "npl-agent, lbsync, echo and the simulators",
		"-o", dir+"/", "./cmd/npl-agent", "./cmd/lbsync", "./e2e/cmd/echo", "./e2e/cmd/avisim", "./e2e/cmd/bigipsim")
}

// unused is how long programs of other versions and checkouts are kept without being used.
const unused = 14 * 24 * time.Hour

// used notes that the programs of a directory were of use now. One that cannot be written is somebody else's to prune.
func (b builder) used(dir string) {
	now := time.Now()
	_ = os.Chtimes(dir, now, now)
}

// prune removes what the cache has kept in vain of one program, except for the directory in use. What cannot be removed stays: it only
// takes room.
func (b builder) prune(name, inUse string) {
	b.used(inUse)
	others, _ := filepath.Glob(filepath.Join(b.cache, name+"-*")) // the pattern is good
	for _, dir := range others {
		if info, err := os.Stat(dir); err == nil && dir != inUse && time.Since(info.ModTime()) > unused {
			_ = os.RemoveAll(dir)
		}
	}
}

// goBuild runs go build in dir and tells progress what it is doing whenever that takes long.
func (b builder) goBuild(ctx context.Context, dir, what string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-buildvcs=false"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output := args[1]; strings.HasSuffix(output, "/") {
		cmd.Env = append(cmd.Env, "GOTMPDIR="+filepath.Join(output, ".tmp"))
	}
	// An interrupt lets go remove its temporary files.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second

	stop := b.tick("building "+what, 3*time.Second, 20*time.Second)
	out, err := cmd.CombinedOutput()
	stop()
	if ctx.Err() != nil {
		return fmt.Errorf("building %s: %w", what, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("building %s in %s: %w\n%s", what, dir, err, out)
	}
	return nil
}

// lock takes the file lock that keeps two builders from doing the same work.
func (b builder) lock(ctx context.Context, name string) (unlock func(), err error) {
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return nil, b.unwritable(err)
	}
	file, err := os.OpenFile(filepath.Join(b.cache, "."+name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, b.unwritable(err)
	}
	stop := b.tick("waiting for another build of "+name, 3*time.Second, 20*time.Second)
	defer stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("waiting for another build of %s: %w", name, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// tick prints message after first, and with the time that passed every interval from then on, until stop.
func (b builder) tick(message string, first, interval time.Duration) (stop func()) {
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		begin := time.Now()
		wait := time.NewTimer(first)
		defer wait.Stop()
		for {
			select {
			case <-done:
				return
			case <-wait.C:
				fmt.Fprintf(b.progress, "%s ... %s\n", message, time.Since(begin).Round(time.Second))
				wait.Reset(interval)
			}
		}
	}()
	return func() { close(done); <-finished }
}

func (b builder) unwritable(err error) error {
	return fmt.Errorf("cannot keep built programs in %s: %w: set NPLBRIDGE_CACHE to a directory you can write, or %s to prebuilt programs",
		b.cache, err, Environment)
}
