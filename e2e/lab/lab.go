// Package lab runs a Kubernetes cluster with a real network on this machine, without a container engine: a real control
// plane, Nodes that are network namespaces and run any Pod as processes, a load balancer and a client with namespaces of
// their own. A program calls Contain first; inside it, Start.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/contain"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/controlplane"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/network"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/process"
)

// workDir holds everything a lab writes; Contain makes it a private tmpfs.
const workDir = "/run/lab"

// Lab is a running cluster.
type Lab struct {
	options Options
	began   time.Time

	host         *contain.Host
	network      *network.Network
	controlPlane *controlplane.ControlPlane
	admin        *rest.Config
	client       kubernetes.Interface
	hostConfig   string

	nodes        *nodes
	loadBalancer *LoadBalancer
	partner      *LoadBalancer // of a pair

	mutex   sync.Mutex
	proxies map[string]*process.Supervisor // kube-proxy by Node
	closers []func() error                 // in the order of what they end was started
}

// Start starts a lab and returns when all its Nodes are Ready. A contained process has one at a time. On an error nothing
// keeps running.
func Start(ctx context.Context, options Options) (_ *Lab, err error) {
	l := &Lab{began: time.Now(), proxies: map[string]*process.Supervisor{}}
	if err := options.complete(); err != nil {
		return nil, fmt.Errorf("start the lab: %w", err)
	}
	l.options = options
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start the lab: %w", err), l.Close())
		}
	}()
	for _, step := range []struct {
		what string // for the progress; empty where it takes no time
		do   func(context.Context) error
	}{
		{"", l.claimProcess},
		{"", l.claimName},
		{"network", l.startNetwork},
		{"control plane", l.startControlPlane},
		{"", l.openToHost},
		{"Nodes", l.startNodes},
		{"", l.startKubeProxies},
	} {
		if err := step.do(ctx); err != nil {
			return nil, err
		}
		if step.what != "" {
			l.say("%5.1f s  %s", time.Since(l.began).Seconds(), step.what)
		}
	}
	l.say("lab %q is ready after %.1f s", l.options.Name, time.Since(l.began).Seconds())
	return l, nil
}

func (l *Lab) say(format string, args ...any) { fmt.Fprintf(l.options.Progress, format+"\n", args...) }

// claimProcess takes the one place for a lab in this process.
func (l *Lab) claimProcess(context.Context) (err error) {
	if l.host, err = contain.OpenHost(); err != nil {
		return fmt.Errorf("%w: call lab.Contain first", err)
	}
	l.onClose(l.host.Close)
	err = os.Mkdir(workDir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return errors.New("this process runs a lab already: close it first")
	}
	if err != nil {
		return err
	}
	l.onClose(func() error { return os.RemoveAll(workDir) })
	return os.Mkdir(l.logDir(), 0o755)
}

func (l *Lab) startNetwork(context.Context) (err error) {
	if l.network, err = network.New(l.options.network()); err != nil {
		return err
	}
	l.onClose(l.network.Close)
	return nil
}

func (l *Lab) startControlPlane(ctx context.Context) error {
	dir := filepath.Join(workDir, "controlplane")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var err error
	l.controlPlane, err = controlplane.Start(ctx, controlplane.Config{
		Program:    l.options.Programs.ControlPlane,
		Dir:        dir,
		Logs:       l.logDir(),
		Addresses:  network.ControlPlane(),
		APIService: network.APIService,
		Services:   network.Services,
		NodeGrace:  l.options.NodeGrace,
	})
	if err != nil {
		return err
	}
	l.onClose(func() error { l.controlPlane.Stop(); return nil })
	if l.admin, err = l.controlPlane.Admin(); err != nil {
		return err
	}
	if l.client, err = kubernetes.NewForConfig(l.admin); err != nil {
		return fmt.Errorf("client of the API server: %w", err)
	}
	content, err := l.controlPlane.Kubeconfig(l.admin, "")
	if err != nil {
		return err
	}
	return os.WriteFile(l.Kubeconfig(), content, 0o600)
}

// Close ends everything the lab started. The contained process can then start another. Calling it again does nothing.
func (l *Lab) Close() error {
	l.mutex.Lock()
	closers := l.closers
	l.closers = nil
	l.mutex.Unlock()
	var errs []error
	for _, closer := range slices.Backward(closers) {
		errs = append(errs, closer())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close lab %s: %w", l.options.Name, err)
	}
	return nil
}

// onClose remembers how to end what was just started.
func (l *Lab) onClose(closer func() error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.closers = append(l.closers, closer)
}

// Wait returns nil when ctx ends, or the reason when a part of the control plane ends by itself before that.
func (l *Lab) Wait(ctx context.Context) error {
	return l.controlPlane.Wait(ctx)
}

// Failed returns the reason when a part of the control plane has ended by itself, else nil.
func (l *Lab) Failed() error { return l.controlPlane.Failed() }

// Name is the lab's name.
func (l *Lab) Name() string { return l.options.Name }

// Nodes are the names of the Nodes in order.
func (l *Lab) Nodes() []string {
	var names []string
	if l.network != nil {
		for _, node := range l.network.Nodes() {
			names = append(names, node.Name())
		}
	}
	return names
}

// Programs are the programs the lab runs.
func (l *Lab) Programs() Programs { return l.options.Programs }

// Client is a client that may do everything.
func (l *Lab) Client() kubernetes.Interface { return l.client }

// RESTConfig is the configuration of a client that may do everything; each call returns its own copy.
func (l *Lab) RESTConfig() *rest.Config { return rest.CopyConfig(l.admin) }

// Kubeconfig is the path of a kubeconfig that may do everything, for programs inside the lab.
func (l *Lab) Kubeconfig() string { return filepath.Join(workDir, "admin.kubeconfig") }

// HostKubeconfig is the path of a kubeconfig that may do everything, for programs of the same user on the host.
func (l *Lab) HostKubeconfig() string { return l.hostConfig }

// AuditLog is the path of the API server's audit log: who did what to which object, one JSON object a line.
func (l *Lab) AuditLog() string { return filepath.Join(l.logDir(), controlplane.AuditLog) }

func (l *Lab) logDir() string { return filepath.Join(workDir, "logs") }

func (l *Lab) logFile(component string) string { return filepath.Join(l.logDir(), component+".log") }
