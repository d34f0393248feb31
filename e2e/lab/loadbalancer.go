package lab

import (
	"context"
	"errors"
	"fmt"
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

// LoadBalancer is the host in front of the cluster: HAProxy, and beside it the lbsync that drives it. Both are started
// again when they end.
type LoadBalancer struct {
	lab      *Lab
	dir      string
	settings map[string]any // of lbsync's file, as it was started with
	haproxy  *process.Supervisor
	lbsync   *process.Supervisor
}

// The addresses on the load balancer's host that HAProxy and lbsync serve people on.
var (
	statsAddress  = netip.AddrPortFrom(network.LoadBalancerAddresses()[0], 8404)
	lbsyncAddress = netip.MustParseAddrPort("127.0.0.1:10362")
)

// haproxyConfig is the administrator's part of HAProxy's configuration: sockets for %[1]s, and the page at %[2]s.
const haproxyConfig = `# Written by the lab, as an administrator would. lbsync's part is in npl.d.
global
    maxconn 4000
    hard-stop-after 30m
    stats socket %[1]s mode 600 level admin expose-fd listeners
    stats timeout 10m

defaults
    timeout connect 5s
    timeout client 1h
    timeout server 1h

frontend stats
    mode http
    bind %[2]s
    http-request use-service prometheus-exporter if { path /metrics }
    stats enable
    stats uri /
    stats refresh 2s
    stats show-legends
`

// tokenLifetime is longer than anybody keeps a lab up.
const tokenLifetime = 30 * 24 * time.Hour

// LoadBalancer is the running load balancer; nil before StartLoadBalancer.
func (l *Lab) LoadBalancer() *LoadBalancer { return l.loadBalancer }

// StartLoadBalancer starts HAProxy and lbsync in the namespace "lb", with the rights of the chart's ServiceAccount, and
// waits until both are ready. The chart must be installed.
func (l *Lab) StartLoadBalancer(ctx context.Context) (err error) {
	b := &LoadBalancer{lab: l, dir: filepath.Join(workDir, "lb")}
	defer func() {
		if err != nil {
			b.stop()
			err = fmt.Errorf("start the load balancer: %w", err)
		}
	}()
	binary, err := findHAProxy()
	if err != nil {
		return err
	}
	if err := b.prepare(ctx, binary); err != nil {
		return err
	}
	lb, err := l.network.Namespace(network.LoadBalancer)
	if err != nil {
		return err
	}
	environment := []string{"PATH=" + sbinPath(), "HOME=" + b.dir}
	if b.haproxy, err = process.Supervise(process.Spec{
		Name: "haproxy",
		Argv: []string{binary, "-W", "-db", "-S", b.file("master.sock") + ",mode,600", "-f", b.file("haproxy.cfg"), "-f", b.file("npl.d")},
		Env:  environment, Dir: b.dir, Log: l.logFile("haproxy"), In: lb,
	}); err != nil {
		return err
	}
	if err := b.wait(ctx, "haproxy", b.HAProxyReady); err != nil {
		return err
	}
	if b.lbsync, err = process.Supervise(process.Spec{
		Name: "lbsync",
		Argv: []string{l.options.Programs.LBSync, "run", "--config=" + b.file("lbsync.yaml")},
		Env:  environment, Dir: b.dir, Log: l.logFile("lbsync"), In: lb,
	}); err != nil {
		return err
	}
	if err := b.wait(ctx, "lbsync", b.LBSyncReady); err != nil {
		return err
	}
	l.loadBalancer = b
	l.onClose(func() error { b.stop(); return nil })
	return nil
}

func (b *LoadBalancer) file(name string) string { return filepath.Join(b.dir, name) }

// prepare writes the files that an administrator and the chart's notes provide on a real load balancer.
func (b *LoadBalancer) prepare(ctx context.Context, binary string) error {
	// lbsync's socket is in the directory that it has by default.
	if err := errors.Join(os.MkdirAll(b.file("npl.d"), 0o700), os.MkdirAll("/run/nplbridge", 0o755)); err != nil {
		return err
	}
	kubeconfig, err := b.kubeconfig(ctx)
	if err != nil {
		return err
	}
	var pools []string
	for _, prefix := range network.VIPs {
		pools = append(pools, prefix.String())
	}
	b.settings = map[string]any{
		"instance":       systemNamespace + "/" + release,
		"leaseNamespace": systemNamespace,
		"leaseName":      lbsyncAccount,
		"identity":       network.LoadBalancer,
		"providerName":   "haproxy",
		"addressPools":   pools,
		"kubeconfig":     b.file("kubeconfig"),
		"listen":         lbsyncAddress.String(),
		"logFormat":      "console",
		"haproxy": map[string]any{
			"configFiles":  []string{b.file("haproxy.cfg")},
			"dir":          b.file("npl.d"),
			"masterSocket": b.file("master.sock"),
			"adminSocket":  b.AdminSocket(),
			"binary":       binary,
		},
	}
	return errors.Join(
		os.WriteFile(b.file("haproxy.cfg"), fmt.Appendf(nil, haproxyConfig, b.AdminSocket(), statsAddress), 0o644),
		os.WriteFile(b.file("kubeconfig"), kubeconfig, 0o600),
		b.writeSettings(b.settings))
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
		return fmt.Errorf("%s is not ready: %w\n%s", name, errors.Join(last, err), process.Tail(b.lab.logFile(name), 15))
	}
	return nil
}

