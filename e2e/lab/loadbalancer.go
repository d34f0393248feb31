package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/network"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/process"
)

// LoadBalancer is the host in front of the cluster: what carries the traffic, HAProxy or a simulated load balancer, and
// beside it the lbsync that drives it. Both are started again when they end. On a host of a pair there is keepalived, too.
type LoadBalancer struct {
	lab        *Lab
	kind       Kind
	half       *half // of a pair, else nil
	place      string
	address    netip.Addr // the host's own
	dir        string
	settings   map[string]any // of lbsync's file, as it was started with
	balancer   *process.Supervisor
	lbsync     *process.Supervisor
	keepalived *process.Supervisor
	session    session // of Administer
}

// Kind is a load balancer that a lab can have; lbsync's name for it.
type Kind string

// The kinds.
const (
	HAProxy Kind = "haproxy"
	Avi     Kind = "avi"   // the simulated Controller
	BigIP   Kind = "bigip" // the simulated device
)

// Kinds are all of them, for people who choose one.
func Kinds() []Kind { return []Kind{HAProxy, Avi, BigIP} }

// lbsyncAddress is where lbsync serves probes and metrics on the load balancer's host.
var lbsyncAddress = netip.MustParseAddrPort("127.0.0.1:10362")

// tokenLifetime is longer than anybody keeps a lab up.
const tokenLifetime = 30 * 24 * time.Hour

// LoadBalancer is the running load balancer, of a pair the one in the namespace "lb"; nil before StartLoadBalancer.
func (l *Lab) LoadBalancer() *LoadBalancer { return l.loadBalancer }

// StartLoadBalancer is StartLoadBalancerOf with HAProxy.
func (l *Lab) StartLoadBalancer(ctx context.Context) error {
	return l.StartLoadBalancerOf(ctx, HAProxy)
}

// StartLoadBalancerOf starts a load balancer and lbsync in the namespace "lb", with the rights of the chart's ServiceAccount,
// and waits until both are ready. The chart must be installed. A lab has one at a time, see StopLoadBalancer.
func (l *Lab) StartLoadBalancerOf(ctx context.Context, kind Kind) error {
	b, err := l.start(ctx, &LoadBalancer{lab: l, kind: kind, place: network.LoadBalancer, address: network.LoadBalancerAddresses()[0], dir: filepath.Join(workDir, "lb")})
	if err == nil {
		l.loadBalancer = b
	}
	return err
}

// start starts everything on a host, in the order of a boot.
func (l *Lab) start(ctx context.Context, b *LoadBalancer) (_ *LoadBalancer, err error) {
	defer func() {
		if err != nil {
			b.stop(0)
			err = fmt.Errorf("start the load balancer: %w", err)
		}
	}()
	if l.loadBalancer != nil && l.loadBalancer.place == b.place {
		return nil, fmt.Errorf("%s runs: stop it first", l.loadBalancer.kind)
	}
	if err := b.makeDirectories(); err != nil {
		return nil, err
	}
	e, err := b.engine()
	if err != nil {
		return nil, err
	}
	host, err := l.network.Namespace(b.place)
	if err != nil {
		return nil, err
	}
	supervise := func(name string, argv []string) (*process.Supervisor, error) {
		return process.Supervise(process.Spec{
			Name: name, Argv: argv, Env: []string{"PATH=" + sbinPath(), "HOME=" + b.dir}, Dir: b.dir, Log: b.logFile(name), In: host,
		})
	}
	if b.balancer, err = supervise(e.name, e.argv); err != nil {
		return nil, err
	}
	if err := b.wait(ctx, e.name, e.ready); err != nil {
		return nil, err
	}
	if b.half != nil {
		argv, err := b.half.keepalived(b)
		if err != nil {
			return nil, err
		}
		if b.keepalived, err = supervise("keepalived", argv); err != nil {
			return nil, err
		}
	}
	if err := b.configure(ctx, e.settings); err != nil {
		return nil, err
	}
	if b.lbsync, err = supervise("lbsync", []string{l.options.Programs.LBSync, "run", "--config=" + b.file("lbsync.yaml")}); err != nil {
		return nil, err
	}
	if err := b.wait(ctx, "lbsync", b.LBSyncReady); err != nil {
		return nil, err
	}
	l.onClose(func() error { b.stop(0); return nil })
	return b, nil
}

// StopLoadBalancer ends lbsync and the load balancer as a service manager would, for good, of a pair both; another can be started then.
func (l *Lab) StopLoadBalancer() {
	for _, b := range l.LoadBalancers() {
		b.stop(stopGrace)
	}
	l.loadBalancer, l.partner = nil, nil
}

// engine is what carries the traffic, and what lbsync has to know of it.
type engine struct {
	name     string // of the program, for its log
	argv     []string
	ready    func(context.Context) error
	settings map[string]any
}

