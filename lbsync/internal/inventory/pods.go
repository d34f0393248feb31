package inventory

import (
	"reflect"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// SetPod adds or replaces a Pod. A record that is equal to the one there costs nothing.
func (x *Index) SetPod(p *model.Pod, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setPod(p, now)
}

// setPod reports whether the Pod's readiness gate is news: it is not True, or was not.
func (x *Index) setPod(record *model.Pod, now time.Time) (gated bool) {
	key := PodKey{record.Namespace, record.Name}
	g, h := x.groups.of(record.Namespace, record.Labels), x.host(record.Node)
	record = sharing(record, g, h)
	p := x.pods[key]
	if p == nil {
		x.counts[pods]++
		p = &pod{Pod: record, group: g, host: h}
		x.pods[key] = p
		x.join(g, p)
		h.pods.add(p)
	} else {
		gated = p.Gated
		record = withdrawing(p.Pod, keepingWeight(p.Pod, record), now)
		if reflect.DeepEqual(p.Pod, record) {
			return gated
		}
		x.touchPod(p, now)
		x.move(p, g, h)
		delete(x.byUID, p.UID)
		p.Pod = record
	}
	delete(x.lost.at, p.UID)
	x.byUID[p.UID] = p
	h.malformed.is(p, p.Malformed != "")
	x.gated.is(p, p.Gated)
	x.claim(p, now)
	x.touchPod(p, now)
	return gated || p.Gated
}

// keepingWeight returns p with the weight of old if p says its own in words that cannot be read.
func keepingWeight(old, p *model.Pod) *model.Pod {
	if len(p.Problems) == 0 || old.UID != p.UID || old.Weight == p.Weight {
		return p
	}
	out := *p
	out.Weight = old.Weight
	return &out
}

// withdrawing returns the record that follows old, with what the annotation had until lately.
func withdrawing(old, p *model.Pod, now time.Time) *model.Pod {
	if old.UID != p.UID || old.Node != p.Node || p.Finished || p.Malformed != "" {
		return p
	}
	had := slices.Clone(old.Withdrawn)
	for _, m := range old.Mappings {
		had = append(had, model.Withdrawal{Mapping: m, At: now})
	}
	had = slices.DeleteFunc(had, func(w model.Withdrawal) bool {
		return slices.Contains(p.Mappings, w.Mapping) || now.Sub(w.At) >= model.WithdrawGrace
	})
	if len(had) == 0 {
		return p
	}
	out := *p
	out.Withdrawn = had
	return &out
}

// DeletePod removes a Pod. seen is false when it was only missing from a list.
func (x *Index) DeletePod(namespace, name string, seen bool, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.deletePod(PodKey{namespace, name}, seen, now)
}

// deletePod reports whether the Pod waited for its readiness gate.
func (x *Index) deletePod(key PodKey, seen bool, now time.Time) (gated bool) {
	p := x.pods[key]
	if p == nil {
		return false
	}
	x.touchPod(p, now)
	x.removePod(key, p, now)
	if !seen {
		x.lost.add(p.UID, now)
	}
	x.less(pods, seen)
	return p.Gated
}

func (x *Index) removePod(key PodKey, p *pod, now time.Time) {
	x.entitle(p, nil, now)
	delete(x.pods, key)
	delete(x.byUID, p.UID)
	delete(x.gated, p)
	x.leaveHost(p)
	x.leave(p.group, p)
}

// move takes a Pod to the group and the Node that it has now.
func (x *Index) move(p *pod, g *group, h *host) {
	if g != p.group {
		x.join(g, p)
		x.leave(p.group, p)
		p.group = g
	}
	if h != p.host {
		x.leaveHost(p)
		h.pods.add(p)
		p.host = h
	}
}

func (x *Index) leaveHost(p *pod) {
	h := p.host
	delete(h.pods, p)
	delete(h.malformed, p)
	if h.node == nil && len(h.pods) == 0 && h.goneAt.IsZero() {
		delete(x.hosts, h.name)
	}
}

// claim enters the Pod's node ports as they are now. Whoever keeps members on that Node by a malformed annotation is affected by new ones.
func (x *Index) claim(p *pod, now time.Time) {
	claims := model.Claims(p.Pod, p.host.known())
	if slices.Equal(claims, p.claims) {
		return
	}
	x.entitle(p, claims, now)
	if len(claims) == 0 {
		return
	}
	for other := range p.host.malformed {
		x.touchGroup(other.group, now)
	}
}

// entitle replaces the Pod's claims. Whoever else has one that it had not, or has no more, is affected.
func (x *Index) entitle(p *pod, claims []model.Claim, now time.Time) {
	before := p.claims
	p.claims = claims
	for _, c := range before {
		if !slices.Contains(claims, c) {
			x.claims.remove(c, p)
			x.touchClaimants(c, now) // one of them may just have become the only one
		}
	}
	for _, c := range claims {
		if !slices.Contains(before, c) {
			x.claims.add(c, p)
			x.touchClaimants(c, now)
		}
	}
}

func (x *Index) touchClaimants(c model.Claim, now time.Time) {
	for p := range x.claims.of(c) {
		x.touchPod(p, now)
	}
	for _, f := range x.feeds {
		f.touchAll(f.ofClaim[c], now)
	}
}
