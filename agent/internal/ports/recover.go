package ports

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// Found is what a starting agent finds: rules in the kernel, and annotations.
type Found struct {
	// Live are the rules in the kernel.
	Live map[model.Key]netip.AddrPort
	// Cooling are ports the kernel remembers as freed lately.
	Cooling map[model.Key]bool
	// Pods are the live Pods of this Node.
	Pods []FoundPod
}

// FoundPod is a live Pod as a starting agent finds it.
type FoundPod struct {
	UID       string
	IPs       []netip.Addr
	Wants     map[model.ID]bool // the mappings that need a port of ours
	Published []npl.Mapping     // as its annotation says, without its own host ports
}

// Recovered is who owns what.
type Recovered struct {
	// Owners of the ports in Found.Live and of those that only an annotation claims. Where one mapping has several, Current says
	// which is to be used.
	Owners  map[model.Key]model.ID
	Current map[model.ID]model.Key
	// Orphans are live ports without an owner: their Pod is gone, or nothing tells whose they are.
	Orphans []model.Key
	// Unproven are ports that annotations claim but that nobody was given: several Pods claim them, or they are not allowed, or the
	// mapping is not wanted or has another port. Somebody may still send them traffic.
	Unproven []model.Key
}

// Recover decides who owns the ports that are in use.
//
// The live map wins: a rule belongs to the Pod whose address it leads to, provided that Pod's annotation claims the port or
// no other Pod's does. If that address belongs to nobody, it belongs to the one Pod whose annotation claims it (the Pod got
// another address meanwhile). An annotation alone counts only where there is no rule, the port is allowed and not cooling, the mapping is
// wanted, and no other Pod claims the port.
func Recover(f Found, allowed func(model.Key) bool) Recovered {
	f.Pods = slices.Clone(f.Pods)
	slices.SortFunc(f.Pods, func(a, b FoundPod) int { return cmp.Compare(a.UID, b.UID) })
	r := recovery{Found: f, claims: claims(f.Pods), out: Recovered{Owners: map[model.Key]model.ID{}, Current: map[model.ID]model.Key{}}}
	r.live()
	r.annotated(allowed)
	return r.out
}

type recovery struct {
	Found
	claims map[model.Key][]model.ID // by annotation, in the order of Pod UIDs
	out    Recovered
}

func claims(pods []FoundPod) map[model.Key][]model.ID {
	out := map[model.Key][]model.ID{}
	for _, p := range pods {
		for _, m := range p.Published {
			k := model.Key{Protocol: m.Protocol, Family: m.Family, NodePort: m.NodePort}
			out[k] = append(out[k], model.ID{PodUID: p.UID, PodPort: m.PodPort, Protocol: m.Protocol, Family: m.Family})
		}
	}
	return out
}

func (r *recovery) live() {
	// Claimed rules go first, so that of two rules to one Pod port the published one becomes current.
	var unclaimed []model.Key
	for _, k := range slices.SortedFunc(maps.Keys(r.Live), model.Key.Compare) {
		id, claimed, ok := r.ownerOfLive(k, r.Live[k])
		switch {
		case !ok:
			r.out.Orphans = append(r.out.Orphans, k)
		case claimed:
			r.own(k, id)
		default:
			unclaimed = append(unclaimed, k)
			r.out.Owners[k] = id
		}
	}
	for _, k := range unclaimed {
		r.own(k, r.out.Owners[k])
	}
}

func (r *recovery) own(k model.Key, id model.ID) {
	r.out.Owners[k] = id
	if _, ok := r.out.Current[id]; !ok {
		r.out.Current[id] = k
	}
}

func (r *recovery) ownerOfLive(k model.Key, target netip.AddrPort) (id model.ID, claimed, ok bool) {
	claims := r.claims[k]
	var wanted, found []model.ID // by Pods with that address; several only where Pods share the Node's
	for _, p := range r.Pods {
		if !slices.Contains(p.IPs, target.Addr()) {
			continue
		}
		id := model.ID{PodUID: p.UID, PodPort: target.Port(), Protocol: k.Protocol, Family: k.Family}
		if slices.Contains(claims, id) {
			return id, true, true
		}
		if p.Wants[id] {
			wanted = append(wanted, id)
		} else {
			found = append(found, id)
		}
	}
	found = append(wanted, found...)
	switch {
	case len(found) > 0 && len(claims) == 0:
		return found[0], false, true
	case len(found) == 0 && len(claims) == 1 && claims[0].PodPort == target.Port():
		return claims[0], true, true
	default:
		return model.ID{}, false, false
	}
}

func (r *recovery) annotated(allowed func(model.Key) bool) {
	wanted := map[model.ID]bool{}
	for _, p := range r.Pods {
		maps.Copy(wanted, p.Wants)
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.claims), model.Key.Compare) {
		if _, live := r.Live[k]; live {
			continue
		}
		id := r.claims[k][0]
		if _, has := r.out.Current[id]; has || !wanted[id] || !allowed(k) || r.Cooling[k] || len(r.claims[k]) > 1 {
			r.out.Unproven = append(r.out.Unproven, k)
			continue
		}
		r.own(k, id)
	}
}
