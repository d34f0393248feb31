package lab

import (
	"context"
	"net/netip"
	"os"
)

// statsPort is where HAProxy serves people on the load balancer's host.
const statsPort = 8404

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

// haproxyEngine writes the administrator's part of the configuration.
func (b *LoadBalancer) haproxyEngine() (engine, error) {
	binary, err := findHAProxy()
	if err != nil {
		return engine{}, err
	}
	argv := []string{binary, "-W", "-db", "-S", b.MasterSocket() + ",mode,600", "-f", b.file("haproxy.cfg"), "-f", b.file("npl.d")}
	if b.half != nil {
		argv = append(argv, "-L", b.place)
	}
	text, err := b.originalConfig()
	if err != nil {
		return engine{}, err
	}
	return engine{
		name:  "haproxy",
		argv:  argv,
		ready: b.HAProxyReady,
		settings: map[string]any{
			"addressPools": vips(),
			"haproxy": map[string]any{
				"configFiles":  []string{b.file("haproxy.cfg")},
				"dir":          b.file("npl.d"),
				"masterSocket": b.MasterSocket(),
				"adminSocket":  b.AdminSocket(),
				"binary":       binary,
			},
		},
	}, os.WriteFile(b.file("haproxy.cfg"), []byte(text), 0o644)
}

// AdminSocket is the path of HAProxy's Runtime API.
func (b *LoadBalancer) AdminSocket() string { return b.file("admin.sock") }

// MasterSocket is the path of the socket of HAProxy's master process.
func (b *LoadBalancer) MasterSocket() string { return b.file("master.sock") }

// StatsAddress is where HAProxy serves its statistics page at / and metrics at /metrics.
func (b *LoadBalancer) StatsAddress() string { return b.stats().String() }

func (b *LoadBalancer) stats() netip.AddrPort { return netip.AddrPortFrom(b.address, statsPort) }

// HAProxyPID is the process ID of HAProxy's master.
func (b *LoadBalancer) HAProxyPID() int { return b.balancer.Current().PID() }

// KillHAProxy kills all HAProxy processes with SIGKILL, as a crash of the master and its workers; they are started again.
func (b *LoadBalancer) KillHAProxy() error {
	b.balancer.Current().Kill()
	return nil
}

// StopHAProxy ends HAProxy as a service manager would, until StartHAProxy.
func (b *LoadBalancer) StopHAProxy() { b.balancer.Stop(stopGrace) }

// StartHAProxy starts HAProxy again after StopHAProxy.
func (b *LoadBalancer) StartHAProxy() error { return b.balancer.Resume() }

// HAProxyReady returns nil when HAProxy answers, else why not.
func (b *LoadBalancer) HAProxyReady(ctx context.Context) error {
	_, err := b.lab.fetch(ctx, b.place, b.stats(), "/metrics")
	return err
}

// HAProxyLog is what HAProxy has logged, in all its runs.
func (b *LoadBalancer) HAProxyLog() string { return b.log("haproxy") }
