package model

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/annotations"
	"github.com/nplbridge/nplbridge/providers"
)

// lose notes which members would leave or drain although no event explains it, also those that stay for a while longer because nothing better
// is left. A member whose address another Pod claims is not among
// them: that Pod is the explanation, and nothing may hold the member.
func (b *builder) lose() {
	if b.current == nil || b.in.Service.Wishes.AllowRemoval {
		return
	}
	for _, m := range b.current.Members {
		id := m.ID()
		if wanted, stays := b.wanted[id]; stays && wanted.State == providers.Enabled && !b.onBorrowedTime[id] {
			continue
		}
		if why := b.unexplained(m); why != "" && len(b.claimants(id)) == 0 {
			b.losses = append(b.losses, Loss{Key: b.key, Member: id, Why: why})
		}
	}
}

// unexplained says why a member is lost, and "" where an event says so: its Pod or Node was deleted or is terminating, the Service was
// edited, or the Pod alone is not ready.
func (b *builder) unexplained(m providers.Member) string {
	if why := b.why[m.ID()]; why != "" {
		return why
	}
	e, selected := b.pods[m.UID]
	switch {
	case selected:
		return b.vanished(e, m)
	case b.in.Service.source() == annotations.ClusterIP || b.in.Fate == nil || b.in.Fate(m.UID) != Lost:
		return "" // a Pod's own address is soon another one's
	default:
		return fmt.Sprintf("what was at %s is missing from a list of the API server, and nobody saw it being deleted", m.Address)
	}
}

// vanished says that the mapping of a ready Pod is gone without another one, which is good, in its place.
func (b *builder) vanished(e Endpoint, m providers.Member) string {
	target, ok := b.target(e.Pod)
	family := npl.FamilyOf(m.Address.Addr())
	switch {
	case b.in.Service.source() != annotations.NodePortLocal, b.in.Service.Wishes.Enabled == annotations.Disabled:
		return "" // nobody wants it to be there
	case !ok, e.Pod.Finished, e.NodeGone, !b.standing(e).enabled, !slices.Contains(b.in.Service.Families, family):
		return ""
	}
	if _, former := b.formerStanding(m); former {
		return ""
	}
	for _, mapping := range e.Pod.Mappings {
		_, good := b.wanted[providers.MemberID{UID: m.UID, Address: addrPort(mapping)}]
		if addrPort(mapping) == m.Address || good && mapping.Family == family {
			return "" // the Service has another targetPort now, or the Pod another node port
		}
	}
	for _, w := range e.Pod.Withdrawn {
		if addrPort(w.Mapping) == m.Address && !b.leadsTo(w.Mapping, target) {
			return ""
		}
	}
	return fmt.Sprintf("annotation %s of Pod %s names %s no more", npl.Annotation, e.Pod.ID(), m.Address)
}

func compareLosses(a, b Loss) int {
	return cmp.Or(a.Key.Compare(b.Key), a.Member.Address.Compare(b.Member.Address), cmp.Compare(a.Member.UID, b.Member.UID))
}
