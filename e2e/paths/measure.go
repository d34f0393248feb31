package paths

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

// Options say how much is measured.
type Options struct {
	// ShareRequests is over how many requests the shares of the Pods are taken.
	ShareRequests int
	// Rounds is how often each path is measured in each setting, the paths in a new random order each time; at least 6 give an interval
	// of 95 percent.
	Rounds int
	// Slice is how long each measurement of a round takes.
	Slice time.Duration
	// Others are the numbers of other Services.
	Others []int
	// RollRequests is how many requests each path gets at least while Pods are replaced.
	RollRequests int
	// Seed decides the order of the paths.
	Seed uint64
}

// clients is how many there are at once when rates are measured: enough to keep two cores busy.
const clients = 16

// Shares is what one path does with many requests in turn.
type Shares struct {
	Path    Path
	Ratio   float64 // largest share of a Pod over the smallest
	Spread  float64 // coefficient of variation of the shares
	Failed  int
	Total   int
	ByPod   map[string]int
	Packets map[string]float64 // per request, by Node
	Hops    float64            // share of requests to a member that another Node than the member's answered
	Kept    float64            // share of a client's requests that reach the same Pod, with persistence
	Least   float64            // most connections of a Pod over the fewest, held at once, with least connections
	Peer    string             // whose address a Pod sees, in words
	Proxied string             // whose it learns with the PROXY protocol
	Ports   map[string]int     // node ports that the Service's port takes, by Node
}

// Rates are the rounds of one path in one setting.
type Rates struct {
	Mode           lab.KubeProxyMode
	Others         int
	Path           Path
	Connections    []float64 // new connections a second
	P50, P99, P999 []float64 // of a request on a new connection, milliseconds
	Requests       []float64 // a second, on connections that are kept
	Bulk           []float64 // MB a second from clients to Pods
	Failed         int
}

func (s *site) shares(ctx context.Context, o Options) ([]Shares, error) {
	var out []Shares
	for _, p := range Paths() {
		one, err := s.share(ctx, p, o.ShareRequests)
		if err != nil {
			return nil, err
		}
		s.say("%s: shares %.2f, %.0f %% hop, %.0f %% kept", p, one.Ratio, 100*one.Hops, 100*one.Kept)
		out = append(out, one)
	}
	return out, nil
}

func (s *site) share(ctx context.Context, p Path, requests int) (Shares, error) {
	out := Shares{Path: p, Total: requests}
	target, err := s.vip(ctx, p, plain)
	if err != nil {
		return out, err
	}
	before, err := s.packets(ctx)
	if err != nil {
		return out, err
	}
	got, err := s.drive(ctx, "client", Task{Target: target, Kind: Connect, Clients: clients, Requests: requests})
	if err != nil {
		return out, err
	}
	after, err := s.packets(ctx)
	if err != nil {
		return out, err
	}
	out.Packets = map[string]float64{}
	for node := range after {
		out.Packets[node] = (after[node] - before[node]) / float64(requests)
	}
	out.Ratio, out.Spread, out.Failed, out.ByPod = got.Ratio(pods), spread(got.ByPod, pods), got.Failed, got.ByPod
	if out.Peer, err = s.owner(ctx, got.Peers); err != nil {
		return out, err
	}
	if out.Hops, err = s.hops(ctx, p); err != nil {
		return out, err
	}
	if out.Kept, err = s.kept(ctx, p); err != nil {
		return out, err
	}
	if out.Least, err = s.least(ctx, p); err != nil {
		return out, err
	}
	if out.Proxied, err = s.proxied(ctx, p); err != nil {
		return out, err
	}
	out.Ports, err = s.ports(ctx, p)
	return out, err
}

// hops asks each member directly, as the load balancer does, and counts answers of other Nodes.
func (s *site) hops(ctx context.Context, p Path) (float64, error) {
	members, err := s.Members(string(p))
	if err != nil {
		return 0, err
	}
	elsewhere, total := 0, 0
	for _, member := range slices.SortedFunc(maps.Keys(members), netip.AddrPort.Compare) {
		out, err := s.drive(ctx, "lb", Task{Target: member.String(), Kind: Connect, Clients: 1, Requests: 300})
		if err != nil {
			return 0, err
		}
		total += out.Requests - out.Failed
		for node, n := range out.ByNode {
			if p != Direct && lab.NodeAddress(node) != member.Addr() {
				elsewhere += n
			}
		}
	}
	return float64(elsewhere) / float64(max(1, total)), nil
}

// kept lets many clients come back, through the Service with persistence.
func (s *site) kept(ctx context.Context, p Path) (float64, error) {
	target, err := s.vip(ctx, p, sticky)
	if err != nil {
		return 0, err
	}
	same, total := 0, 0
	for _, source := range s.sources {
		out, err := s.drive(ctx, "client", Task{Target: target, Kind: Connect, Clients: 1, Requests: 40, Sources: []netip.Addr{source}})
		if err != nil {
			return 0, err
		}
		same, total = same+out.Kept, total+out.Requests-out.Failed
	}
	return float64(same) / float64(max(1, total)), nil
}

// held is how many connections are open at once where they are counted: enough for ten on each Pod.
const held = 10 * pods

