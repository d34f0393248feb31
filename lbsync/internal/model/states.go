package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// spare is why a member that takes no new connections is still better than an empty pool: the best first. noSpare is not.
type spare int

const (
	onDrainingNode   spare = iota // ready, on a Node that is being drained
	whileTerminating              // serving while it terminates
	onUnreadyNode                 // ready, as far as its Node could still say
	ofFormerSource                // works, and the Service gets its members elsewhere now
	ofWithdrawn                   // ready, but its mapping is no longer published
	ofDeselected                  // ready, but the Service does not select its Pod any more
	spareKinds
	noSpare = spareKinds
)

// standing is what the state of a Pod and its Node makes of a member.
type standing struct {
	enabled bool
	// Of a member that is not enabled:
	spare spare
	until time.Time // the end of its drain; zero is when it has no connections
	why   string    // set when no event explains it, see Output.Losses
}

// podStanding judges a Pod as the EndpointSlice controller does, and a terminating one as kube-proxy:
//
//	Pod          terminating   publishNotReadyAddresses   here
//	ready        no            any                        enabled
//	not ready    no            no                         drains, from when it was ready
//	ready        yes           no                         drains, from when deletion was asked for; enabled when nothing else is
//	not ready    yes           no                         drains, from when deletion was asked for
//	any          any           yes                        enabled
//
// A Pod in phase Succeeded or Failed is no endpoint at all.
func (b *builder) podStanding(p *Pod) standing {
	switch {
	case b.in.Service.PublishNotReady || p.Ready && !p.Terminating:
		return standing{enabled: true}
	case p.Terminating && p.Ready:
		return standing{spare: whileTerminating, until: p.Since.Add(b.limit)}
	case p.Terminating:
		return standing{spare: noSpare, until: p.Since.Add(b.limit)}
	default:
		return standing{spare: noSpare, until: p.ReadyChanged.Add(b.limit)}
	}
}

// standing judges a Pod on its Node. A Node that is not ready takes its Pods along, unless the Service wants them ready or not.
func (b *builder) standing(e Endpoint) standing {
	s := b.podStanding(e.Pod)
	switch {
	case e.Node == nil || e.Pod.Terminating && !s.enabled:
		return s
	case !s.enabled:
		if b.together(e) {
			s.why = fmt.Sprintf("Pod %s lost its readiness together with its Node %s", e.Pod.ID(), e.Node.Name)
		}
		return s
	case b.in.Service.PublishNotReady && !e.Node.Draining:
		return s
	}
	return b.nodeStanding(e.Node)
}

// recovery is how long after its Node a Pod may take to be ready again: the kubelet writes the Node first.
const recovery = time.Minute

// together reports whether a Pod lost its readiness when its Node did, and not on its own.
func (b *builder) together(e Endpoint) bool {
	if e.Node.NotReady {
		return !e.Pod.ReadyChanged.Before(e.Node.ReadyChanged)
	}
	end := e.Node.ReadyChanged.Add(recovery)
	if !e.Pod.ReadyChanged.Before(e.Node.ReadyChanged) || !b.in.Now.Before(end) {
		return false
	}
	b.wake = earlier(b.wake, end)
	return true
}

// nodeStanding judges a Node on which there is something to lead to.
func (b *builder) nodeStanding(n *Node) standing {
	switch {
	case n.NotReady:
		return standing{spare: onUnreadyNode, until: n.ReadyChanged.Add(b.limit), why: fmt.Sprintf("Node %s is not ready", n.Name)}
	case n.Draining:
		return standing{spare: onDrainingNode}
	}
	return standing{enabled: true}
}

// enter gives a member that checks out the state that its standing calls for.
func (b *builder) enter(m providers.Member, s standing) {
	if s.enabled {
		b.want(m, providers.Enabled)
		return
	}
	if s.why != "" {
		b.why[m.ID()] = s.why
	}
	if s.spare != noSpare {
		b.spares[s.spare] = append(b.spares[s.spare], m)
	}
	b.drain(m, s.until)
}

