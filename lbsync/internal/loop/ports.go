package loop

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/lbsync/internal/inventory"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// ports is what the watermark needs to know, kept per Service so that a change costs the Services that it concerns.
//
// A member is safe to pass over as long as its Pod is an endpoint of its Service and lists its node port: then whatever happens to the
// annotation or to the Pod makes that Service dirty. Every other member's node port is held, whether it is withdrawn by now or not, and
// so is each that a call may have brought which nobody answered.
//
// That is why the member of a Pod which an edit took out of the Service may drain (I3): the Pod is no endpoint any more, so from the very
// cycle that takes up the edit its node port is held, until the load balancer has acknowledged that it let go. Whatever is seen of that Pod
// meanwhile, its deletion included, may be passed over: no npl-agent gives a held port away, and what is held and what is seen are told
// together. That the member then leaves soon, and not only when its time is over, is due to Source.Follow, and nothing rests on it.
type ports struct {
	touched  map[model.ServiceKey]bool
	of       map[model.ServiceKey]serviceHoldings
	expected map[model.ServiceKey][]expected
	changed  map[model.ServiceKey]serviceHoldings // since the last refresh
	nodes    map[netip.Addr]string                // also of Nodes that are gone
	nodeUIDs map[string]bool                      // also of Nodes that are gone
	learned  []*model.Node                        // what nodes and nodeUIDs were made of last
}

// serviceHoldings are what one Service keeps from being given to other Pods.
type serviceHoldings struct {
	ports []watermark.NodePort // sorted
	dark  int                  // members of which nobody knows on which Node they are
}

// expected is a member that the load balancer may have without having said so.
type expected struct {
	key    providers.Key
	member providers.Member
	until  time.Time // a reading that began by then does not tell; zero while the call is under way
}

func newPorts() *ports {
	return &ports{
		touched: map[model.ServiceKey]bool{}, of: map[model.ServiceKey]serviceHoldings{}, expected: map[model.ServiceKey][]expected{},
		changed: map[model.ServiceKey]serviceHoldings{}, nodes: map[netip.Addr]string{}, nodeUIDs: map[string]bool{},
	}
}

func (p *ports) touch(key model.ServiceKey) { p.touched[key] = true }

// set enters what a Service holds.
func (p *ports) set(key model.ServiceKey, held serviceHoldings) {
	delete(p.touched, key)
	if old := p.of[key]; old.dark != held.dark || !slices.Equal(old.ports, held.ports) {
		p.changed[key] = held
	}
}

// expect notes the members that a call is about to add.
func (p *ports) expect(c providers.PoolChange) {
	service := model.ServiceKeyOf(c.Key)
	for _, step := range c.Members {
		if step.Op == providers.AddMember {
			p.expected[service] = append(p.expected[service], expected{key: c.Key, member: step.Member})
		}
	}
}

// answered ends the waiting for a call. Where it may have been applied nobody knows when: what it was to add is expected until a reading
// that begins later than by.
func (p *ports) answered(c providers.PoolChange, unsure bool, by time.Time) {
	service := model.ServiceKeyOf(c.Key)
	left := p.expected[service][:0]
	for _, e := range p.expected[service] {
		if e.key == c.Key && e.until.IsZero() {
			if !unsure {
				continue
			}
			e.until = by
		}
		left = append(left, e)
	}
	p.keep(service, left)
}

// read ends what a reading that began at began would have shown.
func (p *ports) read(began time.Time) {
	for service, all := range p.expected {
		p.keep(service, slices.DeleteFunc(all, func(e expected) bool { return !e.until.IsZero() && e.until.Before(began) }))
	}
}

func (p *ports) keep(service model.ServiceKey, left []expected) {
	p.touch(service)
	if len(left) == 0 {
		delete(p.expected, service)
		return
	}
	p.expected[service] = left
}

// learn remembers Nodes. An address belongs to whoever has it now, or had it last.
func (p *ports) learn(nodes []*model.Node) {
	if len(nodes) == 0 || len(nodes) == len(p.learned) && &nodes[0] == &p.learned[0] {
		return // a Source returns the same slice until something changes
	}
	p.learned = nodes
	for _, n := range nodes {
		p.nodeUIDs[n.UID] = true
		for _, a := range n.Addresses {
			p.nodes[a] = n.Name
		}
	}
}

// holdings is what can be said at the moment, guarded by Loop.mu.
type holdings struct {
	valid   bool
	seen    string
	counts  map[watermark.NodePort]int
	dark    int
	left    uint64
	waiting bool
}

// Holdings is what there is to tell npl-agents of this load balancer.
type Holdings struct {
	// Seen is a resourceVersion of Pods: everything that follows up to it is acknowledged, except Held.
	Seen string
	// Held are the node ports that the load balancer lists, or may list, without a Pod that is certain to have them; sorted.
	Held []watermark.NodePort
	// Left counts the node ports that were held once and are not any more: as it grows, somebody may be waiting to hear of it.
	Left uint64
	// Waiting is true while a Pod that a Service selects has no node port yet. That none has does not mean that nobody waits for this.
	Waiting bool
}

// Holdings returns what can be said now; ok is false while nothing can be: before the load balancer was read, or while it lists a
// member of which nobody knows on which Node it is.
func (l *Loop) Holdings() (h Holdings, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.holdings.valid || l.holdings.dark > 0 {
		return Holdings{}, false
	}
	return Holdings{
		Seen: l.holdings.seen, Left: l.holdings.left, Waiting: l.holdings.waiting,
		Held: slices.SortedFunc(maps.Keys(l.holdings.counts), watermark.NodePort.Compare),
	}, true
}

