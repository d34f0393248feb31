package model

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
)

// Input is one Service with everything that decides about its pools on one load balancer. Functions must not block; a nil one, like any
// other zero value, knows of nothing.
type Input struct {
	Instance  string // of the provider
	Service   Service
	Endpoints []Endpoint // the Pods it selects
	Nodes     []*Node    // all there are; only read where Nodes are members

	// Claimants returns the Pods, as "namespace/name", other than the one with podUID, that rightfully claim c.
	Claimants func(c Claim, podUID string) []string
	// Fate says what became of a Pod that the Service does not select.
	Fate func(uid string) Fate
	// PortRange is where node ports are taken from. A Pod's mapping outside is good only if the Pod declares that host port.
	PortRange PortRange
	// NodeSelector are labels of the Nodes that may be members.
	NodeSelector map[string]string

	// Current, CurrentVS and Status are what the load balancer has, as far as we know.
	Current   map[providers.Key]*providers.Pool
	CurrentVS map[providers.Key]*providers.VirtualServer
	Status    map[providers.Key]map[providers.MemberID]providers.MemberStatus
	// DrainingSince returns when a member began to drain, as far as that is known; zero when it is not. It limits the drain of members
	// that nothing in Kubernetes dates: those of a source that the Service has no more, and Nodes that are not to be members.
	DrainingSince func(providers.Key, providers.MemberID) time.Time

	Capabilities providers.Capabilities
	DrainLimit   time.Duration // unless the Service says otherwise
	Now          time.Time
}

// PortRange is an inclusive range of ports; the zero value has all of them.
type PortRange struct{ First, Last uint16 }

// Output is what the Service wants.
type Output struct {
	State    providers.State
	Ports    []Port // of the Service that are to be on this load balancer, sorted by Key
	Refusals []Refusal
	// Losses are the members that would leave or drain although no event explains it: what a guard may hold. Sorted by Key and address;
	// none where the Service allows the removal.
	Losses []Loss
	// Wake is when time alone changes the answer; zero when it does not. While one thing must be acknowledged before the next is
	// wanted, it is a moment away.
	Wake time.Time
	// Watch is true while the health of members decides what is wanted next: the load balancer is worth reading as often as while
	// members drain.
	Watch bool
}

// Port is one port of the Service.
type Port struct {
	Key providers.Key
	// Unsupported is true when it is not served at all, for what Cannot says.
	Unsupported bool
	// Cannot is what cannot be done of what the port asks for, in clauses separated by "; ". Without Unsupported the rest is served.
	Cannot string
	// Attached is the pool of somebody else that the members are put into.
	Attached string
}

// Loss is a member of the current pool that would leave or drain although no event explains it.
type Loss struct {
	Key    providers.Key
	Member providers.MemberID
	Why    string
}

