package loop

import (
	"fmt"
	"net/netip"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// view is one pass's reading of the world, arranged for look-up.
type view struct {
	model model.Model
	pods  map[string]model.Pod // live and annotated ones by UID
	wants map[model.ID]model.Want
	used  map[netip.Addr]bool // the addresses of Pods that have not terminated
	// listed has the UIDs of the Pods whose annotations list a node port. While one does, somebody may send it traffic.
	listed   map[model.Key]map[string]bool
	refusals []model.Refusal
	// published is what anyone may read in a Pod's annotation, by UID; versions since when, also of Pods that are not in the model.
	published map[string][]npl.Mapping
	versions  map[string]string
	version   string // all of this is at least as old
}

func (l *Loop) look() view {
	arrivals, deletions := l.inventory.Arrivals(), l.inventory.Deletions() // first: what they tell is in the rest, too
	pods := l.inventory.Pods()
	m := model.Build(model.Input{
		Node:           l.inventory.Node(),
		Pods:           pods,
		Services:       l.inventory.Services(),
		Addresses:      l.settings.Addresses,
		IPFamilies:     l.settings.IPFamilies,
		KernelFamilies: l.kernel.Families(),
	})
	v := view{
		model: m, pods: map[string]model.Pod{}, wants: map[model.ID]model.Want{}, used: map[netip.Addr]bool{}, listed: map[model.Key]map[string]bool{}, refusals: m.Refusals,
		published: map[string][]npl.Mapping{}, versions: map[string]string{}, version: l.inventory.Version(),
	}
	for _, p := range pods {
		v.versions[p.UID] = p.ResourceVersion
	}
	for _, p := range m.Pods {
		v.pods[p.Pod.UID] = p.Pod
		for _, ip := range p.Pod.IPs {
			if !p.Pod.Terminated {
				v.used[ip] = true
			}
		}
		for _, w := range p.Wants {
			v.wants[w.ID] = w
		}
		published, err := l.publisher.Published(p.Pod)
		if err != nil {
			v.refuse(model.Refusal{Reason: AnnotationUnreadable, PodUID: p.Pod.UID, Pod: p.Pod.String(), Message: fmt.Sprintf("Pod %s: %v; it is replaced by what is true", p.Pod, err)})
		}
		v.published[p.Pod.UID], v.versions[p.Pod.UID] = published, l.publisher.Since(p.Pod)
		for _, m := range published {
			k := model.Key{Protocol: m.Protocol, Family: m.Family, NodePort: m.NodePort}
			if v.listed[k] == nil {
				v.listed[k] = map[string]bool{}
			}
			v.listed[k][p.Pod.UID] = true
		}
		if err := l.publisher.Failure(p.Pod.UID); err != nil {
			v.refuse(model.Refusal{Reason: PublishFailed, PodUID: p.Pod.UID, Pod: p.Pod.String(), Message: err.Error()})
		}
	}
	for uid, at := range arrivals {
		if _, known := l.arrived[uid]; !known {
			l.arrived[uid] = at
		}
	}
	l.heed(v, deletions)
	return v
}

// heed learns what was withdrawn, and what the load balancers say about it.
func (l *Loop) heed(v view, deletions map[string]string) {
	if l.watermarks == nil {
		return
	}
	if l.withdrawals.first == "" {
		l.withdrawals.first = v.version
	}
	l.withdrawals.marks, l.withdrawals.unknown = l.watermarks.Marks()
	l.withdrawals.observe(v, deletions)
}

func (v *view) refuse(r model.Refusal) { v.refusals = append(v.refusals, r) }

func keyName(k model.Key) string { return fmt.Sprintf("%d/%s (%s)", k.NodePort, k.Protocol, k.Family) }

// listedByOther reports whether the annotation of a Pod other than uid lists k.
func (v *view) listedByOther(k model.Key, uid string) bool {
	for other := range v.listed[k] {
		if other != uid {
			return true
		}
	}
	return false
}
