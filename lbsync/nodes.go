package lbsync

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/lbsync/internal/applied"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/onnode"
	"github.com/nplbridge/nplbridge/lbsync/internal/status"
	"github.com/nplbridge/nplbridge/lbsync/internal/watermarks"
)

// livePoll is how often it is looked whether load balancers on Nodes came, went or stopped counting, and whether addresses moved.
const livePoll = time.Second

// announceGrace is for how long an address that no host has any more counts as announced: it is moving from one to another.
const announceGrace = 10 * time.Second

// atNodes reports whether the load balancer serves Services at addresses of Nodes.
func (s *Syncer) atNodes(b *balancer) bool { return slices.Contains(s.cfg.NodeAddresses, b.name) }

// byInterface reports whether the hosts that have an address on an interface are who announces it.
func (s *Syncer) byInterface(b *balancer) bool {
	return slices.Contains(s.cfg.AnnounceByInterface, b.name)
}

// onNode returns where the load balancer stands.
func (s *Syncer) onNode(b *balancer) loop.OnNode {
	if !s.atNodes(b) {
		return loop.OnNode{}
	}
	settings := s.settings.Load()
	out := loop.OnNode{Name: settings.NodeName, Local: s.host.Has}
	reserve := func(r PortRange, who string) {
		if r != (PortRange{}) {
			out.Reserved = append(out.Reserved, model.ReservedPorts{PortRange: model.PortRange(r), For: who})
		}
	}
	reserve(settings.PortRange, "npl-agents, which lead them to Pods before a load balancer sees a connection (portRange)")
	reserve(settings.NodePortRange, "node ports of Services, which kube-proxy answers before a load balancer sees a connection (nodePortRange)")
	return out
}

// followHost follows this host's addresses until ctx ends, where anybody asks for them.
func (s *Syncer) followHost(ctx context.Context) {
	if len(s.cfg.NodeAddresses)+len(s.cfg.AnnounceByInterface) > 0 {
		s.host.Run(ctx)
	}
}

// hostChanged has everything looked at that depends on this host's addresses.
func (s *Syncer) hostChanged() {
	for _, b := range s.balancers {
		if l := b.loop.Load(); l != nil && s.atNodes(b) {
			l.Configure(s.loopConfig(b))
		}
		if p := b.applied.Load(); p != nil {
			p.Changed()
		}
	}
}

// countInstances returns how many processes there may be that serve at the addresses of Nodes: as many as there are Pods like ours, or as Nodes
// where ours is not known.
func (s *Syncer) countInstances() int {
	if own := s.ownPod(); own != nil {
		if pods := s.watch.Index.Alike(inventory.PodKey{Namespace: s.cfg.LeaseNamespace, Name: own.Name}); pods > 0 {
			return pods
		}
	}
	_, _, nodes := s.watch.Index.Counts()
	return nodes
}

func (s *Syncer) ownPod() *metav1.OwnerReference {
	return watermarks.OwnPod(s.cfg.LeaseNamespace, s.getenv)
}

// group is how the Lease holder sees the processes beside load balancers of one name.
type group struct {
	*Syncer
	balancer *balancer
	others   *applied.Group

	mu   sync.Mutex
	held map[netip.Addr]time.Time // when a host was last seen to have an address that was asked about; zero when none was
}

// complete adds to a load balancer's view what only Nodes as places, or hosts as announcers, bring about.
func (g *group) complete(view *status.Balancer) {
	if g.atNodes(g.balancer) {
		view.Others, view.Behind, view.Shares = g.waitFor, g.behind, g.shares
	}
	if g.byInterface(g.balancer) {
		view.Announced = g.announced
	}
}

// waitFor is applied.Group.Others, except that nobody waits for a Node whose Pod is gone, or where something else has a port of a Service that
// is served at the addresses of Nodes: it has applied what it can.
func (g *group) waitFor(key model.ServiceKey, seen string) (pending, silent []string) {
	for _, p := range g.others.Peers(g.balancer.name, key, seen) {
		switch {
		case p.Silent:
			silent = append(silent, p.Identity)
		case p.Pending && g.counts(key, p):
			pending = append(pending, p.Identity)
		}
	}
	return pending, silent
}

// behind is applied.Group.Behind about those that waitFor waits for.
func (g *group) behind(key model.ServiceKey, seen string) bool {
	return !slices.ContainsFunc(g.others.Peers(g.balancer.name, key, seen), func(p applied.Peer) bool {
		return p.Named && !p.Silent && g.counts(key, p)
	})
}

