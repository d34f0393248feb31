package main

import (
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
)

const (
	namespace = "nplbridge-system"
	version   = "v0.0.0-kind" // of the images; without the v it is their tag
	tag       = "0.0.0-kind"
	nodes     = 3
)

// kindConfig is the cluster: three Nodes, with the CNI that kind brings.
func kindConfig() string {
	return `kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes:
  - role: control-plane
  - role: worker
  - role: worker
`
}

// tool is a program of a module below .ci/tools.
func tool(module string, args ...string) []string {
	return append([]string{"go", "tool", "-modfile=.ci/tools/" + module + "/go.mod", module}, args...)
}

// kubectl is the one of the control plane's Node.
func (s *story) kubectl(args ...string) []string {
	return append([]string{"docker", "exec", "--interactive", s.name + "-control-plane", "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"}, args...)
}

func (s *story) archive(image string) string {
	return filepath.Join(s.dir, "images", fmt.Sprintf("%s_linux_%s.tar", image, s.arch))
}

func (s *story) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// create makes the images and the cluster, and brings the one into the other.
func (s *story) create() []step {
	steps := []step{
		{what: "images", argv: []string{
			"go", "-C", ".ci/tools/images", "run", ".", "-root", s.root, "-output", filepath.Join(s.dir, "images"), "-version", version,
			"-only", "npl-agent,lbsync,echo", "-platforms", "linux/" + s.arch, "-engine=false",
		}},
		{what: "a kind cluster with 3 Nodes", argv: tool("kind", s.withNodeImage("create", "cluster", "--name", s.name, "--config", filepath.Join(s.dir, "kind.yaml"),
			"--kubeconfig", s.kubeconfig(), "--wait", "5m")...)},
	}
	for _, image := range []string{"npl-agent", "lbsync", "echo"} {
		steps = append(steps, step{what: "image " + image + " to the Nodes", argv: tool("kind", "load", "image-archive", "--name", s.name, s.archive(image))})
	}
	return append(steps,
		step{what: "the namespace", argv: s.kubectl("create", "namespace", namespace)},
		step{argv: s.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=privileged")})
}

func (s *story) withNodeImage(args ...string) []string {
	if s.nodeImage != "" {
		args = append(args, "--image", s.nodeImage)
	}
	return args
}

// network asks for the subnets that the Nodes are in.
func (s *story) network() step {
	return step{argv: []string{"docker", "network", "inspect", "kind", "--format", "{{range .IPAM.Config}}{{.Subnet}} {{end}}"}}
}

// vips are what is free at the end of the Nodes' IPv4 network: Docker gives addresses from its beginning.
func vips(subnets string) ([]netip.Addr, error) {
	const count = 4
	for text := range strings.FieldsSeq(subnets) {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || !prefix.Addr().Is4() || prefix.Bits() > 27 {
			continue
		}
		base := prefix.Masked().Addr().As4()
		last := uint32(base[0])<<24 | uint32(base[1])<<16 | uint32(base[2])<<8 | uint32(base[3]) | 1<<(32-prefix.Bits()) - 1
		var out []netip.Addr
		for n := last - count; n < last; n++ {
			out = append(out, netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}))
		}
		return out, nil
	}
	return nil, fmt.Errorf("docker network kind has the subnets %q; want an IPv4 one of /27 or larger", strings.TrimSpace(subnets))
}

// install is the chart with our images. HAProxy inside is its default.
func (s *story) install(addresses []netip.Addr) step {
	args := []string{
		"upgrade", "--install", "nplbridge", "charts/nplbridge", "--namespace", namespace, "--kubeconfig", s.kubeconfig(), "--wait", "--timeout", "5m",
		"--set", "agent.image.tag=" + tag, "--set", "lbsync.image.tag=" + tag,
	}
	if s.haproxy == outside {
		args = append(args, "--set", "lbsync.placement=external", "--set", "addressPools={"+rangeOf(addresses)+"}")
	}
	return step{what: "helm install, HAProxy " + s.haproxy, argv: tool("helm", args...)}
}

func rangeOf(addresses []netip.Addr) string {
	return addresses[0].String() + "-" + addresses[len(addresses)-1].String()
}

// credentials ask for what the lbsync outside logs in with.
func (s *story) credentials() (internal, token step) {
	return step{argv: tool("kind", "get", "kubeconfig", "--name", s.name, "--internal")},
		step{argv: s.kubectl("--namespace", namespace, "create", "token", "nplbridge-lbsync", "--duration", "24h")}
}