func (b *LoadBalancer) stop() {
	for _, s := range []*process.Supervisor{b.lbsync, b.haproxy} {
		if s != nil {
			s.Stop(0)
		}
	}
}

// AdminSocket is the path of HAProxy's Runtime API.
func (b *LoadBalancer) AdminSocket() string { return b.file("admin.sock") }

// MasterSocket is the path of the socket of HAProxy's master process.
func (b *LoadBalancer) MasterSocket() string { return b.file("master.sock") }

// StatsAddress is where HAProxy serves its statistics page at / and metrics at /metrics.
func (b *LoadBalancer) StatsAddress() string { return statsAddress.String() }

// HAProxyPID is the process ID of HAProxy's master.
func (b *LoadBalancer) HAProxyPID() int { return b.haproxy.Current().PID() }

// LBSyncPID is the process ID of lbsync.
func (b *LoadBalancer) LBSyncPID() int { return b.lbsync.Current().PID() }

// KillHAProxy kills all HAProxy processes with SIGKILL, as a crash of the master and its workers; they are started again.
func (b *LoadBalancer) KillHAProxy() error {
	b.haproxy.Current().Kill()
	return nil
}

// KillLBSync kills lbsync with SIGKILL; it is started again.
func (b *LoadBalancer) KillLBSync() error {
	b.lbsync.Current().Kill()
	return nil
}

// StopLBSync ends lbsync as a service manager would, for good.
func (b *LoadBalancer) StopLBSync() { b.lbsync.Stop(stopGrace) }

// StopHAProxy ends HAProxy as a service manager would, for good.
func (b *LoadBalancer) StopHAProxy() { b.haproxy.Stop(stopGrace) }

const stopGrace = 10 * time.Second

// LBSyncReady returns nil when lbsync says that it is ready, else why not.
func (b *LoadBalancer) LBSyncReady(ctx context.Context) error {
	_, err := b.lab.fetch(ctx, network.LoadBalancer, lbsyncAddress, "/readyz")
	return err
}

// HAProxyReady returns nil when HAProxy answers, else why not.
func (b *LoadBalancer) HAProxyReady(ctx context.Context) error {
	_, err := b.lab.fetch(ctx, network.LoadBalancer, statsAddress, "/metrics")
	return err
}

// LBSyncLog is what lbsync has logged, in all its runs.
func (b *LoadBalancer) LBSyncLog() string { return b.log("lbsync") }

// HAProxyLog is what HAProxy has logged, in all its runs.
func (b *LoadBalancer) HAProxyLog() string { return b.log("haproxy") }

func (b *LoadBalancer) log(name string) string {
	content, err := os.ReadFile(b.lab.logFile(name))
	if err != nil {
		return err.Error()
	}
	return string(content)
}
