package paths

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// Path is a way from HAProxy to the same Pods. It is the name of a Service.
type Path string

// The paths. Each is a Service of its own in front of the same Pods, all on the same HAProxy, driven by the same lbsync; they differ only in where
// members come from.
const (
	Cluster Path = "nodeport-cluster" // Nodes, externalTrafficPolicy Cluster
	Local   Path = "nodeport-local"   // Nodes, externalTrafficPolicy Local
	NPL     Path = "nodeportlocal"    // node ports of Pods
	Direct  Path = "pods"             // Pod addresses, which is the limit
)

// Paths are all of them in the order of the tables.
func Paths() []Path { return []Path{Cluster, Local, NPL, Direct} }

// The variants of each Service, by what is appended to its name.
const (
	plain  = ""
	sticky = "-sticky" // the load balancer remembers clients by their address
	proxy  = "-proxy"  // tells members about clients by the PROXY protocol
	least  = "-least"  // the load balancer chooses the member with the fewest connections
)

var variants = []string{plain, sticky, proxy, least}

const (
	namespace = "paths"
	// pods is how many there are: 8 on the first Node, 1 on each of the two others.
	pods    = 10
	sources = 50 // client addresses
)

//go:embed manifest.yaml.tmpl
var manifestText string

var manifest = template.Must(template.New("manifest").Parse(manifestText))

// site is the lab with everything in place.
type site struct {
	view.View

	say     func(format string, args ...any)
	sources []netip.Addr
	mode    lab.KubeProxyMode // running; "" is none
	others  int               // other Services that there are
}

func newSite(ctx context.Context, l *lab.Lab, say func(string, ...any)) (*site, error) {
	s := &site{View: view.View{Lab: l, Namespace: namespace}, say: say}
	if err := l.InstallChart(ctx); err != nil {
		return nil, err
	}
	if err := l.StartLoadBalancer(ctx); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := manifest.Execute(&text, map[string]any{
		"Namespace": namespace, "Class": l.LoadBalancer().Class(), "Paths": Paths(), "Nodes": l.Nodes(), "Variants": variants,
	}); err != nil {
		return nil, err
	}
	if err := l.Apply(ctx, text.String()); err != nil {
		return nil, err
	}
	for i := range sources {
		a := netip.AddrFrom4([4]byte{172, 30, 0, byte(100 + i)})
		s.sources = append(s.sources, a)
		if out, err := l.Command(ctx, "client", "ip", "address", "add", a.String()+"/24", "dev", "eth0").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("another address for the client: %w: %s", err, out)
		}
	}
	say("chart installed, load balancer up, %d Services before %d Pods", len(variants)*len(Paths()), pods)
	return s, nil
}

// drive carries out a task from a place of the lab, in a process of its own.
func (s *site) drive(ctx context.Context, where string, t Task) (Outcome, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return Outcome{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return Outcome{}, err
	}
	c := s.Lab.Command(ctx, where, self, DriveCommand, string(text))
	var errs bytes.Buffer
	c.Stderr = &errs
	answer, err := c.Output()
	var out Outcome
	if err == nil {
		err = json.Unmarshal(answer, &out)
	}
	if err != nil {
		return out, fmt.Errorf("clients in %s for %s: %w: %s", where, t.Target, err, strings.TrimSpace(errs.String()))
	}
	return out, nil
}

// DriveCommand is the hidden command of the program that carries out the Task in its argument and prints the Outcome.
const DriveCommand = "drive"

func (s *site) vip(ctx context.Context, p Path, variant string) (string, error) {
	return s.Address(ctx, string(p)+variant, npl.IPv4)
}

// kubeProxy lets it run in a mode on every Node.
func (s *site) kubeProxy(ctx context.Context, mode lab.KubeProxyMode) error {
	if s.mode == mode {
		return nil
	}
	for _, node := range s.Lab.Nodes() {
		if err := s.Lab.StopKubeProxy(node); err != nil {
			return err
		}
	}
	for _, node := range s.Lab.Nodes() {
		if err := s.Lab.StartKubeProxy(ctx, node, mode); err != nil {
			return err
		}
	}
	s.mode = mode
	s.say("kube-proxy runs in mode %s", mode)
	return nil
}

