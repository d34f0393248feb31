package node

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/node/lifecycle"
)

// Config describes one Node.
type Config struct {
	// Name is the Node's name, as in the identity system:node:<name>; required.
	Name string
	// Addresses are the Node's InternalIPs, the first of each family being the Pods' hostIPs; required.
	Addresses []netip.Addr
	// PodCIDRs is what the Node says in spec.podCIDRs; may be empty.
	PodCIDRs []netip.Prefix
	// RESTConfig reaches the API server as system:node:<name>; required.
	RESTConfig *rest.Config
	// Network gives Pods their network; required.
	Network PodNetwork
	// NetNSPath is the Node's own network namespace: that of hostNetwork Pods, of probes and of the log server; required.
	NetNSPath string
	// Programs maps an image repository, without tag and digest, to the absolute path of the program it stands for.
	Programs map[string]string
	// StateDir is an empty directory of this Node's own, on tmpfs in the lab; required.
	StateDir string
	// ServiceHost and ServicePort are where Pods find the API server (KUBERNETES_SERVICE_HOST and _PORT).
	ServiceHost string
	ServicePort int

	// ServingCert is shown by the log server on port 10250; nil means a self-signed one.
	ServingCert *tls.Certificate
	// Heartbeat is how often the Lease is renewed; 0 means 10s, as a kubelet does.
	Heartbeat time.Duration
	// Backoff spaces the restarts of containers; the zero value means lifecycle.DefaultBackoff.
	Backoff lifecycle.Backoff
	// MaxPods is the Node's capacity for Pods; 0 means 500.
	MaxPods int
	// Log may be nil.
	Log *zap.Logger
}

// PodNetwork gives each Pod a network namespace of its own.
type PodNetwork interface {
	// Attach makes the Pod's namespace, or returns the one it has.
	Attach(podUID string) (PodSandbox, error)
	// Detach removes it; a Pod without one is no error.
	Detach(podUID string) error
}

// PodSandbox is a Pod's network.
type PodSandbox struct {
	NetNSPath string
	// IPs are the Pod's addresses, the primary one first.
	IPs []netip.Addr
}

func (c *Config) complete() error {
	var missing []error
	need := func(ok bool, what string) {
		if !ok {
			missing = append(missing, fmt.Errorf("node %q: %s", c.Name, what))
		}
	}
	need(c.Name != "", "Name is empty; give the Node's name")
	need(len(c.Addresses) > 0, "Addresses is empty; give at least one address")
	need(c.RESTConfig != nil, "RESTConfig is nil; give the Node's own credentials")
	need(c.Network != nil, "Network is nil; give a PodNetwork")
	need(c.NetNSPath != "", "NetNSPath is empty; give the path of the Node's network namespace")
	need(filepath.IsAbs(c.StateDir), fmt.Sprintf("StateDir %q must be an absolute path", c.StateDir))
	for image, program := range c.Programs {
		need(filepath.IsAbs(program), fmt.Sprintf("Programs[%q] = %q must be an absolute path", image, program))
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = 10 * time.Second
	}
	if c.Backoff == (lifecycle.Backoff{}) {
		c.Backoff = lifecycle.DefaultBackoff
	}
	if c.MaxPods == 0 {
		c.MaxPods = 500
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return errors.Join(missing...)
}

// hostIPs are the first addresses of each family, in the order of Addresses.
func (c *Config) hostIPs() []netip.Addr {
	var ips []netip.Addr
	seen := map[bool]bool{}
	for _, a := range c.Addresses {
		if !seen[a.Is4()] {
			seen[a.Is4()] = true
			ips = append(ips, a)
		}
	}
	return ips
}