// refreshPorts brings the holdings up to what was taken up. What became withdrawn and what is seen of it change together.
func (l *Loop) refreshPorts() {
	l.ports.learn(l.source.Nodes())
	for key := range l.ports.touched {
		var view inventory.View
		if l.picture[key] != nil || len(l.ports.expected[key]) > 0 {
			view, _ = l.source.View(key)
		}
		l.ports.set(key, l.portsOf(key, view))
	}
	valid := l.sure()
	l.mu.Lock()
	h := &l.holdings
	news := valid && (!h.valid || len(l.ports.changed) > 0 || h.seen != l.seen)
	for key, held := range l.ports.changed {
		h.replace(l.ports.of[key], held)
		if len(held.ports) == 0 && held.dark == 0 {
			delete(l.ports.of, key)
		} else {
			l.ports.of[key] = held
		}
	}
	h.valid, h.seen, h.waiting = valid, l.seen, len(l.unpublished) > 0
	held, dark := len(h.counts), h.dark
	l.mu.Unlock()
	clear(l.ports.changed)
	l.metrics.ports(held, dark)
	if news && l.links.Marks != nil {
		l.links.Marks.Changed()
	}
}

func (h *holdings) replace(before, after serviceHoldings) {
	if h.counts == nil {
		h.counts = map[watermark.NodePort]int{}
	}
	for _, port := range after.ports {
		h.counts[port]++
	}
	for _, port := range before.ports {
		if h.counts[port]--; h.counts[port] == 0 {
			delete(h.counts, port)
			h.left++
		}
	}
	h.dark += after.dark - before.dark
}

// sure reports whether what is known of the load balancer is all that may be on it, and our picture of the cluster is not older than what
// was published before. A writer before us may have sent something that is carried out late, so it takes a reading that began when all of it was.
func (l *Loop) sure() bool {
	if l.links.Marks == nil || l.picture == nil {
		return false
	}
	last, known := l.links.Marks.Last()
	if !known || last.Seen != "" && !l.readings.settleAt.IsZero() {
		return false
	}
	c, comparable := watermark.CompareVersions(l.seen, cmp.Or(last.Seen, l.seen))
	return comparable && c >= 0
}

// portsOf returns what a Service holds; the zero View is that of a Service that is gone.
func (l *Loop) portsOf(key model.ServiceKey, view inventory.View) (out serviceHoldings) {
	h, expected := l.picture[key], l.ports.expected[key]
	if h == nil && len(expected) == 0 {
		return out
	}
	if view.Service.Source == annotations.ClusterIP {
		l.service(key).direct = true
	}
	j := judge{loop: l, service: l.services[key], pods: map[string]*model.Pod{}}
	for _, e := range view.Endpoints {
		j.pods[e.Pod.UID] = e.Pod
	}
	if h != nil {
		for _, pool := range h.pools {
			for _, m := range pool.Members {
				j.member(&out, pool.Key, m)
			}
		}
	}
	for _, e := range expected {
		j.member(&out, e.key, e.member)
	}
	slices.SortFunc(out.ports, watermark.NodePort.Compare)
	out.ports = slices.Compact(out.ports)
	return out
}

// judge decides about the members of one Service.
type judge struct {
	loop    *Loop
	service *service              // nil when nothing is remembered of it
	pods    map[string]*model.Pod // endpoints, by UID
}

func (j *judge) member(out *serviceHoldings, key providers.Key, m providers.Member) {
	protocol, address := protocolOf(key), m.Address.Addr()
	pod := j.pods[m.UID]
	if pod != nil {
		lists := slices.ContainsFunc(pod.Mappings, func(n npl.Mapping) bool {
			return n.NodeIP == address && n.NodePort == m.Address.Port() && n.Protocol == protocol
		})
		if lists || slices.Contains(pod.IPs, address) {
			return
		}
	}
	port := watermark.NodePort{Protocol: string(protocol), Family: string(npl.FamilyOf(address)), Port: m.Address.Port()}
	known := j.loop.ports
	switch node := known.nodes[address]; {
	case known.nodeUIDs[m.UID]:
		// A Node is the member, with the node port of a Service.
	case pod != nil:
		port.Node = pod.Node
		out.ports = append(out.ports, port)
	case node != "":
		port.Node = node
		out.ports = append(out.ports, port)
	case j.service != nil && j.service.direct:
		// A Pod's own address, which is no node port.
	default:
		if named := j.named(port); len(named) > 0 {
			out.ports = append(out.ports, named...)
		} else {
			out.dark++
		}
	}
}

// named returns under which names the last watermark held a node port whose Node is not known any more.
func (j *judge) named(port watermark.NodePort) (out []watermark.NodePort) {
	if j.loop.links.Marks == nil {
		return nil
	}
	last, _ := j.loop.links.Marks.Last()
	for _, held := range last.Held {
		if held.Port == port.Port && held.Protocol == port.Protocol && held.Family == port.Family {
			out = append(out, held)
		}
	}
	return out
}

func protocolOf(key providers.Key) npl.Protocol {
	return npl.Protocol(strings.ToLower(string(key.Protocol)))
}
