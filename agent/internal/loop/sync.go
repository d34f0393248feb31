package loop

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/internal/ports"
	"github.com/nplbridge/nplbridge/agent/internal/publish"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// Sync makes one pass and returns when the next one is due even if nothing changes. After an error part of the pass may have
// been done; what was not is done by the next.
func (l *Loop) Sync() (next time.Time, err error) {
	began := l.clock.Now()
	next, err = l.sync(began)
	l.metrics.observe(l.clock.Since(began), err)
	return next, err
}

func (l *Loop) sync(now time.Time) (time.Time, error) {
	v := l.look()
	rest := now.Add(l.settings.CoolDown)
	for _, k := range l.alloc.Exclude(slices.Collect(maps.Keys(v.model.HostPorts)), rest) { // published while it was a host port
		l.recool[k] = rest
	}
	if err := l.readKernel(now, v); err != nil {
		l.report(now, v, nil, err, err)
		return time.Time{}, err
	}
	l.keepCooling(now, v)
	l.alloc.Expire(now, l.confirmed)
	l.prune()
	l.move(&v)
	l.classify(now, v)
	l.hold(v.refuse)
	missing, err := l.allocate(now, &v)
	l.remember(now)
	cooling := len(l.alloc.Cooling())
	kernelErr := l.program(now)
	if held := l.held(); len(held) == 0 || !l.fresh {
		l.publisher.Set(l.desired(v, held))
		kernelErr = errors.Join(kernelErr, l.compare(now))
	}
	err = errors.Join(err, kernelErr)
	l.report(now, v, missing, err, kernelErr)

	next := earlier(l.repaired.Add(l.settings.RepairInterval), l.withdrawAt())
	if len(missing) > 0 {
		next = earlier(next, l.nextFree(now))
	}
	if l.reread || len(missing) > 0 && len(l.alloc.Cooling()) > cooling { // what was freed after allocating may serve somebody, or explain
		next = earlier(next, now)
	}
	return next, err
}

// keepCooling prolongs the rest of freed ports that an annotation still lists: their withdrawal has not begun. A port that was free and is
// listed all the same, whoever wrote that, rests in the same way: somebody may send it traffic for that Pod.
func (l *Loop) keepCooling(now time.Time, v view) {
	cooling, rest := l.alloc.Cooling(), now.Add(l.settings.CoolDown)
	for k := range v.listed {
		_, cools := cooling[k]
		if l.entries[k] != nil || !cools && !l.alloc.Allowed(k) {
			continue
		}
		l.alloc.Cool(k, rest)
		if !cools {
			l.recool[k] = rest
		}
	}
}

// nextFree returns when the next cooling port may be free, or the zero time. One that waits for a watermark is freed by its arrival.
func (l *Loop) nextFree(now time.Time) (next time.Time) {
	for _, until := range l.alloc.Cooling() {
		if now.Before(until) {
			next = earlier(next, until)
		}
	}
	return next
}

// probe takes ports from the operating system for one Pod. A failure that is not about the port itself ends up in *failed, and no
// further port is tried.
func (l *Loop) probe(v *view, podUID string, failed *error) ports.Probe {
	return ports.Probe{
		Try: func(k model.Key) bool {
			if *failed != nil || v.listedByOther(k, podUID) {
				return false
			}
			err := l.kernel.Reserve(dataplane.Key(k))
			if err != nil && !errors.Is(err, dataplane.ErrPortBusy) {
				*failed = fmt.Errorf("reserving node port %s: %w", keyName(k), err)
				l.metrics.Errors.WithLabelValues(ErrorSocket).Inc()
			}
			return err == nil
		},
		Undo: func(k model.Key) { l.kernel.Release(dataplane.Key(k)) },
	}
}

// move gives another port to whoever has one that is no longer allowed: outside the range, or taken by a Pod's host port; or one whose
// number differs from that of its other protocols, where it should not. The old rule stays until the new one is published.
func (l *Loop) move(v *view) {
	for _, k := range l.keys() {
		e := l.entries[k]
		want, wanted := v.wants[e.id]
		if current, _ := l.alloc.Current(e.id); current != k || !wanted || want.HostPort != 0 || l.alloc.Settled(e.id) {
			continue
		}
		why := "differs from that of the Pod port's other protocols, against sameNodePortPerProtocol"
		if !l.alloc.Allowed(k) {
			why = "is outside portRange or a host port of another Pod"
		}
		if e.held && !l.alloc.Allowed(k) { // the Pod with the host port may want to listen there
			l.kernel.Release(dataplane.Key(k))
			e.held = false
		}
		var failed error
		if !l.alloc.Move(e.id, l.probe(v, e.id.PodUID, &failed)) {
			v.refuse(model.Refusal{Reason: PortTaken, PodUID: e.id.PodUID, Pod: e.pod, Message: fmt.Sprintf(
				"node port %s of Pod %s %s, and no other is free: widen portRange, or move a Pod elsewhere", keyName(k), e.pod, why)})
			continue
		}
		to, _ := l.alloc.Current(e.id)
		l.entries[to] = &entry{id: e.id, pod: e.pod, held: true, phase: serving}
		l.log.Info("moving a Pod to another node port", l.fields(k, e)...)
	}
}

