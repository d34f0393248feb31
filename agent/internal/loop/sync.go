package loop

import (
	"errors"
	"fmt"
	"maps"
	"slices"
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
		l.report(now, v, err, err)
		return time.Time{}, err
	}
	l.keepCooling(now, v)
	l.alloc.Expire(now, func(model.Key) bool { return true })
	l.move(&v)
	l.classify(now, v)
	l.hold(v.refuse)
	waiting, err := l.allocate(&v)
	kernelErr := l.program(now)
	if l.remembered() {
		l.publisher.Set(l.desired(v))
		kernelErr = errors.Join(kernelErr, l.compare(now))
	}
	err = errors.Join(err, kernelErr)
	l.report(now, v, err, kernelErr)

	next := earlier(l.repaired.Add(l.settings.RepairInterval), l.withdrawAt())
	if waiting {
		next = earlier(next, l.nextFree())
	}
	if l.reread {
		next = earlier(next, now)
	}
	return next, err
}

// keepCooling prolongs the rest of freed ports that an annotation still lists: their withdrawal is not confirmed.
func (l *Loop) keepCooling(now time.Time, v view) {
	for k := range l.alloc.Cooling() {
		if len(v.listed[k]) > 0 {
			l.alloc.Cool(k, now.Add(l.settings.CoolDown))
		}
	}
}

func (l *Loop) nextFree() (next time.Time) {
	for _, until := range l.alloc.Cooling() {
		next = earlier(next, until)
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

// allocate gives ports to the mappings that have none: all that a Pod lacks, or none. It reports whether a Pod has to wait for
// ports that cool.
func (l *Loop) allocate(v *view) (waiting bool, err error) {
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
		waiting = true
		more, free := "1 more node port", "none"
		if n := len(lacking); n > 1 {
			more, free = fmt.Sprintf("%d more node ports", n), "not that many"
		}
		v.refuse(model.Refusal{Reason: PortsExhausted, PodUID: p.Pod.UID, Pod: p.Pod.String(), Message: fmt.Sprintf(
			"Pod %s needs %s, and portRange %d-%d has %s free: widen portRange, shorten coolDown, or wait for ports to cool down",
			p.Pod, more, l.settings.Range.First, l.settings.Range.Last, free)})
	}
	return waiting, err
}

// desired is what every Pod's annotation should say: the mappings the kernel has. While a mapping moves, its old port is
// listed until the new one is programmed.
func (l *Loop) desired(v view) []publish.Desired {
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
		d := publish.Desired{Pod: p.Pod, Leave: p.Pod.Vanishing} // a patch would come too late for many, and nobody balances to a finished Pod
		for _, w := range p.Wants {
			nodePort := w.HostPort
			if nodePort == 0 {
				nodePort = programmed[w.ID]
			}
			if nodePort != 0 {
				d.Mappings = append(d.Mappings, npl.Mapping{PodPort: w.ID.PodPort, NodeIP: w.NodeIP, NodePort: nodePort, Protocol: w.ID.Protocol, Family: w.ID.Family})
			}
		}
		out = append(out, d)
	}
	return out
}