// Build computes Output. A Service that is not wanted gets an empty State, so what it has is deleted. One that is not
// admitted, because whoever replaced it dropped our finalizer, keeps the ports that it has, and gets nothing new.
func Build(in Input) Output {
	var out Output
	if !in.Service.Wanted(in.Instance) {
		return out
	}
	for _, port := range in.Service.Ports {
		key := providers.Key{Namespace: in.Service.Namespace, Service: in.Service.Name, Port: port.Port, Protocol: port.Protocol}
		if !in.Service.Admitted && in.Current[key] == nil && in.CurrentVS[key] == nil {
			continue
		}
		supported := slices.Contains(in.Capabilities.Protocols, port.Protocol)
		out.Ports = append(out.Ports, Port{Key: key, Unsupported: !supported})
		if !supported {
			continue
		}
		b := builder{in: &in, key: key, port: port, current: in.Current[key]}
		out.State.Pools = append(out.State.Pools, b.build())
		out.Refusals = append(out.Refusals, b.refusals...)
		out.Wake = earlier(out.Wake, b.wake)
		if vs, ok := virtualServer(&in, key); ok {
			out.State.VirtualServers = append(out.State.VirtualServers, vs)
		}
	}
	slices.SortFunc(out.Ports, func(a, b Port) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(out.State.Pools, func(a, b providers.Pool) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(out.State.VirtualServers, func(a, b providers.VirtualServer) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(out.Refusals, compareRefusals)
	return out
}

// virtualServer keeps the one that is there while the assignment or the finalizer is missing: the Lease holder is about
// to restore them.
func virtualServer(in *Input, key providers.Key) (providers.VirtualServer, bool) {
	if vips := in.Service.VIPs[in.Instance]; in.Service.Admitted && len(vips) > 0 {
		return providers.VirtualServer{Key: key, VIPs: vips, Port: key.Port}, true
	}
	if vs := in.CurrentVS[key]; vs != nil {
		return *vs, true
	}
	return providers.VirtualServer{}, false
}

// builder builds one pool.
type builder struct {
	in       *Input
	key      providers.Key
	port     ServicePort
	current  *providers.Pool
	members  []providers.Member
	spare    []providers.Member // serving while terminating: better than an empty pool
	refusals []Refusal
	wake     time.Time
}

func (b *builder) build() providers.Pool {
	for _, e := range b.in.Endpoints {
		if !e.Pod.Finished {
			b.endpoint(e)
		}
	}
	b.fallBack()
	b.limit()
	slices.SortFunc(b.members, providers.CompareMembers)
	settings := b.in.Service.Wishes.Pool
	switch {
	case b.in.Service.Wishes.Kept.Pool && b.current != nil:
		settings = b.current.Settings
	case settings.Algorithm == "":
		settings.Algorithm = providers.RoundRobin
	}
	return providers.Pool{Key: b.key, Settings: settings, Members: b.members}
}

// endpoint enters the members of one Pod.
func (b *builder) endpoint(e Endpoint) {
	target, ok := b.target(e.Pod)
	if !ok {
		b.refuse(e.Pod, TargetPortUnresolved, "the Pod has no %s port named %q; name a port of a container or change targetPort",
			b.key.Protocol, b.port.TargetName)
		return
	}
	families := map[npl.Family]bool{}
	for _, m := range e.Pod.Mappings {
		if m.PodPort == target && m.Protocol == protocolOf(b.key.Protocol) && slices.Contains(b.in.Service.Families, m.Family) {
			families[m.Family] = true
			b.mapping(e, m)
		}
	}
	for _, w := range e.Pod.Withdrawn {
		if w.Mapping.PodPort == target && w.Mapping.Protocol == protocolOf(b.key.Protocol) && slices.Contains(b.in.Service.Families, w.Mapping.Family) {
			b.withdrawn(e, w)
		}
	}
	switch {
	case e.Pod.Malformed != "":
		b.refuse(e.Pod, MalformedAnnotation, "%s; its last good members, if any, stay", e.Pod.Malformed)
		b.keep(e, families)
	case len(families) == 0:
		b.refuse(e.Pod, NotPublished, "annotation %s has no %s mapping of Pod port %d for %s", npl.Annotation, b.key.Protocol,
			target, join(b.in.Service.Families))
	}
}

// target resolves targetPort in one Pod.
func (b *builder) target(p *Pod) (uint16, bool) {
	if b.port.TargetNumber != 0 {
		return b.port.TargetNumber, true
	}
	for _, port := range p.Ports {
		if port.Name == b.port.TargetName && port.Protocol == b.key.Protocol {
			return port.Number, true
		}
	}
	return 0, false
}

// mapping enters one mapping if it checks out.
func (b *builder) mapping(e Endpoint, m npl.Mapping) {
	member := providers.Member{UID: e.Pod.UID, Name: e.Pod.ID(), Address: addrPort(m)}
	switch {
	case e.Node == nil:
		// The Pod is still there, so losing sight of its Node is no reason to take it out; it is one not to let it in.
		if b.find(member.ID()) == nil {
			b.refuse(e.Pod, NodeUnknown, "Node %q or its addresses are not known, so %s cannot be checked", e.Pod.Node, member.Address)
			return
		}
	case !e.Node.Has(m.NodeIP):
		b.refuse(e.Pod, ForeignNodeAddress, "%s is not on an address of the Pod's Node %s (%s)", member.Address, e.Node.Name, join(e.Node.Addresses))
		return
	}
	if others := b.in.Claimants(Claim{member.Address, m.Protocol}, e.Pod.UID); len(others) > 0 {
		b.refuse(e.Pod, Contested, "%s is also claimed by %s, so neither is a member", member.Address, strings.Join(others, ", "))
		return
	}
	for _, o := range e.Pod.Mappings {
		if addrPort(o) == member.Address && o.Protocol == m.Protocol && o.PodPort != m.PodPort {
			b.refuse(e.Pod, Contested, "%s is published for the Pod's ports %d and %d at once", member.Address, m.PodPort, o.PodPort)
			return
		}
	}
	b.enter(e.Pod, member)
}

// withdrawn lets the member of a mapping that is no longer published drain. While its Pod is ready it is better than an empty pool.
func (b *builder) withdrawn(e Endpoint, w Withdrawal) {
	member := providers.Member{UID: e.Pod.UID, Name: e.Pod.ID(), Address: addrPort(w.Mapping)}
	deadline := w.At.Add(min(WithdrawGrace, b.in.DrainLimit))
	if b.find(member.ID()) == nil || !b.in.Now.Before(deadline) || e.Node != nil && !e.Node.Has(w.Mapping.NodeIP) ||
		len(b.in.Claimants(Claim{member.Address, w.Mapping.Protocol}, e.Pod.UID)) > 0 {
		return
	}
	if e.Pod.Ready {
		b.spare = append(b.spare, member)
		b.wake = earlier(b.wake, deadline)
	}
	b.drain(member, deadline)
}

// keep lets the members stay that the Pod had in families which its malformed annotation does not speak of.
func (b *builder) keep(e Endpoint, spoken map[npl.Family]bool) {
	if b.current == nil {
		return
	}
	for _, m := range b.current.Members {
		if m.UID != e.Pod.UID || spoken[npl.FamilyOf(m.Address.Addr())] {
			continue
		}
		if len(b.in.Claimants(Claim{m.Address, protocolOf(b.key.Protocol)}, e.Pod.UID)) == 0 {
			b.enter(e.Pod, providers.Member{UID: m.UID, Name: e.Pod.ID(), Address: m.Address})
		}
	}
}

// enter decides the state of a member that checks out, as the EndpointSlice controller and kube-proxy would.
func (b *builder) enter(p *Pod, m providers.Member) {
	if b.in.Service.PublishNotReady || p.Ready && !p.Terminating {
		m.State = providers.Enabled
		b.members = append(b.members, m)
		return
	}
	serving := p.Ready && p.Terminating
	if serving {
		b.spare = append(b.spare, m)
	}
	since := p.ReadyChanged
	if p.Terminating {
		since = p.Since
	}
	b.drain(m, since.Add(b.in.DrainLimit))
}

// drain lets a member end its connections, until the deadline.
func (b *builder) drain(m providers.Member, deadline time.Time) {
	current := b.find(m.ID())
	if current == nil {
		return // what takes no new connections has no reason to enter
	}
	status, known := b.in.Status[b.key][m.ID()]
	drained := current.State == providers.Draining && known && status.Connections == 0
	if drained || !b.in.Now.Before(deadline) {
		return
	}
	b.wake = earlier(b.wake, deadline)
	m.State = providers.Draining
	b.members = append(b.members, m)
}

// fallBack enables what still serves while it terminates when nothing else is enabled.
func (b *builder) fallBack() {
	enabled := func(m providers.Member) bool { return m.State == providers.Enabled }
	if len(b.spare) == 0 || slices.ContainsFunc(b.members, enabled) {
		return
	}
	for _, m := range b.spare {
		b.members = slices.DeleteFunc(b.members, func(o providers.Member) bool { return o.ID() == m.ID() })
		m.State = providers.Enabled
		b.members = append(b.members, m)
	}
}

// limit keeps a pool within the load balancer's limit; who is in stays in.
func (b *builder) limit() {
	most := b.in.Capabilities.MaxMembers
	if most == 0 || len(b.members) <= most {
		return
	}
	slices.SortFunc(b.members, func(x, y providers.Member) int {
		in, out := b.find(x.ID()) != nil, b.find(y.ID()) != nil
		switch {
		case in && !out:
			return -1
		case out && !in:
			return 1
		}
		return providers.CompareMembers(x, y)
	})
	for _, m := range b.members[most:] {
		b.refusals = append(b.refusals, Refusal{Key: b.key, Pod: m.Name, PodUID: m.UID, Reason: PoolFull,
			Message: fmt.Sprintf("%s finds no room, the pool has %d members, the most that %s takes", m.Address, most, b.in.Capabilities.Name)})
	}
	b.members = b.members[:most]
}

func (b *builder) find(id providers.MemberID) *providers.Member {
	if b.current == nil {
		return nil
	}
	for i := range b.current.Members {
		if b.current.Members[i].ID() == id {
			return &b.current.Members[i]
		}
	}
	return nil
}

func (b *builder) refuse(p *Pod, reason Reason, format string, args ...any) {
	if !p.Ready && !b.in.Service.PublishNotReady && reason.Passing() {
		return // nobody expects it in the pool yet
	}
	b.refusals = append(b.refusals, Refusal{Key: b.key, Pod: p.ID(), PodUID: p.UID, Reason: reason, Message: fmt.Sprintf(format, args...)})
}
