package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/build"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/network"
)

// half is what makes a load balancer one of a pair: a partner and a place in the order of who has the VIPs.
type half struct {
	priority int // keepalived's; whoever has more is first
	partner  string
	address  netip.Addr // the partner's
}

// StartPair starts two load balancers as docs/how-to/haproxy-pair.md says, with its files: in the namespaces "lb" and "lb-2" HAProxy, an lbsync with the
// identity of its host, and keepalived, which moves SharedVIPs between them by VRRP. lb has them first. Services get their addresses from there. The
// chart must be installed. A pair is in place of the one load balancer, see StopLoadBalancer, and ends with StopPair.
func (l *Lab) StartPair(ctx context.Context) error {
	if _, err := l.network.AddPartner(); err != nil {
		return fmt.Errorf("start the pair: %w", err)
	}
	addresses := map[string]netip.Addr{network.LoadBalancer: network.LoadBalancerAddresses()[0], network.Partner: network.PartnerAddresses()[0]}
	begin := func(place, partner string, priority int) (*LoadBalancer, error) {
		return l.start(ctx, &LoadBalancer{
			lab: l, kind: HAProxy, place: place, address: addresses[place], dir: filepath.Join(workDir, place),
			half: &half{priority, partner, addresses[partner]},
		})
	}
	var err error
	if l.loadBalancer != nil {
		return fmt.Errorf("start the pair: %s runs: stop it first", l.loadBalancer.kind)
	}
	if l.loadBalancer, err = begin(network.LoadBalancer, network.Partner, 200); err != nil {
		return err
	}
	if l.partner, err = begin(network.Partner, network.LoadBalancer, 100); err != nil {
		l.StopLoadBalancer()
	}
	return err
}

// StopPair ends both as a service manager would, and forgets the one in "lb-2" for good: no npl-agent waits for it.
func (l *Lab) StopPair(ctx context.Context) error {
	l.StopLoadBalancer()
	return l.forget(ctx, network.Partner)
}

// LoadBalancers are those that run: none, one, or the two of a pair.
func (l *Lab) LoadBalancers() []*LoadBalancer {
	var out []*LoadBalancer
	for _, b := range []*LoadBalancer{l.loadBalancer, l.partner} {
		if b != nil {
			out = append(out, b)
		}
	}
	return out
}

// LoadBalancerAt is the one on a host, "lb" or "lb-2".
func (l *Lab) LoadBalancerAt(place string) (*LoadBalancer, error) {
	for _, b := range l.LoadBalancers() {
		if b.place == place {
			return b, nil
		}
	}
	return nil, fmt.Errorf("no load balancer runs on host %q", place)
}

// SharedVIPs are the addresses that a pair moves between its hosts.
func SharedVIPs() netip.Prefix { return network.SharedVIPs }

// published is a file of docs/how-to/haproxy with changes, each of which must be possible.
func published(name string, changes ...string) (string, error) {
	root, err := build.RepositoryRoot()
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "how-to", "haproxy", name))
	out := string(text)
	for i := 0; i < len(changes) && err == nil; i += 2 {
		if !strings.Contains(out, changes[i]) {
			err = fmt.Errorf("docs/how-to/haproxy/%s has no %q", name, changes[i])
		}
		out = strings.ReplaceAll(out, changes[i], changes[i+1])
	}
	return out, err
}

// haproxyConfig is the page's, for a HAProxy that changes neither its user nor paths of the machine.
func (h *half) haproxyConfig(b *LoadBalancer) (string, error) {
	return published("haproxy.cfg", "    log /dev/log local0\n", "", "    log global\n", "", "    user haproxy\n", "", "    group haproxy\n", "",
		"/run/haproxy/admin.sock mode 660 group haproxy", b.AdminSocket()+" mode 600")
}

// configure sets what the page's lbsync.yaml says of a pair. Of the rest there, paths are the lab's.
func (h *half) configure(b *LoadBalancer) error {
	text, err := published("lbsync.yaml", "lb-2", h.partner, "lb-1", b.place, "192.0.2.11", b.address.String(), "192.0.2.12", h.address.String(),
		"192.0.2.100/32", network.SharedVIPs.String())
	if err != nil {
		return err
	}
	var page map[string]any
	if err := yaml.Unmarshal([]byte(text), &page); err != nil {
		return fmt.Errorf("docs/how-to/haproxy/lbsync.yaml: %w", err)
	}
	own, _ := b.settings["haproxy"].(map[string]any)
	theirs, _ := page["haproxy"].(map[string]any)
	maps.Copy(own, theirs)
	page["haproxy"], page["kubeconfig"] = own, b.settings["kubeconfig"]
	maps.Copy(b.settings, page)
	return nil
}