// settled waits until every path leads to all Pods, and to nobody else.
func (s *site) settled(ctx context.Context) error {
	for _, variant := range []string{plain, sticky} {
		for _, p := range Paths() {
			target, err := s.vip(ctx, p, variant)
			if err != nil {
				return err
			}
			members := pods
			if p == Cluster || p == Local {
				members = len(s.Lab.Nodes())
			}
			err = view.Poll(ctx, func() error {
				found, err := s.Members(string(p) + variant)
				if err != nil || len(found) != members {
					return fmt.Errorf("Service %s%s: %d members of %d, %w", p, variant, len(found), members, err)
				}
				out, err := s.drive(ctx, "client", Task{Target: target, Kind: Connect, Clients: 2, Requests: 200, Sources: s.sources})
				if err != nil {
					return err
				}
				if out.Failed > 0 || variant == plain && len(out.ByPod) != pods {
					return fmt.Errorf("%s%s: %d failed (%s), %d of %d Pods answered", p, variant, out.Failed, out.Error, len(out.ByPod), pods)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// packets are those that went through the interfaces of the Nodes, in and out, by Node.
func (s *site) packets(ctx context.Context) (map[string]float64, error) {
	out := map[string]float64{}
	for _, node := range s.Lab.Nodes() {
		text, err := s.Lab.Command(ctx, node, "cat", "/proc/net/dev").Output()
		if err != nil {
			return nil, fmt.Errorf("counters of %s: %w", node, err)
		}
		n, err := packetsOf(string(text), "eth0")
		if err != nil {
			return nil, fmt.Errorf("counters of %s: %w", node, err)
		}
		out[node] = n
	}
	return out, nil
}

// packetsOf reads /proc/net/dev, proc(5): after the name eight columns of what came in, bytes first and packets second, then those of
// what went out.
func packetsOf(text, link string) (float64, error) {
	for line := range strings.Lines(text) {
		name, counters, found := strings.Cut(strings.TrimSpace(line), ":")
		f := strings.Fields(counters)
		if !found || name != link || len(f) < 10 {
			continue
		}
		in, errIn := strconv.ParseFloat(f[1], 64)
		out, errOut := strconv.ParseFloat(f[9], 64)
		if errIn == nil && errOut == nil {
			return in + out, nil
		}
	}
	return 0, fmt.Errorf("there is no interface %s", link)
}

// podsByNode are the ready Pods of the site.
func (s *site) podsByNode(ctx context.Context) (map[string]int, error) {
	list, err := s.Lab.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=paths"})
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, p := range list.Items {
		if view.Ready(p) && p.DeletionTimestamp == nil {
			out[p.Spec.NodeName]++
		}
	}
	return out, nil
}

// podAddresses are those of the site's Pods, for Services that nobody asks.
func (s *site) podAddresses(ctx context.Context) ([]string, error) {
	list, err := s.Lab.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=paths"})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodRunning {
			out = append(out, p.Status.PodIP)
		}
	}
	slices.Sort(out)
	return out, nil
}

// reachable waits until a Node's kube-proxy leads to an address, or does not any more.
func (s *site) reachable(ctx context.Context, address string, want bool) error {
	for _, node := range s.Lab.Nodes() {
		err := view.Poll(ctx, func() error {
			ctx, stop := context.WithTimeout(ctx, time.Second)
			defer stop()
			conn, err := s.Lab.Dial(ctx, node, "tcp", address)
			if err == nil {
				conn.Close() //nolint:errcheck // only whether it opens matters
			}
			if (err == nil) != want {
				return fmt.Errorf("%s from %s: reachable %t, %w", address, node, err == nil, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
