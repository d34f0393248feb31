package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/container"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/environ"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/lifecycle"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/logs"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/probe"
)

// configRetry is how long to wait before looking again at a container that cannot be started as it is described.
const configRetry = time.Second

// logPatience is how long the end of a container waits for the end of its output, which a process that it left in a
// shared PID namespace may still hold.
const logPatience = time.Second

// run is one run of a container.
type run struct {
	container *lifecycle.Container
	number    int32
	spec      container.Spec
	process   *container.Process
	target    probe.Target
	probes    context.CancelFunc
	logged    chan struct{} // closed when all output is in the log
	stopping  bool
	killAt    time.Time // with stopping: when patience ends
}

// startContainer starts a container, or records why it cannot.
func (w *worker) startContainer(ctx context.Context, c *lifecycle.Container, objects environ.Objects) {
	spec, err := w.specOf(c, objects)
	if err != nil {
		reason := "CreateContainerConfigError"
		if _, noProgram := program(w.node.cfg.Programs, c.Spec.Image); noProgram != nil {
			reason = "ImagePullBackOff"
		}
		c.NotBefore = time.Now().Add(configRetry)
		w.complain("Failed", fmt.Errorf("Error: %s: %w", reason, err)) //nolint:staticcheck // as kubelets write it
		if c.State.Terminated != nil {
			c.Last = c.State.Terminated
		}
		c.Wait(reason, err.Error())
		return
	}
	if c.Ended() != nil {
		c.Restart()
	}
	id := "lab://" + string(uuid.NewUUID())
	r, err := w.launch(c, spec)
	c.Run(id, time.Now())
	if err != nil {
		w.event(corev1.EventTypeWarning, "Failed", "Error: %v", err)
		w.recordEnd(c, corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", Message: err.Error()})
		return
	}
	r.target = w.target(r)
	w.runs[c.Spec.Name] = r
	w.event(corev1.EventTypeNormal, "Started", "Started container %s", c.Spec.Name)
	go func() {
		<-r.process.Done()
		select {
		case <-r.logged:
		case <-time.After(logPatience):
		}
		w.post(func() { w.exited(r) })
	}()
	w.watchHealth(ctx, r)
	w.postStart(ctx, r)
}

// launch runs the program with its output going to a log of its own.
func (w *worker) launch(c *lifecycle.Container, spec container.Spec) (*run, error) {
	r := &run{container: c, number: c.RestartCount, spec: spec, logged: make(chan struct{})}
	log, err := logs.Create(w.dir.log(c.Spec.Name, r.number))
	if err != nil {
		return nil, err
	}
	namespaces := container.Namespaces{Net: w.sandbox.NetNSPath}
	if w.pause != nil {
		namespaces.PID = fmt.Sprintf("/proc/%d/ns/pid", w.pause.PID())
	}
	r.process, err = container.Start(spec, namespaces, log.Input(), log.Input())
	go func() { log.Drain(); close(r.logged) }()
	if err != nil {
		return nil, err
	}
	return r, nil
}

// specOf describes the container.
func (w *worker) specOf(c *lifecycle.Container, objects environ.Objects) (container.Spec, error) {
	path, err := program(w.node.cfg.Programs, c.Spec.Image)
	if err != nil {
		return container.Spec{}, err
	}
	rights, err := rightsOf(w.pod, &c.Spec)
	if err != nil {
		return container.Spec{}, err
	}
	user, exact := rights.user.Available()
	if !exact {
		w.node.sayOneUser.Do(func() {
			w.node.log.Info("without root there is one user: containers that want another run as user 0 without any capability")
		})
	}
	variables, err := environ.Variables(w.pod, &c.Spec, w.facts(), objects)
	if err != nil {
		return container.Spec{}, err
	}
	lookup := environ.Lookup(variables)
	mounts, err := mountsOf(w.node.cfg.StateDir, w.dir, w.pod, &c.Spec, lookup)
	if err != nil {
		return container.Spec{}, err
	}
	message, err := w.terminationFile(c)
	if err != nil {
		return container.Spec{}, err
	}
	inside := "/" + filepath.Base(path)
	return container.Spec{
		Hostname:     w.hostname(),
		Args:         environ.CommandLine(&c.Spec, inside, lookup),
		Env:          variables,
		Dir:          c.Spec.WorkingDir,
		User:         user,
		Rootfs:       w.dir.rootfs(),
		Mounts:       append([]container.Mount{{Source: path, Target: inside, ReadOnly: true}, message}, mounts...),
		Files:        w.files(),
		ReadOnlyRoot: rights.readOnlyRoot,
		Privileged:   rights.privileged,
	}, nil
}

func (w *worker) facts() environ.Facts {
	return environ.Facts{
		PodIPs: w.sandbox.IPs, HostIPs: w.node.cfg.hostIPs(), ServiceHost: w.node.cfg.ServiceHost,
		ServicePort: w.node.cfg.ServicePort, Allocatable: w.node.capacity(),
	}
}

func (w *worker) hostname() string {
	switch {
	case w.pod.Spec.HostNetwork:
		return w.node.cfg.Name
	case w.pod.Spec.Hostname != "":
		return w.pod.Spec.Hostname
	}
	return w.pod.Name[:min(len(w.pod.Name), 63)]
}

// terminationFile is where the container may leave a last word.
func (w *worker) terminationFile(c *lifecycle.Container) (container.Mount, error) {
	number := c.RestartCount
	if c.Ended() != nil {
		number++
	}
	path := w.dir.termination(c.Spec.Name, number)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return container.Mount{}, err
	}
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		return container.Mount{}, err
	}
	// The umask does not apply to what a container of any user must be able to write.
	if err := os.Chmod(path, 0o666); err != nil {
		return container.Mount{}, err
	}
	target := c.Spec.TerminationMessagePath
	if target == "" {
		target = corev1.TerminationMessagePathDefault
	}
	return container.Mount{Source: path, Target: target}, nil
}

