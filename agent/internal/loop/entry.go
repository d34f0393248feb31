package loop

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/model"
)

// entry is a node port in use: from the moment it is given until its rule is off.
type entry struct {
	id  model.ID
	pod string // "namespace/name"
	// target is where it should lead; live is where the kernel's rule leads, invalid if there is none.
	target, live netip.AddrPort
	held         bool // we hold the socket
	phase        phase
	// off is when the rule of a withdrawing entry goes; zero until the annotation is known not to list it.
	off time.Time
}

// phase is what an entry is on the way to.
type phase string

const (
	serving     phase = "serving"
	withdrawing phase = "withdrawing" // its Pod lives, but nothing wants it: off the annotation, then grace; or its Pod is vanishing
	withdrawn   phase = "withdrawn"   // grace is over: off the kernel now
	gone        phase = "gone"        // its Pod, or the Pod's address, is no more: off the kernel now, with its connections
)

// ends reports whether the rule is to be removed in this pass.
func (e *entry) ends() bool { return e.phase == withdrawn || e.phase == gone }

// programmed reports whether the kernel leads to where it should.
func (e *entry) programmed() bool { return e.live.IsValid() && e.live == e.target }

func (l *Loop) keys() []model.Key { return slices.SortedFunc(maps.Keys(l.entries), model.Key.Compare) }

// classify decides for every entry what it is on the way to.
func (l *Loop) classify(now time.Time, v view) {
	for _, k := range l.keys() {
		e := l.entries[k]
		pod, live := v.pods[e.id.PodUID]
		ip, addressed := pod.IP(e.id.Family)
		if live && l.lingers(v, k, e, pod) {
			e.target, e.phase, e.off = e.live, withdrawing, time.Time{}
			continue
		}
		if !live || pod.Terminated || !addressed {
			e.phase = gone
			continue
		}
		e.pod = pod.String()
		e.target = netip.AddrPortFrom(ip, e.id.PodPort)
		current, _ := l.alloc.Current(e.id)
		want, wanted := v.wants[e.id]
		if wanted && want.HostPort == 0 && current == k {
			e.phase, e.off = serving, time.Time{}
			continue
		}
		e.phase = withdrawing
		switch {
		case v.listed[k][e.id.PodUID]: // still readable by anyone
			e.off = time.Time{}
		case l.watermarks != nil && l.confirmed(k): // no load balancer lists it any more
			e.off = now
		case e.off.IsZero():
			e.off = now.Add(l.settings.WithdrawGrace)
		}
		if !e.live.IsValid() || !e.off.IsZero() && !now.Before(e.off) {
			e.phase = withdrawn
		}
	}
}

// lingers reports whether the rule of a vanishing Pod stays until the Pod's object is gone. Its annotation stays that long, and
// what is published is programmed: the rule leads to an address where nobody answers any more. It goes before that only when it
// would harm: the address, or the node port as a host port, is another Pod's by now.
func (l *Loop) lingers(v view, k model.Key, e *entry, pod model.Pod) bool {
	ip, addressed := pod.IP(e.id.Family)
	return pod.Vanishing && v.listed[k][pod.UID] && addressed && e.live == netip.AddrPortFrom(ip, e.id.PodPort) && !v.used[ip] && l.alloc.Allowed(k)
}

// withdrawAt returns when the next withdrawing rule goes, or the zero time.
func (l *Loop) withdrawAt() (next time.Time) {
	for _, e := range l.entries {
		if e.phase == withdrawing {
			next = earlier(next, e.off)
		}
	}
	return next
}

// hold takes the sockets of serving ports that are not held yet. A port that another process holds keeps its rule: it is
// published, so it does not move; but people are told.
func (l *Loop) hold(refuse func(model.Refusal)) {
	for _, k := range l.keys() {
		e := l.entries[k]
		if e.phase != serving || e.held || !l.alloc.Allowed(k) {
			continue
		}
		if err := l.kernel.Reserve(dataplane.Key(k)); err != nil {
			refuse(model.Refusal{Reason: PortBusy, PodUID: e.id.PodUID, Pod: e.pod, Message: "node port " + keyName(k) + " of Pod " + e.pod +
				" stays, but its socket cannot be had (" + err.Error() + "): stop the process that listens there, or delete the Pod"})
			continue
		}
		e.held = true
	}
}
