package loop

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/internal/ports"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// readKernel makes sure that we know what the kernel holds: before anything else after a start, and again whenever that became
// uncertain.
func (l *Loop) readKernel(now time.Time, v view) error {
	switch {
	case !l.adopted:
		return l.adopt(now, v)
	case l.reread:
		return l.readAgain(now)
	default:
		return nil
	}
}

// adopt takes over what an earlier process left in the kernel and in the annotations, before anything new is served.
func (l *Loop) adopt(now time.Time, v view) error {
	snapshot, err := l.load()
	if err != nil {
		return err
	}
	l.fresh = snapshot.Fresh
	found := ports.Found{Live: recast(snapshot.Mappings), Cooling: map[model.Key]bool{}}
	for k, left := range snapshot.Cooling {
		found.Cooling[model.Key(k)] = true
		l.withdrawals.remembered(now, model.Key(k), left)
		if left > l.settings.CoolDown { // it was for an agent that needed confirmation, or there was another coolDown
			left = l.settings.CoolDown
			if l.watermarks == nil {
				l.recool[model.Key(k)] = now.Add(max(left, leastRest))
			}
		}
		l.alloc.Cool(model.Key(k), now.Add(left))
	}
	served := false // whether this Node has had node ports before
	for _, p := range v.model.Pods {
		if p.Pod.Terminated { // that it was this Pod's rule, and not its successor's at the same address, is not known for sure
			continue
		}
		f := ports.FoundPod{UID: p.Pod.UID, IPs: p.Pod.IPs, Wants: map[model.ID]bool{}}
		for _, w := range p.Wants {
			if w.HostPort == 0 {
				f.Wants[w.ID] = true
			}
		}
		published, _ := l.publisher.Published(p.Pod) // what cannot be read claims nothing; look reports it
		f.Published = slices.DeleteFunc(slices.Clone(published), func(m npl.Mapping) bool {
			return slices.ContainsFunc(p.Pod.Ports, func(c model.ContainerPort) bool { return c.HostPort == m.NodePort && c.Protocol == m.Protocol })
		})
		served = served || len(f.Published) > 0
		found.Pods = append(found.Pods, f)
	}

	got := ports.Recover(found, l.alloc.Allowed)
	for id, k := range got.Current {
		l.take(k, id, v.pods[id.PodUID], found)
	}
	for k, id := range got.Owners {
		l.take(k, id, v.pods[id.PodUID], found)
	}
	for _, k := range got.Orphans {
		l.orphan(k, found.Live[k])
	}
	rest := now.Add(l.settings.CoolDown)
	for _, k := range got.Unproven {
		l.alloc.Cool(k, rest)
		l.recool[k] = rest
	}
	if snapshot.Fresh && (served || l.somebodyBalances()) {
		l.coolUnclaimed(rest)
	}
	l.log.Info("adopted what an earlier process left", zap.Int("nodePorts", len(got.Owners)), zap.Int("orphans", len(got.Orphans)),
		zap.Int("cooling", len(l.alloc.Cooling())), zap.Bool("freshKernel", snapshot.Fresh))
	l.adopted = true
	return nil
}

// somebodyBalances reports whether a load balancer may list ports of a Node that has no annotated Pod. A watermark is there before its
// load balancer lists anything.
func (l *Loop) somebodyBalances() bool {
	return l.watermarks != nil && (l.withdrawals.unknown != nil || len(l.withdrawals.marks) > 0)
}

func (l *Loop) take(k model.Key, id model.ID, pod model.Pod, found ports.Found) {
	if l.entries[k] != nil {
		return
	}
	if err := l.alloc.Adopt(k, id); err != nil { // Recover names one owner for each port
		panic("loop: " + err.Error())
	}
	l.entries[k] = &entry{id: id, pod: pod.String(), live: found.Live[k]}
}

// coolUnclaimed makes every port rest that nobody owns. The memory of freed ports was in the tables, and they are gone: the Node
// was rebooted, or somebody flushed the ruleset. On a Node that has never had node ports there is nothing to remember, so it is not
// called there.
func (l *Loop) coolUnclaimed(until time.Time) {
	for _, p := range []npl.Protocol{npl.TCP, npl.UDP, npl.SCTP} {
		for _, f := range l.kernel.Families() {
			for n := range l.settings.Range.Size() {
				k := model.Key{Protocol: p, Family: f, NodePort: l.settings.Range.First + uint16(n)}
				if l.entries[k] == nil {
					l.alloc.Cool(k, until)
					l.recool[k] = until
				}
			}
		}
	}
}

func recast[V any](in map[dataplane.Key]V) map[model.Key]V {
	out := make(map[model.Key]V, len(in))
	for k, v := range in {
		out[model.Key(k)] = v
	}
	return out
}
