package loop

import (
	"fmt"
	"net/netip"

	"github.com/nplbridge/nplbridge/agent/internal/model"
)

// The reasons this package refuses for; package model has the others.
const (
	// PortsExhausted: no free node port is left for everything the Pod needs. It gets them as soon as they are free.
	PortsExhausted model.Reason = "PortsExhausted"
	// PortBusy: another process holds a port that is in use for a Pod already.
	PortBusy model.Reason = "PortBusy"
	// PortTaken: a Pod came with a host port that is in use for another Pod, and there is no other port to move that one to.
	PortTaken model.Reason = "PortTaken"
	// AnnotationUnreadable: somebody wrote junk into the annotation. It is replaced.
	AnnotationUnreadable model.Reason = "AnnotationUnreadable"
	// PublishFailed: the API server refuses the annotation. It is tried again.
	PublishFailed model.Reason = "PublishFailed"
)

// Reasons are all reasons for which something can be refused.
func Reasons() []model.Reason {
	return []model.Reason{
		model.ServiceTypeUnsupported, model.TargetPortUnknown, model.PodAddressMissing, model.NodeAddressMissing, model.FamilyUnsupported,
		PortsExhausted, PortBusy, PortTaken, AnnotationUnreadable, PublishFailed,
	}
}

// view is one pass's reading of the world, arranged for look-up.
type view struct {
	model model.Model
	pods  map[string]model.Pod // live and annotated ones by UID
	wants map[model.ID]model.Want
	used  map[netip.Addr]bool // the addresses of Pods that have not terminated
	// listed has the UIDs of the Pods whose annotations list a node port. While one does, somebody may send it traffic.
	listed   map[model.Key]map[string]bool
	refusals []model.Refusal
}

func (l *Loop) look() view {
	m := model.Build(model.Input{
		Node:           l.inventory.Node(),
		Pods:           l.inventory.Pods(),
		Services:       l.inventory.Services(),
		Addresses:      l.settings.Addresses,
		IPFamilies:     l.settings.IPFamilies,
		KernelFamilies: l.kernel.Families(),
	})
	v := view{model: m, pods: map[string]model.Pod{}, wants: map[model.ID]model.Want{}, used: map[netip.Addr]bool{}, listed: map[model.Key]map[string]bool{}, refusals: m.Refusals}
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
	return v
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