// drain lets a member end its connections, until the deadline if there is one.
func (b *builder) drain(m providers.Member, until time.Time) {
	current, is := b.there[m.ID()]
	if !is {
		return // what takes no new connections has no reason to enter
	}
	status, known := b.in.Status[b.key][m.ID()]
	drained := current.State == providers.Draining && known && status.Connections == 0
	if drained || !until.IsZero() && !b.in.Now.Before(until) {
		return
	}
	if !until.IsZero() {
		b.wake = earlier(b.wake, until)
	}
	b.want(m, providers.Draining)
}

// undated returns the end of a drain that nothing in Kubernetes dates; zero while it is not known when it began.
func (b *builder) undated(id providers.MemberID) (until time.Time) {
	if b.in.DrainingSince == nil {
		return until
	}
	if since := b.in.DrainingSince(b.key, id); !since.IsZero() {
		until = since.Add(b.limit)
	}
	return until
}

func (b *builder) want(m providers.Member, state providers.MemberState) {
	m.State = state
	b.wanted[m.ID()] = m
}

// fallBack enables the best of what still serves when nothing else is enabled.
func (b *builder) fallBack() {
	for _, m := range b.wanted {
		if m.State == providers.Enabled {
			return
		}
	}
	for kind, members := range b.spares {
		if len(members) > 0 {
			for _, m := range members {
				b.want(m, providers.Enabled)
				b.onBorrowedTime[m.ID()] = spare(kind) == ofWithdrawn
			}
			return
		}
	}
}

// unique returns the wanted members, sorted, one for each address. Only Pods' own addresses can be there twice: a Pod that is about to be
// gone may have lost its address to the next one already.
func (b *builder) unique() []providers.Member {
	out := make([]providers.Member, 0, len(b.wanted))
	for _, m := range b.wanted {
		out = append(out, m)
	}
	slices.SortFunc(out, func(x, y providers.Member) int {
		if order := x.Address.Compare(y.Address); order != 0 {
			return order // which it nearly always is
		}
		return cmp.Or(idle(x)-idle(y), b.newcomer(x)-b.newcomer(y), cmp.Compare(x.UID, y.UID))
	})
	return slices.CompactFunc(out, func(x, y providers.Member) bool { return x.Address == y.Address })
}

// idle is 1 for a member that takes no new connections, else 0.
func idle(m providers.Member) int {
	if m.State == providers.Enabled {
		return 0
	}
	return 1
}

// newcomer is 1 for a member that is not in the pool yet, else 0.
func (b *builder) newcomer(m providers.Member) int {
	if _, is := b.there[m.ID()]; is {
		return 0
	}
	return 1
}

// fit keeps a pool within the load balancer's limit. Who is in stays in, unless he only drains and somebody waits who would serve. Members
// that a guard may hold keep their room until they are gone, all but the last room.
func (b *builder) fit(members []providers.Member) []providers.Member {
	most := b.in.Capabilities.MaxMembers
	if most == 0 {
		return members
	}
	room := most
	b.losses = slices.DeleteFunc(b.losses, func(l Loss) bool {
		_, stays := b.wanted[l.Member]
		if !stays && room > 1 {
			room--
			return false
		}
		return !stays
	})
	if len(members) <= room {
		return members
	}
	slices.SortFunc(members, func(x, y providers.Member) int {
		return cmp.Or(idle(x)-idle(y), b.newcomer(x)-b.newcomer(y), providers.CompareMembers(x, y))
	})
	for _, m := range members[room:] {
		b.full(m)
	}
	members = members[:room]
	slices.SortFunc(members, providers.CompareMembers)
	return members
}

// full says that a member that would serve finds no room.
func (b *builder) full(m providers.Member) {
	if m.State != providers.Enabled {
		return
	}
	message := fmt.Sprintf("%s finds no room, the pool has %d members, the most that %s takes; run fewer Pods behind this Service, or spread them over several",
		m.Address, b.in.Capabilities.MaxMembers, b.in.Capabilities.Name)
	if e, is := b.pods[m.UID]; is {
		b.refuse(e.Pod, PoolFull, "%s", message)
	} else {
		b.note("Node %s: %s", m.Name, message)
	}
}
