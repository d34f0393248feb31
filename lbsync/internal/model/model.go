package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

// Input is one Service with everything that decides about its pools on one load balancer. Functions must not block; a nil one, like any
// other zero value, knows of nothing.
type Input struct {
	Instance  string // of the provider
	Service   Service
	Endpoints []Endpoint // the Pods it selects
	// Deselected are Pods that it does not select, and that members of its current pools belong to. What happens to them must have it built again.
	Deselected []Deselected
	Nodes      []*Node // all there are; only read where Nodes are members

	// Claimants returns the Pods, as "namespace/name", other than the one with podUID, that rightfully claim c.
	Claimants func(c Claim, podUID string) []string
	// Occupants returns the pools that have, for another Pod than the one with podUID, a member at an address. Nil is none.
	Occupants func(address netip.AddrPort, protocol providers.Protocol, podUID string) []providers.Key
	// Fate says what became of a Pod that the Service does not select.
	Fate func(uid string) Fate
	// PortRange is where node ports are taken from. A Pod's mapping outside is good only if the Pod declares that host port.
	PortRange PortRange
	// NodeSelector are labels of the Nodes that may be members.
	NodeSelector map[string]string
	// OnNode is nil where Services are served at addresses of their own only.
	OnNode *OnNode

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
	// Reason is set where it is not served for another reason than that the load balancer cannot.
	Reason PortReason
	// Attached is the pool of somebody else that the members are put into.
	Attached string
}

// Loss is a member of the current pool that would leave or drain although no event explains it.
type Loss struct {
	Key    providers.Key
	Member providers.MemberID
	Why    string
}

// Build computes Output. A Service that is not wanted gets an empty State, so what it has is deleted. One that is not admitted, because
// whoever replaced it dropped our finalizer, keeps the ports that it has, and gets nothing new. One whose structure cannot be read keeps
// what it has, see keepFrozen.
func Build(in Input) Output {
	var out Output
	switch {
	case in.Service.frozen():
		out = keepFrozen(&in)
	case in.Service.Wanted(in.Instance):
		for _, port := range in.Service.Ports {
			serve(&in, port, &out)
		}
	}
	slices.SortFunc(out.Ports, func(a, b Port) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(out.State.Pools, func(a, b providers.Pool) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(out.State.VirtualServers, func(a, b providers.VirtualServer) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(out.Refusals, compareRefusals)
	slices.SortFunc(out.Losses, compareLosses)
	return out
}

// serve adds one port to the output: what of it can be had, and why the rest cannot.
func serve(in *Input, port ServicePort, out *Output) {
	key := in.Service.key(port)
	attached, here := in.Service.attachment(in.Instance, port)
	if !here || !in.Service.Admitted && in.Current[key] == nil && in.CurrentVS[key] == nil {
		return
	}
	b := newBuilder(in, port, in.Current[key], attached)
	settings, virtual, served := b.settings()
	var reason PortReason
	if served {
		reason = b.refusePort()
		served = reason == ""
	}
	if served {
		pool := providers.Pool{Key: key, Attached: attached, Settings: settings, Members: b.build()}
		out.State.Pools = append(out.State.Pools, pool)
		if vs, ok := b.virtualServer(virtual); ok {
			out.State.VirtualServers = append(out.State.VirtualServers, vs)
		}
	}
	out.Ports = append(out.Ports, Port{Key: key, Unsupported: !served, Cannot: strings.Join(b.cannot, "; "), Reason: reason, Attached: attached})
	b.report(out)
}

// builder builds one pool.
type builder struct {
	in       *Input
	key      providers.Key
	port     ServicePort
	attached string
	limit    time.Duration                           // of drains
	current  *providers.Pool                         // nil when there is none, or another than the attached one
	there    map[providers.MemberID]providers.Member // of current
	pods     map[string]Endpoint                     // by UID

	wanted map[providers.MemberID]providers.Member
	spoken map[providers.MemberID]bool    // what the present source has decided about, one way or the other
	spares [spareKinds][]providers.Member // better than an empty pool
	// onBorrowedTime are enabled for that reason, until a time that is set already.
	onBorrowedTime map[providers.MemberID]bool

	why map[providers.MemberID]string // why a member would leave or drain, where no event explains it

	serving int  // Pods that answer
	pending bool // a ready Pod waits for what is expected to come by itself

	cannot   []string
	refusals []Refusal
	losses   []Loss
	wake     time.Time
	watch    bool
}

func newBuilder(in *Input, port ServicePort, current *providers.Pool, attached string) *builder {
	b := &builder{
		in: in, key: in.Service.key(port), port: port, attached: attached, limit: in.DrainLimit,
		pods:   make(map[string]Endpoint, len(in.Endpoints)),
		wanted: make(map[providers.MemberID]providers.Member, len(in.Endpoints)),
		spoken: make(map[providers.MemberID]bool, len(in.Endpoints)),
		why:    map[providers.MemberID]string{}, onBorrowedTime: map[providers.MemberID]bool{},
	}
	if limit := in.Service.Wishes.DrainLimit; limit != nil {
		b.limit = *limit
	}
	for _, e := range in.Endpoints {
		b.pods[e.Pod.UID] = e
	}
	switch {
	case current == nil:
	case current.Attached == attached:
		b.current, b.there = current, make(map[providers.MemberID]providers.Member, len(current.Members))
		for _, m := range current.Members {
			b.there[m.ID()] = m
		}
	default:
		b.soon(beat) // the other pool is left first
	}
	return b
}

// beat is how long what is to be acknowledged by the load balancer may take before it is worth looking whether it was.
const beat = time.Second

// soon asks to be built again.
func (b *builder) soon(in time.Duration) { b.wake = earlier(b.wake, b.in.Now.Add(in)) }

// build returns the members, sorted.
func (b *builder) build() []providers.Member {
	if b.in.Service.source() == annotations.NodePort {
		b.nodes()
	} else {
		b.endpoints()
	}
	b.former()
	b.deselected()
	b.fallBack()
	b.lose()
	return b.fit(b.unique())
}

func (b *builder) report(out *Output) {
	out.Refusals = append(out.Refusals, b.refusals...)
	out.Losses = append(out.Losses, b.losses...)
	out.Wake = earlier(out.Wake, b.wake)
	out.Watch = out.Watch || b.watch
}

// refuse notes why a Pod is not a member. Nobody expects a Pod that is not ready in the pool yet.
func (b *builder) refuse(p *Pod, reason Reason, format string, args ...any) {
	if reason.Passing() {
		if !b.podStanding(p).enabled {
			return
		}
		b.pending = b.pending || reason != NodeGone
	}
	b.refusals = append(b.refusals, Refusal{Key: b.key, Pod: p.ID(), PodUID: p.UID, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// note adds a clause to what cannot be done.
func (b *builder) note(format string, args ...any) {
	b.cannot = append(b.cannot, fmt.Sprintf(format, args...))
}

// claimants returns who else rightfully claims an address.
func (b *builder) claimants(m providers.MemberID) []string {
	if b.in.Claimants == nil {
		return nil
	}
	return b.in.Claimants(Claim{m.Address, protocolOf(b.key.Protocol)}, m.UID)
}
