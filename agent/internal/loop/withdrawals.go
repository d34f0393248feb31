package loop

import (
	"maps"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/watermark"
)

// memory is how long the kernel remembers a freed port that needs confirmation: longer than any agent should be down. The kernel
// is told when the port is free, and again in good time before it forgets.
const memory = 30 * 24 * time.Hour

// stillListed is what a port waits for first of all.
const stillListed = "the annotation that lists it"

// withdrawals knows since which resourceVersion nobody has listed a node port, and so whether every load balancer has let go of it.
// Only with Settings.Confirmed is any of it needed.
type withdrawals struct {
	// first is the version at which this process first read the world: what nobody lists since then was withdrawn before.
	first string
	// at has the version of the latest withdrawal that this process has seen.
	at map[model.Key]string
	// listed has the UIDs of Pods that list a port, and of those that no longer do, but it is not known yet since which version.
	listed map[model.Key]map[string]bool
	// deleted has the versions of deletions that the Pods read do not show yet.
	deleted map[string]string
	// kernel is until when the kernel remembers freed ports.
	kernel map[model.Key]time.Time
	// marks is what the load balancers say in this pass; unknown is why that cannot be known.
	marks   []watermark.Watermark
	unknown error
}

func newWithdrawals() withdrawals {
	return withdrawals{at: map[model.Key]string{}, listed: map[model.Key]map[string]bool{}, deleted: map[string]string{}, kernel: map[model.Key]time.Time{}}
}

// observe takes note of what is no longer listed. A deletion says the version it happened at; so does the answer to our patch. Where
// neither is known yet, the port counts as listed: the event that tells is on its way.
func (w *withdrawals) observe(v view, deletions map[string]string) {
	maps.Copy(w.deleted, deletions)
	listed := map[model.Key]map[string]bool{}
	for k, uids := range v.listed {
		listed[k] = maps.Clone(uids)
	}
	for k, uids := range w.listed {
		for uid := range uids {
			if listed[k][uid] {
				continue
			}
			version, exists := v.versions[uid]
			if !exists {
				version = w.deleted[uid]
			}
			if version == "" {
				if listed[k] == nil {
					listed[k] = map[string]bool{}
				}
				listed[k][uid] = true
				continue
			}
			if c, ok := watermark.CompareVersions(version, w.at[k]); !ok || c > 0 {
				w.at[k] = version
			}
		}
	}
	w.listed = listed
	maps.DeleteFunc(w.deleted, func(uid, _ string) bool { _, exists := v.versions[uid]; return !exists })
}

// prune forgets the ports that nobody has, lists or waits for.
func (l *Loop) prune() {
	cooling := l.alloc.Cooling()
	maps.DeleteFunc(l.withdrawals.at, func(k model.Key, _ string) bool {
		_, cools := cooling[k]
		return !cools && l.entries[k] == nil && len(l.withdrawals.listed[k]) == 0
	})
}

// waitingFor names what keeps a withdrawn node port from being given to another Pod, apart from time; it is empty if nothing does.
func (l *Loop) waitingFor(k model.Key) []string {
	if l.watermarks == nil {
		return nil
	}
	w := &l.withdrawals
	switch {
	case len(w.listed[k]) > 0:
		return []string{stillListed}
	case w.unknown != nil:
		return []string{w.unknown.Error()}
	}
	at, known := w.at[k]
	if !known {
		at = w.first
	}
	port := watermark.NodePort{Node: l.inventory.Node().Name, Protocol: string(k.Protocol), Family: string(k.Family), Port: k.NodePort}
	_, waitingFor := watermark.Confirmed(w.marks, port, at)
	return waitingFor
}

func (l *Loop) confirmed(k model.Key) bool { return len(l.waitingFor(k)) == 0 }

// blockers names what the Pods wait for that lack a port of one of the mappings while some are only not confirmed. It is empty where
// no such port is left.
func (l *Loop) blockers(now time.Time, lacking []model.ID) []string {
	if l.watermarks == nil {
		return nil
	}
	var out []string
	for k, until := range l.alloc.Cooling() {
		if now.Before(until) || !l.alloc.Allowed(k) {
			continue
		}
		if slices.ContainsFunc(lacking, func(id model.ID) bool { return id.Protocol == k.Protocol && id.Family == k.Family }) {
			out = append(out, l.waitingFor(k)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// rest is how long the kernel remembers a port that is freed now.
func (l *Loop) rest() time.Duration {
	if l.watermarks == nil {
		return l.settings.CoolDown
	}
	return memory
}

// remember arranges for the kernel to know of exactly the ports that cool, however long that takes, and of those that are listed without
// a rule of ours, which are host ports: they must outlive this process. Time alone never frees one of them.
func (l *Loop) remember(now time.Time) {
	if l.watermarks == nil {
		return
	}
	resting := map[model.Key]bool{}
	for k := range l.alloc.Cooling() {
		resting[k] = true
	}
	for k := range l.withdrawals.listed {
		if l.entries[k] == nil && l.settings.Range.Contains(k.NodePort) {
			resting[k] = true
		}
	}
	for k := range resting {
		if l.withdrawals.kernel[k].Sub(now) < memory/2 {
			l.recool[k] = now.Add(memory)
		}
	}
	for k := range l.withdrawals.kernel {
		if !resting[k] && l.entries[k] == nil {
			l.recool[k] = now.Add(leastRest) // it is free
		}
	}
}

// remembered keeps account of what the kernel was told about one port.
func (w *withdrawals) remembered(now time.Time, k model.Key, rest time.Duration) {
	if rest <= leastRest {
		delete(w.kernel, k)
		return
	}
	w.kernel[k] = now.Add(rest)
}