func (s *story) balancer() string { return s.name + "-haproxy" }

// outsideHAProxy starts HAProxy in a container on the Nodes' network, gives it the addresses, and puts lbsync beside it.
func (s *story) outsideHAProxy(addresses []netip.Addr) []step {
	lb, sockets, generated := s.balancer(), s.name+"-sockets", s.name+"-generated"
	var add []string
	for _, a := range addresses {
		add = append(add, "ip address add "+a.String()+"/32 dev eth0")
	}
	return []step{
		{what: "lbsync to Docker", argv: []string{"docker", "load", "--input", s.archive("lbsync")}},
		{what: "HAProxy in a container beside the cluster", argv: []string{
			"docker", "run", "--detach", "--name", lb, "--network", "kind", "--user", "0:0",
			"--volume", filepath.Join(s.dir, "haproxy") + ":/etc/haproxy:ro", "--volume", sockets + ":/run/haproxy", "--volume", generated + ":/var/lib/nplbridge/npl.d",
			s.haproxyImage, "haproxy", "-W", "-db", "-S", "/run/haproxy/master.sock,mode,600", "-f", "/etc/haproxy/haproxy.cfg", "-f", "/var/lib/nplbridge/npl.d",
		}},
		{argv: []string{"docker", "inspect", "--format", "{{.Config.Image}}", s.name + "-control-plane"}}, // its image has the program ip
		{argv: []string{
			"docker", "run", "--rm", "--network", "container:" + lb, "--cap-add", "NET_ADMIN", "--entrypoint", "/bin/sh", "IMAGE-OF-THE-NODES",
			"-ec", strings.Join(add, "; "),
		}},
		{what: "lbsync beside it", argv: []string{
			"docker", "run", "--detach", "--name", lb + "-lbsync", "--network", "container:" + lb, "--user", "0:0", "--volumes-from", lb,
			"--volume", filepath.Join(s.dir, "lbsync") + ":/etc/nplbridge:ro", "--tmpfs", "/run/nplbridge",
			"ghcr.io/nplbridge/lbsync:" + tag, "run", "--config", "/etc/nplbridge/settings.yaml",
		}},
	}
}

// settings are those of the lbsync outside.
func settings(addresses []netip.Addr) string {
	return `identity: outside
kubeconfig: /etc/nplbridge/kubeconfig
provider: haproxy
providerName: haproxy
addressPools: ["` + rangeOf(addresses) + `"]
haproxy:
  configFiles: [/etc/haproxy/haproxy.cfg]
  dir: /var/lib/nplbridge/npl.d
  masterSocket: /run/haproxy/master.sock
  adminSocket: /run/haproxy/admin.sock
  binary: ""
`
}

// haproxyConfig is what the administrator of the HAProxy outside writes.
const haproxyConfig = `global
    log stdout format raw local0
    fd-hard-limit 50000
    hard-stop-after 30m
    stats socket /run/haproxy/admin.sock mode 600 level admin
    stats timeout 10m

defaults
    log global
    timeout connect 5s
    timeout client 1h
    timeout server 1h
`

// down removes everything, whatever of it is there.
func (s *story) down() []step {
	steps := []step{{what: "removing the cluster", argv: tool("kind", "delete", "cluster", "--name", s.name, "--kubeconfig", s.kubeconfig())}}
	if s.haproxy == outside {
		lb := s.balancer()
		steps = append([]step{{argv: []string{"docker", "rm", "--force", "--volumes", lb + "-lbsync", lb}}}, append(steps,
			step{argv: []string{"docker", "volume", "rm", "--force", s.name + "-sockets", s.name + "-generated"}})...)
	}
	return steps
}

// printPlan prints every command with what is known before any ran.
func printPlan(o options, out io.Writer) error {
	s := &story{options: o, dir: "DIR", arch: "ARCH"}
	addresses, err := vips("172.18.0.0/16") // Docker's usual one
	if err != nil {
		return err
	}
	steps := s.create()
	if o.haproxy == outside {
		internal, token := s.credentials()
		steps = append(steps, s.network(), s.install(addresses), internal, token)
		steps = append(steps, s.outsideHAProxy(addresses)...)
	} else {
		steps = append(steps, s.install(nil))
	}
	steps = append(steps, s.deploy())
	return show(out, append(steps, s.down()...)...)
}
