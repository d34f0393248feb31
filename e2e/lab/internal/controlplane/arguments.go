package controlplane

import (
	"path/filepath"
	"strings"
)

const etcdURL = "http://127.0.0.1:2379"

// auditPolicy records who did what to which object, and of what a Service says of itself also what was written.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  verbs: [patch]
  resources: [{group: "", resources: [services/status]}]
- level: Metadata
`

// AuditLog is the file name, in the directory of logs, of what the API server was asked: one JSON object a line.
const AuditLog = "audit.log"

func (c *ControlPlane) etcdArgs() []string {
	return []string{
		"--data-dir=" + c.file("etcd"),
		"--listen-client-url=" + etcdURL,
		"--unsafe-no-fsync",
	}
}

func (c *ControlPlane) apiServerArgs() []string {
	var services []string
	for _, prefix := range c.cfg.Services {
		services = append(services, prefix.String())
	}
	return []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=::",
		"--secure-port=" + port,
		"--advertise-address=" + c.cfg.Addresses[0].String(),
		"--service-cluster-ip-range=" + strings.Join(services, ","),
		"--tls-cert-file=" + c.file("apiserver.crt"),
		"--tls-private-key-file=" + c.file("apiserver.key"),
		"--client-ca-file=" + c.file("ca.crt"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction", // beside the default ones, as every distribution does
		"--allow-privileged=true",
		"--kubelet-preferred-address-types=InternalIP", // there is no DNS for Node names
		"--kubelet-preferred-address-types=InternalIP", // no name of a Node resolves
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.file("service-accounts.key"),
		"--service-account-signing-key-file=" + c.file("service-accounts.key"),
		"--audit-policy-file=" + c.file("audit-policy.yaml"),
		"--audit-log-path=" + filepath.Join(c.cfg.Logs, AuditLog),
		"--audit-log-maxsize=200", // MB, in memory
		"--audit-log-maxbackup=1",
	}
}

func (c *ControlPlane) controllerManagerArgs() []string {
	args := []string{
		"--kubeconfig=" + c.file("kube-controller-manager.kubeconfig"),
		"--secure-port=0",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.file("service-accounts.key"),
		"--root-ca-file=" + c.file("ca.crt"),
		"--allocate-node-cidrs=false", // the lab's Nodes come with theirs
		"--kube-api-qps=300",
		"--kube-api-burst=600",
	}
	if c.cfg.NodeGrace > 0 {
		args = append(args, "--node-monitor-grace-period="+c.cfg.NodeGrace.String())
	}
	return args
}

func (c *ControlPlane) schedulerArgs() []string {
	return []string{
		"--kubeconfig=" + c.file("kube-scheduler.kubeconfig"),
		"--secure-port=0",
		"--leader-elect=false",
		"--kube-api-qps=300",
		"--kube-api-burst=600",
	}
}
