// Package controlplane runs a Kubernetes control plane for the lab: etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler as processes, with certificates made on the spot and all data in a directory that is meant to be a
// tmpfs.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/process"
)

// Port is where kube-apiserver listens, on every address.
const Port = 443

// Config describes the control plane to run.
type Config struct {
	Program    string       // the multi-call control plane binary
	Dir        string       // for data, keys and kubeconfigs; only this user may read it
	Logs       string       // directory of the components' logs
	Addresses  []netip.Addr // of kube-apiserver, the one to advertise first
	APIService netip.Addr   // ClusterIP of default/kubernetes
	Services   []netip.Prefix
	NodeGrace  time.Duration // for how long a Node may be silent before it counts as lost; 0 means 50s
}

// ControlPlane is a control plane that was started.
type ControlPlane struct {
	cfg       Config
	authority *authority
	server    string
	processes []*process.Process
}

// Start starts all components and returns when the API server is ready; the others are then on their way. On an error
// nothing keeps running.
func Start(ctx context.Context, cfg Config) (_ *ControlPlane, err error) {
	c := &ControlPlane{cfg: cfg, server: "https://" + netip.AddrPortFrom(cfg.Addresses[0], Port).String()}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if c.authority, err = newAuthority(); err != nil {
		return nil, err
	}
	if err := c.writeFiles(); err != nil {
		return nil, err
	}
	for _, spec := range []struct {
		name string
		args []string
	}{
		{"etcd", c.etcdArgs()},
		{"kube-apiserver", c.apiServerArgs()},
	} {
		if err := c.start(spec.name, spec.args); err != nil {
			return nil, err
		}
	}
	// Ready includes the roles of the two others; started sooner they would be refused and back off.
	if err := c.waitReady(ctx, "/readyz"); err != nil {
		return nil, err
	}
	return c, errors.Join(
		c.start("kube-controller-manager", c.controllerManagerArgs()),
		c.start("kube-scheduler", c.schedulerArgs()))
}

// Stop kills all components: their data is not worth a farewell.
func (c *ControlPlane) Stop() {
	for _, p := range slices.Backward(c.processes) {
		p.Kill()
	}
}

// Wait returns nil when ctx ends, or the reason when a component ends by itself before that.
func (c *ControlPlane) Wait(ctx context.Context) error {
	ended := make(chan error, len(c.processes))
	for _, p := range c.processes {
		go func() {
			select {
			case <-p.Done():
				ended <- p.Err()
			case <-ctx.Done():
			}
		}()
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// Failed returns the reason when a component has ended by itself, else nil.
func (c *ControlPlane) Failed() error {
	for _, p := range c.processes {
		select {
		case <-p.Done():
			return p.Err()
		default:
		}
	}
	return nil
}

func (c *ControlPlane) start(name string, args []string) error {
	p, err := process.Start(process.Spec{
		Name: name,
		Argv: append([]string{c.cfg.Program, name}, args...),
		Env:  []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.cfg.Dir, "TMPDIR=" + c.cfg.Dir},
		Dir:  c.cfg.Dir,
		Log:  filepath.Join(c.cfg.Logs, name+".log"),
	})
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	return nil
}

func (c *ControlPlane) waitReady(ctx context.Context, path string) error {
	config, err := c.Admin()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("client of the API server: %w", err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		if err := c.Failed(); err != nil {
			return false, err
		}
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		last = client.Discovery().RESTClient().Get().AbsPath(path).Do(attempt).Error()
		return last == nil, nil
	})
	if err != nil && last != nil && wait.Interrupted(err) {
		err = last
	}
	if err != nil {
		return fmt.Errorf("wait for the API server's %s: %w", path, err)
	}
	return nil
}

// Admin is the configuration of a client that may do everything.
func (c *ControlPlane) Admin() (*rest.Config, error) {
	return c.Client("nplbridge-lab-admin", "system:masters")
}

// Node is the configuration of a Node's own client.
func (c *ControlPlane) Node(name string) (*rest.Config, error) {
	return c.Client("system:node:"+name, "system:nodes")
}

// Client is the configuration of a client with this identity.
func (c *ControlPlane) Client(user string, groups ...string) (*rest.Config, error) {
	id, err := c.authority.client(user, groups...)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            c.server,
		QPS:             -1, // the lab's own clients are never throttled
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.pem, CertData: id.cert, KeyData: id.key},
	}, nil
}

// Kubeconfig is a kubeconfig document with the identity of a client's configuration. An empty server means the API
// server's own address.
func (c *ControlPlane) Kubeconfig(config *rest.Config, server string) ([]byte, error) {
	if server == "" {
		server = c.server
	}
	const name = "nplbridge-lab"
	document := clientcmdapi.NewConfig()
	document.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: config.CAData}
	document.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	document.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	document.CurrentContext = name
	content, err := clientcmd.Write(*document)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return content, nil
}

// writeFiles puts keys, certificates, kubeconfigs and the audit policy where the components read them.
func (c *ControlPlane) writeFiles() error {
	names := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"}
	addresses := append([]netip.Addr{c.cfg.APIService, netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}, c.cfg.Addresses...)
	serving, err := c.authority.server("kube-apiserver", names, addresses)
	if err != nil {
		return err
	}
	_, serviceAccounts, err := newKey()
	if err != nil {
		return fmt.Errorf("key of the service accounts: %w", err)
	}
	files := map[string][]byte{
		"ca.crt": c.authority.pem, "apiserver.crt": serving.cert, "apiserver.key": serving.key,
		"service-accounts.key": serviceAccounts, "audit-policy.yaml": []byte(auditPolicy),
	}
	for _, component := range []string{"kube-controller-manager", "kube-scheduler"} {
		config, err := c.Client("system:" + component)
		if err != nil {
			return err
		}
		if files[component+".kubeconfig"], err = c.Kubeconfig(config, ""); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(c.file(name), content, 0o600); err != nil {
			return fmt.Errorf("control plane: %w", err)
		}
	}
	return nil
}

func (c *ControlPlane) file(name string) string { return filepath.Join(c.cfg.Dir, name) }

var port = strconv.Itoa(Port)