// allocate gives ports to the mappings that have none: all that a Pod lacks, or none. It returns the mappings for which there is no
// port.
func (l *Loop) allocate(now time.Time, v *view) (missing []model.ID, err error) {
	for _, p := range v.model.Pods {
		var lacking []model.ID
		for _, w := range p.Wants {
			if _, has := l.alloc.Current(w.ID); !has && w.HostPort == 0 {
				lacking = append(lacking, w.ID)
			}
		}
		if len(lacking) == 0 {
			continue
		}
		var failed error
		if l.alloc.Allocate(lacking, l.probe(v, p.Pod.UID, &failed)) {
			for _, id := range lacking {
				k, _ := l.alloc.Current(id)
				delete(l.recool, k)
				l.entries[k] = &entry{id: id, pod: p.Pod.String(), target: v.wants[id].Target, held: true, phase: serving}
			}
			continue
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("Pod %s: %w", p.Pod, failed))
			continue
		}
		missing = append(missing, lacking...)
		v.refuse(l.exhausted(p.Pod, len(lacking), l.blockers(now, lacking)))
	}
	return missing, err
}

// exhausted says that there are not enough node ports for a Pod, and what the ports wait for that are left.
func (l *Loop) exhausted(pod model.Pod, lacking int, blockers []string) model.Refusal {
	more, free := "1 more node port", "none"
	if lacking > 1 {
		more, free = fmt.Sprintf("%d more node ports", lacking), "not that many"
	}
	r := model.Refusal{Reason: PortsExhausted, PodUID: pod.UID, Pod: pod.String(), Message: fmt.Sprintf("Pod %s needs %s, and portRange %d-%d has %s free",
		pod, more, l.settings.Range.First, l.settings.Range.Last, free)}
	if len(blockers) == 0 {
		r.Message += ": widen portRange, shorten coolDown, or wait for ports to cool down"
		return r
	}
	r.Reason = PortsUnconfirmed
	r.Message += "; others have cooled down, but a load balancer may still list them: waiting for " + strings.Join(blockers, ", ") +
		"; see that this lbsync runs and reaches its load balancer, or retire it if it is gone for good"
	return r
}

// desired is what every Pod's annotation should say: the mappings the kernel has. While a mapping moves, its old port is
// listed until the new one is programmed. An annotation that lists a held port stays as it is.
func (l *Loop) desired(v view, held map[model.Key]bool) []publish.Desired {
	programmed := map[model.ID]uint16{}
	for _, k := range l.keys() {
		e := l.entries[k]
		if !e.programmed() || e.ends() {
			continue
		}
		if current, _ := l.alloc.Current(e.id); current == k || programmed[e.id] == 0 {
			programmed[e.id] = k.NodePort
		}
	}
	out := make([]publish.Desired, 0, len(v.model.Pods))
	for _, p := range v.model.Pods {
		d := publish.Desired{Pod: p.Pod, Since: l.arrived[p.Pod.UID], Leave: p.Pod.Vanishing} // a patch would come too late for many, and nobody balances to a finished Pod
		d.Leave = d.Leave || slices.ContainsFunc(v.published[p.Pod.UID], func(m npl.Mapping) bool {
			return held[model.Key{Protocol: m.Protocol, Family: m.Family, NodePort: m.NodePort}]
		})
		for _, w := range p.Wants {
			nodePort := w.HostPort
			if nodePort == 0 {
				nodePort = programmed[w.ID]
			}
			if nodePort != 0 {
				d.Mappings = append(d.Mappings, npl.Mapping{PodPort: w.ID.PodPort, NodeIP: w.NodeIP, NodePort: nodePort, Protocol: w.ID.Protocol, Family: w.ID.Family})
			}
		}
		d.Complete = len(d.Mappings) == len(p.Wants) && len(p.Wants) > 0
		if len(d.Mappings) == len(p.Wants) && npl.Equal(d.Mappings, v.published[p.Pod.UID]) {
			delete(l.arrived, p.Pod.UID) // it has what it needs
		}
		out = append(out, d)
	}
	maps.DeleteFunc(l.arrived, func(uid string, _ time.Time) bool { _, known := v.pods[uid]; return !known })
	return out
}
