package inventory

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
)

// Member is one that a load balancer has for a Service.
type Member struct {
	UID   string // of its Pod
	Claim model.Claim
}

// followed is what Services follow that they do not select: Pods of members that they have on the load balancer, and who claims the address
// of such a member. Only the load balancer knows of them, so they are one Feed's, and told anew with each look at the Service.
type followed struct {
	by      map[model.ServiceKey]follower
	ofPod   map[string]set[model.ServiceKey] // by UID
	ofClaim map[model.Claim]set[model.ServiceKey]
}

// follower is one Service.
type follower struct {
	since  map[string]time.Time // it follows a Pod, by UID
	claims []model.Claim
}

func newFollowed() followed {
	return followed{by: map[model.ServiceKey]follower{}, ofPod: map[string]set[model.ServiceKey]{}, ofClaim: map[model.Claim]set[model.ServiceKey]{}}
}

// Follow is View for who knows which members the Service has on a load balancer. Those that are of live Pods which it does not select are in
// Deselected, and from now on, until the next call, what happens to such a Pod or its Node makes the Service dirty in this Feed, and so
// does who begins or ceases to claim the address of such a member. Both is one step, so nothing is missed in between.
func (f *Feed) Follow(key model.ServiceKey, members iter.Seq[Member], now time.Time) (v View, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.unfollow(key)
	v, ok = f.view(key)
	if s := f.services[key]; s == nil || !s.Ours() {
		return v, ok // nothing of it is to stay
	}
	next := follower{since: map[string]time.Time{}}
	for m := range members {
		p := f.byUID[m.UID]
		if p == nil {
			continue
		}
		if _, selected := p.group.services[f.services[key]]; selected {
			continue
		}
		next.claims = append(next.claims, m.Claim)
		put(f.ofClaim, m.Claim, key)
		if _, has := next.since[m.UID]; has {
			continue
		}
		since, was := before.since[m.UID]
		if !was {
			since = now
		}
		next.since[m.UID] = since
		put(f.ofPod, m.UID, key)
		v.Deselected = append(v.Deselected, model.Deselected{Endpoint: p.endpoint(), Since: since})
	}
	if len(next.claims) > 0 {
		f.by[key] = next
	}
	slices.SortFunc(v.Deselected, func(a, b model.Deselected) int { return cmp.Compare(a.Pod.Name, b.Pod.Name) })
	return v, ok
}

// unfollow takes out what a Service follows, and returns it.
func (f *followed) unfollow(key model.ServiceKey) (was follower) {
	was = f.by[key]
	for uid := range was.since {
		drop(f.ofPod, uid, key)
	}
	for _, c := range was.claims {
		drop(f.ofClaim, c, key)
	}
	delete(f.by, key)
	return was
}

// touchAll is called under the Index's lock.
func (f *Feed) touchAll(keys set[model.ServiceKey], now time.Time) {
	for key := range keys {
		f.touch(key, now)
	}
}