// healthCheck is how keepalived of the page asks HAProxy.
const healthCheck = "/bin/bash -c '</dev/tcp/127.0.0.1/8405'"

// keepalived writes the page's keepalived.conf and returns the command line. In a user namespace without groups keepalived cannot run a script, as it has
// to drop its groups before: there a loop beside it asks, and writes a file that keepalived follows.
func (h *half) keepalived(b *LoadBalancer) ([]string, error) {
	var vips []string
	for a := network.SharedVIPs.Addr(); network.SharedVIPs.Contains(a); a = a.Next() {
		vips = append(vips, a.String()+"/24")
	}
	changes := []string{"router_id lb-1", "router_id " + b.place, "priority 200", fmt.Sprintf("priority %d", h.priority),
		"192.0.2.100/24", strings.Join(vips, "\n        ")}
	var beside string
	if groups, err := os.ReadFile("/proc/self/setgroups"); err == nil && strings.TrimSpace(string(groups)) == "deny" {
		answers := b.file("health")
		changes = append(changes, "track_script", "track_file",
			"vrrp_script haproxy {\n    script \""+healthCheck+"\"\n    interval 1\n    timeout 1\n    fall 2\n    rise 1\n}\n",
			"vrrp_track_file haproxy {\n    file "+answers+"\n    weight 1\n}\n")
		beside = fmt.Sprintf("while :; do if %s; then echo 0; else echo -254; fi >%[2]s.new 2>&-; mv %[2]s.new %[2]s; sleep 0.5; done &\n", healthCheck, answers)
		if err := os.WriteFile(answers, []byte("0\n"), 0o644); err != nil {
			return nil, err
		}
	}
	text, err := published("keepalived.conf", changes...)
	if err != nil {
		return nil, err
	}
	// The numbers of processes that were killed may be those of others by now.
	line := "rm -f *.pid\n" + beside + "exec keepalived --dont-fork --log-console --vrrp -f keepalived.conf -p keepalived.pid -r vrrp.pid"
	return []string{"sh", "-c", line}, os.WriteFile(b.file("keepalived.conf"), []byte(text), 0o644)
}

// Shared are those of SharedVIPs that the host has at the moment, in order.
func (b *LoadBalancer) Shared() ([]netip.Addr, error) {
	host, err := b.lab.network.Namespace(b.place)
	if err != nil {
		return nil, err
	}
	return host.Shared()
}

// PowerOff ends a host of a pair as a power failure does: first nothing leaves it any more, then everything on it is gone, until PowerOn.
func (b *LoadBalancer) PowerOff() error {
	host, err := b.lab.network.Namespace(b.place)
	if err != nil {
		return err
	}
	if err := b.lab.network.Unplug(b.place); err != nil {
		return err
	}
	b.stop(0)
	return host.ForgetShared()
}

// PowerOn starts a host after PowerOff, and waits until it is ready.
func (b *LoadBalancer) PowerOn(ctx context.Context) error {
	if err := errors.Join(b.lab.network.Plug(b.place), b.balancer.Resume()); err != nil {
		return err
	}
	if err := b.wait(ctx, "haproxy", b.HAProxyReady); err != nil {
		return err
	}
	if err := errors.Join(b.keepalived.Resume(), b.lbsync.Resume()); err != nil {
		return err
	}
	return b.wait(ctx, "lbsync", b.LBSyncReady)
}

// forget removes what an lbsync that has ended has published, without the wait of "lbsync cleanup --retire".
func (l *Lab) forget(ctx context.Context, identity string) error {
	published := l.client.CoreV1().ConfigMaps(systemNamespace)
	list, err := published.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, m := range list.Items {
		says := slices.Concat(slices.Collect(maps.Values(m.Annotations)), slices.Collect(maps.Values(m.Data)))
		if slices.ContainsFunc(says, func(text string) bool { return text == identity || strings.Contains(text, `"identity":"`+identity+`"`) }) {
			err = errors.Join(err, published.Delete(ctx, m.Name, metav1.DeleteOptions{}))
		}
	}
	return err
}