// least opens connections that stay, through the Service with least connections.
func (s *site) least(ctx context.Context, p Path) (float64, error) {
	target, err := s.vip(ctx, p, least)
	if err != nil {
		return 0, err
	}
	out, err := s.drive(ctx, "client", Task{Target: target, Kind: Hold, Clients: held})
	if err == nil && out.Failed > 0 {
		err = fmt.Errorf("%s with least connections: %s", p, out.Error)
	}
	return out.Ratio(pods), err
}

// proxied asks the Pods that read the PROXY protocol; HTTP, so one request of a kind of its own.
func (s *site) proxied(ctx context.Context, p Path) (string, error) {
	target, err := s.vip(ctx, p, proxy)
	if err != nil {
		return "", err
	}
	peer, err := askHTTP(ctx, target, s.DialFrom("client"))
	if err != nil {
		return "", fmt.Errorf("%s with the PROXY protocol: %w", p, err)
	}
	return s.owner(ctx, map[string]int{peer: 1})
}

// owner says in words whose addresses these are.
func (s *site) owner(ctx context.Context, peers map[string]int) (string, error) {
	if len(peers) == 0 {
		return "", fmt.Errorf("no Pod has answered")
	}
	kinds := map[string]bool{}
	for text := range peers {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return "", err
		}
		kinds[s.kindOf(ctx, a)] = true
	}
	out := ""
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if out != "" {
			out += " or "
		}
		out += kind
	}
	return out, nil
}

func (s *site) kindOf(ctx context.Context, a netip.Addr) string {
	for _, node := range s.Lab.Nodes() {
		if lab.NodeAddress(node) == a {
			return "a Node's"
		}
	}
	for place, name := range map[string]string{"client": "the client's", "lb": "the load balancer's"} {
		out, err := s.Lab.Command(ctx, place, "ip", "-o", "address", "show", "to", a.String()).Output()
		if err == nil && len(out) > 0 {
			return name
		}
	}
	return "a Node's" // the Pod network's own, of the Node that masquerades
}

// ports counts the node ports that one port of the Service takes.
func (s *site) ports(ctx context.Context, p Path) (map[string]int, error) {
	out := map[string]int{}
	switch p {
	case Cluster, Local:
		svc, err := s.Lab.Client().CoreV1().Services(namespace).Get(ctx, string(p), metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		for _, node := range s.Lab.Nodes() {
			out[node] = len(slices.DeleteFunc(slices.Clone(svc.Spec.Ports), func(p corev1.ServicePort) bool { return p.NodePort == 0 }))
		}
	case NPL:
		return s.podsByNode(ctx)
	case Direct:
	}
	return out, nil
}

// rates measures all paths in every setting, side by side.
func (s *site) rates(ctx context.Context, o Options) ([]*Rates, error) {
	order := rand.New(rand.NewPCG(o.Seed, 0))
	var all []*Rates
	for i, mode := range []lab.KubeProxyMode{lab.NFTables, lab.IPTables} {
		if err := s.kubeProxy(ctx, mode); err != nil {
			return nil, err
		}
		others := slices.Sorted(slices.Values(o.Others))
		if i > 0 {
			slices.Reverse(others) // so that the most are made once
		}
		for _, n := range others {
			if err := s.want(ctx, n); err != nil {
				return nil, err
			}
			if err := s.settled(ctx); err != nil {
				return nil, err
			}
			set, err := s.setting(ctx, o, order)
			if err != nil {
				return nil, err
			}
			all = append(all, set...)
		}
	}
	return all, nil
}

func (s *site) setting(ctx context.Context, o Options, order *rand.Rand) ([]*Rates, error) {
	byPath := map[Path]*Rates{}
	targets := map[Path]string{}
	for _, p := range Paths() {
		target, err := s.vip(ctx, p, plain)
		if err != nil {
			return nil, err
		}
		targets[p], byPath[p] = target, &Rates{Mode: s.mode, Others: s.others, Path: p}
	}
	for round := range o.Rounds {
		for _, i := range order.Perm(len(Paths())) {
			p := Paths()[i]
			if err := s.measure(ctx, targets[p], o.Slice, byPath[p]); err != nil {
				return nil, err
			}
		}
		s.say("round %d of %d", round+1, o.Rounds)
	}
	var out []*Rates
	for _, p := range Paths() {
		out = append(out, byPath[p])
	}
	return out, nil
}

func (s *site) measure(ctx context.Context, target string, slice time.Duration, r *Rates) error {
	opening, err := s.drive(ctx, "client", Task{Target: target, Kind: Connect, Clients: clients, For: slice})
	if err != nil {
		return err
	}
	kept, err := s.drive(ctx, "client", Task{Target: target, Kind: Keep, Clients: clients, For: slice})
	if err != nil {
		return err
	}
	bulk, err := s.drive(ctx, "client", Task{Target: target, Kind: Bulk, Clients: clients, For: slice})
	if err != nil {
		return err
	}
	r.Connections = append(r.Connections, opening.PerSecond())
	r.P50, r.P99, r.P999 = append(r.P50, milliseconds(opening.P50)), append(r.P99, milliseconds(opening.P99)), append(r.P999, milliseconds(opening.P999))
	r.Requests = append(r.Requests, kept.PerSecond())
	r.Bulk = append(r.Bulk, bulk.PerSecond()*bulkLine/1e6)
	r.Failed += opening.Failed + kept.Failed + bulk.Failed
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
