package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/process"
)

// kubeProxyConfig turns off what needs more rights than a lab without root has: conntrack limits are the machine's.
const kubeProxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %[3]s
hostnameOverride: %[1]s
clientConnection:
  kubeconfig: %[2]s
  qps: 100
  burst: 200
clusterCIDR: 10.244.0.0/16,fd00:244::/32
nodePortAddresses: [primary]
conntrack:
  maxPerCore: 0
  min: 0
  tcpEstablishedTimeout: 0s
  tcpCloseWaitTimeout: 0s
nftables:
  minSyncPeriod: 100ms
iptables:
  minSyncPeriod: 100ms
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
`

const kubeProxyBinding = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: nplbridge-lab-kube-proxy}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-proxier}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: system:kube-proxy}]
`

func (l *Lab) startKubeProxies(ctx context.Context) error {
	if !l.options.KubeProxy {
		return nil
	}
	for _, node := range l.Nodes() {
		if err := l.StartKubeProxy(ctx, node, NFTables); err != nil {
			return err
		}
	}
	return nil
}

// KubeProxyMode is how kube-proxy writes its rules.
type KubeProxyMode string

// The modes of kube-proxy that the lab runs.
const (
	NFTables KubeProxyMode = "nftables"
	IPTables KubeProxyMode = "iptables"
)

// StartKubeProxy runs kube-proxy on a Node, until StopKubeProxy or the end of the lab; it returns when its rules are in
// place. On a Node where it runs already it does nothing.
func (l *Lab) StartKubeProxy(ctx context.Context, node string, mode KubeProxyMode) error {
	l.mutex.Lock()
	running := l.proxies[node] != nil
	l.mutex.Unlock()
	if running {
		return nil
	}
	ns, err := l.network.Namespace(node)
	if err != nil {
		return err
	}
	argv, err := l.prepareKubeProxy(ctx, node, mode)
	if err != nil {
		return err
	}
	supervisor, err := process.Supervise(process.Spec{
		Name: "kube-proxy on " + node,
		Argv: argv,
		Env:  []string{"PATH=" + sbinPath(), "NODE_NAME=" + node},
		Log:  l.logFile("kube-proxy-" + node),
		In:   ns,
	})
	if err != nil {
		return err
	}
	l.mutex.Lock()
	l.proxies[node] = supervisor
	l.mutex.Unlock()
	l.onClose(func() error { supervisor.Stop(0); return nil })
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return l.kubeProxyReady(ctx, node), nil
	})
	if err != nil {
		err = fmt.Errorf("wait for kube-proxy on %s: %w\n%s", node, err, process.Tail(l.logFile("kube-proxy-"+node), 10))
		return errors.Join(err, l.StopKubeProxy(node))
	}
	return nil
}

// StopKubeProxy ends kube-proxy on a Node and removes its rules; where it does not run, it does nothing.
func (l *Lab) StopKubeProxy(node string) error {
	l.mutex.Lock()
	supervisor := l.proxies[node]
	delete(l.proxies, node)
	l.mutex.Unlock()
	if supervisor == nil {
		return nil
	}
	supervisor.Stop(0)
	cmd := l.Command(context.Background(), node, l.options.Programs.ControlPlane, "kube-proxy",
		"--config="+l.kubeProxyFile(node, "yaml"), "--cleanup")
	_, err := output(cmd, "clean up after kube-proxy on "+node)
	return err
}

func (l *Lab) kubeProxyFile(node, kind string) string {
	return filepath.Join(workDir, "kube-proxy", node+"."+kind)
}

// prepareKubeProxy writes its configuration and returns its command line.
func (l *Lab) prepareKubeProxy(ctx context.Context, node string, mode KubeProxyMode) ([]string, error) {
	if err := l.Apply(ctx, kubeProxyBinding); err != nil {
		return nil, err
	}
	config, err := l.controlPlane.Client("system:kube-proxy", "system:node-proxier")
	if err != nil {
		return nil, err
	}
	kubeconfig, err := l.controlPlane.Kubeconfig(config, "")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(workDir, "kube-proxy"), 0o700); err != nil {
		return nil, err
	}
	settings := fmt.Sprintf(kubeProxyConfig, node, l.kubeProxyFile(node, "kubeconfig"), mode)
	if err := errors.Join(
		os.WriteFile(l.kubeProxyFile(node, "kubeconfig"), kubeconfig, 0o600),
		os.WriteFile(l.kubeProxyFile(node, "yaml"), []byte(settings), 0o600)); err != nil {
		return nil, err
	}
	return []string{l.options.Programs.ControlPlane, "kube-proxy", "--config=" + l.kubeProxyFile(node, "yaml")}, nil
}

// kubeProxyMetrics is where kube-proxy on each Node tells when it last wrote its rules, 0 being never.
var (
	kubeProxyMetrics = netip.MustParseAddrPort("127.0.0.1:10249")
	rulesWritten     = regexp.MustCompile(`(?m)^kubeproxy_sync_proxy_rules_last_timestamp_seconds\{ip_family="(IPv4|IPv6)"\} [1-9]`)
)

// kubeProxyReady tells whether the rules of both families are in place. Its /healthz says yes sooner.
func (l *Lab) kubeProxyReady(ctx context.Context, node string) bool {
	metrics, err := l.fetch(ctx, node, kubeProxyMetrics, "/metrics")
	return err == nil && len(rulesWritten.FindAll(metrics, -1)) == 2
}