// counts reports whether a process that has not applied a Service is waited for.
func (g *group) counts(key model.ServiceKey, p applied.Peer) bool {
	stuck := p.CaughtUp && len(p.Served.Failed) > 0 && g.watch.Index.AtNodes(key)
	return !stuck && !g.share(p.Process).PodGone()
}

// shares returns what each load balancer has of a Service at the addresses of its Node. known is false before everybody has said so.
func (g *group) shares(key model.ServiceKey) (out []onnode.Share, known bool) {
	if _, known = g.others.Processes(g.balancer.name); !known {
		return nil, false
	}
	own := g.own()
	own.Served = g.others.Before(g.balancer.name, key)
	if l := g.balancer.loop.Load(); l != nil {
		if report, reported := l.Report(key); reported { // each report is told of, as what the loop says of itself is not
			own.Served = onnode.Of(report)
		}
	}
	out = append(out, own)
	for _, p := range g.others.Peers(g.balancer.name, key, "") {
		share := g.share(p.Process)
		if p.Unsaid && share.Away == "" {
			return nil, false
		}
		share.Served = p.Served
		out = append(out, share)
	}
	slices.SortFunc(out, onnode.Share.Compare)
	return out, true
}

// own returns this process, share another one, both without what they have of any Service.
func (g *group) own() onnode.Share {
	return g.share(applied.Process{Identity: g.cfg.Identity, Node: g.cfg.NodeName, Pod: g.ownPod()})
}

func (g *group) share(p applied.Process) onnode.Share {
	out := onnode.Share{Identity: p.Identity, NodeName: p.Node, Node: g.watch.Index.Node(p.Node)}
	var pod onnode.Pod
	if p.Pod != nil {
		pod = onnode.Pod{UID: string(p.Pod.UID), Found: g.watch.Index.Pod(inventory.PodKey{Namespace: g.cfg.LeaseNamespace, Name: p.Pod.Name})}
	}
	out.Away = onnode.Away(out.Node, p.Node, pod, p.Silent, g.clock.Now())
	return out
}

// announced reports whether some host has an address on an interface, or had it a moment ago.
func (g *group) announced(addr netip.Addr) bool {
	has := g.host.Has(addr) || g.others.Held(g.balancer.name, addr)
	now := g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if has {
		g.held[addr] = now
	} else if _, asked := g.held[addr]; !asked {
		g.held[addr] = time.Time{}
	}
	return now.Sub(g.held[addr]) < announceGrace
}

// state returns in one line everything about the processes that changes without anybody telling.
func (g *group) state() string {
	var out []string
	if processes, known := g.others.Processes(g.balancer.name); known && g.atNodes(g.balancer) {
		shares := []onnode.Share{g.own()}
		for _, p := range processes {
			shares = append(shares, g.share(p))
		}
		slices.SortFunc(shares, onnode.Share.Compare)
		for _, s := range shares {
			var addresses []netip.Addr
			if s.Node != nil {
				addresses = append(slices.Clone(s.Node.Addresses), s.Node.Internal...)
			}
			out = append(out, fmt.Sprintf("%s %s %q %v", s.NodeName, s.Identity, s.Away, addresses))
		}
	}
	if g.byInterface(g.balancer) {
		g.mu.Lock()
		addrs := make([]netip.Addr, 0, len(g.held))
		for addr := range g.held {
			addrs = append(addrs, addr)
		}
		g.mu.Unlock()
		slices.SortFunc(addrs, netip.Addr.Compare)
		for _, addr := range addrs {
			out = append(out, fmt.Sprint(addr, g.announced(addr)))
		}
	}
	return strings.Join(out, "\n")
}

// followGroups has every Service's status looked at when the processes have changed, until ctx ends. Services are told of as what others
// say of them changes; this is about what follows from Nodes, Pods, this host and the time.
func (s *Syncer) followGroups(ctx context.Context, groups []*group) {
	groups = slices.DeleteFunc(slices.Clone(groups), func(g *group) bool { return !s.atNodes(g.balancer) && !s.byInterface(g.balancer) })
	if len(groups) == 0 {
		return
	}
	tick := s.clock.NewTicker(livePoll)
	defer tick.Stop()
	var was []string
	for {
		var is []string
		for _, g := range groups {
			is = append(is, g.state())
		}
		if !slices.Equal(is, was) {
			was = is
			for _, key := range s.watch.Index.Keys() {
				s.tell(key)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
	}
}