func (b *LoadBalancer) engine() (engine, error) {
	switch b.kind {
	case HAProxy:
		return b.haproxyEngine()
	case Avi, BigIP:
		return b.simulatorEngine()
	}
	return engine{}, fmt.Errorf("kind %q: choose one of %q", b.kind, Kinds())
}

func (b *LoadBalancer) file(name string) string { return filepath.Join(b.dir, name) }

// makeDirectories makes those that an administrator provides on a real load balancer; lbsync's socket is where it is by default, except on
// the partner.
func (b *LoadBalancer) makeDirectories() error {
	return errors.Join(os.MkdirAll(b.file("npl.d"), 0o700), os.MkdirAll("/run/nplbridge", 0o755))
}

// configure writes lbsync's files, from what the chart's notes say and what is of one kind.
func (b *LoadBalancer) configure(ctx context.Context, more map[string]any) error {
	kubeconfig, err := b.kubeconfig(ctx)
	if err != nil {
		return err
	}
	b.settings = map[string]any{
		"instance":       systemNamespace + "/" + release,
		"leaseNamespace": systemNamespace,
		"leaseName":      lbsyncAccount,
		"identity":       b.place,
		"provider":       string(b.kind),
		"providerName":   string(b.kind),
		"kubeconfig":     b.file("kubeconfig"),
		"listen":         lbsyncAddress.String(),
		"logFormat":      "console",
	}
	maps.Copy(b.settings, more)
	if b.place != network.LoadBalancer {
		b.settings["statusSocket"] = b.file("lbsync.sock") // the other one has the default, on the same file system
	}
	if b.half != nil {
		if err := b.half.configure(b); err != nil {
			return err
		}
	}
	return errors.Join(os.WriteFile(b.file("kubeconfig"), kubeconfig, 0o600), b.writeSettings(b.settings))
}

// vips are the address pools of a load balancer that does not choose addresses by itself.
func vips() []string {
	var out []string
	for _, prefix := range network.VIPs {
		out = append(out, prefix.String())
	}
	return out
}

// kubeconfig has a token of the chart's ServiceAccount, so that lbsync has the chart's rights and no others.
func (b *LoadBalancer) kubeconfig(ctx context.Context) ([]byte, error) {
	seconds := int64(tokenLifetime.Seconds())
	answer, err := b.lab.client.CoreV1().ServiceAccounts(systemNamespace).CreateToken(ctx, lbsyncAccount,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token of ServiceAccount %s/%s: %w (is the chart installed?)", systemNamespace, lbsyncAccount, err)
	}
	return b.lab.controlPlane.Kubeconfig(&rest.Config{
		BearerToken:     answer.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: b.lab.admin.CAData},
	}, "")
}

// wait polls until a program is ready; when it never is, the error has the end of its log.
func (b *LoadBalancer) wait(ctx context.Context, name string, ready func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = ready(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w\n%s", name, errors.Join(last, err), process.Tail(b.logFile(name), 15))
	}
	return nil
}

func (b *LoadBalancer) stop(grace time.Duration) {
	for _, s := range []*process.Supervisor{b.keepalived, b.lbsync, b.balancer} {
		if s != nil {
			s.Stop(grace)
		}
	}
}

// Place is the host's name, and where it is in the lab (see Command).
func (b *LoadBalancer) Place() string { return b.place }

// Kind is what it is.
func (b *LoadBalancer) Kind() Kind { return b.kind }

// Class is the class of the Services that it serves.
func (b *LoadBalancer) Class() string { return "nplbridge.io/" + string(b.kind) }

// LBSyncPID is the process ID of lbsync.
func (b *LoadBalancer) LBSyncPID() int { return b.lbsync.Current().PID() }

// KillLBSync kills lbsync with SIGKILL; it is started again.
func (b *LoadBalancer) KillLBSync() error {
	b.lbsync.Current().Kill()
	return nil
}

// StopLBSync ends lbsync as a service manager would, until StartLBSync.
func (b *LoadBalancer) StopLBSync() { b.lbsync.Stop(stopGrace) }

// StartLBSync starts lbsync again after StopLBSync.
func (b *LoadBalancer) StartLBSync() error { return b.lbsync.Resume() }

const stopGrace = 10 * time.Second

// LBSyncReady returns nil when lbsync says that it is ready, else why not.
func (b *LoadBalancer) LBSyncReady(ctx context.Context) error {
	_, err := b.lab.fetch(ctx, b.place, lbsyncAddress, "/readyz")
	return err
}

// LBSyncLog is what lbsync has logged, in all its runs.
func (b *LoadBalancer) LBSyncLog() string { return b.log("lbsync") }

func (b *LoadBalancer) log(name string) string {
	content, err := os.ReadFile(b.logFile(name))
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// logFile has what a program on the host has logged; on the partner the host is in its name.
func (b *LoadBalancer) logFile(program string) string {
	if b.place != network.LoadBalancer {
		program = b.place + "-" + program
	}
	return b.lab.logFile(program)
}