// files are what a kubelet writes into /etc.
func (w *worker) files() map[string]string {
	var hosts strings.Builder
	hosts.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	for _, ip := range w.sandbox.IPs {
		fmt.Fprintf(&hosts, "%s\t%s\n", ip, w.hostname())
	}
	for _, alias := range w.pod.Spec.HostAliases {
		fmt.Fprintf(&hosts, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
	var resolv strings.Builder
	if dns := w.pod.Spec.DNSConfig; dns != nil {
		if len(dns.Searches) > 0 {
			fmt.Fprintf(&resolv, "search %s\n", strings.Join(dns.Searches, " "))
		}
		for _, server := range dns.Nameservers {
			fmt.Fprintf(&resolv, "nameserver %s\n", server)
		}
	}
	return map[string]string{"/etc/hosts": hosts.String(), "/etc/hostname": w.hostname() + "\n", "/etc/resolv.conf": resolv.String()}
}

// exited records the end of a run.
func (w *worker) exited(r *run) {
	name := r.container.Spec.Name
	if w.runs[name] != r {
		return
	}
	delete(w.runs, name)
	r.probes()
	exit := r.process.Exit()
	t := corev1.ContainerStateTerminated{ExitCode: int32(exit.Code), Signal: int32(exit.Signal), Reason: "Completed"}
	if exit.Code != 0 {
		t.Reason = "Error"
	}
	t.Message = w.lastWord(r, exit.Code)
	w.log.Debug("container ended", zap.String("container", name), zap.Int("code", exit.Code))
	w.recordEnd(r.container, t)
}

// recordEnd records how a run ended and when the next may begin.
func (w *worker) recordEnd(c *lifecycle.Container, t corev1.ContainerStateTerminated) {
	now := time.Now()
	name := c.Spec.Name
	ran := now.Sub(c.State.Running.StartedAt.Time)
	c.End(t, now)
	w.streaks[name] = w.node.cfg.Backoff.Streak(w.streaks[name], ran)
	delay := w.node.cfg.Backoff.Delay(w.streaks[name])
	c.NotBefore = now.Add(delay)
	if delay > 0 && !w.deleting() && c.GoesOn(w.pod.Spec.RestartPolicy) {
		c.BackOff(fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", delay, name, w.pod.Name, w.pod.Namespace, w.pod.UID))
		w.event(corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s", name, w.pod.Name)
	}
}

// maxLastWord bounds a termination message, in bytes; a log that stands in for one is shorter.
const (
	maxLastWord = 4096
	maxLastLog  = 2048
)

// lastWord is what the container left in its termination file, or where it asked for that the end of its log.
func (w *worker) lastWord(r *run, code int) string {
	word, err := os.ReadFile(w.dir.termination(r.container.Spec.Name, r.number))
	if err == nil && len(word) > 0 {
		return string(word[:min(len(word), maxLastWord)])
	}
	if code == 0 || r.container.Spec.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return ""
	}
	log, err := os.ReadFile(w.dir.log(r.container.Spec.Name, r.number))
	if err != nil {
		return ""
	}
	return string(log[max(0, len(log)-maxLastLog):])
}
